"""The network of machines that a storm's jobs may be in (`kill-storm --network FILE`; tests/net): hosts
of clusters, and wide-area links between these, which are down for a while.

What it keeps true: each run has a network of its own, of which nothing is left; a link that was
set down is set up again whatever becomes of the job.
"""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "net"))
from network import Network, Wrong, read  # noqa: E402,F401

# A wide-area link is away for so long: mostly less than what gateways bear, now and then more.
MOMENT_S = (0.2, 3.0)
LONG_S = (21.0, 24.0)
LONG = 0.1


class Layout:
    """What a description says of the hosts that jobs are given. `Wrong`, if a storm cannot be there."""

    def __init__(self, path):
        try:
            # What the plans of `--modes` name is there from wherever this is started.
            with open(path if os.path.exists(path) else os.path.join(ROOT, path)) as file:
                self.text = file.read()
        except (OSError, UnicodeDecodeError) as problem:
            raise Wrong(str(problem)) from None
        clusters, wan = read(self.text)
        # The cluster of each node.
        counts = [cluster["hosts"] for cluster in clusters.values()]
        self.table = [number for number, count in enumerate(counts) for _ in range(count)]
        self.clusters = len(counts) if len(counts) > 1 else 0
        if self.clusters and not wan.get("routers"):
            raise Wrong("the hosts of gateways die, so others are to reach the clusters: routers = true")


@contextlib.contextmanager
def laid(options):
    """The network of one run, if it has one; sets `options.place` and `options.wrap`, the arguments of
    `eyrie run` and what leads to the controller's machine."""
    if not options.network:
        yield None
        return
    with Network(options.layout.text) as network, tempfile.TemporaryDirectory() as folder:
        hosts, rsh = os.path.join(folder, "hosts"), os.path.join(folder, "rsh")
        text = network.host_file()
        with open(hosts, "w") as file:
            file.write(text if options.clusters else text.replace(" cluster=", " # "))
        with open(rsh, "w") as file:
            file.write("#!/bin/sh\n" + network.remote_shell())
        os.chmod(rsh, 0o755)
        options.place, options.wrap = ["--hosts", hosts, "--rsh", rsh], network.hub.enter
        yield network


class Wan:
    """The wide-area links of a network that are cut on purpose."""

    def __init__(self, network, rng):
        self.network, self.rng = network, rng
        self.cuts, self.away = 0, {}

    def cut(self):
        """One is down for a while, set up again by a process of its own. Returns how many were cut."""
        links = [link for link in self.network.links if not self.is_away(link)]
        if not links:
            return 0
        link = self.rng.choice(links)
        seconds = self.rng.uniform(*(LONG_S if self.rng.random() < LONG else MOMENT_S))
        down, up = (self.network.commands(*link, state) for state in ("down", "up"))
        for command in down:
            subprocess.run(command, check=True)
        script = "; ".join([f"sleep {seconds:.3f}", *map(shlex.join, up)])
        self.away[link] = subprocess.Popen(["sh", "-c", script], stderr=subprocess.DEVNULL)
        self.cuts += 1
        return 1

    def is_away(self, link):
        return link in self.away and self.away[link].poll() is None

    def close(self):
        for process in self.away.values():
            process.kill()
            process.wait()
