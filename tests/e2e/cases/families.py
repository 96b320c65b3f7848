"""Ranks with child processes over nodes: each is a shell that waits for the program, which has
threads. Wherever an image goes, those of all its processes go."""

import subprocess

from bad_input import program
from drain import drain, is_gone, nothing_again
from harness import run_to_end
from nodes import Nodes, gone
from restart import restart, save

RANKS = 3
COMMAND = ["sh", "-c", '"$@"; exit $?', "sh", *program("threads"), "3000"]
_expected = []


def expected():
    """The output of an undisturbed run on one node, made once."""
    if not _expected:
        code, out, err = run_to_end(COMMAND, ranks=RANKS)
        assert code == 0 and out.startswith("threads: sum "), (code, out, err)
        _expected.append(out)
    return _expected[0]


class Family(Nodes):
    """A job of such ranks. The program waits for input twice on its way, so that it is in the midst
    of it however fast it is."""

    def __init__(self, *options, ckpt_every=0.3):
        expected()
        command = [*COMMAND, "gates"]
        options = ["--map", "cyclic", *options]
        super().__init__(command, 3, options, ranks=RANKS, ckpt_every=ckpt_every, stdin="open")

    def all_have_images(self):
        """Every rank has one that was begun after now."""
        for rank in range(RANKS):
            count = self.count("checkpointed", rank=rank)
            self.wait_event("checkpointed", rank=rank, count=count + 2)

    def goes_on(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def ends_well(self):
        self.let_end()
        assert self.wait() == 0, self.report()
        assert self.stdout() == expected(), self.report()
        gone(self)

    def moved(self, *ranks):
        """These came back from their images, once each; the others computed nothing again."""
        events = self.events()
        restored = [e for e in events if e["event"] == "restored"]
        assert sorted(e["rank"] for e in restored) == sorted(ranks), self.report()
        assert all(e["generation"] for e in restored), restored
        assert not self.count("rolled-back") and not self.count("diverged"), self.report()
        assert not self.count("image-refused"), self.report()


def loses_a_node(*options):
    with Family(*options) as job:
        job.wait_running(RANKS)
        job.all_have_images()
        job.goes_on()
        job.all_have_images()
        job.kill_nodes(1)
        job.wait_event("restored", rank=1)
        job.goes_on()
        job.ends_well()
        job.moved(1)


def test_a_node_is_lost():
    """Its rank comes back with its children where the copy of its image lies."""
    loses_a_node()


def test_a_node_is_lost_and_images_are_in_a_vault():
    loses_a_node("--vault", "rs:2+1")


def test_nodes_leave():
    """One after the other: the second brings an image that came from the first."""
    with Family() as job:
        record = job.wait_running(RANKS)
        job.all_have_images()
        steps = drain(job, "1", "--to", "2")
        assert steps[-1]["step"] == "left", steps
        is_gone(job, 1, record)
        job.goes_on()
        drain(job, "2")
        is_gone(job, 2, record)
        nothing_again(job, [1, 1, 2])
        job.goes_on()
        job.ends_well()
        job.moved(1, 1, 2)


def test_saved_and_restarted_on_other_nodes():
    """Saved twice: the second time what is saved came out of the archive before."""
    with Family(ckpt_every=3600) as job:
        job.wait_running(RANKS)
        for nodes in (2, 3):
            job.goes_on()
            save(job)
            restart(job, "--nodes", str(nodes), stdin=subprocess.PIPE)
            job.wait_event("restored", count=(nodes - 1) * RANKS)
        job.ends_well()
        job.moved(*range(RANKS), *range(RANKS))
