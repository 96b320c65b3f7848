"""Jobs that stand still (`eyrie suspend`) and go on where they stood: what dies meanwhile, and what is
asked of them meanwhile; jobs that take turns (`eyrie share`). The results are those of undisturbed
runs."""

import contextlib
import json
import os
import signal
import subprocess

from bad_input import program
from controller import kill_both, kill_controller, resume
from drain import drain, is_gone
from harness import EYRIE, run_to_end, soon
from hosts import Hosted, shell
from nodes import Nodes, expected
from restart import Gated, restart, save


def threads(pid):
    """The folders of the threads of a process. It, and they, may end while they are looked at."""
    with contextlib.suppress(OSError):
        return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
    return []


def family(pid):
    """A process and its descendants."""
    found = [pid]
    for each in found:
        for thread in threads(each):
            with contextlib.suppress(OSError), open(f"{thread}/children") as file:
                found += [int(p) for p in file.read().split()]
    return found


def tasks(pid):
    """State and processor time of each thread of a process and of its children."""
    found = {}
    for thread in [thread for each in family(pid) for thread in threads(each)]:
        with contextlib.suppress(OSError), open(f"{thread}/stat") as file:
            words = file.read().rsplit(")", 1)[1].split()
            found[int(os.path.basename(thread))] = (words[0], int(words[11]) + int(words[12]))
    return found


def ranks_of(record):
    return [r["pid"] for r in record["ranks"] if r["pid"]]


def stands(job):
    """No thread of any rank runs, and status says so; what the job says then."""

    def all_stand():
        # Of a node that is slow to answer, or has just come back to its controller, it knows nothing.
        record = job.status()
        states = {r["state"] for r in (record or {}).get("ranks", []) if r["pid"]}
        return record if states == {"suspended"} else None

    record = soon(all_stand, "ranks that stand")
    assert record["suspended"] and record["suspended"]["whole"], record
    assert record["suspended"]["by"] == ["user"], record
    before = {pid: tasks(pid) for pid in ranks_of(record)}
    # It answers, and takes its time for that.
    later = job.status()
    assert later["suspended"]["for_ms"] > record["suspended"]["for_ms"], later
    after = {pid: tasks(pid) for pid in ranks_of(record)}
    assert before == after, (before, after)
    assert {state for all in before.values() for state, _ in all.values()} == {"t"}, before
    return record


def goes_on(job):
    job.eyrie("resume", "last")
    record = job.status()
    assert record["suspended"] is None and record["suspended_ms"] > 0, record
    return record


def suspended(job):
    job.eyrie("suspend", "last")
    job.wait_event("suspended")
    return stands(job)


def on(name, nodes, options=(), **more):
    """A job on one node, or over so many."""
    expected(name)
    return Nodes(name, nodes or [], options, **more)


def untouched(job, before):
    """The processes are the same."""
    now = job.status()
    assert ranks_of(now) == ranks_of(before), (now, before)
    assert (now["recoveries"], now["rollbacks"]) == (0, 0), now


def stands_and_goes_on(name, nodes, options=()):
    with on(name, nodes, options, ckpt_every=0.5) as job:
        job.wait_running(4)
        for count in (1, 2):
            before = suspended(job)
            goes_on(job)
            job.wait_event("resumed", count=count)
            untouched(job, before)
        job.ends_as(name)


def test_it_goes_on_where_it_stood():
    stands_and_goes_on("farm", 0)


def test_it_stands_on_all_nodes():
    stands_and_goes_on("heat", 3)


def test_jobs_without_protection_stand_too():
    with on("cg", 0, ft="none") as job:
        job.wait_running(4)
        suspended(job)
        goes_on(job)
        job.ends_as("cg")


def test_ranks_that_stand_together_for_checkpoints_do_it():
    """They do not come to a safe point while they stand: no set begins."""
    for nodes, options in ((0, ["--ft", "coordinated"]), (2, ["--ft", "coordinated"]), (2, ["--ft", "node"])):
        with on("farm", nodes, options, ckpt_every=0.3) as job:
            job.all_checkpointed()
            suspended(job)
            begun = job.count("checkpointing")
            stands(job)
            assert job.count("checkpointing") == begun, job.report()
            goes_on(job)
            done = job.count("checkpointed")
            job.wait_event("checkpointed", count=done + 1)
            job.ends_as("farm")


def test_threads_and_children_stand():
    """Each rank is a shell that waits for the program, which has five threads. It waits for input
    twice, so that these are there however fast it is."""
    command = ["sh", "-c", '"$@"; exit $?', "sh", *program("threads"), "3000", "gates"]
    code, want, err = run_to_end(command, ranks=2, stdin=b"\n\n")
    assert code == 0 and want.startswith("threads: sum "), (code, want, err)
    with Gated(command, ranks=2, ckpt_every=0.5, stdin="open") as job:
        ranks = ranks_of(job.wait_running(2))
        job.until(lambda: all(len(tasks(pid)) >= 6 for pid in ranks), "all threads")
        # It computes now, or waits again.
        job.process.stdin.write(b"\n")
        job.process.stdin.flush()
        record = suspended(job)
        assert all(len(tasks(pid)) >= 6 for pid in ranks_of(record)), record
        goes_on(job)
        job.process.stdin.write(b"\n")
        job.process.stdin.close()
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()


def test_no_time_counts_while_it_stands():
    """The clock of checkpoints stands, too: the next one is as far away as it was."""
    with on("farm", 0, ckpt_every=30) as job:
        job.wait_running(4)
        suspended(job)
        next_one = [r["next_checkpoint"] for r in job.status()["ranks"]]
        stands(job)
        assert [r["next_checkpoint"] for r in job.status()["ranks"]] == next_one
        goes_on(job)
        job.ends_as("farm")


def test_a_rank_that_dies_comes_back_and_stands():
    for nodes in (0, 2):
        with on("farm", nodes, ckpt_every=0.3) as job:
            job.all_checkpointed()
            suspended(job)
            assert job.kill_pid(1)
            job.wait_event("detected", rank=1)
            job.wait_event("restored", rank=1)
            stands_soon(job)
            job.kill_ranks([1, 2])
            job.wait_event("restored", rank=1, count=2)
            job.wait_event("restored", rank=2)
            stands_soon(job)
            goes_on(job)
            job.ends_as("farm")
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def stands_soon(job):
    """One that was started now is stopped at once. Others may still be on their way back."""

    def all_stand():
        return {r["state"] for r in (job.status() or {}).get("ranks", [])} == {"suspended"}

    soon(all_stand, "ranks that stand")
    stands(job)


def test_a_node_that_dies_is_replaced_meanwhile():
    with on("heat", 3, ["--spares", "1"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = suspended(job)
        on_it = [r["rank"] for r in record["ranks"] if r["node"] == 1]
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        for rank in on_it:
            job.wait_event("restored", rank=rank)
        stands_soon(job)
        goes_on(job)
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_next_controller_knows_that_it_stands():
    with on("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = suspended(job)
        kill_controller(job)
        stands(job)
        kill_controller(job, 2)
        stands(job)
        untouched(job, before)
        goes_on(job)
        job.ends_as("farm")


def test_resume_is_for_both():
    """`eyrie resume` takes up a job whose controller is gone; it stands as before, until the next."""
    with on("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = suspended(job)
        kill_both(job)
        resume(job)
        job.wait_event("controller-back")
        stands(job)
        goes_on(job)
        untouched(job, before)
        job.ends_as("farm")


def test_checkpoints_are_taken_of_ranks_that_stand():
    for nodes, options in ((0, []), (2, []), (0, ["--ft", "coordinated"])):
        with on("farm", nodes, options, ckpt_every=60) as job:
            job.wait_running(4)
            suspended(job)
            done = job.count("checkpointed")
            job.eyrie("checkpoint", "last")
            job.wait_event("checkpointed", count=done + 4)
            stands_soon(job)
            job.kill_ranks([3])
            job.wait_event("restored")
            stands_soon(job)
            goes_on(job)
            job.ends_as("farm")


def test_a_node_leaves_a_job_that_stands():
    with on("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = suspended(job)
        assert drain(job, "1")[-1]["step"] == "left"
        is_gone(job, 1, record)
        stands_soon(job)
        goes_on(job)
        job.ends_as("farm")
        assert not job.count("rolled-back"), job.report()


def test_it_is_saved_while_it_stands():
    for nodes in (0, 2):
        with on("farm", nodes, ckpt_every=0.5) as job:
            job.wait_running(4)
            suspended(job)
            save(job)
            restart(job)
            # The event is told before anybody can be asked.
            assert job.wait_running(4)["suspended"] is None
            job.ends_as("farm")


def test_it_ends_when_it_is_asked_to():
    for nodes in (0, 2):
        with on("farm", nodes, ckpt_every=0.5) as job:
            job.wait_running(4)
            suspended(job)
            job.interrupt(signal.SIGTERM)
            assert job.wait() != 0
            job.settle()
            assert not job.left_over(), job.left_over()


def test_hosts_stand():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.all_checkpointed()
        suspended(job)
        assert job.kill_pid(2)
        job.wait_event("restored", rank=2)
        stands_soon(job)
        goes_on(job)
        job.ends_as("farm")


def test_clusters_stand():
    with on("farm", 4, ["--clusters", "2"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        suspended(job)
        job.eyrie("inject", "last", "kill-gateway", "0")
        job.wait_event("gateway-back")
        stands(job)
        goes_on(job)
        job.ends_as("farm")


def told(job, words, code, *texts):
    got, _, err = job.eyrie(*words, check=False)
    assert got == code and all(text in err for text in texts), (got, err)


def test_what_cannot_be_is_told():
    with on("farm", 0) as job:
        job.wait_running(4)
        told(job, ["resume", "last"], 1, "it is running, and not suspended")
        suspended(job)
        told(job, ["suspend", "last"], 1, "suspended already", "eyrie resume")
        told(job, ["share", "last"], 2, "JOB")
        told(job, ["share", "last", "last"], 2, "named twice")
        assert "suspended" in job.eyrie("ps")[1]
        assert "suspended by eyrie suspend" in job.eyrie("status", "last", "-v")[1]
        goes_on(job)
        job.ends_as("farm")
        told(job, ["suspend", "last"], 1, "no job")


class Pair:
    """Two jobs under one home, and `eyrie share` over both."""

    def __init__(self, first, second, *options):
        self.jobs = (first, second)
        self.ids = [named(job, name) for job, name in zip(self.jobs, ("one", "two"))]
        words = [EYRIE, "share", *self.ids, "-v", *options]
        self.process = subprocess.Popen(
            words, env=first.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def turns(self, count):
        """So many turns were taken."""
        lines = [self.process.stdout.readline() for _ in range(count)]
        assert all(" ran for " in line for line in lines), lines
        return [line.split()[1] for line in lines]

    def status(self, number):
        code, out, err = self.jobs[0].eyrie("status", self.ids[number], "--json", check=False)
        assert code == 0, err
        record = json.loads(out)
        self.jobs[number].pids.update(ranks_of(record))
        return record

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def named(job, name):
    """The id of the job with this name, once it is there."""
    found = []

    def there():
        records = json.loads(job.eyrie("ps", "--json")[1])
        found[:] = [
            r["job"] for r in records if r["name"] == name and all(k["pid"] for k in r["ranks"])
        ]
        return found

    soon(there, f"job {name}")
    return found[0]


def pair(nodes, *options):
    """Two jobs that share."""
    expected("farm")
    expected("heat")
    one = on("farm", nodes, ["--name", "one"], ckpt_every=0.5)
    two = on("heat", nodes, ["--name", "two"], ckpt_every=0.5, env={"EYRIE_HOME": one.home})
    return one, two, Pair(one, two, *options)


def end_of(job, name):
    job.let_end()
    job.process.wait(timeout=120)
    assert job.process.returncode == 0, (job.stderr(), job.stdout())
    assert job.stdout() == expected(name), job.stderr()


def ended(one, two, share):
    end_of(two, "heat")
    end_of(one, "farm")
    one.settle()
    assert not one.left_over() and not two.left_over()


def test_jobs_take_turns():
    for nodes in (0, 2):
        one, two, share = pair(nodes, "--slice", "300ms")
        with one, two, share:
            turns = share.turns(6)
            assert turns == share.ids * 3, turns
            stood = [share.status(n)["suspended_ms"] for n in (0, 1)]
            assert all(ms >= 600 for ms in stood), stood
            end_of(two, "heat")
            out, _ = share.process.communicate(timeout=120)
            assert share.process.returncode == 0 and "runs on alone" in out, out
            assert share.status(0)["suspended"] is None
            end_of(one, "farm")


def all_run(share):
    soon(lambda: all(share.status(n)["suspended"] is None for n in (0, 1)), "jobs that run")


def test_jobs_run_on_when_the_command_is_killed():
    one, two, share = pair(2, "--slice", "200ms")
    with one, two, share:
        share.turns(3)
        share.process.kill()
        all_run(share)
        ended(one, two, share)


def test_jobs_run_on_when_the_command_hangs():
    """The lease lapses."""
    one, two, share = pair(0, "--slice", "100ms")
    with one, two, share:
        share.turns(3)
        share.process.send_signal(signal.SIGSTOP)
        all_run(share)
        ended(one, two, share)


def test_turns_go_on_over_deaths():
    """A rank, a node and the controller of jobs that take turns die."""
    one, two, share = pair(2, "--slice", "200ms")
    with one, two, share:
        share.turns(2)
        record = share.status(0)
        os.kill(record["ranks"][0]["pid"], signal.SIGKILL)
        share.turns(4)
        os.kill(share.status(1)["daemon_pid"], signal.SIGKILL)
        share.turns(6)
        assert share.status(1)["reign"] == 2
        one.eyrie("inject", share.ids[0], "kill-node", "1")
        share.turns(6)
        share.process.kill()
        all_run(share)
        soon(lambda: share.status(0)["recoveries"] >= 2, "ranks that are back")
        ended(one, two, share)


def test_a_job_that_is_suspended_waits_in_its_turn_too():
    one, two, share = pair(0, "--slice", "100ms")
    with one, two, share:
        one.eyrie("suspend", share.ids[0])
        share.turns(4)
        record = share.status(0)
        assert "user" in record["suspended"]["by"], record
        share.process.send_signal(signal.SIGINT)
        soon(lambda: share.status(1)["suspended"] is None, "job that runs")
        soon(lambda: share.status(0)["suspended"]["by"] == ["user"], "job that nobody leases")
        one.eyrie("resume", share.ids[0])
        all_run(share)
        ended(one, two, share)
