#!/usr/bin/env python3
"""Compares what C programs can call with what Fortran programs can: mpif.h, the modules mpi and mpi_f08.

usage: fortran_names.py PREFIX

Of every function of mpi.h and of mpi-ext.h the routine has to be in libeyrie_fortran.so (with its PMPI twin), and both
modules have to have both; a name that is left out is left out for a reason that stands in
fortran/generate.py or here.
"""

import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "fortran"))
import generate  # noqa: E402
import generate_f08  # noqa: E402

# Not in mpi_f08: the standard has these in mpif.h and in the module mpi only.
NOT_IN_F08 = set(generate_f08.DEPRECATED)


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return [line.split()[-2:] for line in out.stdout.splitlines()]


def functions(prefix):
    """Names of mpi.h, without MPI_."""
    with open(f"{prefix}/include/mpi_functions.h", encoding="ascii") as f:
        return re.findall(r"^EYRIE_MPI\(\w+, (\w+),", f.read(), flags=re.M)


def compiles(prefix, folder, module, names):
    """Whether a program can name all of these of a module; what the compiler says if not."""
    text = ["program names"]
    text += [f"  use {module}, only: {name}" for name in names]
    text.append("end program names")
    path = os.path.join(folder, f"{module}.f90")
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(text) + "\n")
    done = subprocess.run([f"{prefix}/bin/mpifort", "-fsyntax-only", path], capture_output=True, text=True)
    missing = re.findall(r"Symbol .(\w+). referenced", done.stderr)
    return missing or [done.stderr] if done.returncode else []


def main():
    prefix = sys.argv[1]
    there = {name for _, name in exported(f"{prefix}/lib/libeyrie_fortran.so")}
    wrong, wanted = [], []
    for name in functions(prefix):
        why = generate.why_not(name)
        linked = f"mpi_{name.lower()}_" in there and f"pmpi_{name.lower()}_" in there
        if why is None:
            wanted.append("MPI_" + name)
            if not linked:
                wrong.append(f"MPI_{name} does not link from Fortran")
        elif linked:
            wrong.append(f"MPI_{name} is there, and listed as left out: {why}")
    for_failures = [name for name, _ in generate.extensions(f"{prefix}/include")]
    for name in for_failures:
        if not {name.lower() + "_", "p" + name.lower() + "_"} <= there:
            wrong.append(f"{name} does not link from Fortran")
    if len(wanted) < 400:
        wrong.append(f"mpi_functions.h was not understood: {len(wanted)} names")
    with tempfile.TemporaryDirectory() as folder:
        # Counts of 64 bits have the names of the others, in mpi_f08 alone.
        small = [n for n in wanted if not generate.LARGE.fullmatch(n)]
        f08 = [n for n in small if n not in NOT_IN_F08] + generate_f08.OWN_NAMES
        for module, names in (("mpi", small), ("mpi_f08", f08)):
            names = names + for_failures
            names = names + ["P" + name for name in names]
            wrong += [f"{name} is not in the module {module}" for name in compiles(prefix, folder, module, names)]
    print("\n".join(wrong))
    print(f"{len(wanted) + len(for_failures)} names compared, {len(wrong)} wrong")
    sys.exit(bool(wrong))


main()
