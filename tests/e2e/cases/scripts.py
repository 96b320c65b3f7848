"""Who is a rank: several programs one after the other in a rank, each with a world of its own, also
under kills, over nodes and with checkpoints in and between them; programs that a rank starts while it
is in MPI itself; children without a program."""

import os
import shutil
import signal
import tempfile

import harness
from bad_input import program
from harness import run_to_end
from nodes import Nodes

RANKS = 3
# Sizes on both sides of what is sent in one piece; each leaves a message behind.
FIRST, SECOND, THIRD = ("one", "40", "300"), ("two", "30", "70000"), ("three", "20", "9000")


def stage(*arguments):
    """A command for the shell."""
    return " ".join([*program("stage"), *arguments])


def script(*lines):
    return ["sh", "-ec", "\n".join(lines)]


class Gates:
    """Files that programs and tests wait for."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="eyrie-test-")
        self.open_file = self.path("open")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def open(self):
        open(self.open_file, "w").close()

    def reached(self, name, ranks=RANKS):
        return all(os.path.exists(f"{self.path(name)}.{r}") for r in range(ranks))


def three(gates=None, at="second", moved=False):
    """Three programs; with gates the script waits at a place."""
    second = [*SECOND, "leave"]
    wait = ["true"]
    if gates and at == "second":
        second = [*SECOND, "ready", gates.path("ready"), "await", gates.open_file, "leave"]
    elif gates:
        mark = gates.path("ready")
        wait = [
            f": > {mark}.$EYRIE_RANK",
            f"until test -e {gates.open_file}; do sleep 0.02; done",
        ]
    # The last one exits by exec, and has no shell.
    if moved:
        wait = ["exec 7>&1 1>/dev/null", *wait, "exec 1>&7 7>&-"]
    return script(stage(*FIRST, "leave"), *wait, stage(*second), "exec " + stage(*THIRD, "silent"))


_expected = []


def expected():
    """The output of an undisturbed run, made once. (Without logging a large message waits for its
    receiver, which never comes.)"""
    if not _expected:
        code, out, err = run_to_end(three(), ranks=RANKS)
        assert code == 0 and out.count(f": {RANKS} ranks,") == 3, (code, out, err)
        _expected.append(out)
    return _expected[0]


def ends_well(job):
    assert job.wait() == 0, job.report()
    assert job.stdout() == expected(), job.report()
    assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def test_what_one_leaves_the_next_does_not_find():
    """A message that nobody received, and a program that looks for any."""
    line = script(stage("a", "0", "100", "leave"), stage("b", "0", "0", "silent"))
    for ft in ("none", "logged", "coordinated"):
        code, out, err = run_to_end(line, ranks=2, ft=ft)
        assert code == 0 and "b: 2 ranks" in out, (ft, code, out, err)


def test_three_in_a_row():
    expected()
    for options in ({}, {"options": ["--nodes", "3", "--map", "cyclic"]}):
        code, out, err = run_to_end(three(), ranks=RANKS, **options)
        assert (code, out) == (0, expected()), (options, code, out, err)


def test_verify_takes_scripts():
    line = script(stage(*FIRST, "leave"), stage(*SECOND, "leave"), stage(*THIRD))
    with harness.Job(line, ranks=RANKS, subcommand="verify") as job:
        assert job.wait() == 0, job.report()
        assert "eyrie verify: deterministic" in job.stdout() + job.stderr(), job.report()


def killed(at, ckpt_every, kill, moved=False):
    expected()
    gates = Gates()
    with gates.folder:
        with harness.Job(three(gates, at, moved), ranks=RANKS, ckpt_every=ckpt_every) as job:
            job.until(lambda: gates.reached("ready"), "all ranks at the gate")
            if ckpt_every < 10:
                # One that was begun now, of each.
                for rank in range(RANKS):
                    count = job.count("checkpointed", rank=rank)
                    job.wait_event("checkpointed", rank=rank, count=count + 2)
            job.wait_running(RANKS)
            kill(job)
            job.wait_event("restored", rank=1)
            gates.open()
            ends_well(job)
            assert not job.count("image-refused"), job.report()


def test_killed_in_the_second_from_the_beginning():
    killed("second", 3600, lambda job: job.kill_ranks([1]))


def test_killed_in_the_second_from_an_image():
    killed("second", 0.2, lambda job: job.kill_ranks([1]))


def test_killed_between_two_from_an_image():
    killed("between", 0.2, lambda job: job.kill_ranks([1, 2]))


def test_killed_while_the_shell_has_moved_its_streams():
    """They are the rank's under other numbers, and come back there."""
    killed("between", 0.2, lambda job: job.kill_ranks([1, 2]), moved=True)


def program_of(job, rank):
    """The process of the rank that is in MPI: a child of its shell."""
    shell = job.status()["ranks"][rank]["pid"]
    with open(f"/proc/{shell}/task/{shell}/children") as file:
        return int(file.read().split()[0])


def test_the_program_is_killed_and_not_its_shell():
    """The shell would go on with the next one; the rank has died all the same."""

    def kill(job):
        os.kill(program_of(job, 1), signal.SIGKILL)

    expected()
    gates = Gates()
    with gates.folder:
        second = [*SECOND, "ready", gates.path("ready"), "await", gates.open_file, "leave"]
        lines = [stage(*FIRST, "leave"), stage(*second) + " || true", stage(*THIRD, "silent")]
        with harness.Job(script(*lines), ranks=RANKS, ckpt_every=3600) as job:
            job.until(lambda: gates.reached("ready"), "all ranks at the gate")
            kill(job)
            job.wait_event("restored", rank=1)
            gates.open()
            ends_well(job)


def test_the_program_is_killed_and_its_shell_ends_well():
    """What it would print then is not the rank's, however it died, and whatever comes of the script."""
    expected()
    for number, behind in ((signal.SIGKILL, " || true; echo over"), (signal.SIGSEGV, "; exit 0"), (signal.SIGBUS, "")):
        gates = Gates()
        with gates.folder:
            second = stage(*SECOND, "ready", gates.path("ready"), "await", gates.open_file, "leave")
            line = f"{stage(*FIRST, 'leave')} && {second} && {stage(*THIRD, 'silent')}{behind}"
            with harness.Job(["sh", "-c", line], ranks=RANKS, ckpt_every=3600) as job:
                job.until(lambda: gates.reached("ready"), "all ranks at the gate")
                os.kill(program_of(job, 1), number)
                job.wait_event("restored", rank=1)
                gates.open()
                assert job.wait() == 0, job.report()
                lines = [line for line in job.stdout().splitlines() if line != "over"]
                assert lines == expected().splitlines(), job.report()
                assert job.stdout().count("over") == (RANKS if "over" in behind else 0), job.report()
                # If the shell is quicker, it takes with it by which.
                assert "rank 1 died of SIG" in job.stderr(), job.report()


def test_a_node_is_lost_in_the_second():
    expected()
    gates = Gates()
    with gates.folder:
        options = ["--map", "cyclic"]
        # Not with what keeps ranks in MPI_Finalize.
        env = {"LD_PRELOAD": ""}
        with Nodes(three(gates), 3, options, env=env, ranks=RANKS, ckpt_every=0.3) as job:
            job.until(lambda: gates.reached("ready"), "all ranks at the gate")
            for rank in range(RANKS):
                count = job.count("checkpointed", rank=rank)
                job.wait_event("checkpointed", rank=rank, count=count + 2)
            job.wait_running(RANKS)
            job.kill_nodes(1)
            job.wait_event("restored", rank=1)
            gates.open()
            ends_well(job)


def test_all_go_back_to_a_set_between_two():
    def kill(job):
        job.wait_event("checkpointed", rank=0, count=job.count("checkpointed", rank=0) + 1)
        job.kill_ranks([1])

    expected()
    gates = Gates()
    with gates.folder:
        with harness.Job(three(gates, "between"), ranks=RANKS, ckpt_every=0.2, ft="coordinated") as job:
            job.until(lambda: gates.reached("ready"), "all ranks at the gate")
            kill(job)
            job.wait_event("restored", rank=1)
            gates.open()
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected(), job.report()


def test_nothing_of_a_life_that_is_over_goes_on():
    """All go back to the beginning. A program in a session of its own does not go on beside its next
    life, and does not keep that from being checkpointed."""
    gates = Gates()
    with gates.folder:
        second = stage(*SECOND, "ready", gates.path("ready"), "await", gates.open_file, "silent")
        with harness.Job(script("setsid " + second), ranks=2, ckpt_every=3600, ft="coordinated") as job:
            job.until(lambda: gates.reached("ready", 2), "all ranks at the gate")
            job.wait_running(2)
            old = [program_of(job, rank) for rank in range(2)]
            for rank in range(2):
                os.remove(f"{gates.path('ready')}.{rank}")
            job.kill_ranks([1])
            job.until(lambda: gates.reached("ready", 2), "all ranks at the gate again")
            job.until(lambda: not any(map(harness.alive, old)), "the end of their last lives")
            job.eyrie("checkpoint", "last")
            gates.open()
            assert job.wait() == 0, job.report()
            assert job.stdout().count("two: 2 ranks") == 1, job.report()


def test_without_finalize_and_then_another():
    """By exit, by _exit, by exec: another world each time."""
    last = stage(*THIRD, "silent")
    ways = ("exit 0", "_exit 0", "exec " + stage("x", "2", "10"))
    for way in ways:
        line = script(stage("first", "3", "2000", "leave", way), last)
        code, out, err = run_to_end(line, ranks=RANKS)
        assert code == 0 and f"three: {RANKS} ranks" in out, (way, code, out, err)
    code, out, err = run_to_end(script(stage("x", "2", "10", "then", *program("stage"), *FIRST)), ranks=2)
    assert code == 0 and "one: 2 ranks" in out, (code, out, err)


def test_a_program_that_a_rank_starts_is_a_job_of_its_own():
    """Its operand is not the rank's; it says so once, however often that happens."""
    inner = stage("in", "3", "100")
    # A grandchild, too.
    more = f"sh -c '{inner}; true'"
    line = [*program("stage"), "out", "5", "500", "call", inner, "call", more]
    code, out, err = run_to_end(line, ranks=2)
    assert code == 0, (code, out, err)
    assert out.count("in: 1 ranks") == 4 and out.count("out: 2 ranks") == 1, out
    told = [line for line in err.splitlines() if "is a job of its own" in line]
    assert len(told) == 2 and "stage" in told[0], err


def test_it_is_one_again_after_a_kill():
    """A rank is killed and replayed in which such a program runs, also from an image of both."""
    for ckpt_every in (3600, 0.2):
        gates = Gates()
        with gates.folder:
            inner = stage("in", "3", "100", "ready", gates.path("in.$EYRIE_RANK"), "await", gates.open_file)
            line = [*program("stage"), "out", "5", "500", "call", inner, "silent"]
            with harness.Job(line, ranks=2, ckpt_every=ckpt_every) as job:
                there = lambda: all(os.path.exists(gates.path(f"in.{r}.0")) for r in range(2))  # noqa: E731
                job.until(there, "both are in the inner one")
                if ckpt_every < 10:
                    count = job.count("checkpointed", rank=1)
                    job.wait_event("checkpointed", rank=1, count=count + 2)
                job.wait_running(2)
                job.kill_ranks([1])
                job.wait_event("restored", rank=1)
                gates.open()
                assert job.wait() == 0, job.report()
                assert job.stdout().count("in: 1 ranks") == 2, job.report()
                assert job.stderr().count("is a job of its own") == 2, job.report()
                assert not job.count("diverged"), job.report()


PYTHON_SCRIPT = """
import subprocess, sys
for name, word in ("p", "leave"), ("q", "silent"):
    subprocess.run([sys.argv[1], name, "4", "1000", word], check=True)
"""
PYTHON_RANK = """
import subprocess, sys
from mpi4py import MPI
inner = subprocess.run([sys.argv[1], "in", "2", "10"], check=True, capture_output=True, text=True)
assert "in: 1 ranks" in inner.stdout, inner
print(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1), flush=True)
MPI.Finalize()
subprocess.run([sys.argv[1], "after", "4", "1000", "silent"], check=True)
"""


def test_from_python():
    """A script in Python that starts programs, which closes what it inherits; and a rank in Python that
    does, before and after it has ended its MPI."""
    code, out, err = run_to_end([harness.PYTHON, "-c", PYTHON_SCRIPT, *program("stage")], ranks=2)
    assert code == 0 and "p: 2 ranks" in out and "q: 2 ranks" in out, (code, out, err)
    code, out, err = run_to_end([harness.PYTHON, "-c", PYTHON_RANK, *program("stage")], ranks=2)
    assert code == 0 and "after: 2 ranks" in out and out.split()[0] == "3", (code, out, err)


def test_a_forked_child_is_no_rank():
    code, out, err = run_to_end([*program("stage"), "f", "2", "10", "fork", "silent"], ranks=2)
    assert code == 0, (code, out, err)
    assert out.count("its child ended with 1") == 2 and "f: 2 ranks" in out, out
    assert err.count("MPI_Send was called in process") == 2 and "fork and exec" in err, err


def beside(name, *arguments):
    """A command for the shell, of the same program under another name."""
    copy = os.path.join(harness.BUILD, "tests", name)
    if not os.path.exists(copy):
        part = f"{copy}.{os.getpid()}"
        shutil.copy(*program("stage"), part)
        os.replace(part, copy)
    return " ".join([copy, name, *arguments])


def test_two_at_once_are_a_rank_and_a_job_of_its_own():
    """`a & b`: who comes first is the rank, also if it has ended when the other one calls MPI_Init. A
    rank that comes back has them in the other order, and each is what it was."""
    two_at_once(())


def test_two_at_once_are_what_they_were_without_recorded_clocks():
    two_at_once(("--clocks", "plain"))


def two_at_once(options):
    gates = Gates()
    with gates.folder:
        ready, late = gates.path("ready"), gates.path("late")
        first = beside("first", *FIRST[1:], "ready", ready, "await", gates.open_file, "silent")
        other = beside("other", "3", "100")
        both = [
            # The second time the other one is first, and has ended when this one begins.
            f"if test -e {ready}.$EYRIE_RANK; then {other} early; {first}; exit; fi",
            f"{first} & until test -e {ready}.$EYRIE_RANK; do sleep 0.02; done",
            f"{other}; : > {late}.$EYRIE_RANK; wait",
        ]
        with harness.Job(script(*both), ranks=2, ckpt_every=3600, options=options) as job:
            job.until(lambda: gates.reached("late", 2), "both programs of each rank")
            job.kill_ranks([1])
            job.until(lambda: job.stdout().count("other: 1 ranks") == 2, "the other one's lines")
            job.wait_event("restored", rank=1)
            gates.open()
            assert job.wait() == 0, job.report()
            assert job.stdout().count("first: 2 ranks") == 1, job.report()
            assert job.stdout().count("other: 1 ranks") == 2, job.report()
            assert not job.count("diverged") and not job.count("rolled-back"), job.report()
            assert "is a job of its own" in job.stderr(), job.report()


def test_two_at_once_in_another_order_on_another_rank_end_the_job():
    """The world of one program would have ranks of the other."""
    for options in ((), ("--nodes", "2")):
        gates = Gates()
        with gates.folder:
            ready = gates.path("ready")
            waits = ["ready", ready, "await", gates.open_file, "silent"]
            one, other = beside("first", "0", "0", *waits), beside("other", "0", "0", *waits)
            lines = [
                f"one='{one}' other='{other}'",
                'if test $EYRIE_RANK = 1; then x=$one; one=$other; other=$x; fi',
                f"$one & until test -e {ready}.$EYRIE_RANK; do sleep 0.02; done",
                "$other & wait",
            ]
            code, _, err = run_to_end(script(*lines), ranks=2, options=options)
            assert code == 1 and "two MPI programs at once, of which now the one and now the other" in err, (code, err)
            told = [line for line in err.splitlines() if "two MPI programs at once" in line]
            assert len(told) == 1 and "first" in told[0] or "other" in told[0], err


def test_two_at_once_come_back_together():
    """All ranks go back to a set, in which each of the two is what it was."""
    gates = Gates()
    with gates.folder:
        ready, late = gates.path("ready"), gates.path("late")
        first = beside("first", *FIRST[1:], "ready", ready, "await", gates.open_file, "silent")
        other = beside("other", "3", "100", "ready", f"{late}.$EYRIE_RANK", "await", gates.open_file)
        lines = [
            f"{first} & until test -e {ready}.$EYRIE_RANK; do sleep 0.02; done",
            f"{other} & wait",
        ]
        with harness.Job(script(*lines), ranks=2, ckpt_every=0.2, ft="coordinated") as job:
            there = lambda: all(os.path.exists(f"{late}.{rank}.0") for rank in range(2))  # noqa: E731
            job.until(there, "both programs of each rank")
            for rank in range(2):
                job.wait_event("checkpointed", rank=rank, count=job.count("checkpointed", rank=rank) + 2)
            job.kill_ranks([1])
            job.wait_event("restored", rank=1)
            gates.open()
            assert job.wait() == 0, job.report()
            assert job.stdout().count("first: 2 ranks") == 1, job.report()
            assert job.stdout().count("other: 1 ranks") == 2, job.report()


def test_one_that_was_there_meanwhile_is_no_next_one():
    """It was loaded when the first one ran, and calls MPI_Init when that has ended; one that has waited
    for its child is the rank's next program."""
    gates = Gates()
    with gates.folder:
        loaded = gates.path("loaded")
        waits = beside("other", "3", "100", "loaded", f"{loaded}.$EYRIE_RANK", "at", gates.open_file)
        lines = [
            f"{waits} & until test -e {loaded}.$EYRIE_RANK; do sleep 0.02; done",
            f"{stage(*FIRST, 'silent')}; : > {gates.open_file}; wait",
        ]
        code, out, err = run_to_end(script(*lines), ranks=2)
        assert code == 0 and out.count("one: 2 ranks") == 1, (code, out, err)
        assert out.count("other: 1 ranks") == 2 and "is a job of its own" in err, (out, err)
        line = [*program("stage"), "last", "5", "500", "before", stage(*FIRST, "silent")]
        code, out, err = run_to_end(line, ranks=2)
        assert code == 0 and "one: 2 ranks" in out and "last: 2 ranks" in out, (code, out, err)
