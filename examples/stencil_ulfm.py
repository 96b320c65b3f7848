"""The stencil of stencil_ulfm.c in Python (numpy and mpi4py), with the same options and the same bits.

It handles the loss of ranks itself (ULFM). Some ranks compute, the others are spares; a spare takes the place of
each rank that is lost, and gets its state from the neighbour that holds a copy.

    eyrie run -n 4 --spare-ranks 1 --on-failure report python3 stencil_ulfm.py --kill 2@300
"""

import argparse
import ctypes
import os

# Before numpy is imported: its BLAS would start threads.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import signal  # noqa: E402
import sys  # noqa: E402

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

NO_SPARE = 4
FACTOR, GOLDEN = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)


class Failures:
    """Functions for failures: mpi4py's, or, where it was built for an MPI without them, the library's."""

    def __init__(self):
        self.library = None
        own = MPI.COMM_SELF.Dup()
        try:
            # What it has not it replaces by functions that wait for all, but this one.
            own.Revoke()
        except NotImplementedError:
            is_int = MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_int)
            self.handle = ctypes.c_int if is_int else ctypes.c_void_p
            self.library = ctypes.CDLL("libmpi.so.12" if is_int else "libmpi.so.40")
        own.Free()

    def call(self, name, comm, *arguments):
        handle = self.handle.from_address(MPI._addressof(comm))
        error = getattr(self.library, name)(handle, *arguments)
        if error != MPI.SUCCESS:
            raise MPI.Exception(error)

    def revoke(self, comm):
        if not self.library:
            comm.Revoke()
        else:
            self.call("MPIX_Comm_revoke", comm)

    def agree(self, comm, flag):
        if not self.library:
            return comm.Agree(flag)
        agreed = ctypes.c_int(flag)
        self.call("MPIX_Comm_agree", comm, ctypes.byref(agreed))
        return agreed.value

    def shrink(self, comm):
        if not self.library:
            return comm.Shrink()
        left = MPI.Intracomm()
        self.call("MPIX_Comm_shrink", comm, ctypes.c_void_p(MPI._addressof(left)))
        return left


def mix64(x):
    """Mixes words so that each input bit reaches each output bit."""
    half = np.uint64(32)
    x = (x ^ (x >> half)) * FACTOR
    x = (x ^ (x >> half)) * FACTOR
    return x ^ (x >> half)


def place_hash(at, values):
    """Hashes of values at places; sums of them do not depend on who holds which."""
    seed = mix64(at + np.uint64(1))
    return mix64(seed ^ (values.view(np.uint64) + GOLDEN + (seed << np.uint64(6)) + (seed >> np.uint64(2))))


def parse():
    spares = MPI.INFO_ENV.Get("eyrie_spare_ranks")
    parser = argparse.ArgumentParser(description="a stencil that handles lost ranks itself")
    parser.add_argument("--dims", type=int, choices=(2, 3), default=2)
    parser.add_argument("--size", type=int, help="cells in each dimension (default 256, or 48)")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--spares", type=int, default=int(spares or 1), help="ranks that wait to take a place")
    parser.add_argument("--every", type=int, default=50, help="steps between two copies of the state to a neighbour")
    parser.add_argument("--kill", action="append", default=[], metavar="P@S", help="place P kills itself at step S")
    options = parser.parse_args()
    options.size = options.size or (256 if options.dims == 2 else 48)
    options.kill = [tuple(map(int, kill.split("@"))) for kill in options.kill]
    return options


class Copy:
    """The state at the beginning of a step: one's own rows, and those of the place before."""

    def __init__(self, step=-1, own=None, other_step=-1, other=None):
        self.step, self.own, self.other_step, self.other = step, own, other_step, other


class Stencil:
    """A rank: one that computes at a place, or a spare (-1)."""

    def __init__(self, options):
        self.o, self.failures = options, Failures()
        world = MPI.COMM_WORLD
        self.places = world.size - options.spares
        if self.places < 1 or options.size < self.places:
            raise SystemExit("too few ranks, or too many for the rows")
        self.shape = (options.size,) * (options.dims - 1)
        self.all = world.Dup()
        self.place = self.first_place = world.rank if world.rank < self.places else -1
        self.compute = self.among_places()
        self.kept = [Copy(), Copy()]
        if self.place >= 0:
            self.kept[0] = Copy(0, self.begin())
            self.resume()
        self.all.Barrier()
        if self.place == 0:
            print(f"stencil_ulfm.py: {self.places} places, {options.spares} spares", file=sys.stderr, flush=True)

    def among_places(self):
        return self.all.Split(0 if self.place >= 0 else MPI.UNDEFINED, max(self.place, 0))

    def start(self, part):
        n = self.o.size
        return n // self.places * part + min(part, n % self.places)

    def rows(self, part):
        return self.start(part + 1) - self.start(part)

    def indices(self):
        """Of its cells in the grid."""
        width = int(np.prod(self.shape))
        first = self.start(self.place) * width
        return np.arange(first, first + self.rows(self.place) * width, dtype=np.uint64)

    def begin(self):
        values = (mix64(self.indices()) >> np.uint64(11)).astype(np.float64) / 2.0**53
        return values.reshape((-1, *self.shape))

    def resume(self):
        """Goes on from a copy of its own."""
        self.now = np.zeros((self.rows(self.place) + 2, *self.shape))
        self.now[1:-1] = self.kept[0].own

    def keep(self, step):
        """Keeps the state, and a copy of it at the next place. One that was broken off does not count."""
        before, after = (self.place - 1) % self.places, (self.place + 1) % self.places
        self.kept[1] = Copy()
        own, other = self.now[1:-1].copy(), np.empty((self.rows(before), *self.shape))
        self.compute.Sendrecv(own, after, 1, other, before, 1)
        self.kept = [Copy(step, own, step, other), self.kept[0]]

    def one_step(self):
        up = self.place - 1 if self.place > 0 else MPI.PROC_NULL
        down = self.place + 1 if self.place + 1 < self.places else MPI.PROC_NULL
        now = self.now
        self.compute.Sendrecv(now[1], up, 2, now[-1], down, 2)
        self.compute.Sendrecv(now[-2], down, 3, now[0], up, 3)
        # Cells at the rim of the grid stay as they are.
        first, last = self.start(self.place), self.start(self.place + 1)
        inner = slice(2 if first == 0 else 1, len(now) - (2 if last == self.o.size else 1))
        above, below = now[inner.start - 1 : inner.stop - 1], now[inner.start + 1 : inner.stop + 1]
        mid, new = now[inner], now.copy()
        if self.o.dims == 2:
            x = slice(1, -1)
            cells = mid[:, x] + mid[:, :-2] + mid[:, 2:] + above[:, x] + below[:, x]
            new[inner][:, x] = 0.2 * cells
        else:
            y = x = slice(1, -1)
            cells = 2 * mid[:, y, x] + mid[:, y, :-2] + mid[:, y, 2:] + mid[:, :-2, x] + mid[:, 2:, x]
            new[inner][:, y, x] = 0.125 * (cells + above[:, y, x] + below[:, y, x])
        self.now = new

    def run(self):
        """Computes from the newest copy on; the checksum. Raises if somebody is lost."""
        step = self.kept[0].step
        if step > 0:
            # Who has taken a place has no copy of another's rows yet.
            self.keep(step)
        while True:
            # Who has taken the place does not die again.
            if self.first_place == self.place and (self.place, step) in self.o.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == self.o.steps:
                break
            if step > self.kept[0].step and step % self.o.every == 0:
                self.keep(step)
            self.one_step()
            step += 1
        own = place_hash(self.indices(), self.now[1:-1].reshape(-1)).sum(dtype=np.uint64)
        total = np.zeros(1, dtype=np.uint64)
        self.compute.Allreduce(np.array([own]), total)
        return int(total[0])

    def common_step(self, words, lost):
        """The newest step of which all rows are still somewhere; 0 can be had in any case."""
        holders = {place: (steps, others) for place, steps, others in words if place >= 0}
        for step in next(iter(holders.values()))[0]:
            if step > 0 and all(self.has(holders, part, part in lost, step) for part in range(self.places)):
                return step
        return 0

    def has(self, holders, part, is_lost, step):
        holder = holders.get((part + 1) % self.places if is_lost else part)
        return holder is not None and step in holder[1 if is_lost else 0]

    def repair(self):
        """All that live go on without those that are lost. False: another is lost meanwhile."""
        fine, taken, step = True, -1, 0
        try:
            self.all = self.failures.shrink(self.all)
            steps, others = [c.step for c in self.kept], [c.other_step for c in self.kept]
            words = self.all.allgather((self.place, steps, others))
            holds = {place: rank for rank, (place, _, _) in enumerate(words) if place >= 0}
            free = [rank for rank, (place, _, _) in enumerate(words) if place < 0]
            lost = [part for part in range(self.places) if part not in holds]
            step = self.common_step(words, lost)
            if len(free) < len(lost):
                self.give_up(lost[len(free)])
            takes = dict(zip(lost, free))
            taken = next((part for part, rank in takes.items() if rank == self.all.rank), -1)
            if step > 0:
                self.hand_over(lost, holds, takes, taken, step)
        except MPI.Exception:
            fine = False
        # All go on, or all begin anew: an agreement has the same outcome everywhere.
        if not self.agree(fine):
            return False
        if taken >= 0:
            self.place = taken
        if self.place >= 0:
            newest = next((c for c in self.kept if c.step == step), self.kept[0])
            self.kept = [newest if step > 0 else Copy(0, self.begin()), Copy()]
        again = MPI.COMM_NULL
        try:
            again = self.among_places()
            fine = True
        except MPI.Exception:
            fine = False
        if not self.agree(fine):
            return False
        self.compute = again
        if self.place >= 0:
            self.resume()
        if self.all.rank == 0:
            text = f"stencil_ulfm.py: {self.all.size} ranks go on from step {step}"
            print(text, file=sys.stderr, flush=True)
        return True

    def hand_over(self, lost, holds, takes, taken, step):
        """The rows of who is lost come from the next place."""
        for part in lost:
            after = (part + 1) % self.places
            if self.place == after:
                rows = next(c.other for c in self.kept if c.other_step == step)
                self.all.Send(rows, takes[part], 4)
            elif taken == part:
                own = np.empty((self.rows(part), *self.shape))
                self.all.Recv(own, holds[after], 4)
                self.kept[0] = Copy(step, own)

    def give_up(self, part):
        """The first one ends all; the others wait until it does, or is lost, too."""
        if self.all.rank != 0:
            self.all.Barrier()
        print(f"stencil_ulfm.py: no spare is left for place {part}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(NO_SPARE)

    def agree(self, fine):
        """Whether all are, and nobody is lost that not all know of."""
        try:
            return self.failures.agree(self.all, int(fine)) == 1
        except MPI.Exception:
            return False


def main():
    options = parse()
    stencil, checksum = Stencil(options), 0
    while True:
        fine = True
        try:
            if stencil.place >= 0:
                checksum = stencil.run()
        except MPI.Exception:
            fine = False
            # Others may wait for who has given up.
            stencil.failures.revoke(stencil.compute)
        # Spares wait here.
        if stencil.agree(fine):
            break
        while not stencil.repair():
            pass
    if stencil.place == 0:
        text = f"stencil {options.size}^{options.dims}, {options.steps} steps, checksum {checksum:016x}"
        print(text, flush=True)


main()
