//! Options of other `mpiexec`s, and what each is here.

use Means::{
    BindTo, Env, EnvAll, Export, Folder, Harmless, Help, HostFile, Hosts, Ignored, Is, IsWith,
    MapBy, PerNode, Programs, Ranks, Refused, Version,
};
use eyrie_config::keys::distance;

/// What an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// How many ranks run the program.
    Ranks,
    /// A list of hosts.
    Hosts,
    /// A file of hosts.
    HostFile,
    /// So many ranks on each host.
    PerNode,
    MapBy,
    BindTo,
    /// A variable of all programs: a name and a value behind the option.
    EnvAll,
    /// One of this program.
    Env,
    /// NAME=VALUE, or NAME to pass it on.
    Export,
    /// The folder that the program is started in.
    Folder,
    /// A file of programs.
    Programs,
    /// An option of `eyrie run`.
    Is(&'static str),
    /// One with a value.
    IsWith(&'static str),
    /// So many words behind it; nothing is different without it.
    Harmless(usize),
    /// The same, but the user may expect something: what to know.
    Ignored(usize, &'static str),
    /// What to do instead.
    Refused(&'static str),
    Help,
    Version,
}

const BY_RANK: &str = "redirect in a shell: sh -c './a > out.$EYRIE_RANK'";
const PLACES: &str = "say with --rankfile where each rank runs";
const MCA: &str = "it sets parameters of Open MPI, and Eyrie has none of them";
const ENVIRONMENT: &str = "all of the environment is passed on, these variables with it";

/// Without the dashes before them.
const TABLE: &[(&[&str], Means)] = &[
    (&["n", "np", "c"], Ranks),
    (&["host", "hosts", "H"], Hosts),
    (&["hostfile", "machinefile", "machine", "default-hostfile", "f", "hostlist"], HostFile),
    (&["ppn", "perhost", "N", "npernode", "grr", "processes-per-node"], PerNode),
    (&["pernode"], Is("--ppn=1")),
    (&["map-by", "rank-mapping"], MapBy),
    (&["rr", "bynode"], Is("--map=cyclic")),
    (&["byslot", "bycore"], Harmless(0)),
    (&["bind-to", "binding"], BindTo),
    (&["bind-to-core", "bycore-bind"], Is("--bind=core")),
    (&["bind-to-socket"], Is("--bind=socket")),
    (&["bind-to-none"], Is("--bind=none")),
    (&["genv"], EnvAll),
    (&["env"], Env),
    (&["x"], Export),
    (&["genvall", "envall"], Harmless(0)),
    (&["genvlist", "envlist"], Ignored(1, ENVIRONMENT)),
    (&["genvnone", "envnone"], Refused("clear it with env: mpiexec -n 4 env -u NAME ./a")),
    (&["genvexcl", "envexcl"], Refused("clear it with env: mpiexec -n 4 env -u NAME ./a")),
    (&["wdir", "wd", "gwdir", "dir"], Folder),
    (&["configfile", "app"], Programs),
    (&["l", "prepend-rank", "tag-output"], Is("--label")),
    (&["oversubscribe"], Is("--oversubscribe")),
    (&["nooversubscribe", "no-oversubscribe"], Harmless(0)),
    (&["rankfile", "rf"], IsWith("--rankfile")),
    (&["v", "verbose"], Is("--verbose")),
    (&["q", "quiet"], Is("--quiet")),
    (&["launcher-exec", "bootstrap-exec"], IsWith("--rsh")),
    (&["prefix"], IsWith("--prefix")),
    (&["allow-run-as-root", "enable-recovery", "hetero-nodes"], Harmless(0)),
    (&["use-hwthread-cpus", "exitinfo", "noprefix", "no-ready-msg"], Harmless(0)),
    (&["disable-hostname-propagation", "localroot", "continuous"], Harmless(0)),
    (&["localhost", "usize", "pmi-port", "rmk", "topolib"], Harmless(1)),
    (&["disable-auto-cleanup"], Refused("a job ends when a rank fails; leave it out")),
    (&["launcher", "bootstrap", "rsh"], Harmless(1)),
    (&["mca", "gmca", "prtemca", "pmixmca", "pmca", "gpmixmca", "omca"], Ignored(2, MCA)),
    (&["am", "tune", "omp", "gtune"], Ignored(1, MCA)),
    (
        &["report-bindings", "display-map", "display-allocation", "print-rank-map", "display-topo"],
        Ignored(0, "`eyrie status last` shows where ranks are, and on which processors"),
    ),
    (
        &["display", "show-proc-affinity"],
        Ignored(1, "`eyrie status last` shows where ranks are, and on which processors"),
    ),
    (
        &["print-all-exitcodes", "info-ranks"],
        Ignored(0, "`eyrie events last` tells how each rank ended"),
    ),
    (
        &["report-state-on-timeout", "get-stack-traces", "show-progress"],
        Ignored(0, "`eyrie events last --follow` tells what happens"),
    ),
    (&["rank-by", "ranks-by"], Refused(PLACES)),
    (
        &["cpus-per-proc", "cpus-per-rank", "cpu-set", "cpu-list", "slot-list", "npersocket"],
        Refused(PLACES),
    ),
    (&["order-nodes", "membind", "nolocal"], Refused("name the hosts in their order with --hosts")),
    (
        &[
            "output",
            "outfile-pattern",
            "errfile-pattern",
            "output-filename",
            "outfile",
            "errfile",
            "output-directory",
        ],
        Refused(BY_RANK),
    ),
    (
        &["xml", "timestamp-output", "stream-buffering", "ordered-output"],
        Refused("take a tool for it: eyrie run -l ./a | ts"),
    ),
    (&["prepend-pattern"], Refused("-l begins each line with [rank]")),
    (&["merge-stderr-to-stdout"], Refused("redirect in a shell: sh -c './a 2>&1'")),
    (&["stdin", "s"], Refused("standard input is that of rank 0; for none: < /dev/null")),
    (&["timeout", "max-time"], Refused("write timeout 60 before the command")),
    (
        &["iface", "nameserver", "launcher-iface"],
        Refused("say with --address at which address the hosts reach this machine"),
    ),
    (&["path", "gpath"], Refused("give the program's path, or set PATH before the command")),
    (&["preload-binary", "preload-files", "s-preload"], Refused("copy the files before")),
    (
        &["debug", "debugger", "tv", "ddt", "gdb", "dbg", "gdba"],
        Refused(
            "attach a debugger to the numbers that `eyrie status last` shows, or see eyrie \
            replay --gdb",
        ),
    ),
    (
        &["ckpoint-interval", "ckpoint-prefix", "ckpoint-num", "ckpointlib"],
        Refused("Eyrie checkpoints by itself: see --ckpt-every"),
    ),
    (
        &[
            "do-not-launch",
            "do-not-resolve",
            "dvm",
            "dvm-uri",
            "ompi-server",
            "personality",
            "server",
            "singleton",
        ],
        Refused("there is nothing like it here: leave it out"),
    ),
    (
        &["gpus-per-proc", "gpu-subdevs-per-proc", "gpus"],
        Refused("set CUDA_VISIBLE_DEVICES in a shell, by EYRIE_RANK"),
    ),
    (&["h", "help", "?"], Help),
    (&["V", "version", "info"], Version),
];

/// What a word is that begins with a dash, its name, and the value that it bears.
pub fn find(word: &str) -> Option<(Means, Option<&str>)> {
    let rest = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let (name, value) = rest.split_once('=').map_or((rest, None), |(n, v)| (n, Some(v)));
    let (_, means) = TABLE.iter().find(|(names, _)| names.contains(&name))?;
    Some((*means, value))
}

/// The name that is most like this one.
pub fn like(word: &str) -> Option<String> {
    let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
    let all = TABLE.iter().flat_map(|(names, _)| names.iter()).filter(|n| n.len() > 2);
    let near = all.map(|n| (distance(n, name), n)).min()?;
    (name.len() > 2 && near.0 <= 2).then(|| format!("-{}", near.1))
}

/// What `mpiexec --help` says.
pub const HELP: &str = "\
mpiexec of Eyrie: starts MPI programs as one job, which outlives its ranks

usage: mpiexec [OPTIONS] PROGRAM [ARGS]...
       mpiexec [OPTIONS] -n 1 PROGRAM [ARGS]... : -n 3 PROGRAM [ARGS]...
       mpiexec -configfile FILE        (a program a line; also --app FILE)

Options as of MPICH and of Open MPI, each with one dash or with two:
  -n, -np N                 ranks of the program
  -hosts, -host, -H LIST    hosts: a,b:4 (4: at most so many ranks there)
  -f, -hostfile, -machinefile FILE   the same from a file: `node1 slots=4`, `node1:4`, # comments
  -ppn, -perhost, -N N      so many ranks on each host
  -map-by slot|node|ppr:N:node, -oversubscribe, -rankfile FILE
  -bind-to none|hwthread|core|numa|socket
  -genv NAME VALUE, -env NAME VALUE, -x NAME[=VALUE]
                            variables of all programs, of this one (-env)
  -wdir, -wd DIR            where the program is started
  -l, -prepend-rank, -tag-output     every line of output begins with [rank]
  -v                        tells what happens
  -h, -V                    this help, the version

What changes nothing here is taken without a word, or with a line; what Eyrie cannot do is refused
with what to do instead. All options of `eyrie run` are taken, too (--ckpt-every, --ft, --spares):
see `eyrie run --help`. Defaults can be set in files: `eyrie config --help`. The exit code is 0 if
all ranks exit with 0, else that of the first rank that failed (128 + signal if one killed it), and
2 if what was typed is wrong; all of them are in docs/reference/exit-codes.md.
";

/// All names.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|(names, _)| names.iter().copied())
}
