//! Options of other `mpiexec`s, and what each is here.

use Means::{
    BindTo, Env, EnvAll, Export, Folder, Harmless, Help, HostFile, Hosts, Ignored, Is, IsWith,
    MapBy, Output, PerNode, Programs, Ranks, Refused, Version, WithFt,
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
    /// Open MPI's `--output tag` and its kin.
    Output,
    /// Open MPI's `--with-ft ulfm`.
    WithFt,
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

pub const BY_RANK: &str = "redirect in a shell: sh -c './a > out.$EYRIE_RANK'";
const PLACES: &str = "say with --rankfile where each rank runs";
const MCA: &str = "it sets parameters of Open MPI, and Eyrie has none of them";
const TOOLS: &str = "write the tool before the program: mpiexec -n 4 TOOL ./a";
const WHERE: &str = "`eyrie status last` shows where ranks are, and on which processors";
const TOLD: &str = "-v tells what happens, also `eyrie events last --follow`";
const DEBUGGER: &str = "attach a debugger to the numbers that `eyrie status last` shows, or see \
                        eyrie replay --gdb";
const NETWORK: &str = "links take TCP, or what --transport names";
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
    (&["genvall", "envall", "genvuser", "envuser"], Harmless(0)),
    (&["genvlist", "envlist"], Ignored(1, ENVIRONMENT)),
    (&["genvnone", "envnone"], Refused("clear it with env: mpiexec -n 4 env -u NAME ./a")),
    (&["genvexcl", "envexcl"], Refused("clear it with env: mpiexec -n 4 env -u NAME ./a")),
    (&["wdir", "wd", "gwdir", "dir"], Folder),
    (&["configfile", "app", "file"], Programs),
    (&["l", "prepend-rank", "tag-output", "line-label"], Is("--label")),
    (&["output"], Output),
    (&["with-ft"], WithFt),
    (&["oversubscribe"], Is("--oversubscribe")),
    (&["nooversubscribe", "no-oversubscribe"], Harmless(0)),
    (&["rankfile", "rf"], IsWith("--rankfile")),
    (&["v", "verbose"], Is("--verbose")),
    (&["q", "quiet"], Is("--quiet")),
    (&["launcher-exec", "bootstrap-exec"], IsWith("--rsh")),
    (&["prefix"], IsWith("--prefix")),
    (&["allow-run-as-root", "enable-recovery", "hetero-nodes", "hetero"], Harmless(0)),
    (&["cleanup", "localonly", "noconf", "silent-abort", "novm", "use-regexp"], Harmless(0)),
    (&["leave-session-attached", "disable-x", "parsable", "parseable"], Harmless(0)),
    (&["do-not-aggregate-help", "enable-instant-on-support", "fwd-mpirun-port"], Harmless(0)),
    (&["demux", "branch-count", "tmpdir", "hostos", "memory-alloc-kinds"], Harmless(1)),
    (&["use-hwthread-cpus", "exitinfo", "noprefix", "no-ready-msg"], Harmless(0)),
    (&["disable-hostname-propagation", "localroot", "continuous"], Harmless(0)),
    (&["localhost", "usize", "pmi-port", "rmk", "topolib"], Harmless(1)),
    (
        &["disable-auto-cleanup", "disable-recovery"],
        Refused("ranks that die are brought back; for programs with ULFM: --on-failure report"),
    ),
    (&["max-restarts"], Ignored(1, "ranks are brought back as often as they die")),
    (&["launcher", "bootstrap", "rsh"], Harmless(1)),
    (&["mca", "gmca", "prtemca", "pmixmca", "pmca", "gpmixmca", "omca"], Ignored(2, MCA)),
    (&["am", "tune", "omp", "gtune"], Ignored(1, MCA)),
    (
        &["report-bindings", "display-map", "display-allocation", "print-rank-map", "display-topo"],
        Ignored(0, WHERE),
    ),
    (&["display-devel-map", "display-devel-allocation", "display-diffable-map"], Ignored(0, WHERE)),
    (&["display", "show-proc-affinity"], Ignored(1, WHERE)),
    (&["report-pid", "report-uri"], Ignored(1, "`eyrie ps` lists jobs")),
    (&["debug-daemons", "debug-daemons-file", "debug-devel", "d"], Ignored(0, TOLD)),
    (&["report-events"], Ignored(1, TOLD)),
    (&["prot", "profile"], Ignored(0, TOLD)),
    (&["rdma", "RDMA", "dapl", "ib", "psm", "psm2", "mx", "tmi", "ofi"], Ignored(0, NETWORK)),
    (&["forward-signals"], Ignored(1, "INT, TERM, HUP, QUIT, USR1 and USR2 are always passed on")),
    (&["spawn-timeout"], Ignored(1, "--join-limit is how long hosts are waited for")),
    (&["runtime-options", "rtos", "use-app-topology"], Ignored(1, "Eyrie has none of them")),
    (
        &["print-all-exitcodes", "info-ranks"],
        Ignored(0, "`eyrie events last` tells how each rank ended"),
    ),
    (
        &["report-state-on-timeout", "get-stack-traces", "show-progress"],
        Ignored(0, "`eyrie events last --follow` tells what happens"),
    ),
    (&["rank-by", "ranks-by", "cartofile", "ppr"], Refused(PLACES)),
    (
        &["bysocket", "bynuma", "byboard", "byl2cache", "byl3cache", "loadbalance"],
        Refused("ranks go to hosts by -map-by slot or node; --rankfile says where each runs"),
    ),
    (&["soft", "arch"], Refused("give one number of ranks, -n 4, and name the hosts: --hosts a,b")),
    (&["initial-errhandler"], Refused("call MPI_Comm_set_errhandler in the program")),
    (&["add-host", "add-hostfile"], Refused("name all hosts at once; eyrie grow adds some later")),
    (&["hosts-group"], Refused("name each host: -hosts n1,n2,n3")),
    (&["skip-launch-node"], Refused("leave this machine out of the hosts: -hosts n1,n2,n3")),
    (&["launch-agent"], Refused("--prefix DIR says where Eyrie is on the hosts: DIR/bin/eyrie")),
    (&["umask"], Refused("set it in the shell before: umask 027")),
    (
        &["gtool", "gtoolfile", "trace", "check_mpi", "aps", "mps", "ilp64", "exec-agent"],
        Refused(TOOLS),
    ),
    (&["xterm"], Refused("write it before the program: mpiexec -n 2 xterm -e ./a")),
    (&["enable-x"], Refused("name a remote shell that does it: --rsh 'ssh -X'")),
    (&["index-argv-by-rank"], Refused("ranks know their number: MPI_Comm_rank, $EYRIE_RANK")),
    (&["set-cwd-to-session-dir"], Refused("say which folder: -wdir DIR")),
    (
        &["cpus-per-proc", "cpus-per-rank", "cpu-set", "cpu-list", "slot-list", "npersocket"],
        Refused(PLACES),
    ),
    (&["order-nodes", "membind", "nolocal"], Refused("name the hosts in their order with --hosts")),
    (
        &[
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
        &["xml", "xml-file", "timestamp-output", "stream-buffering", "ordered-output"],
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
        &["debug", "debugger", "tv", "ddt", "gdb", "dbg", "gdba", "stop-on-exec", "stop-in-init"],
        Refused(DEBUGGER),
    ),
    (&["stop-in-app"], Refused(DEBUGGER)),
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
            "server-wait-time",
            "singleton",
            "wait-for-server",
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

Examples:
  mpiexec -n 4 ./heat 4000
  mpiexec -hosts node1:4,node2:4 -n 8 -genv OMP_NUM_THREADS 2 ./heat 4000
  mpirun -np 4 --hostfile hosts --output tag python3 train.py

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
  -l, -prepend-rank, --output tag    every line of output begins with [rank]
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
