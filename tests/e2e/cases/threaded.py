"""Programs whose threads call MPI at the same time (MPI_THREAD_MULTIPLE)."""

from bad_input import program
from harness import Job, run_to_end

ROUNDS = ["400"]
_expected = []


def expected():
    if not _expected:
        code, out, err = run_to_end(program("rounds") + ROUNDS, ft="none")
        assert code == 0 and out.startswith("rounds: checksum "), (code, out, err)
        _expected.append(out)
    return _expected[0]


def killed(ranks, kills, **options):
    """So many times some of the ranks are killed, each time after a checkpoint or from the start."""
    want = expected()
    with Job(program("rounds") + ROUNDS, ranks=ranks, ckpt_every=0.1, **options) as job:
        for n in range(kills):
            before = job.count("checkpointed"), job.count("restored")
            job.until(
                lambda: not job.running() or job.count("started") >= ranks, "start of all ranks"
            )
            if n % 2:
                job.until(
                    lambda: not job.running() or job.count("checkpointed") > before[0], "checkpoint"
                )
            if job.running() and job.kill_ranks([n % ranks])[0] == 0:
                job.until(
                    lambda: not job.running() or job.count("restored") > before[1], "a recovery"
                )
        code = job.wait()
        assert code == 0 and job.stdout() == want, job.report()
        assert not job.count("diverged"), job.report()


def test_threads_have_their_turns_again():
    killed(4, 5)


def test_threads_have_their_turns_again_over_nodes():
    killed(4, 3, options=["--nodes", "2"])


def test_threads_go_back_with_all_ranks():
    killed(4, 3, ft="coordinated")
