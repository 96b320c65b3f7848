"""`kill-storm --on-failure report`: the stencils that handle lost ranks themselves, in C, Fortran and Python.

They have two or three dimensions and spare ranks, on one node or over nodes. Ranks are killed at any time, several at
once, also while others recover, and spares, and nodes with all that is on them.

Each run must end with the result of an undisturbed one, byte for byte (all three programs have the same), or, if more
ranks were killed than there are spares, with the program's word that none is left. When the rank that prints is killed
after the last step was agreed on there is no result: that is counted apart, and so is a run that nothing was killed in.
"""

import random
import time

from harness import Hung, Job, example, run_to_end

# Of each program: steps in two dimensions, and in three.
STEPS = {
    "stencil_ulfm": (8000, 2000),
    "stencil_ulfm_f": (8000, 2000),
    "stencil_ulfm.py": (1500, 1000),
}
REPORT = ["--on-failure", "report"]
NO_SPARE = 4
# A kill so short before the end may have hit the rank that prints.
AT_THE_END_S = 0.5
VERDICTS = "identical", "no spare left", "hit at the end", "undisturbed", "differing", "hung"


def words(dims, steps):
    return ["--dims", str(dims), "--size", "96" if dims == 2 else "24", "--every", "20", "--steps", str(steps)]


class Reference:
    """Results without kills, each computed once, by the program in C."""

    def __init__(self):
        self.known = {}

    def of(self, dims, steps):
        if (dims, steps) not in self.known:
            command = [*example("stencil_ulfm"), *words(dims, steps)]
            options = [*REPORT, "--spare-ranks", "1"]
            code, out, err = run_to_end(command, ranks=3, timeout=600, options=options)
            if code != 0 or not out.startswith("stencil "):
                raise RuntimeError(f"the undisturbed run ended with {code}: {out} {err}")
            self.known[dims, steps] = out
        return self.known[dims, steps]


def strike(job, rng, living, nodes, by_node):
    """Kills a node, or one to three ranks, asked of Eyrie or behind its back; who is dead then."""
    if nodes and rng.random() < 0.25:
        node = rng.randrange(nodes)
        code, _, _ = job.eyrie("inject", "last", "kill-node", str(node), check=False)
        return by_node.get(node, set()) if code == 0 else set()
    victims = rng.sample(sorted(living), min(len(living), rng.choice((1, 1, 1, 2, 3))))
    if rng.random() < 0.5:
        code, _, _ = job.kill_ranks(victims)
        return set(victims) if code == 0 else set()
    return {rank for rank in victims if job.kill_pid(rank)}


def one_run(seed, reference):
    """What came of it: verdict, kills, and what there is to tell."""
    rng = random.Random(seed)
    name = rng.choice(sorted(STEPS))
    dims = rng.choice((2, 3))
    places, spares = rng.randint(2, 5), rng.randint(1, 3)
    steps = STEPS[name][dims - 2]
    options = [*REPORT, "--spare-ranks", str(spares)]
    nodes, spare_nodes = (2, rng.randint(1, 2)) if rng.random() < 0.4 else (0, 0)
    if nodes:
        options += ["--nodes", str(nodes), "--spares", str(spare_nodes)]
    command = [*example(name), *words(dims, steps)]
    want = reference.of(dims, steps)
    dead, last = set(), 0.0
    with Job(command, ranks=places, options=options) as job:
        try:
            # From here on errors are returned.
            job.says(" places, ")
            record = job.status() or {"ranks": []}
            by_node = {}
            for rank, one in enumerate(record["ranks"]):
                by_node.setdefault(one.get("node"), set()).add(rank)
            allowed = spares + (1 if rng.random() < 0.2 else 0)
            while job.running() and len(dead) < allowed:
                time.sleep(rng.uniform(0, rng.choice((0.02, 0.4))))
                living = set(range(places + spares)) - dead
                if len(living) < 2:
                    break
                dead |= strike(job, rng, living, nodes + spare_nodes, by_node)
                last = time.monotonic()
            code = job.wait(180)
        except Hung:
            return "hung", len(dead), job.report()
        ended = time.monotonic()
        out, err = job.stdout(), job.stderr()
        told = f"{name} --dims {dims}, {places} places, {spares} spares, {' '.join(options)}"
        if code == 0 and out == want:
            return "identical" if dead else "undisturbed", len(dead), told
        if code == NO_SPARE and "no spare is left" in err and len(dead) > spares:
            return "no spare left", len(dead), told
        if len(dead) > spares and "no rank is left" in err:
            return "no spare left", len(dead), told
        if code == 0 and not out and ended - last < AT_THE_END_S:
            return "hit at the end", len(dead), told
        return "differing", len(dead), f"{told}: exit code {code}, {out!r}, expected {want!r}\n{job.report()}"


def storm(options, first):
    """All runs; the exit code."""
    reference, found, kills = Reference(), dict.fromkeys(VERDICTS, 0), 0
    for seed in range(first, first + options.runs):
        began = time.monotonic()
        verdict, killed, told = one_run(seed, reference)
        found[verdict] += 1
        kills += killed
        print(f"run {seed - first + 1}/{options.runs} seed {seed}: {killed} kills, {time.monotonic() - began:.1f} s, "
              f"{verdict}: {told}", flush=True)
    print(f"\n{options.runs} runs, {kills} kills: " + ", ".join(f"{found[v]} {v}" for v in VERDICTS))
    if found["differing"] or found["hung"]:
        print("again: benches/kill-storm --on-failure report --runs 1 --seed SEED")
        return 1
    return 0
