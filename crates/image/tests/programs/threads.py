"""Helper threads that are handed work through queues; the result is exact."""

import hashlib
import queue
import sys
import threading
import zlib

WORKERS = 4


def work(number, tasks, results):
    state = threading.local()
    state.digest = hashlib.sha256(str(number).encode())
    while (task := tasks.get()) is not None:
        data = bytes((task * k + number) % 251 for k in range(200))
        state.digest.update(zlib.compress(data * 20))
        results.put((task, number, zlib.crc32(data)))
    results.put((-1, number, state.digest.hexdigest()))


def main():
    rounds = int(sys.argv[1])
    queues = [queue.Queue(8) for _ in range(WORKERS)]
    results = queue.Queue()
    threads = [
        threading.Thread(target=work, args=(i, queues[i], results)) for i in range(WORKERS)
    ]
    idle = threading.Event()
    sleeper = threading.Thread(target=idle.wait)
    for thread in [*threads, sleeper]:
        thread.start()
    total = 0
    for task in range(rounds):
        queues[task % WORKERS].put(task)
        if task % 16 == 15:
            total += sum(results.get()[2] for _ in range(16))
    for tasks in queues:
        tasks.put(None)
    for thread in threads:
        thread.join()
    idle.set()
    sleeper.join()
    rest = sorted(results.queue, key=str)
    with open("out", "w") as out:
        print(total, rest, file=out)


main()
