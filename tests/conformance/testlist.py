"""MPICH's lists of tests, a line a run: PROGRAM [RANKS] [NAME=VALUE...]."""

import dataclasses
import os

RANKS = 2
# What lines say of other things than the run itself.
TOLD = ("xfail", "lock", "mem", "strict", "mpix", "init", "mpiversion", "mpiexecarg")


@dataclasses.dataclass
class Line:
    """One run of one program."""

    folder: str
    program: str
    ranks: int = RANKS
    arguments: tuple = ()
    environment: tuple = ()
    result: str = ""
    limit_s: int = 0
    told: tuple = ()

    @property
    def name(self):
        """What the list of failures calls it."""
        words = [f"{self.folder}/{self.program}", str(self.ranks), *self.arguments]
        return " ".join([*words, *(f"env={e}" for e in self.environment)])


def parse(folder, text):
    """The runs of a list, and the folders below in which there are more."""
    runs, below = [], []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words or words[0].startswith("!"):
            continue
        if len(words) == 1 and "/" not in words[0]:
            below.append(words[0])
            continue
        run = Line(folder, words[0])
        rest = words[1:]
        if rest and rest[0].isdigit():
            run.ranks = int(rest.pop(0))
        for word in rest:
            key, _, value = word.partition("=")
            if key == "arg":
                run.arguments += (value,)
            elif key == "env":
                run.environment += (value,)
            elif key == "resultTest":
                run.result = value
            elif key == "timeLimit":
                run.limit_s = int(value)
            elif key in TOLD or not value:
                run.told += (word,)
            else:
                raise ValueError(f"{folder}/testlist has a key that nobody knows: {word}")
        runs.append(run)
    return runs, below


def read(source, built, folder=""):
    """All runs that the suite's own script would make, in its order: a word alone is a folder, or a program
    with the usual number of ranks. Lists that depend on how the suite was configured are where it is built."""
    paths = [os.path.join(root, folder, "testlist") for root in (built, source)]
    with open(next(path for path in paths if os.path.exists(path))) as file:
        runs, below = parse(folder, file.read())
    for name in below:
        inner = os.path.join(folder, name)
        if os.path.isdir(os.path.join(source, inner)):
            runs += read(source, built, inner)
        else:
            runs.append(Line(folder, name))
    return runs
