"""Runs mpi4py's suite in a rank and keeps what came of each test in a file of the rank's own:
keep_results.py MAIN.PY ARGUMENTS... Its folder is named by EYRIE_RESULTS."""

import json
import os
import runpy
import sys
import unittest

plain_run = unittest.TextTestRunner.run


def name_of(test):
    """The test, without what one of its parts was called with."""
    return test.id().split(" ")[0] if not test.id().startswith(("setUp", "tearDown")) else test.id()


def kept_run(runner, suite):
    ran = []
    plain_start = unittest.TextTestResult.startTest

    def start(result, test):
        ran.append(name_of(test))
        plain_start(result, test)

    unittest.TextTestResult.startTest = start
    result = plain_run(runner, suite)
    wrong = [(name_of(test), told) for test, told in [*result.failures, *result.errors]]
    wrong += [(name_of(test), "it has to fail, and passed") for test in result.unexpectedSuccesses]
    from mpi4py import MPI

    path = os.path.join(os.environ["EYRIE_RESULTS"], f"{MPI.COMM_WORLD.Get_rank()}.json")
    with open(path + ".part", "w") as file:
        json.dump({"ran": ran, "wrong": wrong, "skipped": len(result.skipped)}, file)
    os.replace(path + ".part", path)
    return result


unittest.TextTestRunner.run = kept_run
script = sys.argv[1]
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(script)
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as end:
    # Who waits for a gate is to be waited for.
    if end.code:
        raise
