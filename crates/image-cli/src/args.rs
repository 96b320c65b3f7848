//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use eyrie_image::{Files, Mode, OwnPids};
use eyrie_terminal::units::{parse_interval, parse_limit};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

/// Checkpoints and restarts programs that do not use MPI.
#[derive(Debug, Parser)]
#[command(name = "eyrie-image", version, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    eyrie-image run --every 60 ./simulate 5000    run it, with a checkpoint every minute\n  \
    eyrie-image checkpoint last                   a checkpoint now\n  \
    eyrie-image restart last                      go on from the newest checkpoint\n  \
    eyrie-image list                              what runs, and what can be restarted\n\n\
    State lives under $EYRIE_HOME/images (default ~/.eyrie/images). Programs that use MPI are run\n\
    with `eyrie run`.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program so that it can be checkpointed
    Run(Run),
    /// Write an image of a running program
    Checkpoint(Checkpoint),
    /// Turn an image back into a running program
    Restart(Restart),
    /// List the programs that run, and those that were killed and can be restarted
    List(List),
    /// Print a completion script for a shell
    Completions(eyrie_terminal::Completions),
    /// Write manual pages
    Manual(eyrie_terminal::Manual),
}

/// When images are taken, and where they lie.
#[derive(Debug, Clone, Args)]
pub struct Keeping {
    /// Keep the images in this folder; without it they lie under $EYRIE_HOME and go when the
    /// program ends by itself
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Time between two checkpoints (seconds, or with unit: 500ms, 10m); without it only on request
    #[arg(long, value_name = "SECS", value_parser = parse_interval)]
    pub every: Option<u64>,
    /// How many images are kept; older ones are removed, except for those that they build on
    #[arg(long, value_name = "N", default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub keep: u32,
    /// Tell on standard error about every checkpoint
    #[arg(short, long)]
    pub verbose: bool,
    /// What becomes of a checkpoint when the program has started processes which nobody waits for
    /// (daemons): they cannot be part of it
    #[arg(long, value_enum, default_value = "refuse", value_name = "HOW")]
    pub orphans: OrphansMode,
    /// What becomes, at a restart, of files that the program writes to and that are not as they
    /// were when the image was taken: written to, renamed, removed [default: auto; of a restart:
    /// as before]
    #[arg(long, value_enum, value_name = "HOW")]
    pub files: Option<FilesMode>,
    /// Store what files hold that are open for writing, up to this size each (four times as much in
    /// all), so that a restart can put them back; 0: nothing of files
    #[arg(long, value_name = "SIZE", value_parser = parse_limit, default_value = "64M")]
    pub files_limit: u64,
    /// A user and PID namespace of the program's own, where it can be given the numbers of
    /// processes and threads that it had: at a restart by a user who may not choose numbers
    /// otherwise (auto), from the start (yes), or never (no). In it other users, root too, are
    /// shown as nobody, and setuid programs (sudo, ping) have no rights. Where the kernel refuses
    /// it to a user without the right, there is no checkpoint of a program with child processes
    /// [default: EYRIE_OWN_PIDS, or auto]
    #[arg(long, value_name = "WHEN", value_parser = OwnPids::WORDS)]
    pub own_pids: Option<String>,
    #[command(flatten)]
    pub way: Way,
}

impl Keeping {
    /// When the program gets numbers of its own.
    pub fn own_pids(&self) -> OwnPids {
        OwnPids::chosen(self.own_pids.as_deref())
    }
}

/// What becomes of files that are not as they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FilesMode {
    /// Put back where the image has what they held and nobody else writes to them; the others are
    /// named
    Auto,
    /// Left as they are, and named
    Warn,
    /// The restart is refused, and nothing is changed
    Refuse,
    /// Put back; the restart is refused if one cannot be
    Restore,
}

impl FilesMode {
    /// For the library.
    pub fn mode(self) -> Files {
        match self {
            FilesMode::Auto => Files::Auto,
            FilesMode::Warn => Files::Warn,
            FilesMode::Refuse => Files::Refuse,
            FilesMode::Restore => Files::Restore,
        }
    }
}

/// What becomes of a checkpoint of a program that has left processes behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrphansMode {
    /// There is none as long as they live, and it is said which they are
    Refuse,
    /// They are left out: a program that is restarted finds itself without them
    Leave,
}

/// How an image is taken.
#[derive(Debug, Clone, Copy, Default, Args, serde::Serialize, serde::Deserialize)]
pub struct Way {
    /// Store all memory, not only what has changed since the last image in the same folder
    #[arg(long)]
    pub full: bool,
    /// Copy what has changed while the program stands still, if it is not too much
    #[arg(long, group = "freeze")]
    pub copy: bool,
    /// Make a copy-on-write twin of the program (by default the cheaper of the two is done)
    #[arg(long, group = "freeze")]
    pub twin: bool,
    /// Let the program stand still until its image is written
    #[arg(long, group = "freeze")]
    pub sync: bool,
}

impl Way {
    /// How the content is kept from the freeze on.
    pub fn mode(self) -> Mode {
        match self {
            Way { sync: true, .. } => Mode::Sync,
            Way { copy: true, .. } => Mode::Copy,
            Way { twin: true, .. } => Mode::Twin,
            _ => Mode::from_env(),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie-image run ./simulate 5000\n  \
    eyrie-image run --dir images --every 60 -- python3 train.py --steps 900\n\n\
    Signals are passed on to the program; the exit code is its own (128 + signal if one killed\n\
    it). It inherits no descriptors but its standard streams, and dies with this command. Without\n\
    --dir its images are removed when it ends by itself or by Ctrl-C. If anything else ends it\n\
    (SIGTERM of a batch system, a lost terminal, a kill), they stay, and it is said where and how\n\
    `restart` goes on. All exit codes: docs/reference/exit-codes.md.")]
pub struct Run {
    #[command(flatten)]
    pub keeping: Keeping,
    /// The program and its arguments
    #[arg(value_names = ["PROGRAM", "ARGS"], trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie-image checkpoint last\n  \
    eyrie-image checkpoint 4711 -o before-the-upgrade.img\n\n\
    An image stores what has changed since the one before in the same folder, and needs that one\n\
    beside it; with -o and with --full it stores everything, and of child processes always.\n\
    Prints where it lies, its size, how long the program stood still and how long all took.")]
pub struct Checkpoint {
    /// The program: its process number, its name in `eyrie-image list`, its folder of images, or
    /// `last`. A process that was not started by eyrie-image is taken too, if it may be traced
    #[arg(value_name = "PID|NAME|DIR")]
    pub target: OsString,
    /// Where the image shall lie
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub way: Way,
    /// Do not show how long it takes
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Where to say how it ended, for the program itself (libeyrie_image)
    #[arg(long, hide = true, value_name = "FILE")]
    pub said: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    eyrie-image restart last\n  \
    eyrie-image restart before-the-upgrade.img\n  \
    eyrie-image restart --every 60 --dir images images\n  \
    eyrie-image restart --map-address 10.0.0.7=10.0.0.9 /shared/images\n\n\
    Standard streams that were a pipe or a terminal are those of this command; files are opened\n\
    again where they were. Of a folder the newest image that is whole is taken.")]
pub struct Restart {
    #[command(flatten)]
    pub keeping: Keeping,
    /// Let the program run as soon as the memory that it needs first is there; all of it within
    /// this time (seconds, or with unit), if the storage permits. Where the kernel does not permit
    /// it, all memory is read first (-v tells why)
    #[arg(long, value_name = "SECS", value_parser = parse_interval)]
    pub lazy: Option<u64>,
    /// A processor feature (as /proc/cpuinfo names it) that this machine may lack, although the
    /// program seems to use it
    #[arg(long, value_name = "NAME")]
    pub ignore_feature: Vec<String>,
    /// On another node: sockets that had the IP address OLD get NEW (as often as needed). The file
    /// that EYRIE_IMAGE_RULES names may have more of such rules, one a line
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_mapping)]
    pub map_address: Vec<(IpAddr, IpAddr)>,
    /// What becomes of what the program appended to a file after the image was taken, and appends
    /// again: where it is left it is there twice. What others had open for writing when the image
    /// was taken is never cut
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub appended: AppendedMode,
    /// The image, a folder of images, a name in `eyrie-image list`, or `last`
    #[arg(value_name = "FILE|DIR|NAME")]
    pub image: OsString,
}

/// What becomes of what the program appended to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AppendedMode {
    /// Cut off where the kernel says that nobody else has the file open for writing; it does not
    /// on NFS, Lustre and most of FUSE
    Auto,
    /// Cut off: no other process writes to files that the program appends to
    Cut,
    /// Left there
    Keep,
}

/// `OLD=NEW`: two IP addresses of one kind.
pub fn parse_mapping(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let wrong = || format!("'{text}' is no rule: write for example 10.0.0.7=10.0.0.9");
    let (old, new) = text.split_once('=').ok_or_else(wrong)?;
    let (old, new): (IpAddr, IpAddr) =
        (old.parse().map_err(|_| wrong())?, new.parse().map_err(|_| wrong())?);
    if old.is_ipv4() != new.is_ipv4() {
        return Err(format!("'{text}' maps one kind of address to the other"));
    }
    Ok((old, new))
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  eyrie-image list --json | jq -r '.[].name'")]
pub struct List {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn addresses_are_mapped_to_their_kind() {
        let both = |a: &str, b: &str| (a.parse().unwrap(), b.parse().unwrap());
        assert_eq!(parse_mapping("10.0.0.7=10.0.0.9"), Ok(both("10.0.0.7", "10.0.0.9")));
        assert_eq!(parse_mapping("::1=fd00::2"), Ok(both("::1", "fd00::2")));
        for bad in ["", "=", "10.0.0.7", "10.0.0.7=", "10.0.0.7:1=10.0.0.9:1", "10.0.0.7=::1"] {
            assert!(parse_mapping(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_programs_own_options_are_left_to_it() {
        let words = ["eyrie-image", "run", "--every", "2", "prog", "--every", "x", "-v"];
        match Cli::try_parse_from(words).map(|c| c.command) {
            Ok(Command::Run(run)) => {
                assert_eq!((run.keeping.every, run.command.len()), (Some(2000), 4));
            }
            other => panic!("{other:?}"),
        }
    }
}
