"""What logs.c does, in Python: argument 1 is the log, 2 how many lines a rank appends, 4 a file that is
waited for half-way."""

import os
import sys
import time

from mpi4py import MPI

path, count, gate = sys.argv[1], int(sys.argv[2]), sys.argv[4]
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
came, value = 0, 14695981039346656037
with open(path, "a", encoding="utf-8") as log:
    for i in range(count):
        while i == count // 2 and not os.path.exists(gate):
            time.sleep(0.001)
        line = f"rank {rank} line {i} came {came} {'.' * (i % 50)}\n"
        print(line, end="", file=log, flush=True)
        for byte in line.encode():
            value = (value ^ byte) * 1099511628211 % 2**64
        came = comm.sendrecv((came * 3 + rank + i) % 99991, (rank + 1) % size, source=(rank - 1) % size)
told = comm.gather(value)
if rank == 0:
    print("\n".join(f"{r} {count} {one}" for r, one in enumerate(told)), flush=True)
