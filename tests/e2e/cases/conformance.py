"""The C conformance programs on several numbers of ranks, undisturbed and with kills."""

import os
import tempfile

import harness
from bad_input import program
from harness import Job, run_to_end

NAMES = sorted(
    n[:-2]
    for n in os.listdir(os.path.join(os.path.dirname(os.path.dirname(__file__)), "mpi"))
    if n.endswith(".c")
)


def comes_through(name, ranks, **options):
    code, out, err = run_to_end(program(name), ranks=ranks, **options)
    assert code == 0 and out.startswith(f"ok {name} "), (code, out, err[-2000:])
    assert int(out.split()[2]) >= ranks, out
    return out


def survives_kills(name, *options):
    """Ranks are killed as soon as all are there; a checkpoint may have been taken or not."""
    with Job(program(name), ranks=4, ckpt_every=0.05, options=list(options)) as job:
        job.until(lambda: job.count("started") >= 4 or not job.running(), "start of all ranks")
        for victims in ([1], [0, 2], [3]):
            if job.running():
                before = job.count("restored")
                if job.kill_ranks(victims)[0] == 0:
                    # The next victims are killed after this recovery has begun.
                    job.until(
                        lambda: job.count("restored") > before or not job.running(), "a recovery"
                    )
        code = job.wait()
        assert code == 0 and job.stdout().startswith(f"ok {name} "), job.report()
        assert not job.count("diverged"), job.report()


def survives_nodes(name):
    """A rank and then a node are killed, once some checkpoint was taken."""
    options = ["--nodes", "4", "--spares", "1"]
    with Job(program(name), ranks=4, ckpt_every=0.05, options=options) as job:
        job.until(lambda: job.count("checkpointed") or not job.running(), "a checkpoint")
        for what, which in (("kill-rank", "1"), ("kill-node", "2")):
            before = job.count("restored")
            if job.running() and job.eyrie("inject", "last", what, which, check=False)[0] == 0:
                job.until(
                    lambda n=before: job.count("restored") > n or not job.running(), "a recovery"
                )
        code = job.wait()
        assert code == 0 and job.stdout().startswith(f"ok {name} "), job.report()
        assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def test_what_is_begun_survives_nodes():
    survives_nodes("begun")


def test_what_goes_between_groups_survives_nodes():
    survives_nodes("intercomm")


def test_groups_that_meet_survive_nodes():
    survives_nodes("ports")


def test_windows_survive_nodes():
    survives_nodes("rma")


def test_what_goes_in_parts_survives_nodes():
    survives_nodes("parts")


def test_shared_pointers_survive_nodes():
    survives_nodes("sharedfp")


def test_threads_survive_nodes():
    survives_nodes("multiple")


def test_threads_that_go_back_together():
    """Nothing is recorded there: images of all threads of all ranks are one state."""
    with Job(program("multiple"), ranks=4, ft="coordinated", ckpt_every=0.05) as job:
        job.until(lambda: job.count("checkpointed") >= 4 or not job.running(), "a checkpoint of all")
        if job.running():
            job.kill_ranks([2])
        code = job.wait()
        assert code == 0 and job.stdout().startswith("ok multiple "), job.report()


def is_deterministic(command, **more):
    options = ["--seeds", "2"]
    code, out, err = run_to_end(command, ranks=3, subcommand="verify", options=options, **more)
    assert code == 0 and "deterministic under replay" in out, (code, out, err[-2000:])


def test_windows_are_deterministic():
    """Messages are delayed and hastened: operations are applied as they were."""
    is_deterministic(program("rma") + ["verify"])


def test_threads_are_deterministic():
    is_deterministic(program("multiple"))


def test_what_goes_between_groups_is_deterministic():
    is_deterministic(program("intercomm"))


def test_shared_pointers_are_deterministic():
    """Which rank gets which offset is chance, and stays as it was."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        is_deterministic(program("sharedfp") + ["3", "keep"], env={"TMPDIR": folder})


def test_groups_that_meet_are_deterministic():
    is_deterministic(program("ports"))


def generated():
    for name in NAMES:
        for ranks in (1, 2, 3, 4, 7):
            yield f"{name}_on_{ranks}", lambda n=name, r=ranks: comes_through(n, r)
        yield f"{name}_without_ft", lambda n=name: comes_through(n, 3, ft="none")
        yield f"{name}_with_kills", lambda n=name: survives_kills(n)


def test_wrappers_have_no_surprises():
    """The compiler wrappers pass on what they do not know and say what they would do."""
    for wrapper in ("mpicc", "mpicxx", "mpifort"):
        shown = harness.subprocess.run(
            [os.path.join(harness.BUILD, "bin", wrapper), "-show"], capture_output=True, text=True
        )
        assert shown.returncode == 0 and "-I" in shown.stdout, (wrapper, shown)
