"""`--ft routed`: messages between nodes go by routers, which log them; all of them die."""

import contextlib
import subprocess

from harness import EYRIE, example
from nodes import SIZES, Nodes, expected, undisturbed
from stores import larger

# Ranks go to the first four nodes, routers are those behind them.
NODES = 4


class Routed(Nodes):
    """A job of four ranks, each on a node of its own, with a router for each `share` of them."""

    def __init__(self, name, share=2, options=(), every=0.4, **more):
        routed = ["--ft", "routed", "--routers", str(share), *options]
        super().__init__(name, NODES, routed, ckpt_every=every, **more)

    def routers(self):
        """The ranks of each live router."""
        nodes = self.status()["nodes"]
        return {n["node"]: n["routes"] for n in nodes if n["routes"] and n["state"] == "router"}

    def ends_well(self, name, *restored):
        """The output is right, and nobody but these ranks ever went back."""
        self.ends_as(name)
        back = {e["rank"] for e in self.events() if e["event"] == "restored"}
        assert back == set(restored), (back, restored, self.report())
        assert not self.count("rolled-back") and not self.count("diverged"), self.report()


@contextlib.contextmanager
def more_to_do(name):
    """For heat: far longer than it takes to ask for the status."""
    longer = ["--size", "256", "--steps", "6000", "--progress"]
    with larger(name, longer) if name == "heat" else contextlib.nullcontext():
        expected(name)
        yield


def routes_and_logs(name, share):
    with more_to_do(name), Routed(name, share) as job:
        # What its ranks were sent since their checkpoints: nothing, a while after they are done.
        if name == "heat":
            job.wait_running(4)
            job.until(lambda: logged(job, NODES) > 0, "a log at the router")
        job.all_checkpointed()
        record = job.status()
        assert record["ft"] == "routed" and record["protected"], record
        count = -(-4 // share)
        want = {NODES + i: list(range(i * share, min(4, (i + 1) * share))) for i in range(count)}
        assert job.routers() == want, job.routers()
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "router" in text and f"node {NODES} routes for ranks 0" in text, text
        # Each checkpoint had its router stand.
        stood = lambda: sum(n["pauses"] for n in job.status()["nodes"])
        job.until(lambda: stood() >= 4, "pauses of routers")
        job.ends_well(name)
        assert not job.count("detected"), job.report()


def logged(job, node):
    return job.status()["nodes"][node]["logged_bytes"]


def loses(name, share, ranks=(), nodes=(), options=()):
    """Ranks and nodes die at once, after all ranks have images."""
    expected(name)
    with Routed(name, share, options) as job:
        job.all_checkpointed()
        routers = job.routers()
        if ranks:
            job.kill_ranks(ranks)
        if nodes:
            job.kill_nodes(*nodes)
        for node in nodes:
            job.wait_event("node-lost", node=node)
        back = {*ranks, *(node for node in nodes if node < NODES)}
        for rank in back:
            job.wait_event("restored", rank=rank)
        live = {n: r for n, r in routers.items() if n not in nodes}
        if live:
            orphans = [r for n, ranks in routers.items() if n in nodes for r in ranks]
            routed = sorted(r for ranks in job.routers().values() for r in ranks)
            assert routed == [0, 1, 2, 3], (orphans, job.routers())
        else:
            assert job.routers() == {}, job.routers()
        job.ends_well(name, *back)


def generated():
    for name in ("farm", "heat", "cg"):
        yield f"{name}_goes_by_its_router", lambda n=name: routes_and_logs(n, 2)
    yield "sort_has_a_router_for_each_rank", lambda: routes_and_logs("sort", 1)
    yield "farm_has_one_router", lambda: routes_and_logs("farm", 4)
    spare = ["--spares", "1"]
    for name in ("farm", "heat"):
        yield f"{name}_loses_ranks", lambda n=name: loses(n, 2, ranks=[1, 2])
        yield f"{name}_loses_a_node", lambda n=name: loses(n, 2, nodes=[1])
        yield f"{name}_uses_a_spare", lambda n=name: loses(n, 4, nodes=[3], options=spare)
        yield f"{name}_loses_a_router", lambda n=name: loses(n, 2, nodes=[NODES])
        yield f"{name}_loses_its_only_router", lambda n=name: loses(n, 4, nodes=[NODES])
        yield f"{name}_loses_a_router_and_ranks", lambda n=name: loses(n, 2, [0, 3], [NODES + 1])


def test_a_router_is_lost_while_a_rank_of_its_is_recovered():
    expected("farm")
    with Routed("farm", 2) as job:
        job.all_checkpointed()
        job.kill_ranks([0])
        job.wait_event("detected", rank=0)
        job.kill_nodes(NODES)
        job.wait_event("node-lost", node=NODES)
        job.wait_event("restored", rank=0)
        job.status()
        # What the new router has is enough for whoever comes next.
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        job.ends_well("farm", 0, 1)


def test_routers_die_one_after_the_other():
    expected("heat")
    with Routed("heat", 1) as job:
        job.all_checkpointed()
        for node in range(NODES, NODES + 4):
            job.kill_nodes(node)
            job.wait_event("node-lost", node=node)
            rank = node - NODES
            before = job.count("restored", rank=rank)
            job.kill_ranks([rank])
            job.wait_event("restored", rank=rank, count=before + 1)
        assert job.routers() == {}, job.routers()
        job.ends_well("heat", 0, 1, 2, 3)


def test_the_controller_dies_with_a_router():
    expected("farm")
    with Routed("farm", 2) as job:
        job.all_checkpointed()
        job.kill_nodes(NODES + 1)
        job.eyrie("inject", "last", "kill-controller")
        job.wait_event("controller-back")
        job.wait_event("node-lost", node=NODES + 1)
        job.ends_well("farm")


def test_ranks_that_share_a_node_are_routed_too():
    undisturbed("farm", 2, ["--ft", "routed"])


def refused(arguments, words):
    command = [EYRIE, "run", "-n", "4", *arguments, *example("farm"), *SIZES["farm"]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and words in done.stderr, (done.returncode, done.stderr)


def test_what_does_not_go_with_routers_is_refused():
    routed = ["--ft", "routed"]
    refused(routed, "give --nodes or --hosts")
    refused(["--routers", "2"], "--ft routed")
    nodes = [*routed, "--nodes", "2"]
    refused([*nodes, "--keep"], "--keep")
    refused([*nodes, "--vault", "rs:4+3"], "needs 4 nodes at least, and there are 3")
