"""Tests side by side: each lane is a process that runs one test after the other, as it is told by name
on its standard input, and answers each with a line of JSON.

What makes that safe: a lane's jobs bear its mark (`harness.LANE`), so that a look through all
processes passes by those of other lanes; ports are of the lane; all else lies in folders of the test's
own."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading

import harness


def serve(answer):
    """The lane's side: answers each name with what answer(name) returns."""
    # What a test starts must neither read the names nor write among the answers.
    names, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for name in names:
        print(json.dumps(answer(name.strip())), file=answers, flush=True)


class Lane(threading.Thread):
    """Takes groups of tests, lists of names, until there are none; what comes of each goes to `told`."""

    def __init__(self, number, groups, told):
        super().__init__(daemon=True)
        self.number, self.groups, self.told = number, groups, told
        self.process = None
        self.over = threading.Event()

    def run(self):
        while not self.over.is_set():
            try:
                group = self.groups.get_nowait()
            except queue.Empty:
                break
            for name in group:
                answer = self.ask(name)
                if self.over.is_set():
                    break
                self.told(answer)
        self.end()

    def ask(self, name):
        """What came of a test. A process that ends within one is followed by another."""
        if self.process is None:
            env = {**os.environ, harness.LANE: str(self.number)}
            words = [sys.executable, os.path.abspath(sys.argv[0]), "--lane"]
            # An interrupt from the keyboard comes to it through us, once.
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.process = subprocess.Popen(words, env=env, start_new_session=True, **pipes)
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            code, self.process = self.process.wait(), None
            text = f"FAILED {name}: its process ended with {code}"
            return {"name": name, "state": "failed", "text": text}

    def end(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()

    def interrupt(self):
        """It is asked to end: it ends what it has started."""
        self.over.set()
        process = self.process
        if process and process.poll() is None:
            process.send_signal(signal.SIGINT)
        self.join()


def side_by_side(kinds, told):
    """Runs groups of tests: of each kind, (groups, count), in so many lanes of its own."""
    lock = threading.Lock()

    def in_turn(answer):
        with lock:
            told(answer)

    lanes = []
    for groups, count in kinds:
        those = queue.SimpleQueue()
        for group in groups:
            those.put(group)
        first = len(lanes) + 1
        lanes += [Lane(number, those, in_turn) for number in range(first, first + count)]
    for lane in lanes:
        lane.start()
    try:
        for lane in lanes:
            lane.join()
    finally:
        for lane in lanes:
            lane.interrupt()
