"""Faults beyond a single kill: damaged images, a program's own bug, full disks, odd moments."""

import os
import re
import signal
import subprocess
import tempfile

import harness
from bad_input import program
from harness import Gated, Job, example, run_to_end
from programs import SIZES, expected


def images_of(job, rank):
    """The image files of a rank, oldest first."""
    folder = os.path.join(job.folder(), "images")
    found = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            numbers = [int(n) for n in re.findall(r"\d+", os.path.relpath(path, folder))]
            if len(numbers) >= 2 and numbers[0] == rank and not name.startswith("."):
                found.append((numbers[1], path))
    return [path for _, path in sorted(found)]


def flip_a_byte(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.seek(size // 2)
        byte = f.read(1)
        f.seek(size // 2)
        f.write(bytes([byte[0] ^ 0x10]))


def cut_in_half(path):
    os.truncate(path, os.path.getsize(path) // 2)


def cut_to_nothing(path):
    os.truncate(path, 0)


def damaged(harm, images_to_harm, generation):
    """Two checkpoints by hand, harm to the newest ones, a kill: an older state must be used."""
    want = expected("heat")
    with Gated(example("heat") + SIZES["heat"], ckpt_every=3600) as job:
        job.wait_running(4)
        for number in (1, 2):
            job.eyrie("checkpoint", "last")
            job.wait_event("checkpointed", rank=1, generation=number)
        files = images_of(job, 1)
        assert len(files) == 2, files
        for path in files[len(files) - images_to_harm :]:
            harm(path)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        assert job.count("image-refused", rank=1) == images_to_harm, job.report()
        restored = [e for e in job.events() if e["event"] == "restored"]
        assert [(e["rank"], e["generation"]) for e in restored] == [(1, generation)], restored


def test_damaged_image_is_refused_and_the_one_before_used():
    damaged(flip_a_byte, 1, 1)


def test_truncated_image_is_refused_and_the_one_before_used():
    damaged(cut_in_half, 1, 1)


def test_empty_image_is_refused_and_the_one_before_used():
    damaged(cut_to_nothing, 1, 1)


def test_own_bug_at_the_same_point():
    """A program that dies by its own bug is reported after three times, not restarted for ever."""
    with Job(program("segv") + ["5"], ranks=3, ckpt_every=3600) as job:
        code = job.wait()
        assert code not in (0, None), job.report()
        assert job.count("detected", rank=1) == 3, job.report()
        assert re.search(r"SIGSEGV|signal 11|segmentation", job.stderr(), re.I), job.stderr()
        assert not job.left_over(), job.left_over()


def test_own_bug_after_a_checkpoint():
    with Job(program("segv") + ["400000"], ranks=2, ckpt_every=0.1) as job:
        code = job.wait()
        assert code not in (0, None), job.report()
        assert job.count("detected", rank=1) == 3, job.report()


def test_threads_are_restored():
    """Every rank has five threads; each rank is killed once after a checkpoint of its own."""
    command = program("threads") + ["30000"]
    with Job(command, ranks=2, ckpt_every=3600) as job:
        assert job.wait() == 0, job.report()
        want = job.stdout()
    assert want.startswith("threads: sum "), want
    with Job([*command, "gates"], ranks=2, ckpt_every=0.1, stdin="open") as job:
        for victim in (0, 1):
            job.wait_event("checkpointed", rank=victim)
            job.kill_ranks([victim])
            job.wait_event("restored", rank=victim)
            job.process.stdin.write(b"\n")
            job.process.stdin.flush()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        assert not job.count("diverged"), job.report()
        restored = [e for e in job.events() if e["event"] == "restored"]
        assert {e["rank"] for e in restored} == {0, 1}, job.report()


def test_ranks_behind_a_shell_are_restored():
    """The program is a child of the shell that eyrie started. The shell is killed, then the program
    behind its back: each time both come back from their checkpoint."""
    command = program("threads") + ["30000"]
    with Job(command, ranks=2, ckpt_every=3600) as job:
        assert job.wait() == 0, job.report()
        want = sorted(job.stdout().split("\n"))
    script = '"$0" "$@"; code=$?; test $code = 0 && echo the shell is done; exit $code'
    command = ["sh", "-c", script, *command, "gates"]
    with Job(command, ranks=2, ckpt_every=0.1, stdin="open") as job:
        job.wait_event("checkpointed", rank=0)
        job.kill_ranks([0])
        job.wait_event("restored", rank=0)
        job.wait_event("checkpointed", rank=1)
        shell = job.status()["ranks"][1]["pid"]
        with open(f"/proc/{shell}/task/{shell}/children") as f:
            os.kill(int(f.read().split()[0]), signal.SIGKILL)
        job.wait_event("restored", rank=1)
        job.process.stdin.write(b"\n\n")
        job.process.stdin.flush()
        assert job.wait() == 0, job.report()
        said = sorted(line for line in job.stdout().split("\n") if line != "the shell is done")
        assert said == want, job.report()
        assert job.stdout().count("the shell is done") == 2, job.report()
        from_image = [e for e in job.events() if e["event"] == "restored" and e["generation"]]
        assert {e["rank"] for e in from_image} == {0, 1}, job.report()


def test_full_log_without_checkpoints():
    """The log is full and no checkpoint can free it: the job ends well, and says what it lost."""
    with Job(program("flood"), ranks=2, ckpt_every=3600, options=["--log-limit", "8M"]) as job:
        assert job.wait() == 0, job.report()
        want = 2 * sum(i % 256 for i in range(1000))
        assert job.stdout() == f"flood: sum {want}\n", job.report()
        job.says("WITHOUT protection")
        job.says("socket")


def test_a_message_that_waits_for_its_receive():
    """What was sent behind it is received all the same, though the log has no room for it."""
    total = 0
    for byte in [2 * (i % 256) for i in range(1000)] + [41] * 1000:
        total = (31 * total + byte) % 2**64
    for ft, options in ("logged", []), ("coordinated", []), ("logged", ["--nodes", "2"]):
        options = [*options, "--log-limit", "8M"]
        with Job(program("behind"), ranks=2, ft=ft, ckpt_every=0.2, options=options) as job:
            job.until(lambda: job.count("checkpointed") > 1 or not job.running(), "a checkpoint")
            if job.running():
                job.kill_ranks([0])
            assert job.wait() == 0, job.report()
            assert job.stdout() == f"first {total}\n", job.report()
            assert not job.count("diverged"), job.report()


def test_checkpoint_of_blocked_ranks():
    """One rank blocked in read(2), the others in a broadcast: all are checkpointed, killed, restored."""
    with Job(program("lines"), ranks=3, stdin="open", ckpt_every=3600) as job:
        job.process.stdin.write(b"one\ntwo\n")
        job.process.stdin.flush()
        job.until(lambda: job.stdout() == "0: one\n1: two\n", "two lines")
        job.eyrie("checkpoint", "last")
        job.process.stdin.write(b"three\n")
        job.process.stdin.flush()
        job.until(lambda: "2: three\n" in job.stdout(), "the third line")
        job.kill_ranks([0, 2])
        job.wait_event("restored", count=2)
        job.process.stdin.write(b"four\n")
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
        assert job.stdout() == "0: one\n1: two\n2: three\n3: four\n4 lines\n", job.report()
        assert not job.count("diverged"), job.report()


def test_state_outside_of_the_heap():
    """Files with positions, signal mask and handlers, rounding mode, protections, program break."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "input")
        with open(source, "w") as f:
            f.write("".join(f"{i} {i * i % 977}\n" for i in range(5000)))
        outputs = []
        for disturbed in (False, True):
            out = os.path.join(folder, str(disturbed))
            os.mkdir(out)
            command = program("files") + [source, out, "60000"]
            with Gated(command, ranks=3, ckpt_every=0.1 if disturbed else 3600) as job:
                if disturbed:
                    for victim in (0, 1, 2):
                        job.wait_event("checkpointed", rank=victim)
                        job.kill_ranks([victim])
                        job.wait_event("restored", rank=victim)
                job.let_end()
                assert job.wait() == 0, job.report()
                texts = [open(os.path.join(out, f"out.{r}")).read() for r in range(3)]
                outputs.append((job.stdout(), texts))
        assert outputs[0] == outputs[1], "output or files differ"


def test_kill_during_replay():
    """The same rank is killed again as soon as it replays."""
    want = expected("cg")
    with Gated(example("cg") + SIZES["cg"], ckpt_every=3600) as job:
        job.until(lambda: job.stdout().count("\n") >= 20, "twenty lines")
        for number in (1, 2, 3):
            job.kill_ranks([1])
            job.wait_event("restored", rank=1, count=number)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()


def test_full_disk():
    """No room for an image: the job goes on, the status says so, the result is right."""
    want = expected("heat")
    small = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        'mount -t tmpfs -o size=1m,mode=700 none "$EYRIE_HOME" && exec "$@"',
        "sh",
    ]
    with Gated(example("heat") + SIZES["heat"], ckpt_every=0.2, wrap=small) as job:
        job.until(lambda: job.status(), "status")

        def said():
            record = job.status()
            return record and any(r["no_checkpoint_reason"] for r in record["ranks"])

        job.until(said, "reason for a missing checkpoint")
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()


def test_output_is_not_repeated():
    """Lines that were printed before the kill are not printed again by the replay."""
    want = expected("sort")
    with Gated(example("sort") + SIZES["sort"], ckpt_every=3600) as job:
        job.until(lambda: job.stdout().count("\n") >= 10, "ten lines")
        job.kill_ranks([0])
        job.wait_event("restored", rank=0)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        assert job.count("restored", rank=0) == 1, job.report()


def test_program_without_mpi():
    """A program that never heard of MPI is started, killed, and started again."""
    source = (
        "import sys\nfor i in range(5): print(i, flush=True)\nsys.stdin.readline()\nprint('end')"
    )
    with Job(["python3", "-c", source], ranks=1, stdin="open", ckpt_every=3600) as job:
        job.until(lambda: job.stdout() == "0\n1\n2\n3\n4\n", "five lines")
        job.kill_ranks([0])
        job.wait_event("restored", rank=0)
        job.process.stdin.write(b"\n")
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
        assert job.stdout() == "0\n1\n2\n3\n4\nend\n", job.report()


def test_events_command():
    with Gated(example("cg") + SIZES["cg"], ckpt_every=0.2) as job:
        job.wait_event("checkpointed", rank=0)
        command = [harness.EYRIE, "events", "last", "--follow"]
        path = os.path.join(job.home, "followed")
        with open(path, "w") as out:
            follower = subprocess.Popen(command, env=job.env, stdin=subprocess.DEVNULL, stdout=out)
        try:
            said = lambda: open(path).read()
            job.until(lambda: "checkpointed" in said(), "what the follower says")
            job.let_end()
            assert follower.wait(harness.TIMEOUT_S) == 0, said()
        finally:
            follower.kill()
            follower.wait()
        assert job.wait() == 0, job.report()


def test_undisturbed_runs_agree():
    first = run_to_end(example("farm") + ["--tasks", "4000"])
    second = run_to_end(example("farm") + ["--tasks", "4000"])
    assert first[:2] == second[:2] and first[0] == 0, (first, second)
