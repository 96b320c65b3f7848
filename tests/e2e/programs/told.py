"""What Python tells a program that is another in each life: random bytes, names, the order of a set of
texts and, with the argument `clocks`, the time. All of it is sent around; argument 1: how many steps."""

import random
import socket
import sys
import time
import uuid

import mpi4py

steps, with_clocks = int(sys.argv[1]), sys.argv[2:] == ["clocks"]
if with_clocks:
    mpi4py.rc.thread_level = "single"

from mpi4py import MPI  # noqa: E402

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
came, last = "", 0.0
for step in range(steps):
    told = [step, uuid.uuid4().hex, random.SystemRandom().random(), random.Random().random(), socket.gethostname()]
    told += list({f"{name} {len(came)}" for name in "abcdefgh"})
    if with_clocks:
        now = time.time(), time.monotonic(), time.perf_counter()
        assert now[1] >= last, (now, last)
        last = now[1]
        told += now
    came = comm.sendrecv(repr(told), (rank + 1) % size, source=(rank - 1) % size)
    time.sleep(0.005)
print(f"rank {rank}: {steps} steps", flush=True)
comm.Barrier()
