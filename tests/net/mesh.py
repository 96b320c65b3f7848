"""A mesh of machines with links of a limited rate, for benchmarks of placement. Root only.

Each machine is a network namespace. Neighbours are joined by veth pairs with a token bucket at both
ends. Messages go along X first, then along Y, as `mesh XxY` of `eyrie topo` has them. The
controller's machine has a way of its own to each, which no message between them takes. All of it
vanishes when this process ends.

Addresses: 10.88.0.1 the controller, 10.90.0.1 ... the machines, the first coordinate fastest."""

import contextlib
import json

from space import Space

CONTROLLER = "10.88.0.1"
# Small beside a message, so that none goes past the limit, and a kernel tick's worth of it.
BURST_BYTES = 16 << 10
# What a link holds: long enough that flows with more links get as much of it as those with fewer.
QUEUE = "128k"


class Mesh:
    """Builds it. Use as a context manager."""

    def __init__(self, width, height, mbit):
        self.width, self.height, self.mbit = width, height, mbit
        self.stack = contextlib.ExitStack()
        self.hub, self.hosts = None, {}
        # What of a machine leads to which neighbour: the device, and that one's address there.
        self.ways = {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.stack = stack
            self.build()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def address(self, node):
        return f"10.90.0.{node + 1}"

    def space(self):
        space = self.stack.enter_context(contextlib.closing(Space()))
        for name in ("ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0"):
            space.run("sysctl", "-qw", f"net.ipv4.{name}")
        return space

    def build(self):
        self.hub = self.space()
        self.hub.ip("address", "add", f"{CONTROLLER}/32", "dev", "lo")
        nodes = range(self.width * self.height)
        for node in nodes:
            self.join(node)
        spaces = [self.hosts[self.address(node)] for node in nodes]
        for node in nodes:
            if (node + 1) % self.width:
                self.link(spaces, node, node + 1)
            if node + self.width < len(nodes):
                self.link(spaces, node, node + self.width)
        for node in nodes:
            for other in nodes:
                if other != node:
                    device, via = self.ways[node, self.next(node, other)]
                    way = ["via", via, "dev", device, "src", self.address(node)]
                    spaces[node].ip("route", "add", f"{self.address(other)}/32", *way)

    def next(self, node, to):
        """The neighbour that is on the way."""
        (y, x), (v, u) = divmod(node, self.width), divmod(to, self.width)
        if x != u:
            return node + (1 if u > x else -1)
        return node + (self.width if v > y else -self.width)

    def join(self, node):
        """A machine, and its way to the controller's."""
        address, net = self.address(node), f"10.89.{node}"
        host = self.hosts[address] = self.space()
        host.ip("address", "add", f"{address}/32", "dev", "lo")
        self.hub.plug(f"port{node}", host)
        for space, device, own in ((self.hub, f"port{node}", 1), (host, "eth0", 2)):
            space.ip("address", "add", f"{net}.{own}/30", "dev", device)
            space.ip("link", "set", device, "up")
        self.hub.ip("route", "add", f"{address}/32", "via", f"{net}.2", "src", CONTROLLER)
        host.ip("route", "add", f"{CONTROLLER}/32", "via", f"{net}.1", "src", address)

    def link(self, spaces, node, other):
        number = len(self.ways) // 2
        ends = [(node, other, f"to{other}", 1), (other, node, f"to{node}", 2)]
        spaces[node].plug(f"to{other}", spaces[other], f"to{node}")
        for own, peer, device, last in ends:
            space = spaces[own]
            space.ip("address", "add", f"10.91.{number}.{last}/30", "dev", device)
            space.ip("link", "set", device, "up")
            self.ways[own, peer] = device, f"10.91.{number}.{3 - last}"
            self.limit(space, device)

    def limit(self, space, device):
        rate = ["rate", f"{self.mbit}mbit", "burst", str(BURST_BYTES), "limit", QUEUE]
        space.run("tc", "qdisc", "add", "dev", device, "root", "tbf", *rate)

    def carried(self):
        """Bytes that each link has carried in each direction, by the two nodes, with all headers."""
        found = {}
        for node, space in enumerate(self.hosts.values()):
            told = space.run("ip", "-json", "-stats", "link", check=False).stdout
            sent = {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in json.loads(told)}
            for (own, peer), (device, _) in self.ways.items():
                if own == node:
                    found[own, peer] = sent[device]
        return found

    def describe(self):
        """The same for `eyrie topo` and `--topology`."""
        names = f"names 10.90.0.[1-{self.width * self.height}]"
        return f"mesh {self.width}x{self.height}\nbandwidth {self.mbit * 125}K\n{names}\n"

    def remote_shell(self):
        """The body of a remote shell that goes into a machine's namespace."""
        cases = "".join(f"{a}) pid={s.holder.pid};;\n" for a, s in self.hosts.items())
        enter = 'exec nsenter --net=/proc/$pid/ns/net sh -c "$*"\n'
        return f"case $1 in\n{cases}*) exit 255;;\nesac\nshift\n{enter}"


