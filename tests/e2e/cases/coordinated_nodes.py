"""`--ft coordinated` over nodes: all ranks of all nodes are checkpointed together, and go back
together, whoever dies."""

import os
import signal
import subprocess

from bad_input import program
from coordinated import RARELY, coordinated, measured
from faults import flip_a_byte
from harness import EYRIE, example, run_to_end
from netns import needs_root
from nodes import Nodes, expected, gone
from restart import restart, save


class Together(Nodes):
    """A job over nodes whose ranks are one recovery unit."""

    def __init__(self, name, nodes, options=(), every=0.3, **more):
        options = ["--ft", "coordinated", *options]
        super().__init__(name, nodes, options, ckpt_every=every, **more)

    def sets(self, count=1):
        """So many sets count."""
        self.all_checkpointed(count)

    def all_back(self, before):
        """All ranks were brought back since, from one set or from the beginning."""
        back = lambda: self.count("rolled-back") > before and self.running_again()
        self.until(back, "all ranks again")

    def ask_for_a_set(self):
        """Without waiting for it."""
        return subprocess.Popen(
            [EYRIE, "checkpoint", "last"],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def running_again(self):
        """The ranks that were started since all went back last."""
        events = self.events()
        last = max(n for n, e in enumerate(events) if e["event"] == "rolled-back")
        again = [e for e in events[last:] if e["event"] == "restored"]
        return {e["rank"] for e in again} == {0, 1, 2, 3} and again


def one_set(job):
    """The set that all ranks came from last."""
    again = job.running_again()
    sets = {e["generation"] for e in again}
    assert again and len(sets) == 1, again
    return sets.pop()


def undisturbed(name):
    expected(name)
    with Together(name, 3) as job:
        job.sets()
        assert all("together" in r["next_checkpoint"] for r in job.status()["ranks"]), job.status()
        two = lambda: all(len(r["image_nodes"]) == 2 for r in job.status()["ranks"])
        job.until(two, "two copies of each image")
        job.ends_as(name)
        assert not job.count("rolled-back") and not job.count("restored"), job.report()


def test_sets_over_nodes_come_by_what_they_cost():
    expected("heat")
    with Together("heat", 2, RARELY, every=None) as job:
        measured(job)
        job.ends_as("heat")


def rank_dies(name):
    """It alone, on its node: all go back, and come back where they were."""
    expected(name)
    with Together(name, 2) as job:
        job.sets()
        homes = [r["node"] for r in job.wait_running(4)["ranks"]]
        job.kill_ranks([2])
        job.all_back(0)
        assert one_set(job) >= 1, job.report()
        assert [e["node"] for e in sorted(job.running_again(), key=rank)] == homes, job.report()
        job.status()
        job.ends_as(name)


def rank(event):
    return event["rank"]


def node_dies(name, nodes, lost, options=()):
    """With its storage: all ranks go back to a set, on what is left."""
    expected(name)
    with Together(name, nodes, options) as job:
        job.sets()
        folder = job.folder()
        job.kill_nodes(*lost)
        job.all_back(0)
        assert one_set(job) >= 1, job.report()
        record = job.status()
        assert not {r["node"] for r in record["ranks"]} & set(lost), record
        for node in lost:
            assert not os.path.exists(os.path.join(folder, f"node-{node}")), os.listdir(folder)
        job.ends_as(name)


def node_dies_in_a_set(name, moment):
    """A set under way counts for nothing; the one before does."""
    expected(name)
    with Together(name, 3, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        command = job.ask_for_a_set()
        job.wait_event("checkpointing", count=4 + moment)
        job.kill_nodes(1)
        job.all_back(0)
        assert one_set(job) in (1, 2), job.report()
        job.until(lambda: command.poll() is not None, "an answer")
        job.ends_as(name)


def all_in_turn(name):
    """Nodes and ranks die, one after the other, also while all come back."""
    expected(name)
    with Together(name, 4, ["--spares", "1"]) as job:
        job.sets()
        job.kill_nodes(1)
        job.wait_event("rolled-back")
        job.kill_pid(0)
        job.wait_event("restored")
        job.kill_nodes(3)
        job.all_back(1)
        job.kill_ranks([0, 2])
        job.all_back(job.count("rolled-back") - 1)
        job.status()
        job.ends_as(name)


def saved(name):
    """Saved as a whole, and restarted on others, where nodes die."""
    expected(name)
    with Together(name, 4, every=3600) as job:
        job.wait_running(4)
        save(job)
        restart(job, "--nodes", "2")
        job.wait_event("restored", count=4)
        job.kill_nodes(1)
        job.wait_event("rolled-back")
        job.all_back(0)
        save(job)
        restart(job, "--nodes", "3")
        job.wait_running(4)
        job.ends_as(name)
        assert job.count("saved") == 2, job.report()


def generated():
    for name in ("farm", "heat"):
        yield f"{name}_undisturbed", lambda n=name: undisturbed(n)
    for name in ("farm", "cg", "heat", "sort"):
        yield f"{name}_rank_dies", lambda n=name: rank_dies(n)
        yield f"{name}_loses_a_node", lambda n=name: node_dies(n, 3, [1])
    yield "farm_loses_the_first_of_two", lambda: node_dies("farm", 2, [0])
    spare = ["--spares", "1", "--map", "cyclic"]
    yield "cg_loses_two_and_has_a_spare", lambda: node_dies("cg", 4, [0, 2], spare)
    for moment in (1, 4):
        test = lambda m=moment: node_dies_in_a_set("heat", m)
        yield f"heat_loses_a_node_in_a_set_{moment}", test
    for name in ("farm", "cg"):
        yield f"{name}_all_in_turn", lambda n=name: all_in_turn(n)
        yield f"{name}_saved", lambda n=name: saved(n)


def test_before_any_set_all_begin_again():
    expected("farm")
    with Together("farm", 2, every=3600) as job:
        job.wait_running(4)
        job.kill_nodes(1)
        job.all_back(0)
        assert one_set(job) == 0, job.report()
        job.ends_as("farm")


def test_a_damaged_image_is_taken_from_the_other_node_and_else_the_set_before():
    expected("cg")
    with Together("cg", 3, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.eyrie("checkpoint", "last")
        damage(job, 1, 2, count=1)
        job.kill_ranks([3])
        job.all_back(0)
        assert one_set(job) == 2, job.report()
        damage(job, 1, 2, count=2)
        job.kill_ranks([0])
        job.all_back(1)
        job.until(lambda: job.running_again() and one_set(job) == 1, "the set before")
        job.ends_as("cg")


def damage(job, number, generation, count):
    """Copies of an image, on so many nodes: the first is that of its home."""
    home = job.status()["ranks"][number]["node"]
    name = f"rank-{number}.gen-{generation}"
    nodes = sorted(range(3), key=lambda n: n != home)
    paths = [os.path.join(job.folder(), f"node-{n}", "images", name) for n in nodes]
    there = [p for p in paths if os.path.exists(p)]
    assert len(there) >= count, (paths, there)
    for path in there[:count]:
        flip_a_byte(path)


def test_a_rank_that_has_ended():
    """From then on there are no more sets, and it is run again when all go back."""
    expected("cg")
    with Together("cg", 2, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.let_end(1)
        job.wait_event("exited", rank=1)
        code, _, err = job.eyrie("checkpoint", "last", check=False)
        assert code == 1 and "rank 1 has ended" in err, (code, err)
        job.interrupt(signal.SIGQUIT)
        job.says("is not saved")
        job.kill_nodes(1)
        job.all_back(0)
        assert one_set(job) == 1, job.report()
        job.ends_as("cg")


def test_memory_of_the_log_is_given_back():
    """Far more is sent between nodes than the log holds."""
    command = example("sort") + ["--log2", "20", "--iterations", "20", "--progress"]
    code, want, err = run_to_end(command)
    assert code == 0, (code, want, err)
    options = ["--nodes", "2", "--log-limit", "8M"]
    with coordinated(command, every=0.5, options=options) as job:
        ranks = job.until(lambda: talkative(job), "messages")
        job.kill_ranks([1])
        job.wait_event("restored", count=4)
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        gone(job)
        assert "WARNING" not in job.stderr(), (ranks, job.stderr())


def talkative(job):
    """The status of the ranks, once each has sent more than a log of 8 MiB holds."""
    record = job.status()
    ranks = record["ranks"] if record else []
    return ranks and all(r["bytes_sent"] > 10 << 20 for r in ranks) and ranks


def test_nobody_is_heard_who_was_lost():
    """A daemon is stopped; it is taken for lost, and killed, before anybody goes on."""
    expected("farm")
    with Together("farm", 3) as job:
        job.sets()
        os.kill(job.status()["nodes"][2]["pid"], signal.SIGSTOP)
        job.wait_event("node-lost", node=2)
        job.all_back(0)
        job.ends_as("farm")


def calling(mode, *options):
    """A job of four ranks with connections of their own, and what it is to print."""
    code, want, err = run_to_end(program("calls") + ["tcp"])
    assert code == 0 and "rank 3:" in want, (code, want, err)
    command = program("calls") + [mode]
    return coordinated(command, every=3600, options=["--nodes", "3", *options]), want


def kept_in_mid_stream(job):
    """A set of all ranks, which have something in flight to each other."""
    job.until(lambda: "step " in job.stdout(), "a line")
    job.eyrie("checkpoint", "last")


def back_from_a_set(job, rolled):
    """All ranks came back from a set since they went back so many times."""
    back = lambda: job.count("rolled-back") > rolled and again(job)
    ranks = job.until(back, "all ranks again")
    assert {e["generation"] for e in ranks} != {None} and one_of(ranks) >= 1, job.report()


def again(job):
    events = job.events()
    last = max(n for n, e in enumerate(events) if e["event"] == "rolled-back")
    ranks = [e for e in events[last:] if e["event"] == "restored"]
    return len(ranks) == 4 and ranks


def one_of(events):
    sets = {e["generation"] for e in events}
    assert len(sets) == 1, events
    return sets.pop()


def test_connections_between_nodes():
    """TCP connections between ranks come back with what was in flight, on the same nodes, on others,
    where ranks that shared a node are apart and others meet, and in another job."""
    job, want = calling("tcp")
    with job:
        kept_in_mid_stream(job)
        job.kill_ranks([2])
        back_from_a_set(job, 0)
        job.eyrie("inject", "last", "kill-node", "0")
        back_from_a_set(job, 1)
        save(job)
        before = job.count("restored")
        restart(job, "--nodes", "2")
        job.wait_event("restored", count=4 + before)
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        gone(job)


def test_connections_between_networks():
    """Nodes with addresses of their own: a rank comes back where the address is another one."""
    needs_root()
    job, want = calling("wide", "--netns")
    with job:
        kept_in_mid_stream(job)
        job.eyrie("inject", "last", "kill-node", "1")
        back_from_a_set(job, 0)
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        gone(job)


def test_a_unix_socket_between_nodes_is_refused_by_name():
    command = program("calls")
    with coordinated(command, options=["--nodes", "2"], ranks=2) as job:
        job.wait_event("checkpoint-failed")
        failed = [e["text"] for e in job.events() if e["event"] == "checkpoint-failed"]
        assert "file descriptor" in failed[0] and "socket" in failed[0], failed
        job.let_end()
        assert job.wait() == 0, job.report()
