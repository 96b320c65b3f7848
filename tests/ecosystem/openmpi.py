"""Programs that Debian built for Open MPI, as its packages have them: unchanged, undisturbed and with
a rank and a node killed, with the same results.

Packages are fetched with apt, and never installed: they are unpacked into the folder of caches."""

import glob
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EYRIE = os.path.join(ROOT, "build", "bin", "eyrie")
CACHE = os.environ.get("EYRIE_CACHE") or os.path.expanduser("~/.cache/eyrie")
TIMEOUT_S = float(os.environ.get("EYRIE_TEST_TIMEOUT", "300"))
PACKAGES = "lammps", "hpcc", "netpipe-openmpi", "python3-mpi4py", "python3-h5py-mpi", "scalapack-mpi-test", "music-bin"

# A liquid of 2,048 atoms; what it prints at each 50th step depends on all of them.
MELT = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 50
thermo_modify flush yes
run 1500
"""


# Tests run in threads; apt wants to be alone.
FETCHING = threading.Lock()


def unpacked(packages=PACKAGES):
    """The `usr` of the packages and of what they need that is not installed here."""
    with FETCHING:
        return fetched(packages)


def fetched(packages):
    of = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    place = os.path.join(CACHE, f"open-mpi-programs-{of}")
    if not os.path.isdir(place):
        os.makedirs(CACHE, exist_ok=True)
        made = tempfile.mkdtemp(prefix=".open-mpi-programs-", dir=CACHE)
        os.makedirs(f"{made}/debs/partial")
        options = ["--download-only", "--no-install-recommends", "-y", "-o", f"Dir::Cache::archives={made}/debs"]
        options += ["-o", "DPkg::Lock::Timeout=300"]
        done = subprocess.run(["apt-get", "install", *options, *packages], capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(packages)} cannot be had with apt-get:\n{done.stderr}"
        # Of these the headers alone, and their own libraries for comparing.
        alone = ["apt-get", "download", "libopenmpi-dev", "libopenmpi3"]
        done = subprocess.run(alone, cwd=f"{made}/debs", capture_output=True, text=True)
        assert done.returncode == 0, f"libopenmpi-dev cannot be had with apt-get:\n{done.stderr}"
        for name in sorted(os.listdir(f"{made}/debs")):
            if name.endswith(".deb"):
                subprocess.run(["dpkg", "-x", f"{made}/debs/{name}", f"{made}/root"], check=True)
        shutil.rmtree(f"{made}/debs")
        os.rename(made, place)
    return os.path.join(place, "root", "usr")


class Place:
    """Where jobs of these programs run: Eyrie's libraries come before Open MPI's."""

    def __init__(self, folder, packages=PACKAGES, **more):
        self.usr, self.folder = unpacked(packages), folder
        self.lib = os.path.join(self.usr, "lib", "x86_64-linux-gnu")
        # Programs of one thread a rank, which print each line at once.
        own = {
            "LD_LIBRARY_PATH": f"{self.usr}/lib/openmpi-system:{self.usr}/lib:{self.lib}:{self.lib}/blas:{self.lib}/lapack",
            "PYTHONPATH": f"{self.usr}/lib/python3/dist-packages",
            "EYRIE_HOME": os.path.join(folder, "home"),
            "GFORTRAN_UNBUFFERED_PRECONNECTED": "y",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.env = {**os.environ, **own, **{name: text.format(usr=self.usr) for name, text in more.items()}}

    def run(self, options, name, *words):
        command = [EYRIE, "run", *options, os.path.join(self.usr, "bin", name), *words]
        done = subprocess.run(
            command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inject(self, *what):
        done = subprocess.run([EYRIE, "inject", "last", *what], env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def killed(self, options, words, at, kill=()):
        """What the program and Eyrie print; something is killed when a line has what `at` says."""
        told = open(os.path.join(self.folder, "told"), "w+")
        job = subprocess.Popen(
            [EYRIE, "run", *options, *words], env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=told, text=True,
        )
        lines = []
        for line in job.stdout:
            lines.append(line)
            if kill and re.search(at, line):
                self.inject(*kill)
                kill = ()
        code = job.wait()
        told.seek(0)
        err = told.read()
        assert code == 0 and not kill, (code, kill, err, lines[-5:])
        return "".join(lines), err

    def survives(self, ranks, words, at, result, every="0.3"):
        """Undisturbed, with a rank and with a node killed: `result` of what is printed is the same.
        Returns that."""
        words = [os.path.join(self.usr, words[0]), *words[1:]]
        right = result(self.killed(["-n", str(ranks)], words, at)[0])
        assert right
        options = ["-n", str(ranks), "--ckpt-every", every]
        for more, kill, told in (
            ([], ("kill-rank", "1"), "1 rank brought back"),
            (["--nodes", str(ranks)], ("kill-node", "1"), "1 node lost"),
        ):
            text, err = self.killed([*options, *more], words, at, kill)
            assert result(text) == right, (kill, result(text), right)
            assert "nothing was lost" in err and told in err, err
        return right


def steps(text):
    """What LAMMPS tells of each step: numbers without times."""
    return re.findall(r"^ +\d+(?: +-?[0-9.e+-]+){5} *$", text, re.M)


def melted(place, options, kills=()):
    """Runs the liquid; at each step of `kills` that is printed something is killed."""
    with open(os.path.join(place.folder, "melt.in"), "w") as file:
        file.write(MELT)
    program = os.path.join(place.usr, "bin", "lmp")
    command = [EYRIE, "run", *options, program, "-in", "melt.in", "-log", "none"]
    told = open(os.path.join(place.folder, "told"), "w+")
    job = subprocess.Popen(
        command, env=place.env, cwd=place.folder, stdout=subprocess.PIPE, stderr=told, text=True
    )
    kills, lines = list(kills), []
    for line in job.stdout:
        lines.append(line)
        if kills and re.match(rf" +{kills[0][0]} ", line):
            place.inject(*kills.pop(0)[1])
    code = job.wait()
    told.seek(0)
    err = told.read()
    assert code == 0 and not kills, (code, kills, err, lines[-5:])
    found = steps("".join(lines))
    assert len(found) == 31, lines
    return found, err


def test_lammps_of_debian_survives(folder):
    place = Place(folder)
    right, _ = melted(place, ["-n", "3"])
    ranks, err = melted(
        place, ["-n", "3", "--ckpt-every", "0.5"],
        [(100, ("kill-rank", "2")), (500, ("kill-rank", "0"))],
    )
    assert ranks == right and "2 ranks brought back" in err, err
    nodes, err = melted(place, ["-n", "3", "--nodes", "3", "--ckpt-every", "0.5"], [(300, ("kill-node", "1"))])
    assert nodes == right and "1 node lost" in err, err


def test_mpi4py_and_netpipe_of_debian(folder):
    place = Place(folder)
    program = "from mpi4py import MPI; c = MPI.COMM_WORLD; print(MPI.get_vendor()[0], c.allreduce(c.rank + 1))"
    done = place.run(["-n", "3"], "/usr/bin/python3", "-c", program)
    assert done == "Open MPI 6\n" * 3, done
    place.run(["-n", "2"], "NPopenmpi", "-u", "64", "-o", "np.out")
    with open(os.path.join(folder, "np.out")) as file:
        assert len(file.readlines()) > 10


# Of the tests that ScaLAPACK brings: one that is soon over.
LU = """\
'LU'
'MPI'
'LU.out' output file name (if any)
6 device out
2 number of problems sizes
17 31 M
13 31 N
2 number of NB's
2 4 NB
1 number of NRHS's
3 NRHS
1 number of NBRHS's
3 NBRHS
2 number of process grids
2 4 P
2 1 Q
1.0 threshold
T (T or F) Test Cond. Est. and Iter. Ref. Routines
"""


def test_scalapack_of_debian_survives(folder):
    place = Place(folder)
    with open(f"{folder}/LU.dat", "w") as file:
        file.write(LU)
    # Without times and rates.
    passed = lambda text: [line.split()[:8] + line.split()[-1:] for line in text.splitlines() if "PASSED" in line]
    right = place.survives(4, ["lib/x86_64-linux-gnu/scalapack/openmpi-tests/xdlu"], "PASSED", passed)
    assert len(right) > 5, right


WRITES = """\
from mpi4py import MPI
import h5py, numpy
comm = MPI.COMM_WORLD
with h5py.File("x.h5", "w", driver="mpio", comm=comm) as file:
    file.create_dataset("a", (4 * comm.size,), dtype="i8")[4 * comm.rank : 4 * comm.rank + 4] = comm.rank
with h5py.File("x.h5", "r", driver="mpio", comm=comm) as file:
    print(int(file["a"][:].sum()))
"""
# Two programs in one job: each of seven ranks asks before MPI_Init which it is.
WAVES = """\
stoptime=0.2
[producer]
binary={bin}/waveproducer
args=12
np=4
[consumer]
binary={bin}/waveconsumer
args=waves
np=3
producer.wavedata->wavedata[12]
"""


def test_h5py_of_debian_writes_together(folder):
    done = Place(folder).run(["-n", "3"], "/usr/bin/python3", "-c", WRITES)
    assert done == "12\n" * 3, done


def test_music_of_debian(folder):
    place = Place(folder)
    with open(f"{folder}/waves.music", "w") as file:
        file.write(WAVES.format(bin=f"{place.lib}/music-1.1.16"))
    place.run(["-n", "7"], "music", "waves.music")
    waves = []
    for rank in range(3):
        with open(f"{folder}/waves{rank}.out") as file:
            waves.append(file.readlines())
    assert all(len(lines) > 3 for lines in waves), waves


test_music_of_debian.takes_long = True


# Debian's Open MPI has no functions for failures.
WITHOUT = "-DWITHOUT_ULFM"


def built(folder, compiler, options, source, *libraries):
    """A program that names libraries of Open MPI's, of which ours are here; what it prints."""
    lib, program = os.path.join(ROOT, "build", "lib"), f"{folder}/checks"
    # As their link lines do: the library in C comes by the others.
    found = [f"{lib}/{name}.so.40" for name in libraries] + [f"-Wl,-rpath,{lib}", f"-Wl,-rpath-link,{lib}"]
    command = [compiler, "-w", *options, source, "-o", program, "-Wl,--no-as-needed", *found]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True).stdout
    assert all(f"[{name}.so.40]" in needed for name in libraries), needed
    done = subprocess.run([program], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0 and " 0 failed" in done.stdout, done
    return program


def test_modules_of_open_mpi(folder):
    """Fortran programs that were compiled with its modules, and name the libraries of these."""
    [modules] = glob.glob(f"{unpacked()}/lib/x86_64-linux-gnu/fortran/gfortran-mod-*/openmpi")
    options = [f"-I{modules}", f"-J{folder}"]
    libraries = "libmpi_usempif08", "libmpi_usempi_ignore_tkr", "libmpi_mpifh"
    built(folder, "gfortran", options, f"{ROOT}/tests/abi/module08.f90", *libraries)
    # What its module mpi lacks: sizes of some types, and profiling names of addresses.
    with open(f"{ROOT}/tests/abi/forms.F90") as file:
        text = re.sub(r"pmpi_aint_(add|diff)", r"mpi_aint_\1", file.read(), flags=re.I)
    text = re.sub(r".*MPI_Sizeof\(l2, .*", "size(3) = 2", text)
    text = re.sub(r"MPI_Sizeof\(inn\(2:4:2\), size\(7\)\)", "MPI_Sizeof(inn(2:4), size(7), e)", text)
    with open(f"{folder}/forms.F90", "w") as file:
        file.write(text)
    options += ["-cpp", "-DFORM=2", WITHOUT, "-ffree-line-length-none"]
    built(folder, "gfortran", options, f"{folder}/forms.F90", *libraries[1:])


def virtual_functions(library):
    """Of each class of MPI: what its table of virtual functions has, in order."""
    said = subprocess.run(["readelf", "-W", "--dyn-syms", "-r", library], capture_output=True, text=True, check=True)
    words = [line.split() for line in said.stdout.splitlines()]
    filled = {int(w[0], 16): w[4] for w in words if len(w) > 4 and w[2] == "R_X86_64_64"}
    tables = {w[7]: (int(w[1], 16), int(w[2])) for w in words if len(w) == 8 and w[7].startswith("_ZTVN3MPI")}
    return {name: [filled.get(at) for at in range(start, start + size, 8)] for name, (start, size) in tables.items()}


def test_cxx_bindings_of_open_mpi(folder):
    """Programs that were compiled with its header in C++: what they call, and where they look it up."""
    include = f"{unpacked()}/lib/x86_64-linux-gnu/openmpi/include"
    options = [f"-I{include}", f"-I{include}/openmpi"]
    program = built(folder, "g++", options, f"{ROOT}/tests/abi/bindings.cc", "libmpi_cxx", "libmpi")
    done = subprocess.run(
        [EYRIE, "run", "-n", "3", program], cwd=folder, env={**os.environ, "EYRIE_HOME": f"{folder}/home"},
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )
    assert done.returncode == 0 and "passed, 0 failed" in done.stdout, done
    theirs = virtual_functions(f"{unpacked()}/lib/x86_64-linux-gnu/libmpi_cxx.so.40")
    ours = virtual_functions(f"{ROOT}/build/lib/libmpi_cxx.so.40")
    assert len(theirs) == 17 and ours == theirs, {name: (ours.get(name), of) for name, of in theirs.items() if ours.get(name) != of}
    # Objects and functions that programs name.
    names = lambda library: {
        line.split()[-1] for line in subprocess.run(
            ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }
    missing = names(f"{unpacked()}/lib/x86_64-linux-gnu/libmpi_cxx.so.40") - names(f"{ROOT}/build/lib/libmpi_cxx.so.40")
    assert not [name for name in missing if name.startswith("_Z")], missing


def test_fortran_of_open_mpi(folder):
    """The checks of tests/abi, built with Open MPI's mpif.h, on its Fortran library's names."""
    include = f"{unpacked()}/lib/x86_64-linux-gnu/openmpi/include"
    lib, checks = os.path.join(ROOT, "build", "lib"), os.path.join(ROOT, "tests", "abi")
    # Open MPI's file lacks the profiling names of these.
    with open(f"{checks}/forms.F90") as file:
        text = re.sub(r"pmpi_aint_(add|diff)", r"mpi_aint_\1", file.read(), flags=re.I)
    with open(f"{folder}/forms.F90", "w") as file:
        file.write(text)
    for name, options in (f"{checks}/fixed.f", []), (f"{folder}/forms.F90", ["-cpp", "-DFORM=1", WITHOUT, "-ffree-line-length-none"]):
        program = f"{folder}/checks"
        # As their link lines do: the library in C comes by the other one.
        found = [f"{lib}/libmpi_mpifh.so.40", f"-Wl,-rpath,{lib}", f"-Wl,-rpath-link,{lib}"]
        command = ["gfortran", "-w", "-fallow-argument-mismatch", *options, f"-I{include}", f"-J{folder}", name, "-o", program]
        done = subprocess.run([*command, *found], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        done = subprocess.run([program], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0 and " 0 failed" in done.stdout, done


def test_hpcc_of_debian(folder):
    """Its own checks pass: Linpack, transposition, random access, transforms."""
    place = Place(folder)
    with open(f"{place.usr}/share/doc/hpcc/examples/_hpccinf.txt") as file:
        text = file.read()
    with open(os.path.join(folder, "hpccinf.txt"), "w") as file:
        file.write(re.sub(r"^1000( +Ns)", r"256\1", text, flags=re.M))
    place.run(["-n", "4"], "hpcc")
    with open(os.path.join(folder, "hpccoutf.txt")) as file:
        said = file.read()
    assert "Success=1" in said and "FAILED" not in said and said.count("PASSED") > 5, said


test_hpcc_of_debian.takes_long = True
