"""What Python tells a program that is another in each life: random bytes, names, the order of a set of
texts and, with the argument `clocks`, the time; with `threads` the interpreter itself asks for the time
by chance, and nothing of all that is sent. All else is sent around; argument 1: how many steps."""

import random
import socket
import sys
import threading
import time
import uuid
from datetime import datetime

import mpi4py
import numpy

steps, with_clocks, with_threads = int(sys.argv[1]), "clocks" in sys.argv, "threads" in sys.argv
if "single" in sys.argv:
    mpi4py.rc.thread_level = "single"
# A generator that is seeded before MPI is loaded; and one to which the program gives its seed.
random.random()
numpy.random.seed(7)

from mpi4py import MPI  # noqa: E402

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
came, last = "", 0.0
seen = [numpy.random.randint(1000), comm.rank]
assert seen[0] == numpy.random.RandomState(7).randint(1000), seen


def spin():
    while not over.wait(0.0001):
        sum(range(1000))


over = threading.Event()
if with_threads:
    threading.Thread(target=spin, daemon=True).start()
for step in range(steps):
    told = [step, uuid.uuid4().hex, random.SystemRandom().random(), random.Random().random(), socket.gethostname()]
    told += list({f"{name} {len(came)}" for name in "abcdefgh"})
    told += [random.random(), numpy.random.random()]
    if with_threads:
        told = [step, sum(range(20000)), time.time() > 0]
    if with_clocks:
        now = [time.time()]
        # By these Python sleeps.
        now += [time.monotonic(), time.perf_counter()] if "single" in sys.argv else []
        assert now[-1] >= last, (now, last)
        last = now[-1]
        told += [*now, time.process_time(), datetime.now().isoformat(), MPI.Wtime()]
    came = comm.sendrecv(repr(told), (rank + 1) % size, source=(rank - 1) % size)
    time.sleep(0.005)
over.set()
print(f"rank {rank}: {steps} steps", flush=True)
comm.Barrier()
