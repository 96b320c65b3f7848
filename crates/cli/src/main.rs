//! `eyrie`: arguments in, exit code out. The work is done in the modules and in the node daemon.

mod args;
mod block;
mod checks;
mod clusters;
mod console;
mod drain;
mod drain_all;
mod exact_args;
mod grace;
mod guard;
mod ha_args;
mod hosts;
mod image;
mod info;
mod join;
mod keeping;
mod launch;
mod layout;
mod leave_args;
mod lines;
mod needs_args;
mod rankfile;
mod remote;
mod replay;
mod restart;
mod resume;
mod saving;
mod sender;
mod share;
mod share_args;
mod show;
mod slurm;
mod standby;
mod vault;
mod vault_args;
mod vault_import;
mod vault_job;
mod vault_store;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use eyrie_terminal::Failure;
use std::process::ExitCode;

/// How the program is called in its messages.
const NAME: &str = "eyrie";

fn main() -> ExitCode {
    #[cfg(panic = "unwind")]
    abort_in_panics();
    // Without it programs with child processes are refused, and told why.
    let _ = eyrie_image::pass_on_rights();
    match Cli::try_parse() {
        Ok(cli) => eyrie_terminal::finish(NAME, dispatch(cli.command)),
        Err(error) => ExitCode::from(eyrie_terminal::usage(NAME, &error) as u8),
    }
}

/// For tests all is compiled so that panics unwind; here they end the process all the same.
#[cfg(panic = "unwind")]
fn abort_in_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Run(run) => launch::run(&run),
        Command::Join(run) => join::join(&run),
        Command::Verify(verify) => launch::verify(&verify),
        Command::Ps(ps) => remote::ps(&ps),
        Command::Status(status) => remote::status(&status),
        Command::Checkpoint(checkpoint) => remote::checkpoint(&checkpoint),
        Command::Grow(grow) => remote::grow(&grow),
        Command::Drain(args) => drain::drain(&args),
        Command::Migrate(args) => drain::migrate(&args),
        Command::Clusters(args) => block::clusters(&args),
        Command::Inject(inject) => remote::inject(&inject),
        Command::Abort(abort) => remote::abort(&abort),
        Command::Events(events) => remote::events(&events),
        Command::Notice => drain::notice(),
        Command::Restart(args) => restart::restart(&args),
        Command::Suspend(args) => share::suspend(&args),
        Command::Resume(args) => resume::resume(&args),
        Command::Share(args) => share::share(&args),
        Command::Standby(args) => standby::standby(&args),
        Command::Replay(replay) => replay::replay(&replay),
        Command::Info(info) => info::info(&info),
        Command::Image(image) => image::image(&image),
        Command::Vault(args) => vault::vault(&args),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), NAME, &mut out);
            eyrie_terminal::print(&String::from_utf8_lossy(&out));
            Ok(0)
        }
        Command::Node(node) => launch::node(node),
        Command::Member => launch::member(),
        Command::Host => launch::host(),
        Command::Gateway => launch::gateway(),
        Command::Pmix => join::speak(),
        Command::Call { folder, host, .. } => join::call(&folder, &host),
    }
}
