//! `eyrie-image checkpoint`: asks the program's supervisor.

use crate::args::Checkpoint;
use crate::protocol::{self, Answer, Request};
use crate::supervise::describe;
use crate::{Failure, find, home, print};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::os::unix::net::UnixStream;

pub fn checkpoint(args: &Checkpoint) -> Result<i32, Failure> {
    let entry = find::running(&home::home()?, &args.target)?;
    // The supervisor may have another working folder.
    let output = args.output.as_ref().map(std::path::absolute).transpose()?;
    let gone = || format!("{} does not answer: has it ended?", entry.name);
    let folder = File::open(&entry.path).with_context(gone)?;
    let socket = UnixStream::connect(home::socket_path(&folder)).with_context(gone)?;
    protocol::send(&socket, &Request { output, way: args.way }).with_context(gone)?;
    match protocol::receive(&socket).with_context(gone)? {
        Answer::Written(written) if args.json => {
            print(&(serde_json::to_string_pretty(&written)? + "\n"));
        }
        Answer::Written(written) => print(&(describe(&written) + "\n")),
        Answer::Failed(why) => return Err(anyhow!(why).into()),
    }
    Ok(0)
}
