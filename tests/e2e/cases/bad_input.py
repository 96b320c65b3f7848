"""What a user may get wrong: one clear line each, a non-zero exit code, and nothing left behind."""

import os
import resource
import subprocess
import tempfile

import harness
from harness import EYRIE, run_to_end


def program(name):
    return [os.path.join(harness.BUILD, "tests", name)]


def refused(command, *words, ranks=2, **options):
    """The job must not start; the complaint is short and has all the words."""
    code, out, err = run_to_end(command, ranks=ranks, **options)
    assert code != 0, f"exit code 0; stderr: {err}"
    assert code < 128, f"exit code {code} looks like a crash: {err}"
    assert out == "", f"standard output has {out!r}"
    lines = [line for line in err.splitlines() if line.strip()]
    assert 1 <= len(lines) <= 3, f"{len(lines)} lines of complaint: {err}"
    for word in words:
        assert word in err, f"'{word}' is not in: {err}"


def test_no_such_program():
    refused(["/nowhere/no-such-program"], "/nowhere/no-such-program")


def test_no_such_program_in_path():
    refused(["no-such-program-of-eyrie"], "no-such-program-of-eyrie")


def test_not_executable():
    refused([os.path.join(harness.ROOT, "README.md")], "README.md")


def test_a_folder_is_no_program():
    refused([harness.ROOT], os.path.basename(harness.ROOT))


def test_open_mpi_program():
    refused(program("foreign"), "liboshmem.so.40")


def test_zero_ranks():
    refused(program("clock"), "0", ranks=0)


def test_ranks_not_a_number():
    refused(program("clock"), "many", ranks="many")


def test_unknown_ft_mode():
    refused(program("clock"), "perhaps", ft="perhaps")


def test_negative_checkpoint_interval():
    refused(program("clock"), "-3", options=["--ckpt-every=-3"])


def test_no_program_at_all():
    code, _, err = run_to_end([])
    assert code != 0 and err.strip(), err


def test_unknown_job():
    with harness.Job(program("lines"), ranks=1, stdin="open") as job:
        job.wait_running(1)
        for command in (["status", "nosuchjob"], ["checkpoint", "nosuchjob"]):
            code, _, err = job.eyrie(*command, check=False)
            assert code != 0 and "nosuchjob" in err, (code, err)
        code, _, err = job.eyrie("inject", "last", "kill-rank", "7", check=False)
        assert code != 0 and "7" in err, (code, err)
        code, _, err = job.eyrie("inject", "last", "kill-rank", "x", check=False)
        assert code != 0, err
        job.process.stdin.close()
        assert job.wait() == 0, job.report()


def test_limits_that_are_too_small_name_the_way_out():
    for limit, most, words in (
        (resource.RLIMIT_AS, 200 << 20, "raise ulimit -v"),
        (resource.RLIMIT_FSIZE, 64 << 10, "raise ulimit -f"),
    ):
        with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
            lower = lambda limit=limit, most=most: resource.setrlimit(limit, (most, most))
            more = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "preexec_fn": lower}
            env = {**os.environ, "EYRIE_HOME": home}
            done = subprocess.run([EYRIE, "run", "-n", "2", "true"], env=env, timeout=harness.TIMEOUT_S, **more)
            assert done.returncode == 1 and done.stderr.count("\n") == 1 and words in done.stderr, done
