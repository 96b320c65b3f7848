"""Jobs that are saved as a whole, end, and are restarted."""

import os
import signal
import subprocess
import tempfile

from bad_input import program
from harness import EYRIE, TIMEOUT_S, Gated, Job, example, run_to_end
from programs import SIZES, expected

SAVED = 85


def save(job):
    """Has the job saved; it ends with the exit code for that."""
    job.interrupt(signal.SIGQUIT)
    assert job.wait() == SAVED, job.report()
    job.says("eyrie restart")


def restart(job, *options, stdin=subprocess.DEVNULL, wrap=()):
    """Goes on with it; what it prints follows what it printed before."""
    with open(job.out_path, "ab") as out, open(job.err_path, "ab") as err:
        job.process = subprocess.Popen(
            [*wrap, EYRIE, "restart", *options, "last"],
            stdout=out,
            stderr=err,
            env=job.env,
            stdin=stdin,
            start_new_session=True,
        )


def hold_up(job, generation):
    """What is brought of rank 0 finds pipes that nobody reads in the place of its files."""
    images = os.path.join(job.folder(), "images")
    os.mkdir(images)
    own = [f"of-0-{epoch}-{count}" for epoch in range(8) for count in range(32)]
    for name in [*range(32), *own]:
        os.mkfifo(os.path.join(images, f".rank-0.gen-{generation}.{name}.part"))


def ended_well(job, want):
    if isinstance(job, Gated):
        job.let_end()
    assert job.wait() == 0, job.report()
    assert job.stdout() == want, job.report()
    assert not job.count("diverged") and not job.count("rolled-back"), job.report()
    assert not job.left_over(), job.left_over()


def saved_twice(name):
    """Saved in mid-run, restarted, saved again while it goes on, restarted: the result is that of
    an undisturbed run, and every line is there once."""
    with Gated(example(name) + SIZES[name], ckpt_every=0.2) as job:
        job.wait_event("checkpointed", rank=2)
        job.status()
        save(job)
        for number in (1, 2):
            restart(job)
            job.wait_event("restarted", count=number)
            job.wait_event("restored", count=4 * number)
            job.status()
            if number == 1:
                save(job)
        ended_well(job, expected(name))
        assert job.count("saved") == 2, job.report()


def generated():
    for name in ("cg", "farm", "heat", "mc", "heat_f"):
        yield f"{name}_saved_twice", lambda n=name: saved_twice(n)


def test_a_restarted_job_is_protected():
    """Ranks die after a restart, and all of them again after another."""
    want = expected("farm")
    with Gated(example("farm") + SIZES["farm"], ckpt_every=3600) as job:
        job.wait_running(4)
        save(job)
        restart(job)
        job.wait_event("restored", count=4)
        job.kill_ranks([1, 2])
        job.wait_event("restored", count=6)
        save(job)
        restart(job)
        job.wait_event("restored", count=10)
        job.kill_ranks([0, 1, 2, 3])
        job.wait_event("restored", count=14)
        ended_well(job, want)


def lines(count):
    return b"".join(b"line %d of the input\n" % n for n in range(count))


def test_input_from_a_file_is_kept_to_its_end():
    """Far more than what is read ahead; the restarted job gets nothing of the file again."""
    text = lines(60000)
    made = tempfile.TemporaryDirectory(prefix="eyrie-test-")
    with made as folder, tempfile.TemporaryFile() as file:
        gate = os.path.join(folder, "gate")
        file.write(text)
        file.flush()
        file.seek(0)
        with Job(program("lines"), ckpt_every=3600, stdin="open") as job:
            job.process.stdin.write(text)
            job.process.stdin.close()
            assert job.wait() == 0, job.report()
            want = job.stdout()
        env = {"LINES_GATE": gate}
        with Job(program("lines"), ckpt_every=3600, stdin_file=file, env=env) as job:
            job.until(lambda: "29999: " in job.stdout(), "half of the lines")
            save(job)
            restart(job)
            open(gate, "w").close()
            ended_well(job, want)


def test_input_goes_on_after_a_restart():
    """What came through a pipe before is kept, what the restarted job gets comes after it."""
    first, rest = lines(20), b"and\nthe\nrest\n"
    with Job(program("lines"), ckpt_every=3600, stdin=first + rest) as job:
        assert job.wait() == 0, job.report()
        want = job.stdout()
    with Job(program("lines"), ckpt_every=3600, stdin="open") as job:
        job.process.stdin.write(first)
        job.process.stdin.flush()
        job.until(lambda: "19: " in job.stdout(), "the first lines")
        save(job)
        restart(job, stdin=subprocess.PIPE)
        job.process.stdin.write(rest)
        job.process.stdin.close()
        ended_well(job, want)


def test_a_saved_job_is_listed_and_can_be_given_up():
    with Gated(example("cg") + SIZES["cg"], ckpt_every=3600) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("restart", "last", check=False)
        assert code == 1 and "is running" in err, (code, err)
        _, out, _ = job.eyrie("checkpoint", "last", "--end")
        assert out.count("checkpoint") == 4, out
        assert job.wait() == SAVED, job.report()
        assert job.status()["phase"] == "saved", job.status()
        _, out, _ = job.eyrie("ps")
        assert "saved" in out, out
        assert job.eyrie("events", "last")[1].count("saved") >= 1
        code, _, err = job.eyrie("restart", "--nodes", "2", "last", check=False)
        assert code == 2 and "--nodes" in err, (code, err)
        job.eyrie("abort", "last")
        assert not job.left_over(), job.left_over()
        code, _, err = job.eyrie("restart", "last", check=False)
        assert code == 1 and "no job" in err, (code, err)


def test_what_cannot_be_saved_goes_on():
    """Without protection: told, and the result is right."""
    want = expected("cg")
    with Gated(example("cg") + SIZES["cg"], ft="none") as job:
        job.wait_running(4)
        job.interrupt(signal.SIGQUIT)
        job.says("is not saved")
        code, _, err = job.eyrie("checkpoint", "last", "--end", check=False)
        assert code == 1 and err, (code, err)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()


def test_a_rank_that_cannot_be_checkpointed():
    """The job is not saved and goes on to its right end."""
    with Job(program("lines") + ["socket"], ranks=2, ckpt_every=3600, stdin="open") as job:
        # From then on each rank has what cannot be brought back, and waits.
        job.process.stdin.write(b"one\n")
        job.process.stdin.flush()
        job.until(lambda: "0: one" in job.stdout(), "the first line")
        job.interrupt(signal.SIGQUIT)
        job.says("is not saved")
        job.says("socket")
        job.process.stdin.write(b"two\n")
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
        assert job.stdout() == "0: one\n1: two\n2 lines\n", job.report()


def obstructed(job, path):
    """Something is in the way where a file is to be written: the job is not saved and goes on; then
    it is out of the way."""
    path = os.path.join(job.folder(), path)
    os.mkdir(path)
    job.interrupt(signal.SIGQUIT)
    job.says("is not saved")
    os.rmdir(path)


def test_what_cannot_be_written_ends_nothing():
    """All ranks have been killed by then, and come back at once; the next attempt succeeds."""
    want = expected("farm")
    for path in ("images/segment.1", ".saved.part"):
        with Gated(example("farm") + SIZES["farm"], ckpt_every=3600) as job:
            job.wait_running(4)
            obstructed(job, path)
            job.wait_event("restored", count=4)
            save(job)
            restart(job)
            ended_well(job, want)


def test_a_second_request_changes_nothing():
    want = expected("cg")
    with Gated(example("cg") + SIZES["cg"], ckpt_every=3600) as job:
        job.wait_running(4)
        for _ in range(3):
            job.interrupt(signal.SIGQUIT)
        assert job.wait() == SAVED, job.report()
        restart(job)
        ended_well(job, want)


def test_in_the_background_of_a_script():
    """There a shell has SIGQUIT ignored, and batch systems send it all the same."""
    want = expected("cg")
    script = 'trap "" QUIT; exec "$0" "$@"'
    with Gated(example("cg") + SIZES["cg"], ckpt_every=3600, wrap=["sh", "-c", script]) as job:
        job.wait_running(4)
        save(job)
        job.env["EYRIE_HOME"] = job.job_home = job.home
        restart(job)
        ended_well(job, want)


def test_one_command_starts_a_job_and_goes_on_with_it():
    """`eyrie run --continue`, as a batch script gives it in each of its allocations: it begins, is
    refused while the job runs, goes on when that was saved, and begins anew when it has ended."""
    want = expected("farm")
    named = ["--name", "mine", "--continue"]
    command = example("farm") + SIZES["farm"]
    with Gated(command, ckpt_every=3600, options=named) as job:

        def again(*words):
            asked = [EYRIE, "run", *words]
            done = subprocess.run(asked, env=job.env, capture_output=True, text=True, timeout=TIMEOUT_S)
            return done.returncode, done.stderr

        job.wait_running(4)
        code, text = again("-n", "4", *named, "--", *command)
        assert code == 1 and "called mine, runs" in text and "eyrie status" in text, text
        save(job)
        code, text = again("-n", "3", *named, "--", *command)
        assert code == 2 and "was saved with 4 ranks" in text, (code, text)
        code, text = again("-n", "4", *named, "--", *command, "--more")
        assert code == 2 and "another command" in text and "eyrie abort" in text, (code, text)
        code, text = again("-n", "4", "--continue", "--", *command)
        assert code == 2 and "--name" in text, (code, text)
        with open(job.out_path, "ab") as out, open(job.err_path, "ab") as err:
            job.process = subprocess.Popen(
                job.arguments,
                stdout=out,
                stderr=err,
                env=job.env,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        job.wait_event("restored", count=4)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        code, text = again("-n", "4", *named, "--", *command)
        assert code == 0, text
