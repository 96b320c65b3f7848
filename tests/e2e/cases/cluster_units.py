"""`--ft cluster`: the ranks that began in one cluster, on whichever of its nodes, are checkpointed
together and go back together; those of other clusters go on, and re-execute nothing."""

import subprocess
import tempfile

from clusters import Clusters
from controller import kill_controller, same_processes
from harness import EYRIE, Gated, example, run_to_end
from nodes import Points, expected
from unit_nodes import (
    Units,
    begins_again_before_any_set,
    came_from,
    dies_in_a_set,
    goes_back_with_its_unit,
)

OUTSIDE = ["--copies", "outside"]


class ClusterUnits(Units, Clusters):
    """A job whose recovery units are its two clusters: ranks 0 and 1 are one, 2 and 3 the other."""

    def __init__(self, name, nodes=4, options=(), every=0.5, **more):
        super().__init__(name, nodes, ["--ft", "cluster", *options], ckpt_every=every, **more)

    def units(self):
        return {0: {0, 1}, 1: {2, 3}}

    def homes(self):
        return [r["node"] for r in self.wait_running(4)["ranks"]]

    def all_told(self):
        """The status, unless a node has not said how its ranks are since there is a controller."""
        record = self.status()
        return record if record and all(r["incarnation"] for r in record["ranks"]) else None

    def ends_well(self, name, *units):
        """The output is right; nobody but the ranks of these units died or was started again."""
        kept = self.until(self.all_told, "what all nodes say")
        super().ends_well(name, *units)
        want = set().union(*(self.units()[u] for u in units))
        died = {e["rank"] for e in self.events() if e["event"] == "detected"}
        assert died <= want, (died, want, self.report())
        for rank in kept["ranks"]:
            if rank["rank"] not in want:
                assert (rank["recoveries"], rank["incarnation"]) == (0, 1), rank


def undisturbed(name, nodes, options=()):
    expected(name)
    with ClusterUnits(name, nodes, options) as job:
        job.all_checkpointed(2)
        record = job.status()
        assert record["ft"] == "cluster" and record["protected"], record
        job.ends_well(name)
        assert not job.count("detected"), job.report()


def copies_are(name, where, options=()):
    """Images of every rank lie on two nodes: of one cluster, or of both."""
    with ClusterUnits(name, 4, options) as job:
        job.all_checkpointed()

        def two_each():
            holders = [set(r["image_nodes"]) for r in job.status()["ranks"]]
            return all(len(nodes) == 2 for nodes in holders) and holders

        holders = job.until(two_each, "two copies of each image")
        inside = [len({node // 2 for node in nodes}) == 1 for nodes in holders]
        assert inside == [where == "inside"] * 4, (where, holders)
        job.ends_well(name)


def rank_dies(name, options=()):
    """It and the other one of its cluster, which is on another node, go back, where they were."""
    expected(name)
    with ClusterUnits(name, 4, options) as job:
        job.all_checkpointed()
        job.strike(2)
        job.back(1)
        assert came_from(job, 1) >= 1, job.report()
        assert job.homes() == [0, 1, 2, 3], job.status()
        job.ends_well(name, 1)


def node_dies(name, lost, homes, options=()):
    """With its storage: its rank comes back in its cluster, the other one where it was."""
    expected(name)
    with ClusterUnits(name, 4, options) as job:
        job.all_checkpointed()
        job.kill_nodes(lost)
        job.back(lost // 2)
        assert came_from(job, lost // 2) >= 1, job.report()
        assert job.homes() == homes, job.status()
        job.ends_well(name, lost // 2)


def cluster_dies(name, options=()):
    """Both nodes of a cluster at once: what they had is in the other one."""
    expected(name)
    with ClusterUnits(name, 4, [*OUTSIDE, *options]) as job:
        job.all_checkpointed()
        job.kill_nodes(2, 3)
        job.back(1)
        assert came_from(job, 1) >= 1, job.report()
        assert not {2, 3} & set(job.homes()), job.status()
        job.ends_well(name, 1)


def all_in_turn(name):
    """Ranks, nodes and gateways die, at once and while others come back."""
    expected(name)
    with ClusterUnits(name, 4, ["--spares", "2"]) as job:
        job.all_checkpointed()
        job.kill_pid(0)
        job.kill_nodes(3)
        job.wait_event("restored")
        job.kill_pid(1)
        job.back(0, 1)
        job.kill_gateways(0, 1)
        before = [job.count("restored", rank=rank) for rank in range(4)]
        job.strike(2, 0)
        for rank in range(4):
            job.wait_event("restored", rank=rank, count=before[rank] + 1)
        job.ends_well(name, 0, 1)


def generated():
    for name in ("farm", "heat"):
        yield f"{name}_undisturbed", lambda n=name: undisturbed(n, 4)
    yield "sort_undisturbed_on_six", lambda: undisturbed("sort", 6)
    for where in ("inside", "outside"):
        options = ["--copies", where]
        yield f"copies_{where}", lambda w=where, o=options: copies_are("heat", w, o)
    for name in ("farm", "cg", "heat", "sort"):
        yield f"{name}_rank_dies", lambda n=name: rank_dies(n)
    yield "farm_rank_dies_copies_outside", lambda: rank_dies("farm", OUTSIDE)
    yield "farm_rank_dies_encrypted", lambda: rank_dies("farm", ["--tls"])
    for name in ("farm", "heat"):
        shared = lambda n=name: node_dies(n, 1, [0, 0, 2, 3])
        yield f"{name}_loses_a_node_and_shares_another", shared
    spare = ["--spares", "2"]
    # Spares are in the clusters in turn: node 5 is in the second one.
    yield "cg_loses_a_node_and_has_a_spare", lambda: node_dies("cg", 2, [0, 1, 5, 3], spare)
    yield "farm_loses_a_node_outside", lambda: node_dies("farm", 3, [0, 1, 2, 2], OUTSIDE)
    for name in ("farm", "heat"):
        yield f"{name}_loses_a_cluster", lambda n=name: cluster_dies(n)
    for moment in (1, 4):
        yield f"heat_dies_in_a_set_{moment}", lambda m=moment: (
            dies_in_a_set("heat", m, ClusterUnits, 4)
        )
    for name in ("farm", "cg"):
        yield f"{name}_all_in_turn", lambda n=name: all_in_turn(n)


def test_a_gateway_dies_and_no_rank_is_touched():
    expected("farm")
    with ClusterUnits("farm") as job:
        job.all_checkpointed()
        job.kill_gateways(0)
        job.kill_gateways(0, 1)
        job.all_checkpointed(2)
        job.ends_well("farm")


class PointedUnits(Points, ClusterUnits):
    pass


def test_the_controller_dies_in_a_set():
    """The next one goes on with the set: the ranks of one node stand already."""
    expected("heat")
    with PointedUnits("heat", every=3600) as job:
        before = job.wait_running(4)
        job.arm("set-1")
        ask = [EYRIE, "checkpoint", "last", "--rank", "0"]
        with subprocess.Popen(ask, env=job.env, stderr=subprocess.DEVNULL) as asked:
            job.dies_at("set-1", 1)
            asked.kill()
        for rank in (0, 1):
            job.wait_event("checkpointed", rank=rank)
        same_processes(job, before)
        job.strike(1)
        job.back(0)
        assert came_from(job, 0) == 1, job.report()
        job.ends_well("heat", 0)


def test_the_controller_dies_with_ranks_and_nodes():
    """Those of other clusters are not touched."""
    expected("farm")
    with ClusterUnits("farm", every=0.3) as job:
        job.all_checkpointed()
        before = job.status()
        kill_controller(job)
        same_processes(job, before)
        job.all_checkpointed(2)
        job.strike(2)
        kill_controller(job, 2)
        job.back(1)
        job.kill_nodes(3)
        job.wait_event("node-lost", node=3)
        kill_controller(job, 3)
        job.back(1, times=2)
        assert job.homes() == [0, 1, 2, 2], job.status()
        job.ends_well("farm", 1)


def test_a_lost_cluster_with_copies_inside_sends_all_back():
    """There is nothing else to come back from, and the user is told what would have helped."""
    expected("heat")
    with ClusterUnits("heat", 4) as job:
        job.all_checkpointed()
        job.kill_nodes(2, 3)
        job.wait_event("rolled-back")
        job.ends_as("heat")
        text = job.stderr()
        assert "no node of its cluster is left" in text and "--copies outside" in text, text


def test_a_unit_goes_back_from_two_nodes_again_and_again():
    """What was on its way between its nodes each time comes back with it."""
    expected("sort")
    with ClusterUnits("sort", 4, every=0.3) as job:
        job.all_checkpointed()
        for times in range(1, 4):
            job.strike(times % 2)
            job.back(0, times=times)
        job.ends_well("sort", 0)


def test_a_job_stands_still_and_grows():
    expected("heat")
    with ClusterUnits("heat", every=0.3) as job:
        job.all_checkpointed()
        for _ in range(3):
            job.eyrie("suspend", "last")
            job.eyrie("resume", "last")
        job.all_checkpointed(3)
        job.strike(0)
        job.back(0)
        job.eyrie("suspend", "last")
        job.eyrie("resume", "last")
        job.eyrie("grow", "last", "--nodes", "2")
        job.kill_nodes(0)
        job.back(0, times=2)
        assert job.homes() == [4, 1, 2, 3], job.status()
        job.ends_well("heat", 0)


def test_before_any_set_a_unit_begins_again():
    begins_again_before_any_set(ClusterUnits, 4)


def test_a_rank_that_has_ended_goes_back_with_its_unit():
    goes_back_with_its_unit(ClusterUnits, 4)


def test_within_a_cluster_nothing_is_retained():
    """Far more is sent between its nodes than the log holds, and no checkpoint is taken for that."""
    command = example("sort") + ["--log2", "20", "--iterations", "40", "--progress"]
    code, want, err = run_to_end(command)
    assert code == 0, (code, want, err)
    # Of three nodes two are in the first cluster, and all ranks are there.
    with tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write("".join(f"rank {rank}=+n{rank // 2}\n" for rank in range(4)))
        file.flush()
        options = ["--nodes", "3", "--clusters", "2", "--rankfile", file.name]
        options += ["--ft", "cluster", "--log-limit", "16M"]
        with Gated(command, ckpt_every=3600, options=options) as job:
            job.wait_running(4)
            job.kill_ranks([1])
            job.wait_event("restored", count=4)
            job.let_end()
            assert job.wait() == 0 and job.stdout() == want, job.report()
            assert "WARNING" not in job.stderr(), job.stderr()
            assert job.count("checkpointed") == 0, job.report()


def test_what_does_not_go_with_it():
    command = [EYRIE, "run", "-n", "4", "--nodes", "4", "--ft", "cluster"]
    two = ["--clusters", "2"]
    for more, words in (
        ([], "needs several clusters: give --clusters"),
        ([*two, "--keep"], "takes the logs of --ft logged"),
        ([*two, "--ft", "node"], "--clusters out"),
        (["--ft", "logged", *OUTSIDE], "--copies is for several clusters"),
    ):
        line = [w for w in command if "--ft" not in more or w not in ("--ft", "cluster")]
        done = subprocess.run([*line, *more, "true"], capture_output=True, text=True)
        assert done.returncode == 2 and words in done.stderr, (more, done)
