"""`--ft coordinated`: all ranks are checkpointed together, and go back together."""

import os
import re
import signal
import subprocess
import time

from bad_input import program
from faults import flip_a_byte
from harness import POLL_S, TIMEOUT_S, Job, alive, example, run_to_end
from programs import SIZES, expected
from restart import Gated, ended_well, lines, obstructed, restart, save


def coordinated(command, every=0.2, ranks=4, **options):
    return Gated(command, ranks=ranks, ckpt_every=every, ft="coordinated", **options)


def finished(job, want):
    """It ended well, however often it went back."""
    job.let_end()
    assert job.wait() == 0, job.report()
    assert job.stdout() == want, job.report()
    assert not job.left_over(), job.left_over()


def killed_after_set(name):
    """One rank dies after a checkpoint of all: all come back from it."""
    want = expected(name)
    with coordinated(example(name) + SIZES[name]) as job:
        job.wait_event("checkpointed", count=4)
        job.status()
        job.kill_ranks([2])
        job.wait_event("restored", count=4)
        finished(job, want)
        restored = [e for e in job.events() if e["event"] == "restored"]
        assert sorted(e["rank"] for e in restored) == [0, 1, 2, 3], restored
        assert len({e["generation"] for e in restored}) == 1, restored
        assert restored[0]["generation"] >= 1, restored


def killed_while_checkpointing(name):
    """Ranks die while all are being checkpointed: a set is whole or does not count."""
    want = expected(name)
    with coordinated(example(name) + SIZES[name], every=0.1) as job:
        for number in range(1, 5):
            sets = job.count("checkpointing")
            restored = job.count("restored") + job.count("started")
            job.wait_event("checkpointing", count=sets + number % 4 + 1)
            job.kill_ranks([number % 4])
            back = lambda: job.count("restored") + job.count("started") >= restored + 4
            job.until(back, "all ranks again")
        finished(job, want)


def killed_before_any_set(name):
    want = expected(name)
    with coordinated(example(name) + SIZES[name], every=3600) as job:
        job.wait_running(4)
        assert job.kill_pid(1), "rank 1 had no process"
        job.wait_event("rolled-back")
        finished(job, want)
        assert job.count("started") == 8, job.report()


def measured(job):
    """The next set comes by what one costs and how often all go back, and that is told."""
    job.wait_event("checkpointed", count=4)

    def told():
        return {r["next_checkpoint"] for r in job.status()["ranks"]}

    def every():
        """The interval, when no set is under way."""
        found = {re.search(r"all ranks together: every ([0-9.]+) s .a checkpoint", t) for t in told()}
        return None not in found and {float(f[1]) for f in found}

    (first,) = job.until(every, "an interval")
    assert first < 100000, told()
    job.kill_ranks([2])
    job.wait_event("restored", count=4)
    job.until(lambda: every() and max(every()) < first, f"an interval below {first}: {told()}")


RARELY = ["--ckpt-every", "100000", "--ckpt-first", "0.2"]


def test_sets_come_by_what_they_cost():
    want = expected("cg")
    with coordinated(example("cg") + SIZES["cg"], every=None, options=RARELY) as job:
        measured(job)
        finished(job, want)


def saved_together(name):
    """Saved in mid-run and restarted, twice."""
    want = expected(name)
    with coordinated(example(name) + SIZES[name], every=3600) as job:
        job.wait_running(4)
        for number in (1, 2):
            save(job)
            restart(job)
            job.wait_event("restored", count=4 * number)
            job.status()
        ended_well(job, want)


def daemon_killed(name):
    """SIGKILL of the controller, twice: all goes on from the last checkpoint of all ranks that is
    whole, and what was printed is not printed again."""
    want = expected(name)
    with coordinated(example(name) + SIZES[name]) as job:
        job.wait_event("checkpointed", count=4)
        for number in (1, 2):
            crash(job)
            restart(job)
            job.wait_event("restored", count=4 * number)
        finished(job, want)


def crash(job):
    """Kills the controller; waits until nothing of it runs."""
    record = job.until(job.status, "a status")
    os.kill(record["daemon_pid"], signal.SIGKILL)
    assert job.wait() == 1, job.report()
    job.says("eyrie restart")
    pids = [record["daemon_pid"]] + [r["pid"] for r in record["ranks"] if r["pid"]]
    wait_gone(pids)


def wait_gone(pids):
    limit = time.monotonic() + TIMEOUT_S
    while any(alive(p) for p in pids):
        assert time.monotonic() < limit, f"left over: {pids}"
        time.sleep(POLL_S)


def generated():
    for name in ("cg", "heat", "farm", "sort", "mc", "heat_f"):
        yield f"{name}_killed_after_set", lambda n=name: killed_after_set(n)
    for name in ("cg", "farm"):
        yield f"{name}_killed_while_checkpointing", lambda n=name: killed_while_checkpointing(n)
        yield f"{name}_killed_before_any_set", lambda n=name: killed_before_any_set(n)
    for name in ("cg", "farm", "heat"):
        yield f"{name}_saved_together", lambda n=name: saved_together(n)
        yield f"{name}_daemon_killed", lambda n=name: daemon_killed(n)


def test_input_and_output():
    """Lines through a pipe; ranks die, the job is saved, the controller is killed."""
    parts = [lines(20), b"a\nb\n", b"c\nd\n", b"e\n"]
    with Job(program("lines"), ckpt_every=3600, stdin=b"".join(parts)) as job:
        assert job.wait() == 0, job.report()
        want = job.stdout()
    with coordinated(program("lines"), every=3600, stdin="open") as job:
        give(job, parts[0], "19: ")
        job.eyrie("checkpoint", "last")
        give(job, parts[1], "21: b")
        job.kill_ranks([0])
        job.wait_event("restored", count=4)
        save(job)
        restart(job, stdin=subprocess.PIPE)
        give(job, parts[2], "23: d")
        job.eyrie("checkpoint", "last")
        crash(job)
        restart(job, stdin=subprocess.PIPE)
        job.process.stdin.write(parts[3])
        job.process.stdin.close()
        finished(job, want)


def give(job, text, answer):
    job.process.stdin.write(text)
    job.process.stdin.flush()
    job.until(lambda: answer in job.stdout(), f"the line '{answer}'")


def test_what_cannot_be_written_ends_nothing():
    """The ranks were held to be saved, and go on; a file of another name can be written, so that the next
    attempt succeeds."""
    want = expected("farm")
    for path, stays in (("images/segment.1", False), (".saved.part", True)):
        with coordinated(example("farm") + SIZES["farm"], every=3600) as job:
            job.wait_running(4)
            if stays:
                obstructed(job, path)
            else:
                os.mkdir(os.path.join(job.folder(), path))
            save(job)
            assert "saving the job waits" in job.stderr(), job.report()
            restart(job)
            finished(job, want)


def test_the_controller_is_killed_while_checkpointing():
    """At a moment of the second set and of each one after it: the last whole one counts."""
    want = expected("farm")
    with coordinated(example("farm") + SIZES["farm"], every=0.1) as job:
        for number in range(4):
            job.wait_event("checkpointed", count=4 + job.count("checkpointed"))
            record = job.until(job.status, "a status")
            job.wait_event("checkpointing", count=number + 1 + job.count("checkpointing"))
            os.kill(record["daemon_pid"], signal.SIGKILL)
            assert job.wait() == 1, job.report()
            wait_gone([r["pid"] for r in record["ranks"] if r["pid"]])
            restart(job)
        finished(job, want)


def test_the_command_is_killed():
    """SIGKILL of `eyrie run`: nobody asked for the end, so what is saved stays."""
    want = expected("cg")
    with coordinated(example("cg") + SIZES["cg"]) as job:
        job.wait_event("checkpointed", count=4)
        record = job.until(job.status, "a status")
        job.process.kill()
        job.process.wait()
        wait_gone([record["daemon_pid"]] + [r["pid"] for r in record["ranks"] if r["pid"]])
        restart(job)
        finished(job, want)


def test_nothing_stays_of_a_job_that_is_ended():
    with coordinated(example("cg") + SIZES["cg"]) as job:
        job.wait_event("checkpointed", count=4)
        job.status()
        job.interrupt(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM, job.report()
        assert not job.left_over(), job.left_over()


def test_nothing_is_logged():
    """Far more than the log holds, and outcomes of wildcards: nothing of it stays."""
    command, options = example("farm") + SIZES["farm"], ["--log-limit", "8M"]
    with coordinated(command, every=3600, options=options) as job:
        ranks = job.until(lambda: talkative(job), "messages")
        assert all(r["determinant_words"] == 0 for r in ranks), ranks
        assert sum(r["bytes_sent"] for r in ranks) > 64 << 20, ranks
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == expected("farm"), job.report()
        assert "WARNING" not in job.stderr(), job.stderr()


def talkative(job):
    """The status of the ranks, once rank 0 has received far more than a log of 8 MiB holds."""
    record = job.status()
    ranks = record["ranks"] if record else []
    return ranks if ranks and ranks[0]["messages_received"] > 15000 else None


def test_a_damaged_image_means_the_set_before():
    want = expected("cg")
    with coordinated(example("cg") + SIZES["cg"], every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.eyrie("checkpoint", "last")
        flip_a_byte(os.path.join(job.folder(), "images", "rank-1.gen-2"))
        job.kill_ranks([3])
        job.wait_event("image-refused")
        finished(job, want)
        last = [e for e in job.events() if e["event"] == "restored"][-4:]
        assert {(e["rank"], e["generation"]) for e in last} == {(r, 1) for r in range(4)}, last


def test_one_rank_alone_is_not_checkpointed():
    with coordinated(example("cg") + SIZES["cg"], every=3600) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("checkpoint", "last", "--rank", "1", check=False)
        assert code == 1 and "--rank" in err, (code, err)
        _, out, _ = job.eyrie("checkpoint", "last")
        assert out.count("checkpoint 1,") == 4, out
        assert "together" in job.eyrie("status", "last", "-v")[1]
        job.let_end()
        assert job.wait() == 0, job.report()


def test_own_bug_at_the_same_point():
    with coordinated(program("segv") + ["5"], every=3600, ranks=3) as job:
        assert job.wait() not in (0, None), job.report()
        job.says("own fault")
        assert not job.left_over(), job.left_over()


def test_a_rank_that_cannot_be_checkpointed():
    """No checkpoint of all; the job goes on, also when it was to be saved."""
    with coordinated(program("lines") + ["socket"], every=0.1, ranks=2, stdin="open") as job:
        give(job, b"one\n", "0: one")
        job.wait_event("checkpoint-failed", count=2)
        job.interrupt(signal.SIGQUIT)
        job.says("is not saved")
        job.says("socket")
        job.process.stdin.write(b"two\n")
        job.process.stdin.close()
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == "0: one\n1: two\n2 lines\n", job.report()


def test_connections_between_ranks():
    """TCP and Unix sockets between ranks come back with them, with what was in flight: after a
    rank's death, and when the job is saved and restarted."""
    code, want, err = run_to_end(program("calls"), ranks=3)
    assert code == 0 and "rank 2:" in want, (code, want, err)
    with coordinated(program("calls"), ranks=3) as job:
        job.wait_event("checkpointed", count=3)
        job.kill_ranks([1])
        job.wait_event("restored", count=3)
        save(job)
        restart(job)
        job.wait_event("restored", count=6)
        finished(job, want)
        restored = [e["generation"] for e in job.events() if e["event"] == "restored"]
        assert min(restored) >= 1, job.report()


def test_connections_between_ranks_that_go_back_alone():
    """They are refused by name, and the ranks run on."""
    with Gated(program("calls"), ranks=2, ckpt_every=0.2) as job:
        # Before, one may be refused that is not accepted yet.
        failed = lambda: [e["text"] for e in job.events() if e["event"] == "checkpoint-failed"]
        named = lambda: any("file descriptor" in t and " to 127." in t for t in failed())
        job.until(named, "a refusal that names both ends")
        finished(job, run_to_end(program("calls"), ranks=2)[1])
