"""Two machines with several routes between them that are equally good, each with links of a limited rate. Root only.

Each machine is a network namespace. A route is a veth pair with a token bucket at both ends. The kernel picks a
route by a connection's addresses and ports (ECMP). The controller's machine has a way of its own to each. All of it
vanishes when this process ends. Addresses as in `mesh`."""

from mesh import CONTROLLER, Mesh


class Routes(Mesh):
    """Builds it. Use as a context manager."""

    def __init__(self, routes, mbit):
        super().__init__(2, 1, mbit)
        self.routes = routes

    def build(self):
        self.hub = self.space()
        self.hub.ip("address", "add", f"{CONTROLLER}/32", "dev", "lo")
        for node in (0, 1):
            self.join(node)
        spaces = list(self.hosts.values())
        for route in range(self.routes):
            spaces[0].plug(f"route{route}", spaces[1], f"route{route}")
            for node, space in enumerate(spaces):
                device = f"route{route}"
                space.ip("address", "add", f"10.91.{route}.{node + 1}/30", "dev", device)
                space.ip("link", "set", device, "up")
                # By the machine and the route, for `carried`.
                self.ways[node, f"route {route}"] = device, f"10.91.{route}.{2 - node}"
                self.limit(space, device)
        for node, space in enumerate(spaces):
            # By ports, too.
            space.run("sysctl", "-qw", "net.ipv4.fib_multipath_hash_policy=1")
            hops = []
            for route in range(self.routes):
                hops += ["nexthop", "via", f"10.91.{route}.{2 - node}", "dev", f"route{route}"]
            space.ip("route", "add", f"{self.address(1 - node)}/32", "src", self.address(node), *hops)
