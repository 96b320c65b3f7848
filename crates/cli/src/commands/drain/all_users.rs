//! `eyrie drain all HOST --all-users`: machines leave the jobs of all users.

use crate::commands::drain::args::{self, Drain};
use crate::commands::drain::every_job;
use crate::commands::drain::watch::tell_how_to_cancel;
use crate::messages::say;
use crate::show::text::plain;
use crate::users::{UserHome, lines, user_homes};
use eyrie_terminal::{FAILED, Failure, print, print_line};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::thread;

/// The words of `eyrie drain all` for one user.
fn words(args: &Drain) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["drain", "--json"].map(OsString::from).to_vec();
    if args.cancel {
        words.push("--cancel".into());
    }
    words.extend(args.to.iter().map(|to| format!("--to={to}").into()));
    words.extend(args.deadline.map(|ms| format!("--deadline={ms}ms").into()));
    words.push("--".into());
    words.push(args::ALL.into());
    words.extend(args.nodes.iter().map(OsString::from));
    words
}

/// Machines leave the jobs of all users. The exit code is that of the worst.
pub fn drain(args: &Drain) -> Result<i32, Failure> {
    every_job::check(&args.nodes)?;
    let user_homes = user_homes("drain all HOST")?;
    if !args.cancel {
        tell_how_to_cancel(&format!("--all-users {}", args::ALL), &args.nodes)?;
    }
    let (words, json) = (words(args), args.json);
    let ended = thread::scope(|scope| {
        let words = &words[..];
        let ask = |place| scope.spawn(move || follow(place, words, json));
        let asked: Vec<_> = user_homes.iter().map(ask).collect();
        asked.into_iter().map(|one| one.join().unwrap_or((FAILED, 0))).collect::<Vec<_>>()
    });
    let told: u64 = ended.iter().map(|(_, told)| told).sum();
    let code = ended.into_iter().fold(0, |worst, (code, _)| worst.max(code));
    if told == 0 && code == 0 && !json {
        print(&format!("no user's job has a node that is named {}\n", args.nodes.join(" or ")));
    }
    Ok(code)
}

/// Asks one user's jobs, and tells what they say. Returns the exit code, and how much was told.
fn follow(place: &UserHome, words: &[OsString], json: bool) -> (i32, u64) {
    let failed = |why: String| {
        say(&format!("user {}: {}", place.user, plain(&why)));
        (FAILED, 0)
    };
    let mut child = match place.ask(words) {
        Ok(child) => child,
        Err(error) => return failed(format!("{error:#}")),
    };
    let told_errors = place.pass_on(&mut child);
    let mut told = 0;
    if let Some(out) = child.stdout.take() {
        lines(out, |line| {
            told += 1;
            tell(place, line, json);
        });
    }
    let status = child.wait();
    told_errors.into_iter().for_each(|thread| drop(thread.join()));
    match status.map(|status| status.code()) {
        Ok(Some(code)) => (code, told),
        Ok(None) => failed("its eyrie was killed".into()),
        Err(error) => failed(error.to_string()),
    }
}

fn tell(place: &UserHome, line: &str, as_json: bool) {
    let Ok(Value::Object(mut fields)) = serde_json::from_str::<Value>(line) else { return };
    if as_json {
        fields.insert("user".into(), json!(place.user));
        fields.insert("uid".into(), json!(place.home.uid));
        // What was read as JSON can be written as such.
        let _ = print_line(&fields);
        return;
    }
    let word = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => plain(text),
        Some(Value::Null) | None => String::new(),
        Some(other) => plain(&other.to_string()),
    };
    let step = if fields.contains_key("cancelled") { "they stay".into() } else { word("step") };
    let text = word("text");
    let more = if text.is_empty() { text } else { format!(": {text}") };
    let node =
        if fields.contains_key("node") { format!(", node {}", word("node")) } else { "".into() };
    print(&format!("user {}, job {}{node}: {step}{more}\n", place.user, word("job")));
}
