"""Node losses for `kill-storm --nodes`: which nodes may be lost together, and how they are lost; and
links that are down for a moment (`--netns`, `--network`), by which a node may be lost and need not be.

What it keeps true: without `--rollbacks` no node is lost together with all that hold what a recovery
of it needs (images of its ranks, outcomes recorded on it), nor with its replica before all is whole
again; so a roll-back is a defect then. At least one node always stays. With `--vault rs:K+M` that is
any M nodes, at once or one after the other, before all is whole again.
"""

import itertools
import os
import signal
import subprocess
import time

# A link is down for so long. What was sent meanwhile is sent again after up to twice that, and if the
# device was down its neighbours' addresses are asked for anew, once a second: a node is given up after
# three quarters of one, so it may go either way.
FLAP_S = (0.2, 0.6)
# If a node is there so long after that, it is not lost by it.
BORNE_S = 3.0


def live_nodes(record):
    return [n["node"] for n in record["nodes"] if n["state"] in ("live", "spare", "router")]


def takers(record):
    """Nodes that ranks may be brought to."""
    return {n["node"] for n in record["nodes"] if n["state"] in ("live", "spare")}


class Ring:
    """Who stands next to whom, if clusters are recovery units."""

    nodes = clusters = 0
    outside = False
    # The cluster of each node, if a network's description says so.
    table = ()

    @classmethod
    def cluster(cls, node):
        """Of spares in turn."""
        if cls.clusters and node < len(cls.table):
            return cls.table[node]
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


def has_parity(scheme):
    """Whether images are in generations that are made in rounds."""
    return bool(scheme) and scheme.startswith(("rs:", "xor:"))


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

    def __init__(self, job, rng, options, network=None):
        self.job, self.rng, self.options = job, rng, options
        # Where links can be cut: the job's own network (`--netns`), or one that it is in.
        self.network, self.may_cut = network, options.netns or network is not None
        self.killed = self.cut = self.routers = self.flapped = 0
        # The job when it was whole last, and what was lost since.
        self.base, self.recent = None, set()
        # What sets links up again; nodes whose link was down, and how long they may be lost.
        self.flaps, self.doubtful = [], {}

    def close(self):
        """All links are up that are to be."""
        for flap in self.flaps:
            flap.wait()

    def borne(self, record):
        """Nodes whose link was down for a moment, and that were not lost by it."""
        for node, until in list(self.doubtful.items()):
            if self.job.count("node-lost", node=node):
                del self.doubtful[node]
            elif time.monotonic() > until and node in live_nodes(record):
                del self.doubtful[node]
                self.recent.discard(node)

    def look(self, record=None):
        """How the job stands now, or None if it cannot be asked."""
        record = record or self.job.status()
        if record and record["nodes"] and all(n["state"] != "joining" for n in record["nodes"]):
            self.borne(record)
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

    def strike(self, among=None, record=None):
        """One or more nodes are lost at once (one of `among`, if given); returns how many. `record`:
        the job stands so right now, and there is no time to lose."""
        at_once = record is not None
        record = self.look(record)
        if record is None:
            return 0
        count = self.rng.choices((1, 2, 3), weights=(6, 3, 1))[0]
        for number in range(count, 0, -1):
            sets = [s for s in self.choices(record, number) if among is None or s & among]
            if sets:
                return self.lose(sorted(self.rng.choice(sets)), record, at_once)
        return 0

    def lose(self, nodes, record, at_once=False):
        self.recent |= set(nodes)
        links = (self.cut_off, self.flap) if self.may_cut else ()
        ways = (self.kill,) if at_once else (self.inject, self.kill, *links)
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

    def links(self, nodes, record):
        """The bridge's ends of the links of nodes, and what leads to the namespace they are in."""
        if self.network is None:
            enter = ["nsenter", "-t", str(record["daemon_pid"]), "-n"]
            return enter, [f"eyr-{record['job']}-{node}" for node in nodes]
        hosts = [record["nodes"][node]["address"].rsplit(":", 1)[0] for node in nodes]
        return self.network.hub.enter, [self.network.ports[host] for host in hosts]

    def cut_off(self, nodes, record):
        """Sets the nodes' side of the bridge down: they run on, and nobody hears of them."""
        done = 0
        enter, links = self.links(nodes, record)
        for link in links:
            command = [*enter, "ip", "link", "set", link, "down"]
            done += subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0
        self.cut += done
        return done

    def flap(self, nodes, record):
        """Their links are down for a moment, or off the bridge: they may be lost by that, or go on.
        It is a process of its own, in the job's network, that sets them up again, also if the
        controller dies."""
        seconds = self.rng.uniform(*FLAP_S)
        enter, links = self.links(nodes, record)
        down, up = self.rng.choice((("down", "up"), ("nomaster", "master {}")))
        of = r"$(ip -o link show {} | sed -n 's/.* master \([^ ]*\) .*/\1/p')"
        script = [f"b{n}={of.format(link)}" for n, link in enumerate(links)]
        script += [f"ip link set {link} {down}" for link in links] + [f"sleep {seconds:.3f}"]
        script += [f"ip link set {link} {up.format(f'$b{n}')}" for n, link in enumerate(links)]
        command = [*enter, "sh", "-c", "; ".join(script)]
        self.flaps.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        self.flapped += len(nodes)
        self.doubtful |= {node: time.monotonic() + seconds + BORNE_S for node in nodes}
        return len(nodes)
