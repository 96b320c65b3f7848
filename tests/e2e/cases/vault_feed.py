"""A rank whose node was lost runs before its image is there: its memory comes straight out of the vault,
while others die, too. Where the reading thread waits (`docs/internals/fault-points.md`) nothing hangs on speed."""

import glob
import os
import signal

from harness import NotRun, example, run_to_end
from late import filled_with
from nodes import Pointed, gone

MIB = 48
HEAT = [*example("heat"), "--mib", str(MIB), "--steps", "60"]
_want = []


def want():
    """The output of an undisturbed run, made once."""
    if not _want:
        code, out, err = run_to_end(HEAT)
        assert code == 0, err
        _want.append(out)
    return _want[0]


class Fed(Pointed):
    """Ranks have used their memory, and have an image each in the vault; there are no others."""

    def __init__(self, scheme, nodes=4):
        if os.geteuid():
            raise NotRun("whoever fills another process's memory must be root")
        want()
        rarely = ["--ckpt-every", "3600", "--ckpt-first", "3600"]
        super().__init__(HEAT, nodes, ["--vault", scheme, *rarely])

    def __enter__(self):
        super().__enter__()
        self.wait_running(4)
        for rank in range(4):
            filled_with(self, rank, MIB)
        self.eyrie("checkpoint", "last")
        return self

    def loses(self, node, *points):
        """A node is lost, and the one that takes its rank waits at the last of these points. Returns the
        rank, and that node."""
        record = self.status()
        (rank,) = [r["rank"] for r in record["ranks"] if r["node"] == node]
        for point in points:
            self.arm(point)
        self.kill_nodes(node)
        pid = self.held_at(points[-1])
        (home,) = [n["node"] for n in record["nodes"] if n["pid"] == pid]
        return rank, home

    def files(self, node, rank):
        """Images of a rank on a node: those that have their name, and those that come."""
        folder = os.path.join(self.folder(), f"node-{node}", "images")
        of = lambda pattern: glob.glob(os.path.join(folder, pattern))
        named = [path for path in of(f"rank-{rank}.gen-*") if not path.endswith(".log")]
        return named, of(f".rank-{rank}.gen-*.vault.part")

    def runs_before(self, home, rank):
        """It runs, and there is no file of its image yet."""
        self.wait_event("restored", rank=rank)
        look = self.status()["ranks"][rank]
        assert look["node"] == home and os.path.exists(f"/proc/{look['pid']}"), look
        named, come = self.files(home, rank)
        assert not named and len(come) == 1, (named, come, self.report())

    def others(self, *nodes):
        return [n["node"] for n in self.status()["nodes"] if n["state"] == "live" and n["node"] not in nodes]

    def loses_another(self, lost, home):
        """A node more, which is none of these two, while the reading thread waits; then that goes on."""
        victim = self.others(lost, home)[0]
        self.kill_nodes(victim)
        self.wait_event("node-lost", node=victim)
        for point in ("feed-2", "feed-1"):
            self.let_go(point)

    def ends(self):
        self.let_end()
        assert self.wait() == 0, self.report()
        assert self.stdout() == want(), self.report()
        assert not self.count("rolled-back") and not self.count("diverged"), self.report()
        gone(self)


def test_a_rank_runs_when_half_of_its_image_has_come_and_a_node_dies_that_gives_it():
    """Nothing is read that nobody waits for, up to there."""
    with Fed("rs:2+2") as job:
        rank, home = job.loses(1, "feed-1", "feed-2")
        job.runs_before(home, rank)
        job.loses_another(1, home)
        job.until(lambda: len(job.files(home, rank)[0]) == 1, "the image's file")
        assert not job.files(home, rank)[1]
        assert job.count("restored", rank=rank) == 1, job.report()
        job.ends()


def test_the_node_dies_that_it_comes_to():
    with Fed("rs:2+2") as job:
        rank, home = job.loses(2, "feed-1", "feed-2")
        job.runs_before(home, rank)
        job.kill_nodes(home)
        job.wait_event("node-lost", node=home)
        job.wait_event("restored", rank=rank, count=2)
        job.ends()


def test_the_rank_dies_before_its_image_has_a_name():
    """All of it is there: it comes back from that, and the name follows."""
    with Fed("rs:2+1") as job:
        rank, home = job.loses(1, "feed-3")
        job.runs_before(home, rank)
        job.kill_ranks([rank])
        job.wait_event("restored", rank=rank, count=2)
        named, come = job.files(home, rank)
        assert not named and len(come) == 1, (named, come)
        job.let_go("feed-3")
        job.until(lambda: len(job.files(home, rank)[0]) == 1, "the image's file")
        # It guards it now, as the vault did.
        job.kill_ranks([rank])
        job.wait_event("restored", rank=rank, count=3)
        job.ends()


def test_more_die_than_it_bears_while_it_comes():
    """It does not go on with what is missing, but is killed, and begins again, as others do."""
    with Fed("rs:2+1", 3) as job:
        rank, home = job.loses(1, "feed-1", "feed-2")
        job.runs_before(home, rank)
        job.loses_another(1, home)
        job.wait_event("detected", rank=rank)
        assert not any(job.files(home, rank)), job.report()
        job.wait_event("restored", rank=rank, count=2)
        (again,) = [e for e in job.events() if e["event"] == "restored" and e["rank"] == rank][1:]
        assert "from the beginning" in again["text"], again
        job.ends()


def test_the_controller_dies_while_it_comes():
    with Fed("rs:2+1") as job:
        rank, home = job.loses(1, "feed-1", "feed-2")
        job.runs_before(home, rank)
        os.kill(job.status()["daemon_pid"], signal.SIGKILL)
        job.wait_event("controller-back")
        for point in ("feed-2", "feed-1"):
            job.let_go(point)
        job.until(lambda: len(job.files(home, rank)[0]) == 1, "the image's file")
        # A round brings it in anew, over the nodes that are left.
        job.until(lambda: not job.status().get("vault_unguarded"), "a round")
        assert job.count("restored", rank=rank) == 1, job.report()
        job.ends()
