"""The disk of one node's part of the vault is full: the job goes on, all other nodes do not write
everything again and again, and the vault is whole again once there is room."""

import errno
import glob
import os
import time

from nodes import Nodes, expected
from vault_nodes import ends_without_going_back, rot

# A file system of its own for what one node has of the vault.
SMALL = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mkdir "$EYRIE_HOME/small" && mount -t tmpfs -o size=96m,mode=700 none "$EYRIE_HOME/small" && exec "$@"',
    "sh",
]


class Full(Nodes):
    def begun(self, node):
        """Before its first round the part of this node is laid on the small file system."""
        self.wait_running(4)
        os.symlink(
            os.path.join(self.home, "small"), os.path.join(self.folder(), f"node-{node}", "vault")
        )

    def fill(self):
        with open(os.path.join(self.job_home, "small", "ballast"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error

    def make_room(self):
        os.remove(os.path.join(self.job_home, "small", "ballast"))

    def unguarded(self):
        return self.status()["vault_unguarded"]

    def told(self, text):
        return self.stderr().count(text)


def test_images_that_cannot_be_guarded_again_are_told_and_are_when_there_is_room():
    expected("farm")
    options = ["--vault", "rs:2+2", "--scrub-every", "0"]
    with Full("farm", 4, options, wrap=SMALL, ckpt_every=0) as job:
        job.begun(2)
        job.eyrie("checkpoint", "last")
        assert job.unguarded() is None, job.status()
        job.fill()
        job.kill_nodes(1)
        job.wait_event("restored", rank=1)
        job.until(lambda: (job.unguarded() or {}).get("rounds", 0) >= 4, "rounds in vain")
        # It was 0.5, 1, 2, and is 4 seconds and more until the next one.
        trouble = job.unguarded()
        assert trouble["images"] == 4 and "node 2" in trouble["why"], trouble
        time.sleep(3)
        assert job.unguarded()["rounds"] <= trouble["rounds"] + 1, (trouble, job.unguarded())
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "4 images that count CANNOT BE GUARDED AGAIN: node 2" in text, text
        job.make_room()
        job.until(lambda: job.unguarded() is None, "a round that succeeds")
        # The console may take a moment more.
        job.until(lambda: job.told("guards all checkpoints that are kept again"), "a line of that")
        once = (
            job.told("4 checkpoints that are kept cannot be guarded by the vault again: node 2"),
            job.told("the vault guards all checkpoints that are kept again"),
        )
        assert once == (1, 1), job.report()
        # As many may be lost as before.
        job.kill_nodes(0, 2)
        for rank in (0, 2):
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "farm")


def test_new_images_do_not_count_while_there_is_no_room_and_then_do():
    expected("farm")
    options = ["--vault", "rs:2+1", "--scrub-every", "0"]
    with Full("farm", 3, options, wrap=SMALL, ckpt_every=0) as job:
        job.begun(1)
        job.eyrie("checkpoint", "last")
        before = {r["vault_generation"] for r in job.status()["ranks"]}
        job.fill()
        code, _, told = job.eyrie("checkpoint", "last", check=False)
        assert code == 1 and "the vault did not take it: node 1" in told, told
        for rank in range(4):
            job.wait_event("checkpoint-failed", rank=rank)
        assert {r["vault_generation"] for r in job.status()["ranks"]} == before, job.status()
        assert job.unguarded() is None, "those that count are guarded"
        job.make_room()
        for rank in range(4):
            job.wait_event("checkpointed", rank=rank, count=2)
        job.kill_nodes(0)
        job.wait_event("restored", rank=0)
        ends_without_going_back(job, "farm")


def test_what_is_damaged_before_its_round_does_not_go_in():
    """It waits for room, and rots meanwhile: the others go in."""
    options = ["--vault", "rs:2+1", "--scrub-every", "0"]
    with Full("farm", 3, options, wrap=SMALL, ckpt_every=0) as job:
        job.begun(1)
        job.eyrie("checkpoint", "last")
        job.fill()
        job.eyrie("checkpoint", "last", check=False)
        path = os.path.join(job.folder(), "node-*", "images", "rank-2.gen-2")
        rot(glob.glob(path)[0])
        job.make_room()
        job.wait_event("image-refused", rank=2, generation=2)
        for rank in (0, 1, 3):
            job.wait_event("checkpointed", rank=rank, generation=2)
        assert job.count("image-refused") == 1, job.report()
        job.ends_as("farm")
