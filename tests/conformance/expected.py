"""The list of failures that are expected, each kind with its reason (`expected.toml`).

A name in it stands for all runs that begin with it: `mpich:coll/allred` for all lines of that program,
`mpich:coll/allred 4` for those with four ranks. `under` limits it to some ways to run. A listed test that
passes is a failure of the list: it is taken off when what it names has been mended.
"""

import fnmatch
import os
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))


class Expected:
    def __init__(self, path=os.path.join(HERE, "expected.toml")):
        with open(path, "rb") as file:
            self.kinds = tomllib.load(file)["kind"]
        for kind in self.kinds:
            assert kind["reason"].strip() and kind["tests"], f"a kind of {path} has no reason, or no tests"

    def reason(self, name, under):
        """Why a test fails when it is run in that way; None if it has to pass."""
        for kind in self.kinds:
            if under not in kind.get("under", [under]):
                continue
            for listed in kind["tests"]:
                if name == listed or name.startswith(listed + " ") or fnmatch.fnmatchcase(name, listed):
                    return kind["reason"]
        return None
