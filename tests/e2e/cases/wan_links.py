"""Jobs over clusters with wide-area links between them: a test network of namespaces (tests/net),
and `--netns`, where nodes of different clusters have no way to each other but through gateways.

Root only: elsewhere these tests are told as not run."""

import contextlib
import os
import subprocess
import sys

from clusters import Clusters
from controller import kill_controller, unharmed
from harness import DEFAULTS, ROOT, NotRun
from netns import Spaces, devices, needs_root
from network import Network, Wrong
from networked import networked
from nodes import checkpointed_again, expected

PAIR = "[clusters.east]\nhosts = 2\n[clusters.west]\nhosts = 2\n[wan]\n"
TOOL = os.path.join(ROOT, "tests", "net", "run")


def over(name, wan, options=()):
    """A job over two clusters of two hosts, and the network it runs in."""
    expected(name)
    return networked(name, PAIR + wan, options, ckpt_every=0.5)


def carried(job):
    record = job.status() or {}
    return sum(c["gateway"]["carried"]["bytes_sent"] for c in record.get("clusters", []))


def no_way(network, host, other):
    route = ["ip", "route", "get", other]
    return network.hosts[host].run(*route, check=False).returncode != 0


def test_two_clusters_far_from_each_other():
    """10 ms one way, and no way but through the gateways: images go there, too."""
    with over("farm", "delay_ms = 10\njitter_ms = 1\n") as (network, job):
        record = job.wait_running(4)
        assert [c["name"] for c in record["clusters"]] == ["east", "west"], record
        assert no_way(network, "10.80.0.3", "10.81.0.2")
        assert no_way(network, "10.80.0.2", "10.81.0.3")
        job.all_checkpointed()
        job.until(lambda: carried(job), "bytes between the clusters")
        job.ends_as("farm")
        unharmed(job)


def test_a_link_that_loses_packets():
    with over("cg", "delay_ms = 2\njitter_ms = 2\nloss = 0.01\nmbit = 100\n") as (_, job):
        job.all_checkpointed()
        job.kill_ranks([1, 2])
        for rank in (1, 2):
            job.wait_event("restored", rank=rank)
        job.ends_as("cg")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_link_is_gone_for_a_while():
    """Until the gateways give their connections up: nothing is lost, and what waits goes on."""
    with over("heat", "delay_ms = 2\n") as (network, job):
        job.all_checkpointed()
        gateways = lambda: [c["gateway"]["carried"] for c in job.status()["clusters"]]
        network.set_link(0, 1, "down")
        job.until(lambda: not any(g["connections"] for g in gateways()), "broken connections")
        network.set_link(0, 1, "up")
        job.until(lambda: all(g["connections"] for g in gateways()), "connections")
        before = carried(job)
        job.until(lambda: carried(job) > before, "bytes between the clusters")
        job.ends_as("heat")
        unharmed(job)
        assert not job.count("node-lost"), job.report()


def test_a_gateway_far_away_dies():
    with over("farm", "delay_ms = 5\n", ["--wan-connections", "2"]) as (_, job):
        job.all_checkpointed()
        job.eyrie("inject", "last", "kill-gateway", "1")
        job.wait_event("gateway-back")
        checkpointed_again(job)
        job.ends_as("farm")
        unharmed(job)


ROUTED = "[clusters.east]\nhosts = 1\n[clusters.west]\nhosts = 2\n[wan]\n"
# Silent connections are given up after 20 s by default: far from the moment at which the next gateway is
# there, and from what it takes until then.
SOON_S = 8


def standing(network, host, to):
    """Connections of a host to an address and port."""
    command = ["ss", "-Htnpo", "state", "established", "dst", to]
    found = subprocess.run([*network.hosts[host].enter, *command], capture_output=True, text=True)
    return found.stdout.splitlines()


def test_a_gateway_goes_with_its_machine():
    """Nobody ends its connections, and nobody waits for that: neither its nodes nor the gateway that
    called it, as soon as there is another one."""
    expected("farm")
    with networked("farm", ROUTED, first=past_the_controller, ckpt_every=0.5, env=DEFAULTS) as (network, job):
        goes_silent(network, job)


def past_the_controller(network):
    """Each host of the west has a way to the east: past the controller's machine."""
    network.hub.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    for own, other in (("10.80.0", "10.81.0"), ("10.81.0", "10.80.0")):
        for address in network.hosts:
            if address.startswith(own):
                network.hosts[address].ip("route", "add", f"{other}.0/24", "via", f"{own}.1")


def goes_silent(network, job):
    job.all_checkpointed()
    gateway = lambda: job.status()["clusters"][1]["gateway"]
    before = gateway()
    assert before["node"] == 1 and before["outside"].startswith("10.81.0.2:"), before
    through = [("10.80.0.2", before["outside"]), ("10.81.0.3", before["inside"])]
    left = lambda: [line for host, to in through for line in standing(network, host, to)]
    assert all(standing(network, host, to) for host, to in through), (before, left())
    network.hub.ip("link", "set", "port1-2", "down")
    network.set_link(0, 1, "down")
    job.wait_event("node-lost", node=1)
    job.wait_event("gateway-back")
    assert gateway()["node"] == 2, job.status()
    job.until(lambda: not left(), lambda: f"end of what stood through it, {left()},", timeout=SOON_S)
    carries = lambda: gateway()["carried"]["connections"] and gateway()["carried"]["bytes_sent"]
    job.until(carries, "bytes through the next one", timeout=SOON_S)
    job.ends_as("farm")
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()


class Divided(Spaces, Clusters):
    """A job over nodes in namespaces, in two clusters."""

    def status(self):
        record = super().status()
        if record:
            pids = [c["gateway"]["pid"] for c in record["clusters"]]
            seen = {self.space(p) for p in pids if p}
            self.spaces |= seen - {None, self.space("self")}
        return record

    @staticmethod
    def space(pid):
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/ns/net")


def test_nodes_in_namespaces_have_no_way_but_gateways():
    expected("farm")
    with Divided("farm", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        record, gateways = job.status(), job.gateways_live()
        where = [n["address"].rsplit(":", 1)[0] for n in record["nodes"]]
        assert where == ["10.78.0.2", "10.78.0.3", "10.79.0.4", "10.79.0.5"], where
        for node, other in ((0, 2), (3, 1)):
            enter = ["nsenter", "-t", str(record["nodes"][node]["pid"]), "-n"]
            route = [*enter, "ip", "route", "get", where[other]]
            assert subprocess.run(route, capture_output=True).returncode != 0, where[other]
        enter = ["nsenter", "-t", str(gateways[0]["pid"]), "-n"]
        assert all(f" {name}@" in devices(*enter) for name in ("eth0", "wan0"))
        assert [g["outside"].rsplit(":", 1)[0] for g in gateways] == ["10.77.0.2", "10.77.0.3"]
        used = lambda: all(g["carried"]["bytes_sent"] > 0 for g in job.gateways_live())
        job.until(used, "use of gateways")
        job.ends_as("farm")
        unharmed(job)


def test_gateways_nodes_and_a_controller_in_namespaces_die():
    expected("heat")
    with Divided("heat", 4, ["--spares", "1"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_gateways(0, 1)
        job.kill_gateways(1)
        unharmed(job)
        kill_controller(job)
        job.gateways_live()
        checkpointed_again(job)
        unharmed(job)
        there = [r["rank"] for r in job.status()["ranks"] if r["node"] == 2]
        job.kill_nodes(2)
        for rank in there:
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_network_does_what_its_file_says():
    """Delay and rate are measured; what is no network is refused; nothing is left."""
    needs_root()
    for text, word in (("[clusters]\n", "no cluster"), (PAIR + "speed = 3\n", "speed"), ("x", "")):
        try:
            Network(text)
            raise AssertionError(f"{text} is taken")
        except Wrong as problem:
            assert word in str(problem), problem
    with Network(PAIR + "delay_ms = 5\nrouters = true\n") as network:
        # From a host that is not the first.
        assert not no_way(network, "10.80.0.3", "10.81.0.2")
        took, _ = measured(network.hosts["10.80.0.3"], network.hosts["10.81.0.2"])
        assert took >= 0.01, took
    with Network(PAIR + "delay_ms = 20\nmbit = 50\n") as network:
        ends = network.hosts["10.80.0.2"], network.hosts["10.81.0.2"]
        took, rate = measured(*ends)
        # A machine that is busy is slower than that, never faster.
        assert took >= 0.04 and rate <= 50e6 / 8, (took, rate)
        holders = [space.holder.pid for space in (network.hub, *network.hosts.values())]
    assert not any(os.path.exists(f"/proc/{pid}/ns/net") for pid in holders)
    refused = subprocess.run([TOOL, os.devnull, "true"], capture_output=True, text=True)
    assert refused.returncode == 1 and "no cluster" in refused.stderr, refused
    if os.path.exists("/usr/bin/setpriv"):
        drop = ["setpriv", "--reuid", "65534", "--clear-groups", sys.executable, TOOL, "x", "true"]
        refused = subprocess.run(drop, capture_output=True, text=True)
        assert refused.returncode == 1 and "take root" in refused.stderr, refused


SERVER = """
import socket
with socket.create_server(("10.81.0.2", 4000)) as door:
    print("ready", flush=True)
    with door.accept()[0] as one:
        one.recv(1)
        one.sendall(b"x")
        count = 0
        while piece := one.recv(1 << 16):
            count += len(piece)
        one.sendall(count.to_bytes(8, "little"))
"""
CLIENT = """
import socket, time
with socket.create_connection(("10.81.0.2", 4000)) as one:
    begun = time.monotonic()
    one.sendall(b"x")
    one.recv(1)
    took, begun = time.monotonic() - begun, time.monotonic()
    one.sendall(bytes(3 << 20))
    one.shutdown(socket.SHUT_WR)
    count = int.from_bytes(one.recv(8), "little")
    print(took, count / (time.monotonic() - begun))
"""


def measured(near, far):
    """Round trip (s) and rate (bytes/s) of TCP between two namespaces."""
    serve = [*far.enter, sys.executable, "-c", SERVER]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "ready\n"
        ask = [*near.enter, sys.executable, "-c", CLIENT]
        done = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=120)
    return [float(word) for word in done.stdout.split()]
