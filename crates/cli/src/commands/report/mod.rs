//! `eyrie report`: a job's whole course, as text, as one page for a browser, as a trace, as JSON.
//!
//! Kept true: a page needs nothing from elsewhere, and what a program, a user or a host named is
//! text in it, never markup; nothing is drawn of which there are no data.

pub mod args;
mod charts;
mod gather;
mod html;
mod page;
mod recovery;
mod rows;
mod text;
mod timeline;
mod trace;

use crate::commands::report::args::{Report, STDOUT};
use crate::messages::say;
use anyhow::Context;
use eyrie_terminal::{Failure, print};
use std::fs;

pub fn report(args: &Report) -> Result<i32, Failure> {
    let told = gather::gather(&args.job)?;
    if args.json {
        print(&(serde_json::to_string(&told)? + "\n"));
        return Ok(0);
    }
    if let Some(file) = &args.output {
        let own = format!("{}.html", told.job);
        write(if file.is_empty() { &own } else { file }, &page::page(&told))?;
    }
    if let Some(file) = &args.trace {
        write(file, &trace::trace(&told))?;
    }
    if args.output.is_none() && args.trace.is_none() {
        print(&text::text(&told));
    }
    Ok(0)
}

fn write(file: &str, text: &str) -> Result<(), Failure> {
    if file == STDOUT {
        print(text);
        return Ok(());
    }
    fs::write(file, text).with_context(|| format!("cannot write {file}"))?;
    say(&format!("written: {file}"));
    Ok(())
}
