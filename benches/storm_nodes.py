"""Node losses for `kill-storm --nodes`: which nodes may be lost together, and how they are lost.

What it keeps true: without `--rollbacks` no node is lost together with all that hold what a recovery
of it needs (images of its ranks, outcomes recorded on it), nor with its replica before all is whole
again; so a roll-back is a defect then. At least one node always stays. With `--vault rs:K+M` that is
any M nodes, at once or one after the other, before all is whole again.
"""

import itertools
import os
import signal
import subprocess


def live_nodes(record):
    return [n["node"] for n in record["nodes"] if n["state"] in ("live", "spare", "router")]


def takers(record):
    """Nodes that ranks may be brought to."""
    return {n["node"] for n in record["nodes"] if n["state"] in ("live", "spare")}


class Ring:
    """Who stands next to whom, if clusters are recovery units."""

    nodes = clusters = 0
    outside = False

    @classmethod
    def cluster(cls, node):
        """Of spares in turn."""
        if node < cls.nodes:
            return node * cls.clusters // cls.nodes
        return (node - cls.nodes) % cls.clusters if cls.clusters else 0


def replica(node, live):
    """The node that holds the outcomes of another and its second images: the next live one, of its
    cluster (or of another, with `--copies outside`) if there is one."""
    others = sorted((n < node, n) for n in live if n != node)
    far = lambda n: Ring.cluster(n) != Ring.cluster(node)
    others = sorted((n for _, n in others), key=lambda n: far(n) != Ring.outside)
    return (others or [None])[0]


def tolerated(record):
    """How many nodes at once the job's vault bears; 0: it has none."""
    scheme = record.get("vault") or ""
    if scheme.startswith("rs:"):
        return int(scheme.split("+")[1])
    return 1 if scheme.startswith("xor:") else 0


def in_vault(record):
    """Whether images are in the vault, with the nodes that there are."""
    return 0 < tolerated(record) < len(live_nodes(record))


def bearable(record, gone):
    """Whether a job that stands as `record` says loses nothing with these nodes."""
    live = live_nodes(record)
    lost = set(live) & gone
    if not takers(record) - lost:
        return False
    if in_vault(record):
        return len(gone) <= tolerated(record)
    if any(replica(node, live) in lost for node in lost):
        return False
    holders = [set(r["image_nodes"]) for r in record["ranks"]]
    return not any(h and h <= gone for h in holders)


def whole(record, events):
    """Whether every rank has completed a checkpoint that began after the last loss of a node, with
    two copies: then also all outcomes are with their new replicas."""
    begun, complete = set(), set()
    for event in events:
        kind, rank = event["event"], event["rank"]
        if kind == "node-lost":
            begun, complete = set(), set()
        elif kind == "checkpointing":
            begun.add(rank)
        elif kind == "checkpointed" and rank in begun:
            complete.add(rank)
    two = min(2, len(live_nodes(record)))

    def safe(rank):
        if in_vault(record):
            return rank["vault_generation"] is not None
        return len(rank["image_nodes"]) >= two

    return all(r["rank"] in complete and r["pid"] and safe(r) for r in record["ranks"])


class Losses:
    """The nodes of one job that are lost on purpose."""

    def __init__(self, job, rng, options):
        self.job, self.rng, self.options = job, rng, options
        self.killed = self.cut = self.routers = 0
        # The job when it was whole last, and what was lost since.
        self.base, self.recent = None, set()

    def look(self):
        """How the job stands now, or None if it cannot be asked."""
        record = self.job.status()
        if record and record["nodes"] and all(n["state"] != "joining" for n in record["nodes"]):
            # One that is cut off is there until that is noticed.
            noticed = self.recent and not self.recent & set(live_nodes(record))
            if self.base is None or (noticed and whole(record, self.job.events())):
                self.base, self.recent = record, set()
            return record
        return None

    def choices(self, record, count):
        """The sets of so many nodes that may be lost now."""
        leaving = [n["node"] for n in record["nodes"] if n["state"] == "leaving"]
        moved = leaving or self.job.count("node-leaving")
        if moved and (count > 1 or self.recent) and not self.options.rollbacks:
            # Who holds the outcomes of a node is another than the next when that has joined again;
            # each loss by itself is borne.
            return []
        there = [n for n in live_nodes(record) + leaving if n not in self.recent]
        sets = [set(c) for c in itertools.combinations(there, count)]
        if self.options.rollbacks:
            return [s for s in sets if takers(record) - self.recent - s]
        return [
            s
            for s in sets
            if bearable(self.base, self.recent | s) and bearable(record, self.recent | s)
        ]

    def strike(self, among=None):
        """One or more nodes are lost at once (one of `among`, if given); returns how many."""
        record = self.look()
        if record is None:
            return 0
        count = self.rng.choices((1, 2, 3), weights=(6, 3, 1))[0]
        for number in range(count, 0, -1):
            sets = [s for s in self.choices(record, number) if among is None or s & among]
            if sets:
                return self.lose(sorted(self.rng.choice(sets)), record)
        return 0

    def lose(self, nodes, record):
        self.recent |= set(nodes)
        ways = (self.inject, self.kill) + ((self.cut_off,) if self.options.netns else ())
        done = self.rng.choice(ways)(nodes, record)
        routers = [n for n in nodes if record["nodes"][n]["state"] == "router"]
        self.routers += len(routers) if done == len(nodes) else 0
        return done

    def inject(self, nodes, _record):
        text = ",".join(str(n) for n in nodes)
        code, _, _ = self.job.eyrie("inject", "last", "kill-node", text, check=False)
        done = len(nodes) if code == 0 else 0
        self.killed += done
        return done

    def kill(self, nodes, record):
        """SIGKILL for the daemons, behind Eyrie's back."""
        done = 0
        for node in nodes:
            try:
                os.kill(record["nodes"][node]["pid"], signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                pass
        self.killed += done
        return done

    def cut_off(self, nodes, record):
        """Sets the nodes' side of the bridge down: they run on, and nobody hears of them."""
        done = 0
        for node in nodes:
            link = f"eyr-{record['job']}-{node}"
            enter = ["nsenter", "-t", str(record["daemon_pid"]), "-n"]
            command = [*enter, "ip", "link", "set", link, "down"]
            done += subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
        self.cut += done
        return done
