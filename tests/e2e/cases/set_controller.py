"""`--ft coordinated` and `none` over nodes: the controller dies, also in the middle of a set and of a
roll-back, and another one goes on by its journal."""

import os
import signal

from bad_input import program
from controller import kill_both, kill_controller, resume, same_processes, unharmed
from coordinated_nodes import Together, back_from_a_set, kept_in_mid_stream, one_set
from drain import Asked
from harness import Job, run_to_end
from nodes import Nodes, Points, expected, gone
from restart import restart, save

# Where the controller dies: nothing of that turn is written down yet.
IN_A_SET = ("set-1", "set-2", "set-3")
IN_A_ROLLBACK = ("back-1", "back-2", "back-3")


class PointedSets(Points, Together):
    pass


class PointedCalls(Points, Nodes):
    """Ranks that have connections of their own."""

    def __init__(self, command, nodes):
        options = ["--ft", "coordinated"]
        super().__init__(command, nodes, options, ckpt_every=3600)


def in_a_set(name, point):
    """The next one goes on with the set; no rank is touched."""
    expected(name)
    with PointedSets(name, 3, every=3600) as job:
        before = job.wait_running(4)
        job.arm(point)
        asked = job.ask_for_a_set()
        job.dies_at(point, 1)
        job.sets()
        asked.kill()
        asked.wait()
        same_processes(job, before)
        unharmed(job)
        job.kill_ranks([1])
        job.all_back(0)
        assert one_set(job) == 1, job.report()
        job.ends_as(name)


def in_a_rollback(name, point, lost):
    """All ranks come back from the set, in one piece: of a rank, or of a node."""
    expected(name)
    with PointedSets(name, 3, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.arm(point)
        if lost:
            job.kill_nodes(1)
        else:
            job.kill_ranks([1])
        job.dies_at(point, 1)
        job.all_back(0)
        assert one_set(job) == 1, job.report()
        assert job.count("rolled-back") == 1, job.report()
        job.eyrie("checkpoint", "last")
        job.ends_as(name)


def again_and_again(name, options=()):
    """With ranks and nodes: in whatever a controller is about, the next one goes on with it."""
    expected(name)
    with Together(name, 4, ["--spares", "1", *options], every=0.2) as job:
        job.sets()
        kill_controller(job)
        job.sets(2)
        job.kill_ranks([2])
        kill_controller(job, 2)
        job.all_back(0)
        before = job.count("rolled-back")
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        kill_controller(job, 3)
        job.all_back(before)
        job.ends_as(name)


def generated():
    for point in IN_A_SET:
        yield f"in_a_set_at_{point}", lambda p=point: in_a_set("heat", p)
    for point in IN_A_ROLLBACK:
        yield f"of_a_rank_at_{point}", lambda p=point: in_a_rollback("farm", p, False)
        yield f"of_a_node_at_{point}", lambda p=point: in_a_rollback("cg", p, True)
        yield f"connections_at_{point}", lambda p=point: connections(p)
    for name in ("farm", "cg"):
        yield f"{name}_again_and_again", lambda n=name: again_and_again(n)
    vault = ["--vault", "rs:2+1"]
    yield "farm_with_a_vault", lambda: again_and_again("farm", vault)


def test_the_job_goes_on():
    """No rank notices, and sets are taken as before."""
    expected("farm")
    with Together("farm", 2) as job:
        job.sets()
        before = job.status()
        kill_controller(job)
        assert job.status()["reign"] == 2
        same_processes(job, before)
        job.sets(job.count("checkpointed", rank=0) + 1)
        unharmed(job)
        job.ends_as("farm")


def test_before_any_set_all_begin_again():
    expected("farm")
    with PointedSets("farm", 2, every=3600) as job:
        job.wait_running(4)
        job.arm("back-1")
        job.kill_ranks([3])
        job.dies_at("back-1", 1)
        job.all_back(0)
        assert one_set(job) == 0, job.report()
        job.ends_as("farm")


def test_a_rank_and_a_node_die_with_it():
    """That is told to the next one, or missed by it."""
    expected("cg")
    with Together("cg", 3, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        record = job.status()
        os.kill(record["daemon_pid"], signal.SIGSTOP)
        os.kill(record["ranks"][0]["pid"], signal.SIGKILL)
        os.kill(record["nodes"][2]["pid"], signal.SIGKILL)
        os.kill(record["daemon_pid"], signal.SIGKILL)
        job.wait_event("node-lost", node=2)
        job.until(lambda: job.count("rolled-back") and job.running_again(), "all ranks again")
        assert one_set(job) == 1, job.report()
        job.ends_as("cg")


def connections(point):
    """They are there again before the first rank runs, though the controller died on the way."""
    code, want, err = run_to_end(program("calls") + ["tcp"])
    assert code == 0 and "rank 3:" in want, (code, want, err)
    with PointedCalls(program("calls") + ["tcp"], 3) as job:
        kept_in_mid_stream(job)
        job.arm(point)
        job.kill_ranks([2])
        job.dies_at(point, 1)
        back_from_a_set(job, 0)
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        gone(job)


def test_a_job_that_was_to_be_saved_goes_on():
    """Who asked is gone with the controller: ranks that stand for that go on, and it can be asked
    again."""
    expected("farm")
    for point in ("set-1", "set-3"):
        with PointedSets("farm", 2, every=3600) as job:
            before = job.wait_running(4)
            job.arm(point)
            job.interrupt(signal.SIGQUIT)
            job.dies_at(point, 1)
            job.says("the job is not saved, and goes on: its controller died")
            job.sets()
            same_processes(job, before)
            save(job)
            restart(job, "--nodes", "3")
            job.wait_event("restored", count=4)
            job.ends_as("farm")


def test_nodes_leave_all_the_same():
    expected("heat")
    with PointedSets("heat", 3, every=3600) as job:
        job.wait_running(4)
        job.arm("back-1")
        with Asked(job, "1") as asked:
            job.dies_at("back-1", 1)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err, job.report())
        job.wait_event("node-left", node=1)
        assert {r["node"] for r in job.wait_running(4)["ranks"]} == {0, 2}, job.status()
        job.ends_as("heat")


def test_eyrie_resume_takes_the_place_of_eyrie_run():
    expected("farm")
    with Together("farm", 2) as job:
        job.sets()
        before = kill_both(job)
        resume(job)
        job.wait_event("controller-back")
        same_processes(job, before)
        job.kill_ranks([0])
        job.all_back(0)
        assert one_set(job) >= 1, job.report()
        job.ends_as("farm")


def test_without_protection_it_goes_on():
    expected("heat")
    with Nodes("heat", 3, ["--ft", "none"]) as job:
        before = job.wait_running(4)
        for count in (1, 2):
            kill_controller(job, count)
        same_processes(job, before)
        unharmed(job)
        job.ends_as("heat")


def test_without_protection_output_and_exit_code_come_once():
    lines = [f"line {n}" for n in range(600)]
    code = "import sys\nn = 0\nfor n, line in enumerate(sys.stdin, 1):\n    print('got', line, "
    code += "end='', flush=True)\nsys.exit(3 if n else 0)\n"
    options = ["--nodes", "2", "--ft", "none"]
    with Job(["python3", "-c", code], ranks=2, options=options, stdin="open") as job:
        for at in (0, 300):
            job.process.stdin.write("".join(l + "\n" for l in lines[at : at + 300]).encode())
            job.process.stdin.flush()
            job.until(lambda: f"got line {at + 100}\n" in job.stdout(), "output")
            job.eyrie("inject", "last", "kill-controller")
        job.process.stdin.close()
        assert job.wait() == 3, job.report()
        assert job.stdout() == "".join(f"got {l}\n" for l in lines), job.report()
        job.says("rank 0 exited with code 3")
        gone(job)


def test_without_protection_a_rank_that_dies_with_it_ends_the_job():
    with Nodes("farm", 2, ["--ft", "none"]) as job:
        record = job.wait_running(4)
        os.kill(record["daemon_pid"], signal.SIGSTOP)
        os.kill(record["ranks"][1]["pid"], signal.SIGKILL)
        os.kill(record["daemon_pid"], signal.SIGKILL)
        assert job.wait() == 128 + signal.SIGKILL, job.report()
        job.says("the job runs without protection and ends")
        gone(job)
