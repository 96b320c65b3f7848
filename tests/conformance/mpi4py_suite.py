"""mpi4py's own suite, a module of tests a job."""

import dataclasses
import glob
import json
import os
import tempfile

import harness
import suites
import under as ways

LIMIT_S = 300
KEEPER = os.path.join(suites.HERE, "keep_results.py")


@dataclasses.dataclass
class Module:
    name: str
    ranks: int


class Suite:
    name = "mpi4py"

    def __init__(self):
        self.folder = suites.mpi4py_tests()

    def tests(self):
        """Every module on 1 to 5 ranks."""
        modules = sorted(os.path.basename(p)[:-3] for p in glob.glob(self.folder + "/test_*.py"))
        return {f"mpi4py:{m} {ranks}": Module(m, ranks) for ranks in range(1, 6) for m in modules}

    def prepare(self, lines):
        """It is installed."""

    def run(self, module, under):
        """Runs a module; returns what is wrong with each of its tests, and how many it skipped itself."""
        with tempfile.TemporaryDirectory(prefix="eyrie-conformance-") as folder:
            script = os.path.join(self.folder, "main.py")
            command = [harness.PYTHON, KEEPER, script, "-q", "-i", f"^{module.name}.py$"]
            problem = ended = None
            try:
                ended = ways.run(under, command, module.ranks, folder, {"EYRIE_RESULTS": folder}, LIMIT_S)
            except (harness.Hung, AssertionError) as error:
                problem = str(error)
            ranks = []
            for rank in range(module.ranks):
                path = os.path.join(folder, f"{rank}.json")
                if os.path.exists(path):
                    with open(path) as file:
                        ranks.append(json.load(file))
        if problem or len(ranks) < module.ranks or not ranks[0]["ran"]:
            told = problem or f"no test was run, or not by each rank: exit code {ended.code}: {harness.limited(ended.told())}"
            return {f"mpi4py:{module.name} {module.ranks}": told}, 0
        wrong = {}
        for result in ranks:
            for test in result["ran"]:
                wrong.setdefault(f"mpi4py:{test} {module.ranks}", None)
            for test, told in result["wrong"]:
                wrong[f"mpi4py:{test} {module.ranks}"] = told
        if ended.code != 0 and not any(wrong.values()):
            wrong[f"mpi4py:{module.name} {module.ranks}"] = f"exit code {ended.code}: {harness.limited(ended.told())}"
        return wrong, ranks[0]["skipped"]
