"""Programs that ranks start (MPI_Comm_spawn), undisturbed and with kills of parents, children, who gives places away
and nodes."""

import os
import sys

import harness
from bad_input import program
from harness import Job, run_to_end

# The first of those that wait for programs, and who gives them away, in a job of two ranks with the places below: no
# more than are used at a time, so each has several programs.
CHILD, KEEPER = 2, 5
ROOM = ["--spawn-room", "3"]


def spawned(steps=20, rounds=3):
    return program("spawned") + [str(rounds), "2", str(steps)]


@harness.functools.lru_cache(maxsize=None)
def undisturbed(steps=20, rounds=3):
    """No option is needed."""
    code, out, err = run_to_end(spawned(steps, rounds), ranks=2, ft="none")
    assert code == 0 and len(out.splitlines()) == rounds, (code, out, err[-2000:])
    return out


def test_children_work_for_their_parents():
    code, out, err = run_to_end(spawned(), ranks=2, ckpt_every=0.05)
    assert (code, out) == (0, undisturbed()), err[-2000:]


def killed(victims, steps=400, ft=None, options=(), rounds=3, behind=0):
    """Ranks are killed one after the other, behind a round."""
    more = {"ft": ft} if ft else {}
    with Job(spawned(steps, rounds), ranks=2, ckpt_every=0.05, options=[*ROOM, *options], **more) as job:
        job.until(lambda: f"round {behind}" in job.stdout() or not job.running(), f"round {behind}")
        for victim in victims:
            before = job.count("restored")
            if job.running() and job.kill_ranks([victim])[0] == 0:
                job.until(lambda n=before: job.count("restored") > n or not job.running(), "a recovery")
        code = job.wait()
        assert (code, job.stdout()) == (0, undisturbed(steps, rounds)), job.report()
        assert not job.count("diverged"), job.report()


def started_often(ft):
    """More programs than there are places, and checkpoints before, while and after each is started."""
    code, out, err = run_to_end(spawned(20, 12), ranks=2, ft=ft, ckpt_every=0.02, options=ROOM)
    assert (code, out) == (0, undisturbed(20, 12)), (code, out, err[-2000:])


def test_a_place_has_one_program_after_the_other():
    """Of all at once, as a checkpoint of all meets what one of them is just doing."""
    for _ in range(3):
        started_often("coordinated")


def places_are_used_again_with_logs_and_without():
    for ft in "none", "logged":
        started_often(ft)


def a_place_is_killed_in_its_second_life(ft=None):
    killed([CHILD, KEEPER, CHILD + 1, 0], ft=ft, rounds=4, behind=1)


def a_place_is_killed_in_its_second_life_and_all_go_back():
    a_place_is_killed_in_its_second_life("coordinated")


def test_a_child_and_a_parent_are_killed():
    """Also in the second round, in which a place has its second program."""
    killed([0, CHILD, 1, CHILD + 2, CHILD + 1])


def test_what_cannot_be_started_is_an_error_of_each():
    for options in (["--spawn-room", "2"], []):
        code, out, err = run_to_end(program("unspawned"), ranks=2, options=options)
        assert (code, out) == (0, "refused: no program, no folder, no MPI, no room\n"), (code, out, err)
        assert "--spawn-room" in err and "without a call of MPI_Init" in err, err


def who_gives_places_away_is_killed():
    killed([KEEPER, 0, KEEPER, CHILD + 1])


def who_waits_for_a_program_is_killed():
    killed([CHILD + 2, 0, CHILD + 2])


def children_of_all_go_back_together():
    killed([CHILD + 2, 0], ft="coordinated")


def a_node_with_children_is_lost():
    options = [*ROOM, "--nodes", "3", "--spares", "1"]
    with Job(spawned(400), ranks=2, ckpt_every=0.05, options=options) as job:
        job.until(lambda: "round 0" in job.stdout() or not job.running(), "the first round")
        before = job.count("restored")
        if job.running() and job.eyrie("inject", "last", "kill-node", "2", check=False)[0] == 0:
            job.until(lambda: job.count("restored") > before or not job.running(), "a recovery")
        code = job.wait()
        assert (code, job.stdout()) == (0, undisturbed(400)), job.report()
        assert not job.count("diverged"), job.report()


def programs_that_are_not_of_mpi_end_with_their_room():
    code, out, err = run_to_end(["echo", "here"], ranks=2, options=["--spawn-room", "1"])
    assert (code, out) == (0, "here\nhere\n"), (code, out, err)


POOL = """
from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor

def square(n):
    return n * n

if __name__ == '__main__':
    with MPIPoolExecutor(max_workers=2) as pool:
        print(sum(pool.map(square, range(200))))
"""


def a_pool_of_mpi4py_starts_its_workers():
    folder = harness.tempfile.mkdtemp(prefix="eyrie-test-pool-")
    try:
        path = os.path.join(folder, "pool.py")
        with open(path, "w", encoding="ascii") as file:
            file.write(POOL)
        python = harness.PYTHON if os.path.exists(harness.PYTHON) else sys.executable
        code, out, err = run_to_end([python, path], ranks=1)
        assert (code, out) == (0, f"{sum(n * n for n in range(200))}\n"), (code, out, err[-2000:])
    finally:
        harness.shutil.rmtree(folder, ignore_errors=True)


def fortran_starts_programs():
    source = os.path.join(harness.ROOT, "tests", "e2e", "programs", "spawned_f.f90")
    with harness.tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        built = os.path.join(folder, "spawned_f")
        mpifort = os.path.join(harness.BUILD, "bin", "mpifort")
        harness.subprocess.run([mpifort, "-J", folder, "-o", built, source], check=True)
        code, out, err = run_to_end([built], ranks=1)
    # 2 * 10 * 3 + 0 + 1, and 100 * 1 + 2 * 1000 * 2 + 0 + 1 + 2
    assert (code, out) == (0, "children: 61\nboth: 4103 of 3\n"), (code, out, err[-2000:])


def generated():
    """Of these one in some is run without --all."""
    for case in (
        places_are_used_again_with_logs_and_without,
        a_place_is_killed_in_its_second_life,
        a_place_is_killed_in_its_second_life_and_all_go_back,
        who_gives_places_away_is_killed,
        who_waits_for_a_program_is_killed,
        children_of_all_go_back_together,
        a_node_with_children_is_lost,
        programs_that_are_not_of_mpi_end_with_their_room,
        a_pool_of_mpi4py_starts_its_workers,
        fortran_starts_programs,
    ):
        yield case.__name__, case
