//! `eyrie-image checkpoint`: asks the program's supervisor, or takes the image of a process that
//! has none.

use crate::args::{Checkpoint, OrphansMode, Way};
use crate::find::Running;
use crate::home::Entry;
use crate::protocol::{self, Answer, Request, Written};
use crate::supervise::describe;
use crate::take::Manner;
use crate::{find, home, program, take};
use anyhow::{Context, anyhow, bail};
use eyrie_image::{DEFAULT_FILES_LIMIT_BYTES, FreezeError, OwnPids, Tracker, Tracking};
use eyrie_terminal::{Failure, Progress, print};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub fn checkpoint(args: &Checkpoint) -> Result<i32, Failure> {
    let taken = taken(args);
    if let Some(said) = &args.said {
        say_end(said, taken.as_ref().err())?;
    }
    Ok(taken?)
}

/// Has the program itself hear how it ended: the file is there with all of its text, or not at all.
fn say_end(said: &Path, failure: Option<&anyhow::Error>) -> anyhow::Result<()> {
    let text = failure.map_or_else(|| String::from("ok"), |failure| format!("{failure:#}"));
    let mut beside = said.as_os_str().to_os_string();
    beside.push(".new");
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    Ok(fs::rename(&beside, said)?)
}

fn taken(args: &Checkpoint) -> anyhow::Result<i32> {
    // The supervisor may have another working folder.
    let output = args.output.as_ref().map(std::path::absolute).transpose()?;
    let running = find::running(&home::home()?, &args.target)?;
    // Nobody knows how much there will be: most of it may be unchanged.
    let progress = Progress::working("the image is being written", args.quiet);
    let written = match running {
        Running::Supervised(entry) => ask(&entry, output, args.way)?,
        Running::Foreign(pid) => foreign(pid, output, args.way)?,
    };
    drop(progress);
    if args.json {
        print(&(serde_json::to_string_pretty(&written)? + "\n"));
    } else {
        print(&(describe(&written) + "\n"));
    }
    Ok(0)
}

fn ask(entry: &Entry, output: Option<PathBuf>, way: Way) -> anyhow::Result<Written> {
    let gone = || format!("{} does not answer: has it ended?", entry.name);
    let folder = File::open(&entry.path).with_context(gone)?;
    let socket = UnixStream::connect(home::socket_path(&folder)).with_context(gone)?;
    protocol::send(&socket, &Request { output, way }).with_context(gone)?;
    match protocol::receive(&socket).with_context(gone)? {
        Answer::Written(written) => Ok(written),
        Answer::Failed(why) => bail!(why),
    }
}

/// The image of a process that others started, as far as the kernel lets us trace it.
fn foreign(pid: libc::pid_t, output: Option<PathBuf>, way: Way) -> anyhow::Result<Written> {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = program::short_name(OsStr::from_bytes(comm.trim_ascii_end()));
    let path = output.unwrap_or_else(|| format!("{name}.{pid}{}", home::SUFFIX).into());
    let mut tracker = Tracker::new(Tracking::Off);
    let (orphans, files_limit) = (OrphansMode::Leave, DEFAULT_FILES_LIMIT_BYTES);
    let own_pids = OwnPids::chosen(None);
    let manner = Manner { orphans, files: None, files_limit, own_pids };
    take::take(pid, &std::path::absolute(path)?, way, manner, &mut tracker).map_err(|error| {
        match error.downcast_ref() {
            Some(FreezeError::NotPermitted) => anyhow!(
                "the kernel does not permit tracing process {pid}: start the program with \
                 `eyrie-image run`, or ask as the one who may trace it"
            ),
            _ => error,
        }
    })
}
