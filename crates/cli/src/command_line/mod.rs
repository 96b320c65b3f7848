//! The command line: all commands with their options, under which headings they are told, how what
//! was typed becomes one of them, and who does it.
//!
//! Above all commands and options, which know nothing of it.

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod front_tests;
mod groups;
#[cfg(test)]
mod groups_tests;
mod headings;
#[cfg(test)]
mod headings_tests;
mod short_help;

use self::groups::Group;
use crate::batch::flux;
use crate::commands::abort::Abort;
use crate::commands::check::args::Check;
use crate::commands::checkpoint::Checkpoint;
use crate::commands::config::Config;
use crate::commands::daemons::Node;
use crate::commands::doctor::args::Doctor;
use crate::commands::doctor::{self, look};
use crate::commands::drain::args::Drain;
use crate::commands::events::Events;
use crate::commands::grow::Grow;
use crate::commands::image::args::Image;
use crate::commands::info::Info;
use crate::commands::inject::Inject;
use crate::commands::migrate::Migrate;
use crate::commands::ps::Ps;
use crate::commands::replay::Replay;
use crate::commands::restart::args::Restart;
use crate::commands::resume::Resume;
use crate::commands::standby::Standby;
use crate::commands::status::Status;
use crate::commands::verify::Verify;
use crate::commands::{
    abort, check, checkpoint, clusters, daemons, drain, events, explain, grow, history, image,
    info, inject, join, migrate, notice, prune, ps, replay, report, restart, resume, rm, room, run,
    share, standby, status, suspend, top, topo, vault, verify,
};
use crate::config::defaults::FileDefaults;
use crate::config::read;
use crate::front::parts;
use crate::launch::grid;
use crate::messages::NAME;
use crate::options::run::Run;
use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use eyrie_config::help::Refusal;
use eyrie_terminal::Failure;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs MPI programs that outlive their ranks.
#[derive(Debug, Parser)]
#[command(name = "eyrie", version, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    eyrie run -n 4 ./heat 1000          run an MPI program on 4 ranks\n  \
    eyrie status last                   how the newest job is doing\n  \
    eyrie inject last kill-rank 2       kill a rank and watch it come back\n\n\
    State lives under $EYRIE_HOME (default ~/.eyrie). Defaults of options can be set\n  \
    in files (see eyrie config --help). Exit codes: docs/reference/exit-codes.md.")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program, on this machine or over hosts
    Run(Run),
    /// Run programs as `eyrie run` does, by the options of other MPIs' mpiexec (also as bin/mpiexec
    /// and bin/mpirun)
    #[command(disable_help_flag = true)]
    #[command(after_help = "Examples:\n  mpiexec -n 4 ./heat\n  mpiexec -hosts a,b -n 8 ./heat")]
    Mpiexec {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Run a program as one job, in the processes that another launcher starts (mpiexec, srun)
    #[command(override_usage = "LAUNCHER -n N eyrie join [OPTIONS] PROGRAM [ARGS]...")]
    #[command(after_help = JOIN_HELP)]
    Join(Run),
    /// Run a program twice, the second time forced to the first one's outcomes, and compare
    Verify(Verify),
    /// List jobs
    Ps(Ps),
    /// Show how a job is doing, on one screen
    Status(Status),
    /// Show jobs, or one, live on the whole terminal
    Top(crate::commands::top::args::Top),
    /// Tell a job's whole course: as text, as one page for a browser, or for Perfetto
    Report(crate::commands::report::args::Report),
    /// Say why a job, a rank or a node waits, is not protected or not back, and what to do
    Explain(crate::commands::explain::Explain),
    /// List jobs, also those that have ended
    History(crate::commands::history::History),
    /// Forget jobs that have ended, and remove what eyrie run --keep has left of them
    Rm(crate::commands::rm::Rm),
    /// Forget jobs that ended long ago
    Prune(crate::commands::prune::Prune),
    /// Checkpoint a job now and wait until it is complete; with --end, save the job and end it
    Checkpoint(Checkpoint),
    /// Add nodes to a job over nodes or hosts
    Grow(Grow),
    /// Have nodes leave a job over nodes or hosts, in order: no work is lost
    Drain(Drain),
    /// Tell the nodes of jobs on this host that it is about to end
    Notice(crate::commands::notice::args::Notice),
    /// Move the ranks of a running job to other nodes, all at one time
    Migrate(Migrate),
    /// Let nothing go between two clusters of a job for a while
    Clusters(crate::commands::clusters::Clusters),
    /// Go on with a job that was saved and ended
    Restart(Restart),
    /// Have all ranks of a job stand still, so that others have their processors
    Suspend(crate::commands::suspend::Suspend),
    /// Go on with a job that is suspended, or whose nodes are left alone
    Resume(Resume),
    /// Let jobs take turns on the processors that they share
    Share(crate::commands::share::Share),
    /// Wait for the end of another machine's controller, and go on with its job (eyrie run --ha)
    Standby(Standby),
    /// Cause a fault on purpose
    Inject(Inject),
    /// End a job
    Abort(Abort),
    /// Show what happened in a job
    Events(Events),
    /// Run one rank again from its checkpoint, with its logged messages and no other rank
    Replay(Replay),
    /// Look into, verify or extract a process image
    Image(Image),
    /// Look after vaults: folders of several nodes, any few of which may be lost
    Vault(crate::commands::vault::args::Vault),
    /// Look at networks: which links messages share, and which spare costs least
    Topo(crate::commands::topo::args::Topo),
    /// Show what this machine offers and what Eyrie makes of it
    Info(Info),
    /// Say what will not work here, or costs something, and what to type against it
    Doctor(Doctor),
    /// Say whether a grid job can start: its file, every host, every link between clusters
    Check(Check),
    /// Show what configuration files say, and what holds
    Config(Config),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  eyrie completions bash > ~/.bash_completion.d/eyrie")]
    Completions(eyrie_terminal::Completions),
    /// Write manual pages
    #[command(after_help = "Example:\n  eyrie manual ~/.local/share/man/man1")]
    Manual(eyrie_terminal::Manual),
    /// The node daemon (started by `eyrie run`)
    #[command(name = "__node", hide = true)]
    Node(Node),
    /// A node of a job with several (started by its controller)
    #[command(name = "__member", hide = true)]
    Member,
    /// A node on another host (started by its controller, through a remote shell)
    #[command(name = "__host", hide = true)]
    Host,
    /// Looks at a host (started by `eyrie doctor`, through a remote shell)
    #[command(name = "__look", hide = true)]
    Look,
    /// Sends to hosts and receives of them (started by `eyrie topo probe`, through a remote shell)
    #[command(name = "__measure", hide = true)]
    Measure,
    /// The gateway of a cluster (started by the job's controller)
    #[command(name = "__gateway", hide = true)]
    Gateway,
    /// Speaks PMIx with a launcher (started by `eyrie join`)
    #[command(name = "__pmix", hide = true)]
    Pmix,
    /// The way to a node of `eyrie join` (started by its controller)
    #[command(name = "__call", hide = true)]
    Call {
        folder: PathBuf,
        host: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// The way to a host of a grid job whose clusters are reached in different ways
    #[command(name = "__reach", hide = true)]
    Reach {
        table: String,
        host: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// The way to a node in an instance of Flux (started by its controller)
    #[command(name = "__flux", hide = true)]
    Flux {
        host: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

/// What a daemon starts as a rank, by its words: the program of one where programs differ, or one
/// that waits for programs. There are many of them, so the other commands are not described first.
pub fn of_rank(words: &[OsString]) -> Option<Result<i32, Failure>> {
    let rest = words.get(2..).unwrap_or_default();
    match words.get(1)?.to_str()? {
        parts::PART => Some(parts::become_part(rest)),
        room::ROOM => Some(room::room(rest)),
        _ => None,
    }
}

impl Command {
    /// Does it; returns the exit code.
    pub fn carry_out(self) -> Result<i32, Failure> {
        match self {
            Command::Run(run) => run::run(&run),
            Command::Mpiexec { .. } => Err(anyhow::anyhow!("mpiexec: no option before it").into()),
            Command::Join(run) => join::join(&run),
            Command::Verify(verify) => verify::verify(&verify),
            Command::Ps(ps) => ps::ps(&ps),
            Command::Status(status) => status::status(&status),
            Command::History(args) => history::history(&args),
            Command::Top(args) => top::top(&args),
            Command::Report(args) => report::report(&args),
            Command::Explain(args) => explain::explain(&args),
            Command::Rm(args) => rm::remove(&args),
            Command::Prune(args) => prune::prune(&args),
            Command::Checkpoint(checkpoint) => checkpoint::checkpoint(&checkpoint),
            Command::Grow(grow) => grow::grow(&grow),
            Command::Drain(args) => drain::drain(&args),
            Command::Migrate(args) => migrate::migrate(&args),
            Command::Clusters(args) => clusters::clusters(&args),
            Command::Inject(inject) => inject::inject(&inject),
            Command::Abort(abort) => abort::abort(&abort),
            Command::Events(events) => events::events(&events),
            Command::Notice(args) => notice::notice(&args),
            Command::Restart(args) => restart::restart(&args),
            Command::Suspend(args) => suspend::suspend(&args),
            Command::Resume(args) => resume::resume(&args),
            Command::Share(args) => share::share(&args),
            Command::Standby(args) => standby::standby(&args),
            Command::Replay(replay) => replay::replay(&replay),
            Command::Info(info) => info::info(&info),
            Command::Doctor(args) => doctor::doctor(&args, &command()),
            Command::Check(args) => check::check(&args, &command()),
            Command::Config(args) => crate::commands::config::config(&args, &command()),
            Command::Image(image) => image::image(&image),
            Command::Vault(args) => vault::vault(&args),
            Command::Topo(args) => topo::topo(&args),
            Command::Completions(script) => script.print(NAME, &mut command()),
            Command::Manual(pages) => manual(&pages),
            Command::Node(node) => daemons::node(node),
            Command::Member => daemons::member(),
            Command::Host => daemons::host(&command()),
            Command::Look => look::look(),
            Command::Measure => topo::measure::measure(),
            Command::Gateway => daemons::gateway(),
            Command::Pmix => join::speak(),
            Command::Call { folder, host, .. } => join::call(&folder, &host),
            Command::Reach { table, host, words } => grid::reach(&table, &host, &words),
            Command::Flux { host, words } => flux::reach(&host, &words),
        }
    }
}

/// A heading, and the commands under it.
const GROUPS: [Group; 6] = [
    ("Running", &["run", "mpiexec", "join", "verify"]),
    ("Seeing", &["ps", "status", "top", "explain", "events", "history", "report"]),
    (
        "While it runs",
        &["checkpoint", "suspend", "resume", "share", "grow", "drain", "migrate", "clusters"],
    ),
    ("Saved, ended and lost", &["restart", "abort", "rm", "prune", "standby", "notice"]),
    ("Looking into", &["replay", "inject", "image", "vault", "topo"]),
    ("This machine", &["info", "doctor", "check", "config", "completions", "manual", "help"]),
];

/// The command line: commands in groups, the options of `eyrie run` under headings.
pub fn command() -> clap::Command {
    short_help::shortened(headings::of_jobs(groups::grouped(Cli::command(), &GROUPS)))
}

/// The command that these words ask for, with what configuration files say besides. `all`: what
/// `command` gives, which is not made twice.
pub fn read(all: clap::Command, words: Vec<OsString>) -> Result<Command, Refusal> {
    let (found, defaults) = read::parse(all, command, words).map_err(other_words)?;
    of_matches(&found, defaults).map_err(|error| Refusal::Parser(Box::new(error), Vec::new()))
}

/// What others call commands, and what they are here.
const WORDS: [(&str, &[&str]); 8] = [
    ("abort", &["kill", "stop", "cancel", "terminate", "scancel", "qdel"]),
    ("checkpoint --end", &["save", "halt", "park"]),
    ("ps", &["ls", "list", "jobs", "queue"]),
    ("events", &["log", "logs", "trace"]),
    ("restart", &["restore", "continue", "recover"]),
    ("run", &["start", "exec", "launch", "submit", "srun"]),
    ("suspend", &["pause", "freeze", "stand"]),
    ("status", &["show", "stat", "inspect", "describe"]),
];

/// A command that others have under that word is more likely to be meant than one spelt alike.
fn other_words(mut refusal: Refusal) -> Refusal {
    if let Refusal::Parser(error, _) = &mut refusal
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((meant, _)) = WORDS.iter().find(|(_, all)| all.contains(&word.as_str()))
    {
        let meant = ContextValue::Strings(vec![(*meant).to_string()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    refusal
}

/// The command that the parser has found; `defaults` is what files gave to it.
pub fn of_matches(found: &ArgMatches, defaults: FileDefaults) -> Result<Command, clap::Error> {
    let mut command = Cli::from_arg_matches(found)?.command;
    match &mut command {
        Command::Run(run) | Command::Join(run) => run.defaults = defaults,
        Command::Restart(restart) => restart.defaults = defaults,
        _ => {}
    }
    Ok(command)
}

const JOIN_HELP: &str = "Examples:\n  \
    mpiexec -n 4 eyrie join ./heat 4000\n  \
    srun --mpi=pmi2 -n 64 eyrie join --ckpt-every 30 ./heat 4000\n  \
    mpirun -n 4 eyrie join ./heat 4000          (Open MPI 5)\n\n\
    Speaks PMI 1.1 (PMI_FD), as of hydra (MPICH, Intel MPI) and of Slurm with --mpi=pmi2, and\n\
    PMIx where libpmix is installed (Open MPI, PRRTE, srun --mpi=pmix). The\n\
    launcher says how many ranks there are and on which machines; options for that are refused.\n\
    Ranks are children of Eyrie's daemons there. What they print comes out of the first\n\
    process, which also has the job's exit code; the others have 0. Its standard input is that of\n\
    rank 0.\n\
    On a signal to the first process the job ends, as with eyrie run.";

/// The manual pages; the reference has a table of durations besides.
fn manual(pages: &eyrie_terminal::Manual) -> Result<i32, Failure> {
    let code = pages.write(command())?;
    if pages.markdown {
        std::fs::write(pages.folder.join("durations.md"), crate::config::timing::reference())?;
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn words_of_others_lead_to_a_command() {
        let all = command();
        for (meant, words) in WORDS {
            let name = meant.split(' ').next().unwrap();
            assert!(all.find_subcommand(name).is_some(), "{meant}");
            assert!(words.iter().all(|word| all.find_subcommand(word).is_none()), "{words:?}");
        }
        let Err(Refusal::Parser(error, _)) = read(all, vec!["eyrie".into(), "save".into()]) else {
            panic!("it is no command");
        };
        assert!(error.to_string().contains("'checkpoint --end'"), "{error}");
    }

    fn run(words: &[&str]) -> Run {
        match Cli::try_parse_from(words).map(|c| c.command) {
            Ok(Command::Run(run)) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_programs_own_options_are_left_to_it() {
        let r = run(&["eyrie", "run", "-n", "2", "prog", "-n", "7", "--ft", "x"]);
        assert_eq!((r.ranks(), r.command.len()), (2, 5));
        let r = run(&["eyrie", "run", "-n2", "--", "prog", "--", "-l"]);
        assert_eq!(r.command, ["prog", "--", "-l"]);
        assert!(Cli::try_parse_from(["eyrie", "run", "--unknown", "prog"]).is_err());
    }

    #[test]
    fn wrong_sizes_are_refused() {
        for bad in ["0", "-3", "1025", "x", "1.5"] {
            assert!(Cli::try_parse_from(["eyrie", "run", "-n", bad, "p"]).is_err(), "{bad}");
        }
    }
}
