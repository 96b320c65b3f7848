"""Memory that the ranks of a node have in common is stored once; what refers to it is restored like
all else, files stay as long as anybody needs them, and damage is found."""

import contextlib
import json
import os
import re

from bad_input import program
from faults import flip_a_byte
from harness import Job, run_to_end
from replay import replay

RANKS = 3
MIB = 1 << 20
# Of the table (4 MiB) and what a rank has of its own (1 MiB and the C library's).
WITH_TABLE, WITHOUT_TABLE = 5 * MIB, 3 * MIB


def result():
    code, out, err = run_to_end(program("tables"), ranks=RANKS, ft="none")
    assert code == 0 and len(out.splitlines()) == 1, (code, out, err)
    return out


@contextlib.contextmanager
def paused(*options):
    """A job whose rank 0 waits for input, and the others for rank 0."""
    command = program("tables") + ["--pause"]
    # Snapshots of all ranks keep files, too.
    options = ("--fallback-every", "off", *options)
    with Job(command, ranks=RANKS, ckpt_every=0, stdin="open", options=options) as job:
        job.until(lambda: "paused" in job.stdout(), "pause")
        yield job


def finish(job):
    job.process.stdin.write(b"a line of input\n")
    job.process.stdin.flush()
    assert job.wait() == 0, job.report()
    assert job.stdout() == "paused\n" + result(), job.report()


def files(job):
    """Sizes of all images, by rank and generation."""
    folder = os.path.join(job.folder(), "images")
    sizes = {}
    for name in os.listdir(folder):
        if name.startswith("rank-") and ".gen-" in name:
            rank, generation = name[len("rank-") :].split(".gen-")
            # One that nobody needs any more may just be removed.
            with contextlib.suppress(FileNotFoundError):
                sizes[int(rank), int(generation)] = os.path.getsize(os.path.join(folder, name))
    return sizes


def files_become(job, *names):
    """These images stay; others are removed a moment after the checkpoint by which nobody needs them
    any more was answered. Returns the sizes."""
    return job.until(
        lambda: set(sizes := files(job)) == set(names) and sizes, f"images {names} and no others"
    )


def image(job, rank, generation):
    return os.path.join(job.folder(), "images", f"rank-{rank}.gen-{generation}")


def needed(job, rank, generation):
    """The files that an image needs beside its own."""
    out = job.eyrie("image", "inspect", "--json", image(job, rank, generation))[1]
    return {ancestor["name"] for ancestor in json.loads(out)["ancestors"]}


def test_common_memory_is_stored_once():
    """Found by itself; each of the ranks comes back from its image, and then from the next ones."""
    with paused() as job:
        job.eyrie("checkpoint", "last")
        sizes = files(job)
        assert sizes[0, 1] > WITH_TABLE, sizes
        assert sizes[1, 1] < WITHOUT_TABLE and sizes[2, 1] < WITHOUT_TABLE, sizes
        assert needed(job, 1, 1) == needed(job, 2, 1) == {"rank-0.gen-1"}
        event = [e for e in job.events() if e["event"] == "checkpointed" and e["rank"] == 2][0]
        # The table, and some pages more: what points to the same addresses is alike in all ranks.
        assert re.search(r"; 4\.\d MiB lie in images of other ranks", event["text"]), event
        out = job.eyrie(
            "image", "inspect", image(job, 0, 1), "--shared", image(job, 1, 1), "--json"
        )[1]
        alike = json.loads(out)
        assert alike[0]["shared"] == 0 and alike[1]["shared_in_runs"] * 4096 >= 4 * MIB, alike
        # The next ones refer to what has not changed, wherever it lies.
        job.eyrie("checkpoint", "last")
        assert needed(job, 1, 2) >= {"rank-0.gen-1"}, needed(job, 1, 2)
        for rank in (1, 0, 2):
            job.kill_ranks([rank])
            job.wait_event("restored", rank=rank, generation=2)
        # A full image again, of a rank that was restored.
        job.eyrie("checkpoint", "last")
        assert files(job)[1, 3] < WITHOUT_TABLE, files(job)
        job.kill_ranks([0, 1, 2])
        for rank in range(RANKS):
            job.wait_event("restored", rank=rank, generation=3)
        finish(job)
        assert job.count("image-refused") == 0, job.report()


def test_a_consolidated_image_still_refers_to_the_common_file():
    """Its own chain becomes shorter; what another rank stores stays where it is."""
    common = "rank-0.gen-1"
    with Job(program("tables") + ["--drift"], RANKS, ckpt_every=0, stdin="open") as job:
        chains = []
        for step in range(1, 13):
            job.until(lambda: job.stdout().count("paused") == step, f"pause {step}")
            job.eyrie("checkpoint", "last", *(["--rank", "1"] if step > 1 else []))
            names = needed(job, 1, step)
            assert common in names, (step, names)
            chains.append(len(names) - 1)
            job.process.stdin.write(b"go on\n")
            job.process.stdin.flush()
        # It grows to what is allowed, and then what changed is put together.
        shorter = any(now < before for before, now in zip(chains, chains[1:]))
        assert max(chains) <= 8 and shorter, chains
        job.until(lambda: job.stdout().count("paused") == 13, "last pause")
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, generation=12)
        job.process.stdin.write(b"go on\n" * 40)
        job.process.stdin.flush()
        assert job.wait() == 0, job.report()
        code, want, _ = run_to_end(
            program("tables") + ["--drift"], RANKS, ft="none", stdin=b"go on\n" * 40
        )
        assert code == 0 and job.stdout() == want, (want, job.report())


def test_files_stay_as_long_as_another_rank_needs_them():
    """Also when the rank whose file it is has newer ones, or has ended."""
    with paused("--ckpt", "full") as job:
        job.eyrie("checkpoint", "last")
        for _ in range(3):
            job.eyrie("checkpoint", "last", "--rank", "0")
        sizes = files_become(job, (0, 1), (0, 3), (0, 4), (1, 1), (2, 1))
        assert sizes[0, 4] > WITH_TABLE, sizes
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, generation=1)
        # Others now need the newer file: the old one goes with the last image that needs it.
        for number in (2, 3):
            for rank in (1, 2):
                job.eyrie("checkpoint", "last", "--rank", str(rank))
                assert needed(job, rank, number) == {"rank-0.gen-4"}
        files_become(job, (0, 3), (0, 4), (1, 2), (1, 3), (2, 2), (2, 3))
        finish(job)


def test_damage_to_a_common_file_is_found():
    """By the rank that needs it: it starts from its beginning, the oldest state that it has."""
    with paused() as job:
        job.eyrie("checkpoint", "last")
        flip_a_byte(image(job, 0, 1))
        job.kill_ranks([2])
        job.wait_event("restored", rank=2)
        refused = [e for e in job.events() if e["event"] == "image-refused"]
        assert [e["rank"] for e in refused] == [2] and "rank-0.gen-1" in refused[0]["text"], refused
        finish(job)


def test_common_files_are_kept_for_a_replay():
    with paused("--keep") as job:
        job.eyrie("checkpoint", "last")
        job.eyrie("checkpoint", "last", "--rank", "0")
        job.eyrie("checkpoint", "last", "--rank", "0")
        finish(job)
        code, report = replay(job, image(job, 1, 1))
        assert code == 0, report


def test_each_rank_keeps_all_it_needs_if_asked_to():
    with paused("--ckpt-dedup", "off") as job:
        job.eyrie("checkpoint", "last")
        sizes = files(job)
        assert len(sizes) == RANKS and min(sizes.values()) > WITH_TABLE, sizes
        assert all(needed(job, rank, 1) == set() for rank in range(RANKS))
        finish(job)
