"""`--ft routed` together with what other jobs have: a vault, saving and restarting, clusters, nodes
that leave."""

import os
import signal

from clusters import Clusters
from drain import drain, refused
from harness import example, run_to_end
from migrate import migrate
from nodes import Nodes, expected, gone
from restart import SAVED, restart, save
from routed import NODES, Routed, logged


def ends_well(job, name):
    job.ends_as(name)
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def vault_loses(name, scheme, lost):
    """Routers are nodes of the vault as all others; ranks come back out of it."""
    expected(name)
    with Routed(name, 2, ["--vault", scheme]) as job:
        job.all_checkpointed(2)
        assert sorted(job.routers()) == [NODES, NODES + 1], job.report()
        job.kill_nodes(*lost)
        back = [node for node in lost if node < NODES]
        for rank in back:
            job.wait_event("restored", rank=rank)
        job.ends_well(name, *back)
        for rank in back:
            assert job.count("copied", rank=rank, text="read out of the vault"), job.report()


def saved_and_restarted(name, *where, routers):
    """On the same nodes, on others, and there without routers."""
    expected(name)
    with Routed(name, 2) as job:
        job.all_checkpointed()
        save(job)
        restart(job, *where)
        job.wait_event("restored", count=4)
        record = job.wait_running(4)
        assert record["ft"] == ("routed" if routers else "logged"), record
        assert len(job.routers()) == routers, record["nodes"]
        # What follows is logged there, too.
        begun = job.count("checkpointed")
        job.wait_event("checkpointed", count=begun + 8)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, count=2)
        ends_well(job, name)


def all_nodes_die(name):
    """With routers and all: it goes on from what was brought to its folder."""
    expected(name)
    with Routed(name, 2, ["--save-every", "0.2"]) as job:
        job.wait_event("flushed", count=2)
        job.kill_nodes(*range(NODES + 2))
        assert job.wait() == 1, job.report()
        restart(job, "--nodes", "3")
        job.wait_event("restored", count=4)
        assert len(job.routers()) == 2, job.report()
        ends_well(job, name)


class Divided(Clusters):
    """Four nodes in two clusters, and a router in each."""

    def __init__(self, name, share=2, options=(), **more):
        routed = ["--ft", "routed", "--routers", str(share), *options]
        super().__init__(name, NODES, routed, ckpt_every=0.4, **more)

    def routers(self):
        nodes = self.status()["nodes"]
        return {n["node"]: n["routes"] for n in nodes if n["routes"] and n["state"] == "router"}


def in_clusters(name, lost=(), gateways=(), back=()):
    """A rank has a router of its own cluster; when it dies, one of the other."""
    expected(name)
    with Divided(name) as job:
        job.all_checkpointed()
        assert job.routers() == {NODES: [0, 1], NODES + 1: [2, 3]}, job.routers()
        clusters = job.status()["clusters"]
        assert [NODES in c["nodes"] for c in clusters] == [True, False], clusters
        if gateways:
            job.kill_gateways(*gateways)
        if lost:
            job.kill_nodes(*lost)
            for node in lost:
                job.wait_event("node-lost", node=node)
        for rank in back:
            job.wait_event("restored", rank=rank)
        if lost == [NODES]:
            assert job.routers() == {NODES + 1: [0, 1, 2, 3]}, job.routers()
        ends_well(job, name)


def generated():
    for name in ("farm", "heat"):
        yield f"{name}_in_a_vault_loses_two_nodes", lambda n=name: vault_loses(n, "rs:4+2", [0, 2])
        lost = [1, NODES]
        yield f"{name}_in_a_vault_loses_a_router", lambda n=name, l=lost: vault_loses(n, "rs:4+2", l)
        yield f"{name}_all_nodes_die", lambda n=name: all_nodes_die(n)
        yield f"{name}_restarted", lambda n=name: saved_and_restarted(n, routers=2)
        yield f"{name}_in_clusters", lambda n=name: in_clusters(n)
        yield f"{name}_in_clusters_loses_a_router", lambda n=name: in_clusters(n, [NODES])
    yield "xor_loses_a_node", lambda: vault_loses("heat", "xor:5", [1])
    on = lambda *where, **more: lambda: saved_and_restarted("farm", *where, **more)
    yield "restarted_on_two_nodes", on("--nodes", "2", routers=2)
    yield "restarted_with_more_routers", on("--nodes", "4", "--routers", "1", routers=4)
    yield "restarted_without_routers", on("--nodes", "3", "--routers", "0", routers=0)
    yield "in_clusters_loses_nodes", lambda: in_clusters("farm", [0, 3], back=[0, 3])
    yield "in_clusters_loses_gateways", lambda: in_clusters("heat", gateways=[0, 1])


def test_a_job_without_routers_gets_some_at_its_restart():
    expected("farm")
    with Nodes("farm", 4, ckpt_every=0.4) as job:
        job.all_checkpointed()
        save(job)
        restart(job, "--nodes", "4", "--routers", "2")
        job.wait_event("restored", count=4)
        record = job.wait_running(4)
        assert record["ft"] == "routed", record
        assert [n["node"] for n in record["nodes"] if n["routes"]] == [4, 5], record["nodes"]
        ends_well(job, "farm")


def test_ranks_do_not_go_to_routers():
    """Whoever names one is told so, before anything is done."""
    expected("farm")
    with Routed("farm", 2) as job:
        job.all_checkpointed()
        for words in (["drain", "last", "1", "--to"], ["migrate", "last", "--from", "1", "--to"]):
            for to in (str(NODES), f"0,{NODES + 1}"):
                code, out, err = job.eyrie(*words, to, check=False)
                told = "is a router, on which no ranks run" in err and len(err.splitlines()) == 1
                assert code == 1 and told, (words, to, code, out, err)
        assert not job.count("node-leaving"), job.report()
        job.ends_as("farm")


def test_a_node_with_ranks_and_a_router_leave():
    """Nothing is computed again; the other router has all ranks then."""
    expected("farm")
    with Routed("farm", 2, ["--spares", "1"]) as job:
        # Routers are behind the spare.
        job.all_checkpointed()
        routers = sorted(job.routers())
        assert routers == [NODES + 1, NODES + 2], routers
        drain(job, "1", str(routers[0]))
        job.wait_event("node-left", node=1)
        assert job.routers() == {routers[1]: [0, 1, 2, 3]}, job.routers()
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, count=2)
        ends_well(job, "farm")


def test_all_nodes_with_ranks_are_told_to_end():
    """No router is, but ranks do not go there: the job is saved."""
    expected("farm")
    with Routed("farm", 2) as job:
        job.all_checkpointed()
        nodes = job.status()["nodes"][:NODES]
        refused(job, [str(n["node"]) for n in nodes], "no node would stay")
        for node in nodes:
            os.kill(node["pid"], signal.SIGTERM)
        assert job.wait() == SAVED, job.report()
        assert not job.count("node-lost"), job.report()
        restart(job)
        job.wait_event("restored", count=4)
        ends_well(job, "farm")


def test_ranks_migrate():
    expected("heat")
    with Routed("heat", 2, ["--spares", "2"]) as job:
        job.all_checkpointed()
        migrate(job, "--from", "0,1", "--to", f"{NODES},{NODES + 1}")
        record = job.wait_running(4)
        assert [r["node"] for r in record["ranks"]] == [NODES, NODES + 1, 2, 3], record["ranks"]
        job.kill_nodes(NODES)
        job.wait_event("restored", rank=0, count=2)
        ends_well(job, "heat")


def test_a_saved_job_keeps_its_routers_logs_to_itself():
    """What a router has logged is not saved: senders' logs are, and the router has it from there.
    There is none any more when ranks are done, so these have far more to do than there is time."""
    sizes = ["--size", "256", "--steps", "6000", "--progress"]
    code, want, err = run_to_end(example("heat") + sizes)
    assert code == 0, err
    with Routed("heat", 2, sizes=sizes) as job:
        job.wait_running(4)
        job.until(lambda: logged(job, NODES) > 0, "a log at the router")
        save(job)
        assert not [n for n in os.listdir(job.folder()) if n.startswith("node-")]
        restart(job)
        job.wait_event("restored", count=4)
        job.until(lambda: logged(job, NODES) > 0, "a log at the router again")
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        gone(job)
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()
