"""On which nodes and processors ranks run: --bind, --rankfile, and what is left of it on another node."""

import contextlib
import os
import shutil
import subprocess
import tempfile

from harness import Job, NotRun
from hosts import PLAIN, Hosted, restored_alone, shell
from nodes import Nodes, expected

SHOW = ["sh", "-c", "grep Cpus_allowed_list: /proc/self/status"]


def siblings(cpu):
    path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    with contextlib.suppress(OSError):
        with open(path) as file:
            return file.read().strip()
    return str(cpu)


def two_cores():
    """A processor each of two cores."""
    found = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        found.setdefault(siblings(cpu), cpu)
    if len(found) < 2 or not shutil.which("taskset"):
        raise NotRun("it takes two cores, and taskset")
    return sorted(found.values())[:2]


def on(cpus):
    """Leaves a job these processors only."""
    return ["taskset", "-c", ",".join(map(str, cpus))]


def shown(cpus, ranks, *options, env=()):
    """What ranks may run on, by rank."""
    options = ["--ft", "none", "--label", *options]
    with Job(SHOW, ranks, options=options, wrap=on(cpus), env=dict(env)) as job:
        assert job.wait() == 0, job.report()
        lines = [line.split() for line in sorted(job.stdout().splitlines())]
        return [words[-1] for words in lines]


def both(cpus):
    a, b = cpus
    return f"{a}-{b}" if b == a + 1 else f"{a},{b}"


def bound_to(job, want):
    """All ranks run, on these processors. A node that is slow to say so is asked again."""
    are = lambda: [r["processors"] for r in job.wait_running(4)["ranks"]] == want
    job.until(are, f"ranks on {want}")


@contextlib.contextmanager
def rankfile(text):
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        path = os.path.join(folder, "ranks")
        with open(path, "w") as file:
            file.write(text)
        yield path


def test_ranks_are_bound_where_there_is_room():
    a, b = cpus = two_cores()
    each, free = [str(a), str(b)], both(cpus)
    assert shown(cpus, 1, "--bind", "core") == [str(a)]
    assert shown(cpus, 2, "--bind", "none") == [free] * 2
    assert shown(cpus, 3) == shown(cpus, 3, "--bind", "core") == [free] * 3
    # Nodes on one machine do not take each other's cores.
    assert shown(cpus, 2, "--nodes", "2", "--bind", "core") == each


def test_ranks_are_bound_unasked_where_the_cores_are_their_own():
    a, b = cpus = two_cores()
    each, free = [str(a), str(b)], [both(cpus)] * 2
    assert shown(cpus, 2, "--exclusive") == each
    assert shown(cpus, 2, env={"PBS_JOBID": "7", "NCPUS": "2"}) == each
    # Others have the rest.
    assert shown(cpus, 2, env={"PBS_JOBID": "7", "NCPUS": "1"}) == free
    # A part of the machine is one's own.
    assert shown(cpus, 2) == (each if len(cpus) < os.cpu_count() else free)


def test_two_jobs_are_not_bound_to_the_same_core():
    a, b = cpus = two_cores()
    each, free = [str(a), str(b)], [both(cpus)] * 2
    options = ["--ft", "none", "--bind", "core"]
    with Job(["sh", "-c", "echo runs; cat"], 1, options=options, wrap=on(cpus), stdin="open") as job:
        job.until(lambda: "runs" in job.stdout(), "the first job")
        assert shown(cpus, 1, "--bind", "core") == [str(b)]
        assert shown(cpus, 2, "--bind", "core") == shown(cpus, 2, "--exclusive") == free
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
    assert shown(cpus, 2, "--exclusive") == each


def test_a_rank_is_let_go_where_others_use_its_core():
    a, b = cpus = two_cores()
    loop = ["sh", "-c", "while :; do :; done"]
    options = ["--ft", "none", "--exclusive"]
    with Job(loop, 2, options=options, wrap=on(cpus)) as job:
        of_first = lambda: (r := job.status()) and r["ranks"][0]["processors"]
        job.until(lambda: of_first() == str(a), "a rank that is bound")
        stranger = subprocess.Popen([*on([a]), *loop])
        try:
            job.until(lambda: of_first() == both(cpus), "it is let go")
        finally:
            stranger.kill()
            stranger.wait()
        job.eyrie("abort", "last")


def test_the_session_of_a_rank_weighs_what_the_job_does():
    """Each session has a share of the processors of its own: a rank, too; in a nice job all ranks
    are in the daemon's, which is as nice. It is so after a restart, with a child."""
    for more in 0, 7:
        wrap = ["nice", "-n", str(more)] if more else []
        nice = min(os.nice(0) + more, 19)
        program = ["sh", "-c", "echo runs; cat; echo over"]
        with Job(program, 1, ft="logged", stdin="open", wrap=wrap) as job:
            job.until(lambda: "runs" in job.stdout(), "the rank")
            first = job.wait_running(1)["ranks"][0]["pid"]
            weighs(job, first, nice)
            job.eyrie("checkpoint", "last")
            job.kill_ranks([0])
            job.wait_event("restored", rank=0)
            weighs(job, job.wait_running(1)["ranks"][0]["pid"], nice)
            job.process.stdin.close()
            assert job.wait() == 0 and "over" in job.stdout(), job.report()


def weighs(job, pid, nice):
    session = os.getsid(pid)
    assert (session == pid) == (nice <= 0), (session, pid, job.report())

    def said():
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/{pid}/autogroup") as file:
                return int(file.read().split()[-1])
        # The kernel has no groups of processes by session.
        return nice

    job.until(lambda: said() == nice, f"a session that is as nice as {nice}")


def test_a_rank_file_names_nodes_and_cores():
    expected("cg")
    a, b = cpus = two_cores()
    text = "rank 0=+n1 slot=1\nrank 1=+n0 slot=0\nrank 2=+n0 slot=*\nrank 3=+n1\n"
    with rankfile(text) as path:
        with Nodes("cg", 2, ["--rankfile", path], wrap=on(cpus), ckpt_every=0.5) as job:
            record = job.wait_running(4)
            assert [r["node"] for r in record["ranks"]] == [1, 0, 0, 1], record
            bound = [str(b), str(a), both(cpus), both(cpus)]
            bound_to(job, bound)
            _, table, _ = job.eyrie("status", "last", "-v")
            assert "CPUS" in table, table
            # A rank that is restored where it was has what it had.
            job.all_checkpointed()
            job.kill_ranks([0])
            job.wait_event("restored", rank=0)
            bound_to(job, bound)
            job.ends_as("cg")


def test_a_rank_file_alone_names_the_hosts():
    with shell() as rsh, rankfile("rank 0=beta\nrank 1=alpha\nrank 2=beta\n") as path:
        options = ["--rankfile", path, "--address", "127.0.0.1", "--ft", "none", "--name", "x"]
        env = {"EYRIE_RSH": rsh}
        with Job(["cat"], 3, options=options, env=env, stdin="open") as job:
            # The others have no input, and end.
            record = job.until(
                lambda: (r := job.status()) and r["ranks"][0]["pid"] and r, "the first rank"
            )
            assert [n["host"] for n in record["nodes"]] == ["beta", "alpha"], record
            assert [r["node"] for r in record["ranks"]] == [0, 1, 0], record
            job.process.stdin.close()
            assert job.wait() == 0, job.report()


def test_a_rank_that_comes_to_another_node_is_bound_there():
    expected("heat")
    a, b = cpus = two_cores()
    text = "rank 0=alpha slot=0\nrank 1=alpha slot=1\nrank 2=beta slot=0\nrank 3=beta slot=1\n"
    with shell(PLAIN) as rsh, rankfile(text) as path:
        options = ["--rankfile", path]
        more = {"hosts": "alpha,beta", "wrap": on(cpus), "ckpt_every": 0.5}
        with Hosted("heat", rsh, options, **more) as job:
            bound = [str(a), str(b), str(a), str(b)]
            bound_to(job, bound)
            job.all_checkpointed()
            job.kill_nodes(1)
            for rank in (2, 3):
                job.wait_event("restored", rank=rank)
            bound_to(job, bound)
            restored_alone(job, "heat", [2, 3])


def test_a_crowded_node_lets_newcomers_free():
    expected("heat")
    a, b = cpus = two_cores()
    with shell(PLAIN) as rsh:
        more = {"hosts": "alpha,beta", "wrap": on(cpus), "ckpt_every": 0.5}
        with Hosted("heat", rsh, ["--bind", "core"], **more) as job:
            bound = [str(a), str(b)]
            bound_to(job, bound * 2)
            job.all_checkpointed()
            job.kill_nodes(1)
            for rank in (2, 3):
                job.wait_event("restored", rank=rank)
            bound_to(job, bound + [both(cpus)] * 2)
            restored_alone(job, "heat", [2, 3])


def refused(text, *words, ranks=2, options=(), code=2):
    with rankfile(text) as path:
        with Job(["true"], ranks, options=["--rankfile", path, *options]) as job:
            assert job.wait() == code, job.report()
            lines = job.stderr().splitlines()
            assert len(lines) == 1 and all(w in lines[0] for w in words), lines
            job.settle()
            assert not job.left_over(), job.left_over()


def test_what_is_wrong_in_a_rank_file_is_told():
    refused("rank 0=+n0\nrank 1=+n0 slot=x\n", "line 2", "slot=x")
    refused("rank 0=+n0\n", "rank 1 of 2 has no line")
    refused("rank 0=+n0\nrank 1=+n1\n", "rank 1 is on +n1")
    refused("rank 0=+n0\nrank 1=c\n", "is on c", options=["--nodes", "2"])
    lists = ["--hosts", "a:1,b", "--address", "127.0.0.1"]
    refused("rank 0=a\nrank 1=a\n", "2 ranks on a", "1 slots", options=lists)


def test_cores_that_there_are_not_are_told():
    text = "rank 0=+n0\nrank 1=+n0 slot=100000\n"
    refused(text, "rank 1", "slot=100000", "cores that this node may use", code=126)
    refused(text, "rank 1", "slot=100000", options=["--nodes", "2"], code=126)
