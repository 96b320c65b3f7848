"""Helper processes that are handed work through queues, pipes and shared memory; the result is
exact."""

import hashlib
import multiprocessing
import os
import subprocess
import sys

WORKERS = 3


def work(number, tasks, results, lock, total, marks):
    digest = hashlib.sha256(str(number).encode())
    while (task := tasks.get()) is not None:
        data = bytes((task * k + number) % 251 for k in range(200)) * 50
        digest.update(data)
        with lock:
            total.value += sum(data[:100])
            marks[task % len(marks)] += 1
        results.put((task, hashlib.md5(data).hexdigest()))
    results.put((-1 - number, digest.hexdigest()))


def main():
    rounds = int(sys.argv[1])
    context = multiprocessing.get_context(sys.argv[2])
    if len(sys.argv) > 3:
        # What the names of semaphores begin with.
        multiprocessing.process.current_process()._config["semprefix"] = sys.argv[3]
    lock = context.Lock()
    total = context.Value("q", 0)
    marks = context.Array("i", 50)
    results = context.SimpleQueue()
    queues = [context.SimpleQueue() for _ in range(WORKERS)]
    args = [(i, queues[i], results, lock, total, marks) for i in range(WORKERS)]
    workers = [context.Process(target=work, args=a) for a in args]
    for worker in workers:
        worker.start()
    code = "import sys\nfor line in sys.stdin: print(int(line) ** 3 % 1009, flush=True)"
    command = [sys.executable, "-c", code]
    cubes = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    done, sums = [], 0
    for task in range(rounds):
        queues[task % WORKERS].put(task)
        cubes.stdin.write(f"{task}\n")
        sums += int(cubes.stdout.readline())
        if task % 8 == 7:
            done += [results.get() for _ in range(8)]
    for tasks in queues:
        tasks.put(None)
    left = rounds % 8 + WORKERS
    done += [results.get() for _ in range(left)]
    cubes.stdin.close()
    codes = [cubes.wait()]
    for worker in workers:
        worker.join()
        codes.append(worker.exitcode)
    with open("out", "w") as out:
        print(codes, sums, total.value, list(marks), sorted(done), file=out)
    # Nothing that was inherited keeps it from ending as ever.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
