"""Real programs: the examples with and without kills, programs of other makers, `eyrie verify`."""

import os
import re
import sys

import harness
from bad_input import program
from harness import Gated, example, run_to_end

sys.path.insert(0, os.path.join(harness.ROOT, "benches"))
import peers  # noqa: E402

SIZES = {
    "heat": ["--size", "512", "--steps", "6000", "--progress"],
    "cg": ["--class", "W", "--repeat", "3"],
    "sort": ["--log2", "21", "--iterations", "30", "--progress"],
    "farm": ["--tasks", "30000"],
    "mc": ["--iterations", "400", "--progress"],
    "heat_f": ["512", "6000", "100"],
}
_expected = {}


def expected(name):
    """The undisturbed run's output, made once."""
    if name not in _expected:
        code, out, err = run_to_end(example(name) + SIZES[name])
        assert code == 0 and "checksum" in out, (code, out, err)
        _expected[name] = out
    return _expected[name]


def killed_after_checkpoint(name):
    """One rank dies after its first checkpoint: it alone comes back, from an image."""
    want = expected(name)
    with Gated(example(name) + SIZES[name], ckpt_every=0.2) as job:
        job.wait_event("checkpointed", rank=2)
        job.kill_ranks([2])
        job.wait_event("restored", rank=2)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        restored = [e for e in job.events() if e["event"] == "restored"]
        assert [e["rank"] for e in restored] == [2] and restored[0]["generation"] >= 1, restored
        assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def killed_before_checkpoint(name):
    """A rank dies before its first checkpoint: it starts from the beginning and catches up."""
    want = expected(name)
    with Gated(example(name) + SIZES[name], ckpt_every=3600) as job:
        job.until(lambda: has_talked(job), "messages of rank 1")
        assert job.kill_pid(1), "rank 1 had no process"
        job.wait_event("restored", rank=1)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        restored = [e for e in job.events() if e["event"] == "restored"]
        assert [(e["rank"], e["generation"]) for e in restored] == [(1, 0)], restored


def has_talked(job):
    """Whether rank 1 has sent messages, so that a replay has something to reproduce."""
    record = job.status()
    return record and record["ranks"][1]["pid"] and record["ranks"][1]["messages_sent"] > 20


def killed_two_at_once(name):
    want = expected(name)
    with Gated(example(name) + SIZES[name], ckpt_every=0.2) as job:
        job.wait_event("checkpointed", rank=0)
        job.wait_event("checkpointed", rank=3)
        job.kill_ranks([0, 3])
        job.wait_event("restored", rank=0)
        job.wait_event("restored", rank=3)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()


def killed_all(name):
    want = expected(name)
    with Gated(example(name) + SIZES[name], ckpt_every=0.2) as job:
        job.wait_event("checkpointed", rank=1)
        job.kill_ranks([0, 1, 2, 3])
        job.wait_event("restored", count=4)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()


def verified(name):
    small = {"cg": ["--class", "S"], "farm": ["--tasks", "3000"], "mc": ["--iterations", "60"]}
    command = example(name) + small.get(name, SIZES[name][:2])
    code, out, err = run_to_end(command, ranks=3, subcommand="verify")
    assert code == 0, (code, out, err)


def generated():
    for name in SIZES:
        yield f"{name}_killed_after_checkpoint", lambda n=name: killed_after_checkpoint(n)
        yield f"{name}_killed_before_checkpoint", lambda n=name: killed_before_checkpoint(n)
        yield f"{name}_killed_two_at_once", lambda n=name: killed_two_at_once(n)
    for name in ("cg", "farm"):
        yield f"{name}_killed_all", lambda n=name: killed_all(n)
    for name in ("heat", "cg", "sort", "farm", "mc"):
        yield f"{name}_verified", lambda n=name: verified(n)


def test_verify_finds_the_clock():
    """A program that lets the clock decide what it sends is reported, with who sent it to whom."""
    code, out, err = run_to_end(program("clock"), ranks=3, subcommand="verify")
    assert code != 0, (code, out, err)
    assert "not deterministic" in (out + err).lower(), (out, err)
    assert re.search(r"\d -> \d", out + err), (out, err)


def test_results_do_not_depend_on_ranks():
    sums = set()
    for ranks in (1, 2, 3, 5):
        _, out, _ = run_to_end(example("sort") + ["--log2", "16"], ranks=ranks)
        sums.add(out.splitlines()[-1])
    assert len(sums) == 1 and "checksum" in sums.pop(), sums


def test_published_values_of_cg():
    for name in ("S", "W"):
        code, out, err = run_to_end(example("cg") + ["--class", name], ranks=3)
        assert code == 0 and "VERIFICATION SUCCESSFUL" in out, (code, out, err)


def imb(ranks, *benchmarks):
    """An unmodified binary of Intel's benchmarks, which links MPICH's ABI."""
    binary = os.path.join(peers.prefix("impi_rt"), "bin", "IMB-MPI1")
    options = ["-msglog", "0:16", "-iter", "50", "-npmin", str(ranks)]
    code, out, err = run_to_end([binary, *options, *benchmarks], ranks=ranks)
    assert code == 0 and "# All processes entering MPI_Finalize" in out, (code, out[-1500:], err)
    for name in benchmarks:
        assert f"Benchmarking {name}".lower() in out.lower(), out[-1500:]


def test_imb_pingpong():
    imb(2, "PingPong")


def test_imb_collectives():
    imb(4, "Allreduce", "Alltoall", "Bcast")


def test_mpi4py_imports():
    source = "from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.allreduce(c.rank + 1))"
    code, out, err = run_to_end([harness.PYTHON, "-c", source], ranks=3)
    assert code == 0 and out.split() == ["6", "6", "6"], (code, out, err)
