"""Freezes of programs with many threads on a busy machine: each ends, and the program runs on with the
right result. A small part of benches/freeze-storm."""

import os
import re
import subprocess
import sys

import harness

STORM = os.path.join(os.path.dirname(harness.BUILD), "benches", "freeze-storm")


def storm(way, threads):
    command = [sys.executable, STORM, "--ways", way, "--threads", str(threads), "--freezes", "3"]
    command += ["--load", "6", "--spell", "3", "--minutes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * harness.TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    total = re.search(r"(\d+) freezes, (\d+) given up, 0 wrong", done.stdout)
    assert total and int(total[1]) > 0, done.stdout


def test_many_threads_beside_busy_loops():
    storm("image", 200)


def test_ranks_with_many_threads_beside_busy_loops():
    storm("job", 100)
