"""A job's life: exit codes, abort, standard streams, signals, and what is left afterwards (nothing)."""

import os
import signal

import harness
from bad_input import program
from harness import Gated, Job, run_to_end


def test_exit_code_of_the_program():
    code, _, err = run_to_end(program("leave") + ["exit", "7"], ranks=3)
    assert code == 7, (code, err)


def test_exit_code_zero():
    code, _, err = run_to_end(program("leave") + ["exit", "0"], ranks=3)
    assert code == 0, (code, err)


def test_abort():
    code, _, err = run_to_end(program("leave") + ["abort", "9"], ranks=3)
    assert code == 9, (code, err)


def test_exit_without_finalize():
    """One rank leaves on its own decision while the others wait: the job ends, with its code."""
    code, _, err = run_to_end(program("leave") + ["early", "3"], ranks=3)
    assert code == 3, (code, err)


def test_standard_input_reaches_rank_0():
    text = "".join(f"line {i} {'x' * (i % 50)}\n" for i in range(300))
    code, out, err = run_to_end(program("lines"), ranks=3, stdin=text.encode())
    expected = "".join(f"{i}: line {i} {'x' * (i % 50)}\n" for i in range(300)) + "300 lines\n"
    assert code == 0 and out == expected, (code, out[-300:], err)


def test_empty_standard_input():
    code, out, err = run_to_end(program("lines"), ranks=2, stdin=b"")
    assert code == 0 and out == "0 lines\n", (code, out, err)


def test_labelled_output():
    code, out, err = run_to_end(program("lines"), ranks=2, stdin=b"a\n", options=["-l"])
    assert code == 0, err
    lines = out.splitlines()
    assert len(lines) == 2 and all("1" in x.split("0: a")[0] or "1 lines" in x for x in lines), out
    assert lines[0].endswith("0: a") and lines[0] != "0: a", out


def test_rank_outputs_are_whole_lines():
    source = (
        "import os, sys\nfor i in range(2000): print(os.environ['EYRIE_RANK'] * 40, flush=True)"
    )
    code, out, err = run_to_end(["python3", "-c", source], ranks=4)
    assert code == 0, err
    for r in "0123":
        assert out.splitlines().count(r * 40) == 2000, f"rank {r}: {out.splitlines().count(r * 40)}"
    assert len(out.splitlines()) == 8000, len(out.splitlines())


def ends_by(number, code):
    with Job(program("lines"), ranks=3, stdin="open", ckpt_every=0.5) as job:
        job.wait_running(3)
        job.wait_event("checkpointed", count=3)
        job.status()
        job.interrupt(number)
        got = job.wait()
        assert got == code, f"exit code {got} instead of {code}: {job.stderr()}"
        left = job.left_over()
        assert not left, left


def test_interrupt_leaves_nothing():
    ends_by(signal.SIGINT, 130)


def test_terminate_leaves_nothing():
    ends_by(signal.SIGTERM, 143)


def test_killed_launcher_leaves_no_process():
    """`eyrie run` itself dies by SIGKILL: daemon and ranks must go too."""
    with Job(program("lines"), ranks=3, stdin="open") as job:
        job.wait_running(3)
        job.process.kill()
        job.process.wait()
        limit = harness.time.monotonic() + harness.TIMEOUT_S
        while job.pids.left():
            assert harness.time.monotonic() < limit, job.report()
            harness.time.sleep(harness.POLL_S)
        job.eyrie("ps", check=False)


def test_end_leaves_nothing():
    with Gated(harness.example("heat") + ["--steps", "3000"], ranks=4, ckpt_every=0.3) as job:
        job.wait_running(4)
        identity = os.path.basename(job.folder())
        job.let_end()
        assert job.wait() == 0, job.report()
        assert not job.left_over(), job.left_over()
        # Other jobs, and other tests, have theirs there.
        shared = [n for n in os.listdir("/dev/shm") if "eyrie" in n and identity in n]
        assert not shared, shared


def test_status_and_ps():
    with Job(program("lines"), ranks=2, stdin="open") as job:
        record = job.wait_running(2)
        assert (
            record["size"] == 2 and record["ft"] == "logged" and record["phase"] == "running"
        ), record
        assert [r["rank"] for r in record["ranks"]] == [0, 1], record
        _, out, _ = job.eyrie("ps")
        assert record["job"] in out, out
        _, out, _ = job.eyrie("status", "last")
        assert record["job"] in out, out
        job.process.stdin.close()
        assert job.wait() == 0, job.report()


def test_two_jobs_at_once():
    with Job(program("lines"), ranks=2, stdin="open") as one:
        one.wait_running(2)
        with Job(program("lines"), ranks=2, stdin=b"b\n", env={"EYRIE_HOME": one.home}) as two:
            assert two.wait() == 0, two.report()
            assert two.stdout() == "0: b\n1 lines\n", two.stdout()
        one.process.stdin.close()
        assert one.wait() == 0 and one.stdout() == "0 lines\n", one.stdout()


def test_without_fault_tolerance():
    """`--ft none` gives the same result; a death ends the job with a clear word."""
    command = harness.example("cg") + ["--class", "S"]
    plain = run_to_end(command, ft="none")
    logged = run_to_end(command)
    assert plain[0] == logged[0] == 0 and plain[1] == logged[1], (plain, logged)
    with Job(program("lines"), ranks=3, stdin="open", ft="none") as job:
        job.wait_running(3)
        job.kill_ranks([1])
        assert job.wait() != 0, job.report()
        job.says("1")
        assert not job.left_over(), job.left_over()


def test_singleton():
    """A program started without `eyrie run` is a job of one rank."""
    done = harness.subprocess.run(
        harness.example("cg") + ["--class", "S"], capture_output=True, text=True, timeout=harness.TIMEOUT_S
    )
    assert done.returncode == 0 and "SUCCESSFUL" in done.stdout, (done.stdout, done.stderr)
