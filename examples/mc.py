"""Distributed power iteration and Monte-Carlo integration with numpy and mpi4py.

Uses both of mpi4py's ways to communicate: numpy buffers (upper-case calls) and pickled objects
(lower-case calls, among them wildcard receives whose order of arrival does not change the result).
Seeds are fixed and the arithmetic is single-threaded, so two runs with the same number of ranks
agree bit for bit.

usage: mc.py [--size N] [--iterations K] [--samples S] [--progress]
"""

import argparse
import os

# Before numpy is imported: its BLAS would start threads, and an image holds one thread.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import hashlib  # noqa: E402

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

TAG_TALLY = 7


def parse():
    parser = argparse.ArgumentParser(description="power iteration and Monte-Carlo over MPI")
    parser.add_argument("--size", type=int, default=600, help="order of the matrix (default 600)")
    parser.add_argument("--iterations", type=int, default=300, help="iterations (default 300)")
    parser.add_argument(
        "--samples", type=int, default=20000, help="Monte-Carlo samples per iteration and rank"
    )
    parser.add_argument(
        "--progress", action="store_true", help="one line for every tenth of the iterations"
    )
    return parser.parse_args()


def own_rows(comm, size):
    """First row and number of rows of each rank."""
    starts = [size * r // comm.size for r in range(comm.size + 1)]
    return starts[:-1], [b - a for a, b in zip(starts, starts[1:])]


def make_matrix(first, rows, size):
    """Rows of a symmetric positive matrix that is the same however it is cut."""
    i = np.arange(first, first + rows, dtype=np.int64)[:, None]
    j = np.arange(size, dtype=np.int64)[None, :]
    low, high = np.minimum(i, j), np.maximum(i, j)
    noise = (low * 7919 + high * 104729 + low * high * 31) % 1009
    return noise.astype(np.float64) / 1009.0 + (i == j) * 2.0


def power_step(comm, matrix, vector, counts, starts):
    """One step with numpy buffers: gathers the product, normalises, returns the eigenvalue's estimate."""
    product = np.empty_like(vector)
    comm.Allgatherv(matrix @ vector, [product, counts, starts, MPI.DOUBLE])
    norm = np.sqrt(product @ product)
    estimate = np.array(float(vector @ product))
    comm.Bcast(estimate, root=0)
    np.divide(product, norm, out=vector)
    return float(estimate)


def tally_step(comm, generator, samples, iteration):
    """Monte-Carlo with pickled messages; rank 0 takes the tallies in any order and adds them in rank
order."""
    x, y = generator.random(samples), generator.random(samples)
    inside = int(np.count_nonzero(x * x + y * y < 1.0))
    tally = {"rank": comm.rank, "iteration": iteration, "inside": inside, "head": x[:4].tolist()}
    if comm.rank != 0:
        comm.send(tally, dest=0, tag=TAG_TALLY)
        return comm.bcast(None, root=0)
    tallies = {0: tally}
    status = MPI.Status()
    while len(tallies) < comm.size:
        got = comm.recv(source=MPI.ANY_SOURCE, tag=TAG_TALLY, status=status)
        if got["rank"] != status.Get_source() or got["rank"] in tallies:
            raise RuntimeError(f"tally {got} came from rank {status.Get_source()}")
        if got["iteration"] != iteration:
            raise RuntimeError(f"iteration {iteration} received {got}")
        tallies[got["rank"]] = got
        # Nobody is ahead: the broadcast at the end of an iteration holds the others back.
    ordered = [tallies[r] for r in range(comm.size)]
    return comm.bcast(
        {"inside": sum(t["inside"] for t in ordered), "heads": [t["head"] for t in ordered]}, root=0
    )


def main():
    options = parse()
    comm = MPI.COMM_WORLD
    starts, counts = own_rows(comm, options.size)
    matrix = make_matrix(starts[comm.rank], counts[comm.rank], options.size)
    vector = np.full(options.size, 1.0 / np.sqrt(options.size))
    generator = np.random.Generator(np.random.PCG64(12345 + comm.rank))
    digest = hashlib.sha256()
    inside, estimate = 0, 0.0
    for iteration in range(1, options.iterations + 1):
        estimate = power_step(comm, matrix, vector, counts, starts)
        result = tally_step(comm, generator, options.samples, iteration)
        inside += result["inside"]
        digest.update(repr((iteration, result)).encode())
        if (
            options.progress
            and comm.rank == 0
            and iteration % max(1, options.iterations // 10) == 0
        ):
            print(f"mc: iteration {iteration} estimate {estimate.hex()}", flush=True)
    digest.update(vector.tobytes())
    digests = comm.gather(digest.hexdigest(), root=0)
    if comm.rank == 0:
        if len(set(digests)) != 1:
            raise RuntimeError(f"the ranks disagree: {digests}")
        pi = 4.0 * inside / (options.samples * comm.size * options.iterations)
        print(f"mc: order {options.size}, {options.iterations} iterations, {comm.size} ranks")
        print(f"mc: eigenvalue {estimate.hex()} pi {pi.hex()}")
        print(f"mc: checksum {digests[0][:16]}")


if __name__ == "__main__":
    main()
