//! `eyrie`: arguments in, exit code out. The work is done in the modules and in the node daemon.

mod args;
mod console;
mod image;
mod info;
mod launch;
mod remote;
mod replay;
mod show;
mod units;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// Exit code of wrong arguments.
const USAGE: i32 = 2;
/// Exit code when Eyrie itself could not do its part.
const FAILED: i32 = 1;

/// An error with the exit code it ends the command with.
pub struct Failure {
    code: i32,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure { code: FAILED, error: error.into() }
    }
}

impl Failure {
    fn new(code: i32, error: impl Into<anyhow::Error>) -> Self {
        Failure { code, error: error.into() }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(usage(&error) as u8),
    };
    let code = dispatch(cli.command).unwrap_or_else(|failure| {
        eprintln!("eyrie: {}", told(&failure.error));
        failure.code
    });
    ExitCode::from((code & 0xff) as u8)
}

/// An error with its causes, each told once: some tell theirs themselves.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| match cause.to_string() {
        cause if text.contains(&cause) => text,
        cause if text.is_empty() => cause,
        cause => format!("{text}: {cause}"),
    })
}

/// Help and version as they are; every mistake as one line with its remedy.
fn usage(error: &clap::Error) -> i32 {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                return USAGE;
            }
            0
        }
        _ => {
            let text = error.to_string();
            let told: Vec<&str> = text
                .lines()
                .map(str::trim)
                .take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"))
                .filter(|l| !l.is_empty())
                .collect();
            let line = told.join(" ");
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            eprintln!("eyrie: {line} (see `eyrie --help`)");
            USAGE
        }
    }
}

fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Run(run) => launch::run(&run),
        Command::Verify(verify) => launch::verify(&verify),
        Command::Ps(ps) => remote::ps(&ps),
        Command::Status(status) => remote::status(&status),
        Command::Checkpoint(checkpoint) => remote::checkpoint(&checkpoint),
        Command::Inject(inject) => remote::inject(&inject),
        Command::Abort(abort) => remote::abort(&abort),
        Command::Events(events) => remote::events(&events),
        Command::Replay(replay) => replay::replay(&replay),
        Command::Info(info) => info::info(&info),
        Command::Image(image) => image::image(&image),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "eyrie", &mut out);
            show::print(&String::from_utf8_lossy(&out));
            Ok(0)
        }
        Command::Node(node) => launch::node(node),
        Command::Member => launch::member(),
    }
}
