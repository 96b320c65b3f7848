"""What gate.c is to other programs, for one in Python, which finds the MPI library in its own way:
runs it as it would run by itself, and then waits for the file EYRIE_TEST_GATE."""

import os
import runpy
import sys
import time

script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(script)
runpy.run_path(script, run_name="__main__")
while not os.path.exists(os.environ["EYRIE_TEST_GATE"]):
    time.sleep(0.001)
