"""Programs that send from buffers into which receives are pending: in a replay, in which the answers
are there from the beginning, they send what they sent."""

import os
import tempfile

import harness
from harness import Gated, Job, run_to_end
from nodes import Nodes

PROGRAM = [os.path.join(harness.BUILD, "tests", "early")]
_expected = {}


def expected(arguments, ranks):
    """The output of an undisturbed run, made once."""
    known = (*arguments, ranks)
    if known not in _expected:
        code, out, err = run_to_end([*PROGRAM, *arguments], ranks=ranks)
        assert code == 0 and "checksum" in out, (code, out, err)
        _expected[known] = out
    return _expected[known]


def is_identical(job, want):
    assert job.wait() == 0, job.report()
    assert job.stdout() == want, job.report()
    assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def has_received(job, rank, count):
    record = job.status()
    return record and record["ranks"][rank]["messages_received"] >= count


def killed(arguments, ranks, kills, victims=(1,), **options):
    """The ranks die again and again, from the first messages on and in their replays."""
    want = expected(arguments, ranks)
    with Gated([*PROGRAM, *arguments], ranks=ranks, **options) as job:
        job.until(lambda: has_received(job, 1, 5), "messages")
        for n in range(kills):
            job.kill_ranks([victims[n % len(victims)]])
            job.wait_event("restored", count=n + 1)
        job.let_end()
        is_identical(job, want)


def test_a_rank_repeats_itself_from_the_beginning():
    killed(["1200"], 3, 10, ckpt_every=3600)


def test_a_rank_repeats_itself_from_checkpoints():
    killed(["6000"], 3, 10, victims=(1, 0, 2), ckpt_every=0.1)


def test_in_units_and_over_nodes():
    """Whole nodes die with what they had received and not completed."""
    want = expected(["400"], 3)
    for options in ([], ["--ft", "node"]):
        where = ["--nodes", "3", *options]
        with Nodes([*PROGRAM, "400"], where, ranks=3, ckpt_every=0.2) as job:
            job.until(lambda: has_received(job, 1, 5), "messages")
            job.kill_ranks([1])
            job.wait_event("restored", rank=1)
            job.wait_event("checkpointed", rank=1)
            job.kill_nodes(1)
            job.wait_event("restored", rank=1, count=2)
            job.let_end()
            is_identical(job, want)


def test_messages_beyond_the_log_pass_each_other():
    """Neither rank waits for its receive while it sends: the log must not hold what it cannot."""
    beyond = ["2", "10", "10"]
    want = expected(beyond, 2)
    for where in ([], ["--nodes", "2"]):
        code, out, err = run_to_end(
            [*PROGRAM, *beyond], ranks=2, ckpt_every=0.5, options=[*where, "--log-limit", "6M"]
        )
        assert (code, out) == (0, want), err
        assert "WITHOUT protection" not in err, err


def test_verify_takes_pending_receives_in_all_ways():
    """Messages are delayed and hastened; what is sent is the same."""
    code, out, err = run_to_end(
        [*PROGRAM, "60"], ranks=3, subcommand="verify", options=["--seeds", "3", "--seed", "11"]
    )
    assert code == 0 and "deterministic under replay" in out, (code, out, err)


def counted(*more, **options):
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        command = [os.path.join(harness.BUILD, "tests", "counted"), os.path.join(folder, "runs")]
        return run_to_end([*command, *more], ranks=2, subcommand="verify", **options)


def test_verify_names_the_first_difference():
    code, out, err = counted(options=["--seed", "7"])
    assert code == 1, (code, out, err)
    what = (
        "NOT deterministic under replay: channel 1 -> 0, message 3 (MPI_Ssend, 8 bytes, tag 7, "
        "MPI_COMM_WORLD) differs first in byte 0: recorded 01, repeated 02"
    )
    assert what in out and "small integer" in out and "--seed 7 --seeds 1" in out, out


def test_verify_without_verdict():
    """What is broken off says nothing about the program."""
    code, out, err = counted("4")
    assert code == 3 and "no verdict" in out and "code 4" in out, (code, out, err)
    endless = [*PROGRAM, str(10**9)]
    with Job(endless, ranks=2, subcommand="verify") as job:
        job.wait_running(2)
        job.interrupt()
        assert job.wait() == 3, job.report()
        assert "no verdict" in job.stdout() and "NOT" not in job.stdout(), job.report()
