"""Images of ranks that move are compressed where the link is what they wait for, and not where it is
fast: told by what `eyrie image inspect` finds at the target. The links are those of a test network
(tests/net), with a token bucket or without.

Root only: elsewhere these tests are told as not run."""

import glob
import json
import os

from bad_input import program
from harness import run_to_end
from migrate import homes
from migrate_links import over
from netns import needs_root

MIB = 40
PAGE_BYTES = 4096


def found_at_the_target(job, rank):
    """Bytes of memory that the images of a rank hold there, and what these take."""
    [folder] = glob.glob(os.path.join(job.home, "nodes", "*", "*-2", "store", "images"))
    images = glob.glob(os.path.join(folder, f"rank-{rank}.gen-*[0-9]"))
    assert images, (folder, job.report())
    memory = stored = 0
    for image in images:
        record = json.loads(job.eyrie("image", "inspect", image, "--json")[1])
        memory += record["own_pages"] * PAGE_BYTES
        stored += record["stored_bytes"]
    assert memory >= MIB << 20, (memory, images)
    return memory, stored


def moved(limit):
    """Two ranks move; what came of each."""
    needs_root()
    command = [*program("letters"), str(MIB)]
    code, want, err = run_to_end(command)
    assert code == 0 and want.count("sum") == 4, (code, want, err)
    with over(command, f"[clusters.all]\nhosts = 3\n{limit}") as (_, job):
        job.wait_running(4)
        job.until(lambda: "filled" in job.stdout(), "memory that is filled")
        job.eyrie("migrate", "last", "--from", "10.80.0.3", "--to", "10.80.0.4")
        assert homes(job) == [0, 0, 2, 2], job.status()
        found = [found_at_the_target(job, rank) for rank in (2, 3)]
        job.let_end()
        assert job.wait() == 0, job.report()
        assert sorted(job.stdout().splitlines()) == sorted(want.splitlines())
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    return found


# Compressed letters take about half of their bytes; nothing is known of a link, and nothing compressed,
# before 8 MiB of an image were sent, and what its buffers take.
SHARE = 3 / 4


def test_images_are_compressed_where_the_link_is_slow():
    for memory, stored in moved("mbit = 60\n"):
        assert stored < SHARE * memory, (memory, stored)


def test_images_are_sent_as_they_are_where_the_link_is_fast():
    """Most of them: on a machine that is very busy a fast link, too, is slow at times."""
    for memory, stored in moved(""):
        assert stored > SHARE * memory, (memory, stored)
