"""The jobs that `kill-storm --modes` goes through, and what `--ha` takes.

What it keeps true: every mode in which a job outlives what is killed is in `PLANS`, in each way in
which its nodes may be laid out; a plan is what could be asked for by itself (`--ft none` is not one: a job
that ends with its first rank has no result to compare).
"""

import contextlib
import os
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Name -> arguments of kill-storm. Plans that take root, or etcd, are told as not run without.
PLANS = {
    "logged": "",
    "logged, nodes": "--nodes 4 --spares 1",
    "logged, netns": "--nodes 4 --spares 1 --netns",
    "logged, tls": "--nodes 4 --spares 1 --tls",
    "logged, ha": "--nodes 3 --spares 1 --ha",
    "logged, vault": "--nodes 4 --spares 1 --vault rs:2+1",
    "logged, vault of six": "--nodes 6 --vault rs:4+2 --rebuild-rate 40",
    "logged, clusters": "--nodes 4 --clusters 2",
    "logged, clusters, netns": "--nodes 4 --clusters 2 --netns",
    "logged, clusters, wan-only": "--nodes 4 --clusters 2 --wan-only",
    "logged, clusters, moves": "--nodes 6 --clusters 2 --migrate",
    "logged, network, moves": "--network tests/net/storm.toml --migrate",
    "logged, moves": "--nodes 4 --spares 2 --migrate",
    "logged, halts": "--nodes 4 --spares 1 --suspend",
    "logged, all lost": "--nodes 4 --rollbacks",
    "routed": "--ft routed --routers 2 --nodes 4 --spares 1",
    "routed, ha": "--ft routed --routers 2 --nodes 3 --spares 1 --ha",
    "routed, netns": "--ft routed --routers 2 --nodes 4 --netns",
    "routed, vault": "--ft routed --routers 2 --nodes 3 --spares 1 --vault rs:2+1",
    "routed, clusters": "--ft routed --routers 2 --nodes 4 --clusters 2",
    "routed, moves": "--ft routed --routers 2 --nodes 4 --spares 1 --migrate",
    "node": "--ft node --nodes 3 --spares 1",
    "node, ha": "--ft node --nodes 3 --spares 1 --ha",
    "node, netns": "--ft node --nodes 3 --spares 1 --netns",
    "node, vault": "--ft node --nodes 4 --spares 1 --vault rs:2+1",
    "node, moves": "--ft node --nodes 4 --spares 2 --migrate",
    "node, halts": "--ft node --nodes 3 --spares 1 --suspend",
    "cluster": "--ft cluster --nodes 4 --clusters 2",
    "cluster, outside": "--ft cluster --nodes 4 --clusters 2 --copies outside",
    "cluster, vault": "--ft cluster --nodes 4 --spares 2 --clusters 2 --vault rs:2+1",
    "cluster, moves": "--ft cluster --nodes 6 --clusters 2 --migrate",
    "cluster, network": "--network tests/net/storm.toml --ft cluster",
    "cluster, halts": "--ft cluster --nodes 4 --clusters 2 --suspend",
    "coordinated": "--ft coordinated",
    "coordinated, halts": "--ft coordinated --suspend",
    "coordinated, nodes": "--ft coordinated --nodes 4 --spares 1",
    "coordinated, ha": "--ft coordinated --nodes 4 --spares 1 --ha",
    "coordinated, netns": "--ft coordinated --nodes 4 --netns",
    "coordinated, vault": "--ft coordinated --nodes 4 --spares 1 --vault rs:2+1",
    "coordinated, moves": "--ft coordinated --nodes 4 --spares 2 --migrate",
    "coordinated, nodes, halts": "--ft coordinated --nodes 4 --spares 1 --suspend",
}


def chosen(text):
    """The plans that are asked for: `all`, or names and beginnings of names, parted by semicolons
    or (where a name has none) commas."""
    if text == "all":
        return list(PLANS)
    if text in PLANS:
        return [text]
    words = [w.strip() for w in text.split(";" if ";" in text else ",") if w.strip()]
    found = [[p for p in PLANS if p == w or p.startswith(w + ",")] for w in words]
    unknown = [w for w, plans in zip(words, found) if not plans]
    if unknown or not words:
        raise ValueError(f"no such mode: {' '.join(unknown)}; there are: all; " + "; ".join(PLANS))
    return list(dict.fromkeys(p for plans in found for p in plans))


def cannot(words):
    """Why a plan cannot be run here, or None."""
    if ("--netns" in words or "--network" in words) and os.geteuid() != 0:
        return "network namespaces take root"
    if "--ha" in words and not shutil.which("etcd"):
        return "there is no etcd here (Debian: etcd-server)"
    return None


def shares(runs, names):
    """How many of so many runs each gets; who gets none is left out."""
    counts = [runs // len(names) + (n < runs % len(names)) for n in range(len(names))]
    return [(name, count) for name, count in zip(names, counts) if count]


@contextlib.contextmanager
def replicated(options):
    """An etcd of our own, and hosts that are this machine under other names; sets `options.place`,
    the arguments of `eyrie run`."""
    if not options.ha:
        yield
        return
    tests = os.path.join(ROOT, "tests")
    sys.path += [os.path.join(tests, "e2e", "cases"), os.path.join(tests, "net")]
    from ha import Etcd
    from hosts import shell

    hosts = ",".join(f"host{n}" for n in range(options.nodes + options.spares))
    with Etcd() as etcd, shell() as rsh:
        options.place = ["--hosts", hosts, "--address", "127.0.0.1", "--rsh", rsh]
        options.place += ["--ha", etcd.url]
        yield
