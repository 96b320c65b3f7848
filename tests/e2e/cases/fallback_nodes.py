"""`--fallback-every` over nodes: after a divergence, or when more is lost than copies and outcomes bear, all
ranks return together to a snapshot. And a rank that dies on one node only goes on at another."""

import os
import signal
import subprocess
import tempfile

from bad_input import program
from fallback import RANKS, Drifting, returned
from harness import EYRIE, run_to_end
from nodes import Nodes, Points, expected, gone
from restart import restart, save

SNAPSHOTS = ["--fallback-every", "1"]


def asks(job):
    """For checkpoints of all ranks, without waiting for them."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([EYRIE, "checkpoint", "last"], env=job.env, **quiet)


class DriftingNodes(Points, Drifting):
    """On three nodes, no rank of which repeats itself."""

    def __init__(self, options=("--nodes", "3"), **more):
        super().__init__(options=options, **more)

    def snapshot(self):
        count = self.count("snapshot")
        self.gets_on()
        self.checkpoint()
        self.wait_event("snapshot", count=count + 1)

    def back_to_the_newest(self, rank):
        newest = [e["generation"] for e in self.events() if e["event"] == "snapshot"][-1]
        event = self.diverge(rank)
        returned(self, event, f"the replay of rank {rank} diverged")
        assert event["generation"] == newest, event

    def ends(self):
        super().ends()
        assert self.begun() == [1] * RANKS, self.begun()


def test_a_divergence_costs_what_was_done_since_the_snapshot():
    """Twice; then the job is saved, and has nothing to repeat when it goes on."""
    with DriftingNodes() as job:
        job.snapshot()
        job.back_to_the_newest(1)
        job.snapshot()
        job.back_to_the_newest(3)
        job.gets_on()
        diverged = job.count("rolled-back")
        save(job)
        restart(job, "--nodes", "2")
        job.wait_event("restarted")
        job.gets_on()
        assert job.count("rolled-back") == diverged, job.report()
        job.snapshot()
        job.back_to_the_newest(2)
        job.ends()


def test_a_snapshot_in_a_vault():
    """Of which each image is in the vault; all return to it, and to the next one."""
    with DriftingNodes(options=["--nodes", "4", "--vault", "rs:2+2"]) as job:
        job.snapshot()
        assert job.count("vaulted") >= RANKS, job.report()
        job.back_to_the_newest(1)
        job.snapshot()
        job.back_to_the_newest(0)
        job.ends()


def test_the_controller_changes_in_the_middle():
    """Of a snapshot, and of a return: the next one goes on with them."""
    with DriftingNodes() as job:
        job.snapshot()
        job.gets_on()
        job.arm("snapshot-2")
        asked = asks(job)
        job.dies_at("snapshot-2", 1)
        asked.wait()
        job.wait_event("snapshot", count=2)
        job.back_to_the_newest(0)
        job.snapshot()
        job.gets_on()
        job.arm("return-1")
        count = job.count("restored")
        job.kill_ranks([2])
        job.dies_at("return-1", 2)
        job.wait_event("restored", count=count + RANKS)
        job.snapshot()
        job.back_to_the_newest(1)
        job.ends()


def test_a_rank_dies_in_the_middle_of_a_snapshot():
    """It alone comes back, all others go on at once; the next one counts."""
    expected("heat")
    with Killed(3) as job:
        killed = job.wait_running(4)["ranks"][3]["pid"]
        job.arm("snapshot-2")
        asked = asks(job)
        job.held_at("snapshot-2")
        os.kill(killed, signal.SIGKILL)
        job.let_go("snapshot-2")
        job.wait_event("restored", rank=3)
        assert asked.wait() == 0 and not job.count("snapshot"), job.report()
        again = lambda: job.eyrie("checkpoint", "last", check=False) and job.count("snapshot")
        job.until(again, "a snapshot")
        assert not job.count("rolled-back"), job.report()
        job.ends_as("heat")


class Killed(Points, Nodes):
    """A job that has snapshots on request."""

    def __init__(self, nodes, *options):
        super().__init__("heat", nodes, [*SNAPSHOTS, *options], ckpt_every=0)

    def snapshot(self):
        """With all its copies."""
        self.wait_running(4)
        self.eyrie("checkpoint", "last")
        self.wait_event("snapshot")
        self.wait_event("copied", count=4)


def test_a_home_and_its_partner_are_lost_together():
    """All copies of a rank's own checkpoints are gone, and what was recorded of it: the snapshot has a third
    copy."""
    expected("heat")
    with Killed(4) as job:
        job.snapshot()
        job.kill_nodes(1, 2)
        job.wait_event("rolled-back")
        event = next(e for e in job.events() if e["event"] == "rolled-back")
        assert event["generation"] and "returned to the snapshot" in event["text"], event
        job.wait_event("restored", generation=event["generation"], count=4)
        job.ends_as("heat")


def test_out_of_the_vault_when_outcomes_are_lost():
    """Which one other node held; the vault bears the loss of both."""
    expected("heat")
    with Killed(5, "--vault", "rs:2+2", "--log-replicas", "1") as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.wait_event("snapshot")
        job.kill_nodes(1, 2)
        job.wait_event("rolled-back")
        event = next(e for e in job.events() if e["event"] == "rolled-back")
        assert event["generation"] and "returned to the snapshot" in event["text"], event
        job.wait_event("restored", generation=event["generation"], count=4)
        for rank in (1, 2):
            assert job.count("copied", rank=rank, text="read out of the vault"), job.report()
        job.ends_as("heat")


def test_one_of_which_all_copies_are_lost_is_named():
    expected("heat")
    with Killed(4) as job:
        job.snapshot()
        job.kill_nodes(1, 2, 3)
        job.says("is lost: no copy of rank 1's image is left")
        job.wait_event("rolled-back")
        job.says("all ranks go back to the beginning")
        job.ends_as("heat")


def dies_on_one_node(*options):
    """Rank 1 does, time and again at the same place; others stay on that node, and the result is the same."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as made:
        command = program("picky") + [made, "1500", "1"]
        code, want, err = run_to_end(command)
        assert code == 0 and "result" in want, (code, want, err)
        with Nodes(command, ["--nodes", "2", "--map", "block", *options], ckpt_every=0.3) as job:
            job.wait_event("checkpointed", rank=1)
            job.until(lambda: "step 400\n" in job.stdout(), "some steps")
            bad = os.path.join(made, "bad")
            with open(bad + ".part", "w") as file:
                file.write(str(job.status()["nodes"][0]["pid"]))
            os.rename(bad + ".part", bad)
            job.says("rank 1 has died on node 0 again and again")
            job.wait_event("restored", rank=1, node=1)
            job.let_end()
            assert job.wait() == 0, job.report()
            assert job.stdout() == want, job.report()
            assert not job.count("rolled-back"), job.report()
            assert not job.count("restored", rank=0), job.report()
            gone(job)


def test_a_rank_that_dies_on_one_node_only_comes_back_on_another():
    dies_on_one_node()


def test_one_with_a_router_does_so_too():
    """Those that it shared a node with now hear it by that."""
    dies_on_one_node("--ft", "routed", "--routers", "2")
