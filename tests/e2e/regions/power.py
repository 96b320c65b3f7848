"""Power iteration with numpy, with checkpoints of its arrays; with mpi4py, or with --alone without.
What it prints does not depend on how often it was killed.

usage: power.py OPTIONS STEPS EVERY [DIE_STEP DIE_RANK] [--alone]"""

import os
import signal
import sys

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import hashlib  # noqa: E402

import numpy as np  # noqa: E402

import eyrie_regions  # noqa: E402

ALONE = "--alone" in sys.argv
OPTIONS, STEPS, EVERY, *DIE = [word for word in sys.argv[1:] if word != "--alone"]
SIZE = 120


def main():
    comm = None
    if not ALONE:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    rank = comm.rank if comm else 0
    step = np.zeros(1, dtype=np.int64)
    matrix = np.random.default_rng(7 + rank).random((SIZE, SIZE))
    vector = np.ones(SIZE, dtype=np.complex128) * (1 + 0.25j)
    history = np.zeros((3, 500), dtype=np.float32, order="F")
    marks = np.zeros(11, dtype=bool)
    with eyrie_regions.Regions(OPTIONS, comm) as regions:
        for number, array in enumerate((step, vector, history, marks)):
            regions.protect(number, array)
        found = regions.newest("power")
        if found is not None:
            assert regions.stored(1) == ("c", 16, SIZE)
            regions.restore("power", found)
            assert step[0] == found
            print(f"power: process {rank} goes on from step {found}", file=sys.stderr, flush=True)
        while step[0] < int(STEPS):
            vector[:] = matrix @ vector
            vector /= np.abs(vector).max()
            step += 1
            history[step[0] % 3, step[0] % 500] = vector[0].real
            marks[step[0] % 11] ^= True
            if step[0] % int(EVERY) == 0:
                regions.checkpoint("power", int(step[0]))
            if DIE and step[0] == int(DIE[0]) and rank == int(DIE[1]):
                os.kill(os.getpid(), signal.SIGKILL)
    digest = hashlib.sha256(b"".join(a.tobytes("A") for a in (vector, history, marks))).hexdigest()
    digests = comm.gather(digest) if comm else [digest]
    if rank == 0:
        print(f"power: {int(step[0])} steps", *digests)


if __name__ == "__main__":
    main()
