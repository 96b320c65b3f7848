"""A network of clusters for tests, as one file describes it. Root only.

The machines are network namespaces. In that of the controller there is a bridge for each cluster,
which its hosts are joined to by veth pairs, with a token bucket if a rate is given; the first hosts
of each two clusters are joined by a wide-area link (`wan.py`), and no other host has a route to
another cluster; or their routers are. Nothing has a name outside of these namespaces: all of it
vanishes when this process ends.

    [clusters.east]
    hosts = 2
    mbit = 1000         # of each host's link, both ways; without it there is no limit
    [clusters.west]
    hosts = 2
    far = true          # no route between them and the controller's machine: not of the first one
    [wan]               # each may be left out
    delay_ms = 10       # one way
    jitter_ms = 1       # more than that, evenly
    loss = 0.001
    mbit = 200          # one way
    routers = true      # the link is between routers, over which all hosts reach the other cluster

Addresses: 10.80.0.1 the controller in the first cluster, 10.80.0.2 ... its hosts; 10.81.0.1 ..."""

import contextlib
import os
import subprocess
import sys
import tomllib

from space import Space

FIRST = 80
# A cluster's router, if it has one.
ROUTER = 254
WAN = {"delay_ms", "jitter_ms", "loss", "mbit", "routers"}
KNOWN = {"clusters": {"hosts", "mbit", "far"}, "wan": WAN}


class Wrong(Exception):
    """The description does not describe a network."""


def read(text):
    """The description, checked."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise Wrong(str(problem)) from None
    clusters, wan = found.pop("clusters", {}), found.pop("wan", {})
    tables = [("wan", wan)] + [("clusters", c) for c in clusters.values()]
    strange = list(found) + [k for name, t in tables for k in t if k not in KNOWN[name]]
    if strange or not clusters:
        raise Wrong(f"not known: {', '.join(strange)}" if strange else "there is no cluster")
    for name, cluster in clusters.items():
        if not 1 <= cluster.get("hosts", 0) <= 200:
            raise Wrong(f"cluster {name}: hosts is to be 1 to 200")
    if next(iter(clusters.values())).get("far"):
        raise Wrong("the controller's machine is in the first cluster, which cannot be far")
    if not 0 <= wan.get("loss", 0) < 1:
        raise Wrong("loss is a probability below 1")
    return clusters, wan


class Network:
    """Builds it. Use as a context manager."""

    def __init__(self, text):
        self.clusters, self.wan = read(text)
        self.stack = contextlib.ExitStack()
        self.hub, self.hosts, self.links = None, {}, {}
        # The controller's end of each host's link.
        self.ports = {}
        self.limited = []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.stack = stack
            self.build()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def space(self):
        return self.stack.enter_context(contextlib.closing(Space()))

    def build(self):
        self.hub = self.space()
        firsts = []
        for number, cluster in enumerate(self.clusters.values()):
            bridge, net = f"bridge{number}", f"10.{FIRST + number}.0"
            self.hub.ip("link", "add", bridge, "type", "bridge")
            self.hub.ip("address", "add", f"{net}.1/24", "dev", bridge)
            self.hub.ip("link", "set", bridge, "up")
            for host in range(2, cluster["hosts"] + 2):
                address = f"{net}.{host}"
                self.join(address, f"port{number}-{host}", bridge, cluster.get("mbit"))
                if cluster.get("far"):
                    for space, other in ((self.hub, address), (self.hosts[address], f"{net}.1")):
                        space.ip("route", "add", "unreachable", f"{other}/32")
            routes = self.wan.get("routers")
            firsts.append(self.router(number, bridge) if routes else self.first(number))
        for at, one in enumerate(firsts):
            for other in firsts[at + 1 :]:
                self.link(one, other)

    def first(self, number):
        """The end of wide-area links that is a cluster's first host: its cluster, its namespace, its
        address, and what is reached there."""
        address = f"10.{FIRST + number}.0.2"
        return number, self.hosts[address], address, address

    def router(self, number, bridge):
        """The end that is a router, which each host of the cluster takes to others."""
        space, address = self.space(), f"10.{FIRST + number}.0.{ROUTER}"
        self.hub.plug(f"port{number}", space)
        self.hub.ip("link", "set", f"port{number}", "master", bridge, "up")
        space.ip("address", "add", f"{address}/24", "dev", "eth0")
        space.ip("link", "set", "eth0", "up")
        space.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        nets = [f"10.{FIRST + other}.0.0/24" for other in range(len(self.clusters))]
        own = nets.pop(number)
        for host in (self.hosts[a] for a in self.hosts if a.startswith(own[:-4])):
            for net in nets:
                host.ip("route", "add", net, "via", address)
        return number, space, address, own

    def join(self, address, port, bridge, mbit):
        """A host, and its link to its cluster."""
        host = self.hosts[address] = self.space()
        self.ports[address] = port
        self.hub.plug(port, host)
        self.hub.ip("link", "set", port, "master", bridge, "up")
        host.ip("address", "add", f"{address}/24", "dev", "eth0")
        host.ip("link", "set", "eth0", "up")
        for space, device in ((self.hub, port), (host, "eth0")):
            if mbit:
                bucket = ["tbf", "rate", f"{mbit}mbit", "burst", "128k", "latency", "100ms"]
                space.run("tc", "qdisc", "add", "dev", device, "root", *bucket)
                self.limited.append((space, device))

    def lift_limits(self):
        """The links of hosts to their clusters have no limit any more."""
        while self.limited:
            space, device = self.limited.pop()
            space.run("tc", "qdisc", "del", "dev", device, "root")

    def link(self, one, other):
        """The wide-area link between two ends."""
        ends = [(one, other), (other, one)]
        devices = [(own[1], f"wan{peer[0]}", own[2], peer[3]) for own, peer in ends]
        tool = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wan.py")
        words = [word for space, device, *_ in devices for word in (space.path, device)]
        how = [str(self.wan.get(key, 0)) for key in ("delay_ms", "jitter_ms", "loss", "mbit")]
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, tool, *words, *how]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process = self.stack.enter_context(subprocess.Popen(command, **pipes))
        self.stack.callback(process.kill)
        assert process.stdout.readline() == "ready\n", "the wide-area link does not come up"
        for space, device, own, peer in devices:
            space.ip("link", "set", device, "up")
            space.ip("route", "add", peer, "dev", device, "src", own)
        self.links[one[0], other[0]] = devices

    def set_link(self, one, other, state):
        """Sets the wide-area link between two clusters `down`, or `up` again."""
        for command in self.commands(one, other, state):
            subprocess.run(command, check=True)

    def commands(self, one, other, state):
        """What does that."""
        for space, device, own, peer in self.links[one, other]:
            yield [*space.enter, "ip", "link", "set", device, state]
            if state == "up":
                route = ["ip", "route", "replace", peer, "dev", device, "src", own]
                yield [*space.enter, *route]

    def host_file(self):
        """A file for `eyrie run --hosts`."""
        lines = []
        for number, (name, cluster) in enumerate(self.clusters.items()):
            for host in range(2, cluster["hosts"] + 2):
                lines.append(f"10.{FIRST + number}.0.{host} cluster={name}\n")
        return "".join(lines)

    def remote_shell(self):
        """The body of a remote shell that goes into a host's namespace."""
        cases = "".join(f"{a}) pid={s.holder.pid};;\n" for a, s in self.hosts.items())
        enter = 'exec nsenter --net=/proc/$pid/ns/net sh -c "$*"\n'
        return f"case $1 in\n{cases}*) exit 255;;\nesac\nshift\n{enter}"
