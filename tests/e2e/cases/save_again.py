"""A save is ordered once: what stands in its way and passes is waited for, with the time that there is."""

import os
import signal
import tempfile

from bad_input import program
from harness import DEFAULTS, run_to_end
from restart import SAVED, Gated, restart

WAITS = "saving the job waits: "


def expected(ranks, *more):
    code, out, err = run_to_end([*program("unaccepted"), os.devnull, *more], ranks=ranks)
    assert code == 0 and out.startswith("connected\n"), (code, out, err)
    return out


def unaccepted(folder, ranks, *more, **options):
    """A job of which no checkpoint can be taken before there is a file `door` in the folder."""
    command = [*program("unaccepted"), os.path.join(folder, "door"), *more]
    return Gated(command, ranks=ranks, ckpt_every=3600, **options)


def waits_and_is_saved(ranks, *more, **options):
    want = expected(ranks, *more)
    with tempfile.TemporaryDirectory() as folder:
        with unaccepted(folder, ranks, *more, env=DEFAULTS, **options) as job:
            job.until(lambda: "connected" in job.stdout(), "all connections")
            job.interrupt(signal.SIGQUIT)
            job.says(WAITS)
            job.wait_event("checkpoint-failed")
            assert "accepted" in job.stderr(), job.report()
            open(os.path.join(folder, "door"), "w").close()
            assert job.wait() == SAVED, job.report()
            assert job.stderr().count(WAITS) == 1 and "is not saved" not in job.stderr(), job.report()
            restart(job)
            job.wait_event("restored", count=ranks)
            job.let_end()
            assert job.wait() == 0 and job.stdout() == want, job.report()
            assert not job.left_over(), job.left_over()


def test_connections_between_ranks_that_are_not_accepted():
    waits_and_is_saved(3, ft="coordinated")


def test_unix_connections_between_ranks_that_are_not_accepted():
    waits_and_is_saved(2, "unix", ft="coordinated")


def test_a_connection_of_a_rank_to_itself_that_is_not_accepted():
    """Its checkpoint alone; without and with snapshots of all ranks."""
    waits_and_is_saved(1)
    waits_and_is_saved(1, options=["--fallback-every", "off"])


def test_over_nodes():
    """One listens on one node, the other end is on another."""
    waits_and_is_saved(2, ft="coordinated", options=["--nodes", "2"])


def test_what_does_not_pass_in_time_is_named():
    """The job goes on to its right end."""
    want = expected(2)
    with tempfile.TemporaryDirectory() as folder, unaccepted(folder, 2, ft="coordinated") as job:
        job.until(lambda: "connected" in job.stdout(), "all connections")
        code, _, err = job.eyrie("checkpoint", "last", "--end", check=False)
        assert code == 1 and "not accepted" in err, (code, err)
        job.says("the job is not saved, and goes on: ")
        assert job.stderr().count(WAITS) == 1, job.report()
        open(os.path.join(folder, "door"), "w").close()
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()


def test_a_rank_that_dies_while_the_save_waits():
    """All go back to the beginning, and the save waits on."""
    want = expected(2)
    with tempfile.TemporaryDirectory() as folder:
        for options in ([], ["--nodes", "2"]):
            with unaccepted(folder, 2, ft="coordinated", env=DEFAULTS, options=options) as job:
                job.until(lambda: "connected" in job.stdout(), "all connections")
                job.interrupt(signal.SIGQUIT)
                job.says(WAITS)
                job.kill_ranks([1])
                job.wait_event("rolled-back")
                open(os.path.join(folder, "door"), "w").close()
                assert job.wait() == SAVED, job.report()
                restart(job)
                job.wait_event("restored", count=2)
                job.let_end()
                assert job.wait() == 0 and job.stdout() == want, job.report()
            os.unlink(os.path.join(folder, "door"))


def test_the_memory_of_a_suspended_job_goes_out_when_it_can():
    """A suspended program accepts nothing: that is told, and it runs on."""
    with tempfile.TemporaryDirectory() as folder, unaccepted(folder, 1) as job:
        job.until(lambda: "connected" in job.stdout(), "all connections")
        code, _, err = job.eyrie("suspend", "last", "--swap", check=False)
        assert code == 1 and "not accepted" in err, (code, err)
        open(os.path.join(folder, "door"), "w").close()
        job.eyrie("resume", "last", check=False)
        job.let_end()
        assert job.wait() == 0, job.report()
