"""Python with numpy and threads: arrays large enough for numpy's own threads, a queue between
threads, a pool, a lock with a condition, a generator, files."""

import concurrent.futures
import hashlib
import os
import queue
import sys
import threading

import numpy


def consume(jobs, results):
    own = threading.local()
    own.seen = 0
    while True:
        job = jobs.get()
        if job is None:
            return
        own.seen += 1
        number, array = job
        results.put((number, float((array @ array.T).trace()), own.seen > 0))


def steps(seed):
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    rounds *= int(os.environ.get("ROUNDS_TIMES", 1))
    wrong, digest = 0, hashlib.sha256()
    jobs, results = queue.Queue(4), queue.Queue()
    threads = [threading.Thread(target=consume, args=(jobs, results)) for _ in range(3)]
    for thread in threads:
        thread.start()
    numbers = steps(7)
    random = numpy.random.Generator(numpy.random.PCG64(42))
    field = random.standard_normal((160, 160))
    changed = threading.Condition()
    with open("arrays.log", "w+") as log, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for i in range(rounds):
            for k in range(3):
                jobs.put((i * 3 + k, numpy.full((40, 40), float((i + k) % 11))))
            answers = sorted(results.get() for _ in range(3))
            for k, (number, trace, seen) in enumerate(answers):
                value = float((i + k) % 11)
                wrong += number != i * 3 + k or trace != value * value * 40 * 40 or not seen
            field = numpy.sin(field @ field.T / 160.0)
            digest.update(numpy.round(field, 6).tobytes())
            digest.update(str(next(numbers)).encode())
            wrong += pool.submit(sum, range(i)).result() != i * (i - 1) // 2
            print(i, digest.hexdigest(), file=log)
            with changed:
                changed.notify_all()
        log.seek(0)
        wrong += [int(line.split()[0]) for line in log] != list(range(rounds))
    for _ in threads:
        jobs.put(None)
    for thread in threads:
        thread.join()
    print("arrays", digest.hexdigest()[:16], wrong, "wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
