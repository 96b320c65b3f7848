"""Files of images that rot on a node's storage are found by passes, and made anew from another
copy or the vault, or not used any more."""

import glob
import os

from nodes import Nodes, expected
from vault_nodes import ends_without_going_back
from vault_scrub import flip, looked


def images(job, node, rank):
    return sorted(glob.glob(os.path.join(job.folder(), f"node-{node}", "images", f"rank-{rank}.*")))


def content(paths):
    return {path: open(path, "rb").read() for path in paths}


def of_image(found, node, rank):
    its = [m for m in found["images"]["members"] if (m["node"], m["rank"]) == (node, rank)]
    assert its, found
    return its


def home_of(job, rank):
    return next(r["node"] for r in job.status()["ranks"] if r["rank"] == rank)


def rots_and_is_repaired(options):
    expected("heat")
    with Nodes("heat", 3, options + ["--scrub-every", "0"], ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        home = home_of(job, 1)
        before = content(images(job, home, 1))
        assert any(path.endswith(".log") for path in before), list(before)
        for path in before:
            flip(path)
        code, found, err = looked(job, "verify")
        assert code == 1 and "eyrie vault scrub" in err, (found, err)
        assert found["images"]["damaged"] == 1 and found["images"]["repaired"] == 0, found
        assert [m["state"] for m in of_image(found, home, 1)] == ["damaged"], found
        assert content(before) != before, "it only looks"
        code, done, err = looked(job, "scrub")
        assert code == 0, (done, err)
        assert done["images"]["damaged"] == done["images"]["repaired"] == 1, done
        assert [m["state"] for m in of_image(done, home, 1)] == ["repaired"], done
        assert content(images(job, home, 1)) == before
        code, found, err = looked(job, "verify")
        assert code == 0 and found["images"]["damaged"] == 0, (found, err)
        assert found["images"]["sound"] >= 4, found
        assert job.count("scrubbed", node=home, rank=1) == 1, job.report()
        assert job.status()["vault_scrub"]["images_repaired"] == 0, "of the last pass"
        # What is taken next builds on it, and what was repaired is what the rank comes back from.
        job.eyrie("checkpoint", "last")
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        assert not job.count("image-refused"), job.report()
        ends_without_going_back(job, "heat")


def test_an_image_that_rots_is_made_anew_from_its_copy():
    rots_and_is_repaired([])


def test_an_image_that_rots_is_read_out_of_the_vault_again():
    rots_and_is_repaired(["--vault", "rs:2+1"])


def test_an_image_without_another_copy_is_not_used_any_more():
    expected("heat")
    options = ["--vault", "local", "--scrub-every", "0"]
    with Nodes("heat", 2, options, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.eyrie("checkpoint", "last")
        home = home_of(job, 1)
        newest = [p for p in images(job, home, 1) if ".gen-2" in p and not p.endswith(".log")]
        assert len(newest) == 1, newest
        flip(newest[0])
        code, done, err = looked(job, "scrub")
        assert code == 1 and "not used any more" in err, (done, err)
        assert job.count("image-refused", rank=1, node=home) == 1, job.report()
        code, found, err = looked(job, "scrub")
        assert code == 0 and found["images"]["damaged"] == 0, (found, err)
        # The one before is left, and the next builds on nothing that is damaged.
        job.eyrie("checkpoint", "last")
        code, found, err = looked(job, "verify")
        assert code == 0, (found, err)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        ends_without_going_back(job, "heat")


def test_a_pass_finds_rot_unasked():
    expected("heat")
    with Nodes("heat", 3, ["--scrub-every", "10ms"], ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        home = home_of(job, 0)
        before = content(images(job, home, 0))
        for path in before:
            if not path.endswith(".log"):
                flip(path)
        job.wait_event("scrubbed", node=home, rank=0)
        assert content(images(job, home, 0)) == before
        ends_without_going_back(job, "heat")
