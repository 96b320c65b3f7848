"""What the C library tells a program (clocks, random devices, numbers, names) is told again in a replay."""

import os
import subprocess

import harness
from bad_input import program
from harness import Gated, run_to_end
from nodes import gone

STEPS = 120
_built = {}


def built(source):
    """A program of another language than C, built once."""
    if source not in _built:
        out = os.path.join(harness.BUILD, "tests", source.split(".")[0])
        compiler = "mpicxx" if source.endswith(".cpp") else "mpifort"
        command = [os.path.join(harness.BUILD, "bin", compiler), "-O1", "-o", out]
        command.append(os.path.join(harness.ROOT, "tests", "e2e", "programs", source))
        done = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(out))
        assert done.returncode == 0, done.stderr
        _built[source] = [out]
    return _built[source]


def undiverged(job, want):
    job.let_end()
    assert job.wait() == 0, job.report()
    assert job.stdout().startswith(want) and job.stdout().count("\n") == 1, job.report()
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    gone(job)


def killed(command, want):
    """From the beginning, from a checkpoint, and two at once."""
    with Gated([*command, str(STEPS), "--all"], ckpt_every=0) as job:
        job.wait_running(4)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        job.eyrie("checkpoint", "last", "--rank", "2")
        job.kill_ranks([2, 3])
        job.wait_event("restored", rank=2)
        undiverged(job, want)


def test_a_program_in_c():
    killed(program("clocked"), f"clocked: 4 ranks agree on {STEPS} steps, checksum ")


def test_a_program_in_cpp():
    killed(built("clocked_cpp.cpp"), f"clocked: {STEPS} steps\n")


def test_a_program_in_fortran():
    killed(built("clocked_f.f90"), f"clocked: {STEPS} steps\n")


def test_a_node_is_lost():
    command = program("clocked") + [str(STEPS), "--all"]
    with Gated(command, ckpt_every=0.2, options=["--nodes", "3"]) as job:
        job.wait_running(4)
        job.eyrie("inject", "last", "kill-node", "1")
        job.wait_event("node-lost", node=1)
        undiverged(job, f"clocked: 4 ranks agree on {STEPS} steps, checksum ")


def test_verify_finds_them_deterministic():
    for command in (program("clocked"), built("clocked_cpp.cpp"), built("clocked_f.f90")):
        code, out, err = run_to_end([*command, "20"], ranks=3, subcommand="verify")
        assert code == 0, (command, code, out, err)


def test_a_program_in_python():
    """Random bytes, also those drawn before MPI is loaded, names, the order of sets and the time; with a
    thread of Python's the interpreter asks for the time by itself, which is not recorded."""
    script = os.path.join(harness.ROOT, "tests", "e2e", "programs", "told.py")
    logged = ["--clocks", "logged"]
    for more, options in (["clocks"], []), (["clocks", "single"], []), (["threads"], []), (["threads"], logged):
        command = [harness.PYTHON, script, "60", *more]
        with Gated(command, ckpt_every=0, ranks=3, options=options) as job:
            job.wait_running(3)
            for rank in (1, 0):
                job.kill_ranks([rank])
                job.wait_event("restored", rank=rank)
            job.eyrie("checkpoint", "last", "--rank", "2")
            job.kill_ranks([2])
            job.wait_event("restored", rank=2)
            job.let_end()
            assert job.wait() == 0, job.report()
            lines = sorted(job.stdout().splitlines())
            assert lines == [f"rank {rank}: 60 steps" for rank in range(3)], job.report()
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()
            gone(job)
        command = [*command[:2], "5", *more]
        code, out, err = run_to_end(command, ranks=2, subcommand="verify", options=options)
        assert code == 0, (more, code, out, err)


def test_memory_lies_where_it_lay():
    """What follows from addresses is the same from the beginning, too."""
    command, want = program("addresses") + ["60"], "addresses: 60 steps\n"
    with Gated(command, ckpt_every=0, ranks=3) as job:
        job.wait_running(3)
        for rank in (1, 0):
            job.kill_ranks([rank])
            job.wait_event("restored", rank=rank)
        undiverged(job, want)
    code, out, err = run_to_end(program("addresses") + ["5"], ranks=2, subcommand="verify")
    assert code == 0, (code, out, err)


def test_timers_the_machine_and_names():
    """All of it is something else in each life, as each process has namespaces of its own (of root)."""
    command, want = program("machine") + ["12"], "machine: 12 steps\n"
    with Gated(command, ckpt_every=0, ranks=3) as job:
        job.wait_running(3)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        job.until(lambda: job.stdout() == want, "all steps")
        job.kill_ranks([2])
        job.wait_event("restored", rank=2)
        undiverged(job, want)
    code, out, err = run_to_end(program("machine") + ["3"], ranks=2, subcommand="verify")
    assert code == 0, (code, out, err)


def test_what_is_not_recorded_is_found():
    """The same program without its clocks recorded, by either name of the option, and with those of MPI."""
    for how in (["--clocks", "plain"], ["--wtime", "plain"], ["--clocks", "mpi"]):
        code, out, err = run_to_end(
            program("clocked") + ["5"], ranks=2, subcommand="verify", options=how
        )
        assert code != 0 and "not deterministic" in (out + err).lower(), (how, code, out, err)


def test_children_and_threads_are_told_the_truth():
    code, out, err = run_to_end(program("untold"), ranks=2)
    assert code == 0 and out == "untold\nuntold\n", (code, out, err)
