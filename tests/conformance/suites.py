#!/usr/bin/env python3
"""Where the suites of others come from: fetched by package name, kept and built in $EYRIE_CACHE/suites.

MPICH's suite is in Debian's source package, mpi4py's in its source on PyPI, Intel's benchmarks are in
`impi_rt` (`benches/peers.py`). Nothing of them enters this repository. A folder that EYRIE_SUITES names
may hold the packages, where there is no network. `suites.py` alone fetches what is missing.
"""

import fcntl
import glob
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build")
sys.path.insert(0, os.path.join(ROOT, "benches"))

import peers  # noqa: E402

FOLDER = os.path.join(peers.CACHE, "suites")
MPICH = "4.0.2"
# What MPICH's suite must not take from whoever runs the tests.
FOREIGN = ("MPICC", "MPICXX", "MPIFC", "CC", "CXX", "FC", "F77", "CFLAGS", "FFLAGS", "LDFLAGS", "LD_LIBRARY_PATH")


class Unavailable(Exception):
    """A suite is not there and cannot be fetched or built."""


def run(*command, cwd=None, env=None, log=None):
    """Runs a command that has to succeed; what it says goes to a file, and its end to whoever must know."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if log:
        with open(log, "w") as file:
            file.write(done.stdout)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-1500:]}")
    return done.stdout


def given(pattern):
    """A package in the folder that the user names, or in the cache; None if it is in neither."""
    for folder in filter(None, (os.environ.get("EYRIE_SUITES"), os.path.join(FOLDER, "packages"))):
        found = glob.glob(os.path.join(folder, pattern))
        if found:
            return found[0]
    return None


def unpacked(package, name, part):
    """The folder `name` in the cache, which holds `part` of a package."""
    target = os.path.join(FOLDER, name)
    if not os.path.isdir(target):
        partial = target + ".partial"
        subprocess.run(["rm", "-rf", partial], check=True)
        with tarfile.open(package) as archive:
            members = [m for m in archive if m.name.startswith(part)]
            if not members:
                raise Unavailable(f"{package} holds no {part}")
            archive.extractall(partial, members, filter="data")
        os.rename(os.path.join(partial, name), target)
        os.rmdir(partial)
    return target


def source_lines():
    """Where apt finds sources: beside the distribution's own packages."""
    form = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    lines = set()
    for target in run("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines():
        origin, site, release, component = target.split("|")
        if origin == "Debian" and component == "main":
            lines.add(f"deb-src {site} {release} main\n")
    if not lines:
        raise Unavailable("apt knows no repository of Debian's (apt-get update)")
    return "".join(sorted(lines))


def mpich_package():
    """Debian's source of MPICH, which apt has checked."""
    name = f"mpich_{MPICH}.orig.tar.*"
    found = given(name)
    if found:
        return found
    packages = os.path.join(FOLDER, "packages")
    apt = os.path.join(FOLDER, "apt")
    os.makedirs(packages, exist_ok=True)
    os.makedirs(os.path.join(apt, "lists", "partial"), exist_ok=True)
    with open(os.path.join(apt, "sources.list"), "w") as file:
        file.write(source_lines())
    own = [f"Dir::Etc::sourcelist={apt}/sources.list", "Dir::Etc::sourceparts=-", f"Dir::State::lists={apt}/lists"]
    # The lists belong to whoever runs the tests, not to the user that apt would become.
    own.append("APT::Sandbox::User=")
    options = [word for option in own for word in ("-o", option)]
    run("apt-get", *options, "update", "-q")
    run("apt-get", *options, "source", "-q", "--download-only", "mpich", cwd=packages)
    found = given(name)
    if not found:
        raise Unavailable(f"this distribution's source of MPICH is not {MPICH}, to which the list of failures belongs")
    return found


def mpi4py_package():
    """mpi4py's source, of the version that is installed for the tests."""
    name = f"mpi4py-{importlib.metadata.version('mpi4py')}"
    found = given(name + ".tar.gz")
    if not found:
        packages = os.path.join(FOLDER, "packages")
        os.makedirs(packages, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
        wanted = name.replace("-", "==")
        run(*pip, "--no-deps", "--no-binary", "mpi4py", "-d", packages, wanted)
        found = given(name + ".tar.gz")
    if not found:
        raise Unavailable(f"the source of {name} could not be fetched with pip")
    return found


def locked(make):
    """Two runs at the same time do not fetch or build the same thing."""

    def only_one(*arguments):
        os.makedirs(FOLDER, exist_ok=True)
        with open(os.path.join(FOLDER, ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                return make(*arguments)
            except (OSError, subprocess.SubprocessError, peers.Unavailable) as problem:
                raise Unavailable(str(problem)) from problem

    return only_one


@locked
def mpi4py_tests():
    name = f"mpi4py-{importlib.metadata.version('mpi4py')}"
    return os.path.join(unpacked(mpi4py_package(), name, f"{name}/test"), "test")


@locked
def mpich_source():
    return os.path.join(unpacked(mpich_package(), f"mpich-{MPICH}", f"mpich-{MPICH}/test"), "test", "mpi")


@locked
def benchmarks():
    """The folder of Intel's benchmarks, and that of the threads' library of one of them."""
    return os.path.join(peers.prefix("impi_rt"), "bin"), os.path.join(peers.prefix("intel_openmp"), "lib")


@locked
def mpich_itself():
    """Where MPICH lies, for comparison."""
    return peers.prefix("mpich")


def built_with():
    """Names what programs are built with: headers, wrappers, Fortran's modules. The library is found when
    they run."""
    parts = hashlib.sha256()
    of = [*glob.glob(BUILD + "/include/**", recursive=True), *glob.glob(BUILD + "/bin/mpi*")]
    of += glob.glob(BUILD + "/lib/*.a")
    for path in sorted(p for p in of if os.path.isfile(p) and not p.endswith(("mpiexec", "mpirun"))):
        with open(path, "rb") as file:
            parts.update(os.path.relpath(path, BUILD).encode() + b"\0" + file.read())
    return parts.hexdigest()[:12]


def environment():
    """Of what builds and runs MPICH's suite: our wrappers come first."""
    clean = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**clean, "PATH": os.path.join(BUILD, "bin") + ":" + os.environ["PATH"]}


@locked
def configured(source):
    """A folder in which programs of MPICH's suite are built, with our wrappers by name."""
    if not os.path.exists(os.path.join(BUILD, "bin", "mpicc")):
        raise Unavailable("there is no build/: make build")
    target = os.path.join(FOLDER, f"mpich-{MPICH}-{built_with()}")
    if not os.path.exists(os.path.join(target, "configured")):
        subprocess.run(["rm", "-rf", target], check=True)
        # Of headers that are no more.
        for old in glob.glob(os.path.join(FOLDER, f"mpich-{MPICH}-*")):
            subprocess.run(["rm", "-rf", old], check=True)
        os.makedirs(target)
        tools = ["CC=mpicc", "CXX=mpicxx", "F77=mpifort", "FC=mpifort", "MPICC=mpicc", "MPICXX=mpicxx"]
        tools += ["MPIF77=mpifort", "MPIFC=mpifort", "MPIEXEC=mpiexec", "CFLAGS=-O1 -w", "FCFLAGS=-O0 -w", "FFLAGS=-O0 -w"]
        # MPICH's own additions (strictmpi) and the classes that MPI 3.0 has taken away (cxx) are not there.
        options = ["--enable-strictmpi", "--disable-cxx", "--enable-threads=multiple", "--enable-fortran=all"]
        env = environment()
        run(os.path.join(source, "configure"), *tools, *options, cwd=target, env=env, log=target + "/configured.log")
        for part in ("util", "dtpools"):
            run("make", "-s", "-C", part, cwd=target, env=env)
        open(os.path.join(target, "configured"), "w").close()
    return target


def main():
    failed = False
    for get in (mpich_source, mpi4py_tests, benchmarks):
        try:
            get()
        except Unavailable as problem:
            print(f"conformance: {problem}", file=sys.stderr)
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
