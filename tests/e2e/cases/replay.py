"""`eyrie replay`: a rank is run again from its image, alone, with its log: it does the same again,
crashes at the same place, stops where the log ends; with gdb too."""

import json
import os
import shutil
import subprocess

import harness
from image_cli import PROGRAM

RELAY = [os.path.join(harness.BUILD, "tests", "relay")]


def images(job, rank):
    """The two newest images of a rank, oldest first; the job is over. Older files may be there for
    the pages that these refer to, but not their log."""
    folder = os.path.join(job.folder(), "images")
    names = [n for n in os.listdir(folder) if n.startswith(f"rank-{rank}.gen-")]
    assert names, sorted(os.listdir(folder))
    return [os.path.join(folder, n) for n in sorted(names, key=lambda n: int(n.split("-")[-1]))][-2:]


def replay(job, image, *options):
    code, out, err = job.eyrie("replay", image, "--json", *options, check=False)
    assert out, (code, err)
    return code, json.loads(out)


def kept(command, ranks, **options):
    return harness.Job(command, ranks=ranks, options=["--keep"], **options)


def relay(*options):
    """A job that waits for input before step 40."""
    return kept([*RELAY, "--pause", "40", *options], 2, ckpt_every=0, stdin="open")


def checkpoint_and_go_on(job):
    """Takes images while rank 0 waits for input and rank 1 for rank 0, then gives the input."""
    job.wait_running(2)
    job.until(lambda: job.status()["ranks"][1]["messages_received"] == 40, "step 40")
    job.eyrie("checkpoint", "last")
    job.process.stdin.write(b"a line of input\n")
    job.process.stdin.flush()


def test_every_rank_does_the_same_again():
    """Wildcards, probes, tests and waits come out as they did; so does the output."""
    for tasks in (3000, 30000, 300000):
        with kept(harness.example("farm") + ["--tasks", str(tasks)], 3, ckpt_every=0.2) as job:
            assert job.wait() == 0, job.report()
            # A machine on which that is over before all ranks have checkpoints has more to do.
            if min(job.count("checkpointed", rank=rank) for rank in range(3)) == 0:
                continue
            return ranks_do_the_same_again(job)
    raise AssertionError("no checkpoints")


def ranks_do_the_same_again(job):
    reproduced = 0
    for rank in range(3):
        for image in images(job, rank):
            code, record = replay(job, image)
            assert code == 0 and record["end"] == "exited" and record["code"] == 0, record
            assert record["rank"] == rank, record
            # After an image that was taken at the end there is nothing left to do.
            reproduced += record["reproduced"]
            assert record["sent_anew"] == 0, record
            assert all(o["differs_at"] is None for o in record["output"]), record
    assert reproduced > 0, job.report()
    code, out, _ = job.eyrie("replay", images(job, 0)[0], "--output")
    assert "journals agree" in out and "as recorded" in out, out


def test_a_crash_happens_again():
    """The same step, the same data, as often as wanted; gdb stops in it."""
    with relay("--steps", "120", "--crash", "95") as job:
        checkpoint_and_go_on(job)
        assert job.wait() == 128 + 11, job.report()
        image = images(job, 1)[-1]
        for _ in range(2):
            code, record = replay(job, image)
            assert code == 128 + 11 and record["end"] == "killed", record
            assert all(o["differs_at"] is None for o in record["output"]), record
        assert shutil.which("gdb"), "gdb is missing: scripts/setup installs it"
        words = ["-batch", "-nx", "-ex", "continue", "-ex", "print step", "-ex", "print sum"]
        for _ in range(2):
            code, out, err = job.eyrie("replay", image, "--gdb", "--", *words)
            total = sum(n * n for n in range(96))
            assert code == 0 and "SIGSEGV" in out, (code, out, err)
            assert "$1 = 95" in out and f"$2 = {total}" in out, out


def test_the_end_of_the_log():
    """The job was ended in the middle: the rank stops where it waits for what nobody sent."""
    with relay("--steps", "1000000") as job:
        checkpoint_and_go_on(job)
        sent = job.status()["ranks"][1]["messages_received"]
        more = lambda: job.status()["ranks"][1]["messages_received"] > sent + 20
        job.until(more, "more messages")
        job.eyrie("abort", "last")
        job.wait()
        image = images(job, 1)[-1]
        code, record = replay(job, image)
        assert code == 0 and record["end"] == "log-ended", record
        assert "receive from" in record["text"] and "tag 5" in record["text"], record
        assert record["received"] > sent, (sent, record)
        words = ["-batch", "-nx", "-ex", "continue", "-ex", "backtrace", "-ex", "continue"]
        code, out, err = job.eyrie("replay", image, "--gdb", "--", *words)
        assert "SIGTRAP" in out and "eyrie_end_of_log" in out and "relay.c" in out, (out, err)
        assert "the log ends here" in err, err


def test_a_difference_is_told():
    """A program whose messages depend on the clock."""
    with relay("--clock", "1") as job:
        checkpoint_and_go_on(job)
        assert job.wait() == 0, job.report()
        code, record = replay(job, images(job, 0)[-1])
        assert code == 1 and record["end"] == "diverged", record
        assert "differs first in byte" in record["text"], record


def test_input_is_read_again():
    """Rank 0 reads what it had read after its checkpoint."""
    with relay() as job:
        checkpoint_and_go_on(job)
        assert job.wait() == 0 and "had read: a line of input" in job.stdout(), job.report()
        code, out, _ = job.eyrie("replay", images(job, 0)[-1], "--output")
        assert "rank 0 had read: a line of input" in out and "as recorded" in out, out
        code, record = replay(job, images(job, 1)[-1])
        assert code == 0 and record["end"] == "exited" and record["output"][0]["bytes"] > 0, record


def test_wrong_use():
    with relay() as job:
        checkpoint_and_go_on(job)
        assert job.wait() == 0, job.report()
        image = images(job, 1)[0]
        folder = os.path.dirname(image)
        log = os.path.join(folder, "rank-1.log")

        def refused(*arguments, words, env=None):
            done = subprocess.run(
                [harness.EYRIE, "replay", *arguments],
                env={**job.env, **(env or {})},
                capture_output=True,
                text=True,
                timeout=harness.TIMEOUT_S,
            )
            assert 0 < done.returncode < 128 and done.stdout == "", done
            assert len(done.stderr.splitlines()) == 1, done
            for word in words:
                assert word in done.stderr, (word, done.stderr)

        refused("/nowhere/rank-1.gen-1", words=["/nowhere/rank-1.gen-1"])
        refused(image, "--log", "/nowhere/a.log", words=["/nowhere/a.log"])
        refused(image, "--log", os.path.join(folder, "rank-0.log"), words=["rank 0", "rank 1"])
        refused(image, "--log", image, words=["not a log"])
        refused(image, "--json", "--gdb", words=["--json"])
        refused(image, "--gdb", words=["gdb is not installed"], env={"PATH": "/nowhere"})
        with open(log, "r+b") as file:
            file.seek(os.path.getsize(log) // 2)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 4]))
        refused(image, words=["rank-1.log", "checksum"])
        plain = os.path.join(job.home, "plain.img")
        run = subprocess.Popen([PROGRAM, "run", "sleep", "60"], env=job.env)
        try:
            ask = [PROGRAM, "checkpoint", "last", "-o", plain]
            job_free = lambda: subprocess.run(ask, env=job.env, capture_output=True).returncode
            limit = harness.time.monotonic() + harness.TIMEOUT_S
            while job_free() != 0:
                assert harness.time.monotonic() < limit, "no image"
        finally:
            run.terminate()
            run.wait()
        refused(plain, words=["no image of a rank"])
