"""A node that ranks cannot be brought back at: its own fault is not taken for that of their images."""

import os

from nodes import Nodes

# A file system that nothing fits into, beside the jobs.
SMALL = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mkdir "$EYRIE_HOME/full" && mount -t tmpfs -o size=16k,mode=700 none "$EYRIE_HOME/full" && exec "$@"',
    "sh",
]


def fill(job, node):
    """There is no room for images at a node from now on."""
    images = os.path.join(job.folder(), f"node-{node}", "images")
    job.until(lambda: os.path.isdir(images), "the node's folder")
    os.rename(images, images + ".away")
    os.symlink(os.path.join(job.home, "full"), images)


def test_the_spare_is_full():
    """The ranks of a dead node would come to the spare, whose disk is full: they come to another
    node, from the copies that are there, and nobody goes back."""
    with Nodes("heat", 2, ["--spares", "1"], wrap=SMALL, ckpt_every=0.3) as job:
        job.wait_event("started", count=4)
        fill(job, 2)
        for rank in (0, 1):
            job.wait_event("checkpointed", rank=rank)
        assert job.kill_nodes(0)[0] == 0, job.report()
        for rank in (0, 1):
            job.wait_event("unfit", rank=rank, node=2)
            job.wait_event("restored", rank=rank, node=1)
        back = [e for e in job.events() if e["event"] == "restored"]
        assert all(e["generation"] > 0 for e in back), job.report()
        job.says("cannot be brought back on node 2")
        for event in ("image-refused", "rolled-back"):
            assert job.count(event) == 0, job.report()
        job.ends_as("heat")
