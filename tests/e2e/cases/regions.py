"""Checkpoints of regions: programs in C, Fortran and Python, and one with VeloC's calls, are killed
with SIGKILL in mid-run, lose a node's folder, are started again, and print what an undisturbed run
prints. Under `eyrie run`, under MPICH, and without MPI."""

import contextlib
import glob
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile

import harness
from harness import Job, NotRun, run_to_end

SOURCES = os.path.join(harness.ROOT, "tests", "e2e", "regions")
INCLUDE = os.path.join(harness.BUILD, "include")
LIBRARIES = os.path.join(harness.BUILD, "lib")
STEPS, EVERY, DIE = 60, 10, 35
RANDOM_KILLS = 6
_built = {}


def built(name, compiler, *arguments):
    """The command of a program, built once."""
    if name not in _built:
        out = os.path.join(harness.BUILD, "tests", f"regions-{name}")
        # A test beside this one may just start it, or build it.
        part = f"{out}.{os.getpid()}"
        os.makedirs(part + ".modules", exist_ok=True)
        found = [f"-I{INCLUDE}", f"-L{LIBRARIES}", f"-Wl,-rpath,{LIBRARIES}"]
        done = subprocess.run(
            [compiler, *found, "-O2", "-Wall", "-o", part, *arguments, "-leyrie_regions"],
            capture_output=True,
            text=True,
            cwd=part + ".modules",
        )
        assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
        shutil.rmtree(part + ".modules")
        os.replace(part, out)
        _built[name] = [out]
    return _built[name]


def wrapper(name):
    return os.path.join(harness.BUILD, "bin", name)


def c_program():
    return built("heat", wrapper("mpicc"), "-Wextra", os.path.join(SOURCES, "heat.c"))


def large_program():
    return built("large", wrapper("mpicc"), "-Wextra", "-DLARGE", os.path.join(SOURCES, "heat.c"))


def veloc_program():
    flags = ["-Wextra", "-DVELOC", f"-I{INCLUDE}/veloc"]
    return built("veloc", wrapper("mpicc"), *flags, os.path.join(SOURCES, "heat.c"))


def alone_program():
    return built("alone", "cc", "-Wextra", "-DALONE", os.path.join(SOURCES, "heat.c"))


def fortran_program():
    modules = [os.path.join(INCLUDE, f"eyrie_regions{more}.f90") for more in ("", "_mpi")]
    return built("fortran", wrapper("mpifort"), *modules, os.path.join(SOURCES, "heat.f90"))


def numpy_program():
    return [harness.PYTHON, os.path.join(SOURCES, "power.py")]


PATHS = {"PYTHONPATH": os.path.join(LIBRARIES, "python")}


def alone(command):
    """Runs a program by itself; returns (code, output, errors)."""
    env = {**os.environ, **PATHS}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    return done.returncode, done.stdout, done.stderr


def eyrie(command):
    return run_to_end(command, ranks=4, ft="none", env=PATHS)


def shared_by_mpich():
    return set(glob.glob("/dev/shm/mpich_shm_*"))


def left_by_mpich(before):
    """Removes memory that MPICH leaves when it is killed, but for what somebody else still has."""
    new = shared_by_mpich() - before
    for maps in glob.glob("/proc/[0-9]*/maps") if new else []:
        try:
            with open(maps) as f:
                text = f.read()
        except OSError:
            continue
        new = {path for path in new if path not in text}
    for path in new:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def mpich(command):
    """The same binary under MPICH, which has the standard ABI, too."""
    for path in sorted(glob.glob(f"{harness.CACHE}/peers/mpich-*/*/data")):
        hydra, proxy = (os.path.join(path, "bin", n) for n in ("mpiexec.hydra", "hydra_pmi_proxy"))
        if os.access(hydra, os.X_OK) and os.access(proxy, os.X_OK):
            break
    else:
        raise NotRun("there is no MPICH here that the benchmarks compare with")
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(path, "lib")}
    command = [hydra, "-n", "4", *command]
    before = shared_by_mpich()
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    left_by_mpich(before)
    return done.returncode, done.stdout, done.stderr


class World:
    """Folders of three nodes, and what an undisturbed run prints."""

    def __init__(self, launch, program, more="vault=rs:2+1", veloc=False):
        self.home = tempfile.mkdtemp(prefix="eyrie-regions-")
        self.launch, self.program, self.more, self.veloc = launch, program, more, veloc

    def __enter__(self):
        code, self.expected, err = self.run("undisturbed")
        assert code == 0 and self.expected, err
        assert "goes on" not in err, err
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.home, ignore_errors=True)

    def nodes(self, world="n"):
        return [os.path.join(self.home, world, str(node)) for node in range(3)]

    def options(self, world):
        text = f"folders={':'.join(self.nodes(world))};{self.more}"
        if not self.veloc:
            return text
        path = os.path.join(self.home, world + ".cfg")
        with open(path, "w") as f:
            f.write("# as VeloC has it\n" + text.replace(";", "\n") + "\naxl_type = posix\n")
        return path

    def command(self, world="n", die=()):
        words = [self.options(world), str(STEPS), str(EVERY), *map(str, die)]
        more = ["--alone"] if self.launch is alone and self.program[-1].endswith(".py") else []
        return [*self.program, *words, *more]

    def run(self, world="n", die=()):
        return self.launch(self.command(world, die))

    def killed(self, rank, step=DIE):
        code, out, err = self.run(die=(step, rank))
        # hydra tells of it on standard output.
        assert code != 0 and "steps" not in out, (code, out, err)

    def goes_on(self, since=DIE // EVERY * EVERY):
        """It goes on where it was, and prints the same in the end."""
        code, out, err = self.run()
        assert code == 0, err
        assert out == self.expected, (out, self.expected)
        assert f"goes on from step {since}\n" in err, err
        return err


def killed_twice(launch, program, ranks=(1, 0), veloc=False):
    """Killed; started again, killed again after a folder was lost; started again."""
    with World(launch, program, veloc=veloc) as world:
        world.killed(ranks[0])
        shutil.rmtree(world.nodes()[1])
        # One more checkpoint, with which the folder has its part in the vault again.
        world.killed(ranks[1], DIE + EVERY)
        shutil.rmtree(world.nodes()[0])
        world.goes_on((DIE + EVERY) // EVERY * EVERY)
        for left in ("parts", "files"):
            for node in world.nodes():
                assert glob.glob(os.path.join(node, left, "*")) == [], (node, left)
        listed = subprocess.run(
            [harness.EYRIE, "vault", "ls", *[os.path.join(n, "vault") for n in world.nodes()]],
            capture_output=True,
            text=True,
        )
        assert listed.returncode == 0 and listed.stdout.count(" whole") == 2, listed


def test_c_killed_and_a_folder_lost():
    killed_twice(eyrie, c_program())


def test_fortran_killed_and_a_folder_lost():
    killed_twice(eyrie, fortran_program())


def test_numpy_killed_and_a_folder_lost():
    killed_twice(eyrie, numpy_program())


def test_veloc_killed_and_a_folder_lost():
    killed_twice(eyrie, veloc_program(), veloc=True)


def test_c_under_mpich_killed_and_a_folder_lost():
    killed_twice(mpich, c_program())


def test_veloc_under_mpich_killed_and_a_folder_lost():
    killed_twice(mpich, veloc_program(), veloc=True)


def test_c_without_mpi_killed_and_a_folder_lost():
    killed_twice(alone, alone_program(), ranks=(0, 0))


def test_numpy_without_mpi_killed_and_a_folder_lost():
    killed_twice(alone, numpy_program(), ranks=(0, 0))


def test_left_to_a_thread_it_is_the_same():
    with World(eyrie, c_program(), "vault=rs:2+1;mode=async") as world:
        world.killed(2)
        shutil.rmtree(world.nodes()[2])
        # The last one may not have been protected when the job was killed.
        code, out, err = world.run()
        assert (code, out) == (0, world.expected), err
        assert "goes on from step 30\n" in err or "goes on from step 20\n" in err, err


def test_all_folders_lost_and_another_number_of_nodes():
    with World(eyrie, c_program()) as world:
        world.more += f";every=2;persistent={world.home}/far"
        world.killed(3)
        for node in world.nodes():
            shutil.rmtree(node)
        folders = ":".join(world.nodes("other")[:2])
        world.options = lambda _: f"folders={folders};vault=partner;persistent={world.home}/far"
        world.goes_on(since=20)


def test_killed_at_random_without_mpi():
    """SIGKILL at any instant, also within checkpoints: what is there afterwards is whole."""
    with World(alone, alone_program()) as world:
        # Often, so that most kills hit a checkpoint.
        command = world.command()
        command[3] = "1"
        for _ in range(RANDOM_KILLS):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            with subprocess.Popen(command, text=True, **pipes) as process:
                try:
                    process.wait(random.uniform(0.01, 0.4))
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                out = process.stdout.read()
            if out:
                break
        code, out, err = alone(command)
        assert (code, out) == (0, world.expected), err


def test_killed_at_random_with_eyrie():
    """A rank of a job is killed at any instant, and with it the job; it is started again."""
    with World(eyrie, c_program()) as world:
        command = world.command()
        command[3] = "1"
        for _ in range(RANDOM_KILLS):
            with Job(command, ranks=4, ft="none") as job:
                job.until(lambda: job.folder() or not job.running(), "a job")
                wait = random.uniform(0.1, 1.5)
                try:
                    job.process.wait(wait)
                except subprocess.TimeoutExpired:
                    job.kill_pid(random.randrange(4))
                job.wait()
                if job.stdout():
                    break
        code, out, err = eyrie(command)
        assert (code, out) == (0, world.expected), err


def test_a_rank_that_eyrie_restores_goes_on_with_its_checkpoints():
    """Under the default `--ft logged` the rank repeats what it had stored, and no other one does."""
    with World(eyrie, c_program()) as world:
        command = world.command()
        command[2], command[3] = "1200", "50"
        code, expected, err = eyrie(command)
        assert code == 0, err
        shutil.rmtree(os.path.join(world.home, "n"))
        gate = os.path.join(world.home, "gate")
        with Job(command, ranks=4, ckpt_every=3600, env={"HEAT_GATE": gate}) as job:
            job.says("at step 300")
            job.eyrie("checkpoint", "last")
            for rank in range(4):
                job.wait_event("checkpointed", rank=rank)
            open(gate + ".300", "w").close()
            job.says("at step 900")
            for rank in (2, 0):
                job.kill_ranks([rank])
                job.wait_event("restored", rank=rank)
            open(gate + ".900", "w").close()
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected, job.report()
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()
            assert "goes on" not in job.stderr(), job.report()


def part_of(world):
    """The newest part of process 0."""
    newest = DIE // EVERY * EVERY
    found = glob.glob(f"{world.home}/n/*/parts/heat.{newest}.*.0")
    assert len(found) == 1, found
    return found[0]


def test_what_is_no_sound_part_is_refused_in_a_line():
    def damaged(data):
        data[len(data) // 2] ^= 1

    def cut(data):
        del data[-7:]

    def newer(data):
        data[8:12] = struct.pack("<I", 2)

    def foreign(data):
        data[:] = b"\x7fELF" + bytes(200)

    cases = {
        damaged: "it is damaged: the checksum of region 1 does not hold",
        cut: "it is cut off, or too long",
        newer: "it has version 2, and this library reads version 1: use a newer one",
        foreign: "it is no part of a checkpoint of regions",
    }
    with World(alone, alone_program(), "keep=2") as world:
        for change, line in cases.items():
            world.killed(0)
            path = part_of(world)
            with open(path, "rb") as f:
                data = bytearray(f.read())
            change(data)
            with open(path, "wb") as f:
                f.write(data)
            # The one before is there, and the line says why it is used.
            err = world.goes_on(since=20)
            assert f"{path}: {line}" in err, err
            shutil.rmtree(os.path.join(world.home, "n"))
        # Without one before, it does not begin anew in silence.
        world.more = "keep=1"
        world.killed(0)
        with open(part_of(world), "r+b") as f:
            f.truncate(100)
        code, out, err = world.run()
        assert code == 3 and out == "", (code, out, err)
        assert "there is no checkpoint heat that all processes can have" in err, err


def test_another_number_of_processes_is_refused():
    with World(eyrie, c_program()) as world:
        world.killed(3)
        code, out, err = run_to_end(world.command(), ranks=2, ft="none")
        assert code != 0 and out == "", (code, out)
        assert "it is of 4 processes, and there are 2" in err, err
        world.goes_on()
