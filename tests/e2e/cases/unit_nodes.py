"""`--ft node`: the ranks that began on one node are checkpointed together and go back together;
those of others go on, and re-execute nothing."""

import os
import signal
import subprocess

from controller import kill_controller, same_processes
from coordinated_nodes import damage, talkative
from harness import EYRIE, Gated, example, run_to_end
from nodes import Nodes, expected


class Units:
    """What is asked of a job with recovery units, whichever ranks these are."""

    def strike(self, *ranks):
        """Kills ranks, as soon as all of them have processes."""
        self.until(lambda: self.kill_ranks(ranks)[0] == 0, f"processes of ranks {ranks}")

    def back(self, *units, times=1):
        """All ranks of these units were brought back so often."""
        for unit in units:
            for rank in self.units()[unit]:
                self.wait_event("restored", rank=rank, count=times)

    def ends_well(self, name, *units):
        """The output is right, and nobody but the ranks of these units ever went back."""
        self.ends_as(name)
        restored = {e["rank"] for e in self.events() if e["event"] == "restored"}
        want = set().union(*(self.units()[u] for u in units))
        assert restored == want, (restored, want, self.report())
        assert not self.count("rolled-back") and not self.count("diverged"), self.report()


class NodeUnits(Units, Nodes):
    """A job whose recovery units are nodes."""

    def __init__(self, name, nodes, options=(), every=0.4, **more):
        super().__init__(name, nodes, ["--ft", "node", *options], ckpt_every=every, **more)

    def units(self):
        """The ranks of each unit, by the node that they began on."""
        begun = {e["rank"]: e["node"] for e in self.events() if e["event"] == "started"}
        units = {}
        for rank, node in sorted(begun.items()):
            units.setdefault(node, set()).add(rank)
        return units



def last_sets(job, unit):
    """The sets that the ranks of a unit came from last."""
    last = {e["rank"]: e["generation"] for e in job.events() if e["event"] == "restored"}
    return {last[rank] for rank in job.units()[unit]}


def came_from(job, unit):
    """The set that all ranks of a unit came from last."""
    sets = last_sets(job, unit)
    assert len(sets) == 1, job.report()
    return sets.pop()


def undisturbed(name):
    expected(name)
    with NodeUnits(name, 2) as job:
        job.all_checkpointed()
        record = job.status()
        assert record["ft"] == "node" and record["protected"], record
        job.ends_well(name)
        sets = [e["generation"] for e in job.events() if e["event"] == "checkpointed"]
        assert sets and not job.count("detected"), job.report()


def rank_dies(name):
    """It alone: it and the other one of its node go back, where they were."""
    expected(name)
    with NodeUnits(name, 2) as job:
        job.all_checkpointed()
        job.strike(2)
        job.back(1)
        assert came_from(job, 1) >= 1, job.report()
        assert [r["node"] for r in job.wait_running(4)["ranks"]] == [0, 0, 1, 1], job.status()
        job.ends_well(name, 1)


def node_dies(name, nodes, lost, options=()):
    """With its storage: its ranks come back together, on one node."""
    expected(name)
    with NodeUnits(name, nodes, options) as job:
        job.all_checkpointed()
        job.kill_nodes(*lost)
        job.back(*lost)
        record = job.wait_running(4)
        for unit in lost:
            homes = {record["ranks"][r]["node"] for r in job.units()[unit]}
            assert len(homes) == 1 and not homes & set(lost), record
        job.ends_well(name, *lost)


def dies_in_a_set(name, moment, kind=NodeUnits, nodes=2):
    """A set under way counts for nothing; the one before does."""
    expected(name)
    with kind(name, nodes, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        before = job.count("checkpointing")
        command = subprocess.Popen(
            [EYRIE, "checkpoint", "last"],
            env=job.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        job.wait_event("checkpointing", count=before + moment)
        job.strike(1)
        job.back(0)
        assert came_from(job, 0) in (1, 2), job.report()
        job.until(lambda: command.poll() is not None, "an answer")
        job.ends_well(name, 0)


def begins_again_before_any_set(kind, nodes):
    expected("cg")
    with kind("cg", nodes, every=3600) as job:
        job.wait_running(4)
        job.strike(1)
        job.back(0)
        assert came_from(job, 0) == 0, job.report()
        job.ends_well("cg", 0)


def goes_back_with_its_unit(kind, nodes):
    """A rank that has ended."""
    expected("cg")
    with kind("cg", nodes, every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.let_end(1)
        job.wait_event("exited", rank=1)
        code, _, err = job.eyrie("checkpoint", "last", "--rank", "0", check=False)
        assert code == 1 and "rank 1 has ended" in err, (code, err)
        job.strike(0)
        job.back(0)
        assert came_from(job, 0) == 1, job.report()
        job.ends_well("cg", 0)


def all_in_turn(name):
    """Ranks and nodes die, at once and while others come back."""
    expected(name)
    with NodeUnits(name, 2, ["--spares", "2"]) as job:
        job.all_checkpointed()
        job.kill_pid(0)
        job.kill_nodes(1)
        job.wait_event("restored")
        job.kill_pid(1)
        job.back(0, 1)
        before = [job.count("restored", rank=rank) for rank in range(4)]
        job.strike(2, 0)
        job.wait_event("restored", rank=2, count=before[2] + 1)
        job.strike(3)
        for rank in (2, 3):
            job.wait_event("restored", rank=rank, count=before[rank] + 2)
        job.status()
        job.ends_well(name, 0, 1)


def generated():
    for name in ("farm", "heat"):
        yield f"{name}_undisturbed", lambda n=name: undisturbed(n)
    for name in ("farm", "cg", "heat", "sort"):
        yield f"{name}_rank_dies", lambda n=name: rank_dies(n)
    for name in ("farm", "heat"):
        yield f"{name}_loses_the_first_of_three", lambda n=name: node_dies(n, 3, [0])
    spare = ["--spares", "1", "--map", "cyclic"]
    yield "cg_loses_a_node_and_has_a_spare", lambda: node_dies("cg", 2, [1], spare)
    yield "farm_loses_two", lambda: node_dies("farm", 4, [0, 2])
    for moment in (1, 3):
        yield f"heat_dies_in_a_set_{moment}", lambda m=moment: dies_in_a_set("heat", m)
    for name in ("farm", "cg"):
        yield f"{name}_all_in_turn", lambda n=name: all_in_turn(n)


def test_its_controller_dies():
    """By itself, and with a rank."""
    expected("farm")
    with NodeUnits("farm", 2, every=0.3) as job:
        job.all_checkpointed()
        before = job.status()
        kill_controller(job)
        same_processes(job, before)
        job.strike(1)
        kill_controller(job, 2)
        job.back(0)
        assert came_from(job, 0) >= 1, job.report()
        job.ends_well("farm", 0)


def test_two_units_on_one_node():
    """They stay two: what they send each other is logged, and one goes back without the other."""
    expected("farm")
    with NodeUnits("farm", 2) as job:
        job.all_checkpointed()
        job.kill_nodes(1)
        job.back(1)
        assert {r["node"] for r in job.wait_running(4)["ranks"]} == {0}, job.status()
        job.strike(3)
        job.back(1, times=2)
        job.ends_well("farm", 1)


def test_a_rank_and_another_node_at_once():
    expected("heat")
    with NodeUnits("heat", 2, ["--spares", "1"]) as job:
        job.all_checkpointed()
        job.kill_nodes(1)
        job.kill_pid(0)
        job.back(0, 1)
        job.ends_well("heat", 0, 1)


def test_before_any_set_a_unit_begins_again():
    begins_again_before_any_set(NodeUnits, 2)


def test_a_rank_that_has_ended_goes_back_with_its_unit():
    goes_back_with_its_unit(NodeUnits, 2)


def test_without_a_good_image_of_one_rank_its_unit_goes_back_further():
    expected("cg")
    with NodeUnits("cg", 3, ["--map", "cyclic"], every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.eyrie("checkpoint", "last")
        damage(job, 3, 2, count=1)
        job.strike(0)
        job.back(0)
        assert came_from(job, 0) == 2, job.report()
        damage(job, 3, 2, count=2)
        job.strike(0)
        job.until(lambda: last_sets(job, 0) == {1}, "the set before")
        job.ends_well("cg", 0)


def test_within_a_node_nothing_is_retained():
    """Far more is sent there than the log holds, and no checkpoint is taken for that."""
    command = example("sort") + ["--log2", "20", "--iterations", "40", "--progress"]
    code, want, err = run_to_end(command)
    assert code == 0, (code, want, err)
    options = ["--nodes", "1", "--log-limit", "8M", "--ft", "node"]
    with Gated(command, ckpt_every=3600, options=options) as job:
        ranks = job.until(lambda: talkative(job), "messages")
        most = max(r["log_used_bytes"] for r in ranks)
        assert most <= 4 << 20, ranks
        job.kill_ranks([1])
        job.wait_event("restored", count=4)
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        assert "WARNING" not in job.stderr(), job.stderr()


def test_what_does_not_go_with_it():
    command = [EYRIE, "run", "-n", "4", "--nodes", "3", "--ft", "node"]
    done = subprocess.run([*command, "--keep", "true"], capture_output=True, text=True)
    assert done.returncode == 2 and "takes the logs of --ft logged" in done.stderr, done


def test_on_one_node_it_is_coordinated():
    with Gated(example("farm") + ["--tasks", "2000"], ft="node") as job:
        record = job.until(job.status, "a status")
        assert record["ft"] == "coordinated", record
        job.let_end()
        assert job.wait() == 0, job.report()
    assert not os.path.exists(job.job_home), job.job_home
