//! Under which headings the options of `eyrie run` and its kin are told. What is not named here is
//! for experts. `-h` shows the basic ones, `--help` all of them.

use clap::Command;

const BASIC: &str = "Basic options";
pub const EXPERT: &str = "Expert options";

/// A heading, and the options under it by their long names.
pub const HEADINGS: [(&str, &[&str]); 6] = [
    (
        BASIC,
        &[
            "np",
            "hosts",
            "nodes",
            "ppn",
            "spares",
            "spare-ranks",
            "spawn-room",
            "ft",
            "on-failure",
            "ckpt-every",
            "label",
            "name",
            "keep",
            "verbose",
            "quiet",
        ],
    ),
    (
        "Checkpoints",
        &[
            "ckpt-first",
            "ckpt-policy",
            "ckpt",
            "ckpt-freeze",
            "ckpt-dedup",
            "grace",
            "fallback-every",
            "save-every",
            "save-to",
            "save-rate",
            "save-key",
        ],
    ),
    (
        "Hosts and processors",
        &[
            "config",
            "map",
            "rankfile",
            "bind",
            "exclusive",
            "rsh",
            "prefix",
            "address",
            "join-limit",
            "oversubscribe",
            "topology",
            "tls",
            "transport",
        ],
    ),
    (
        "Storage",
        &[
            "vault",
            "encoder",
            "vault-rate",
            "rebuild-rate",
            "scrub-every",
            "encrypt-at-rest",
            "log-limit",
            "log-replicas",
            "local",
        ],
    ),
    ("Metrics", &["metrics", "metrics-file"]),
    (
        "Wide area",
        &[
            "clusters",
            "wan-plain",
            "wan-rate",
            "wan-connections",
            "gateway-port",
            "wan-only",
            "copies",
            "reduce-order",
        ],
    ),
];

/// The commands that start a job.
const JOBS: [&str; 2] = ["run", "join"];

/// Puts the options of these commands under headings.
pub fn of_jobs(all: Command) -> Command {
    JOBS.into_iter().fold(all, |all, name| all.mut_subcommand(name, in_order))
}

fn in_order(command: Command) -> Command {
    command.mut_args(|arg| {
        let Some(long) = arg.get_long().map(str::to_string) else { return arg };
        let found = HEADINGS.iter().enumerate().find_map(|(at, (heading, names))| {
            names.iter().position(|n| *n == long).map(|place| (at, *heading, place))
        });
        let (at, heading, place) = found.unwrap_or((HEADINGS.len(), EXPERT, 0));
        let arg = arg.help_heading(heading).display_order(at * 100 + place);
        if heading == BASIC { arg } else { arg.hide_short_help(true) }
    })
}
