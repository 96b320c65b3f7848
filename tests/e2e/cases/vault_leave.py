"""Nodes leave jobs whose checkpoints are sets in a vault, ranks migrate, and such jobs are saved: what
goes on does so from where it stood, and the vault bears as many losses as before."""

import os
import signal

from cluster_units import ClusterUnits
from coordinated_nodes import Together, one_set
from drain import Asked, drain, is_gone, on_node, ready, refused
from migrate import homes, is_spare, migrate
from nodes import Points, expected
from restart import SAVED, restart, save
from suspend import goes_on, stands_soon, suspended
from unit_nodes import NodeUnits

RS = ["--vault", "rs:2+1"]
# Jobs over four nodes or more with a set of all ranks, of those of a node, of those of a cluster.
KINDS = {"together": Together, "node": NodeUnits, "cluster": ClusterUnits}


class PointedTogether(Points, Together):
    pass


class PointedNodeUnits(Points, NodeUnits):
    pass


POINTED = {"together": PointedTogether, "node": PointedNodeUnits}


def nothing_died(job):
    """No node is lost, and nobody goes on elsewhere than where he stood."""
    assert job.status()["rollbacks"] == 0 and not job.count("node-lost"), job.report()
    stood = "all ranks, to go on elsewhere where they stood"
    assert job.count("rolled-back") == job.count("rolled-back", text=stood), job.report()


def in_vault(job):
    """The newest image of every rank is in the vault, by nodes all of which are there."""
    record = job.status()
    live = sum(n["state"] in ("live", "spare") for n in record["nodes"])
    newest = {(r["rank"], r["checkpoint"]["generation"]) for r in record["ranks"] if r["checkpoint"]}
    told = [e for e in job.events() if e["event"] == "vaulted" and f"over {live} nodes" in e["text"]]
    return len(newest) == 4 and newest <= {(e["rank"], e["generation"]) for e in told}


def leaves_and_another_is_lost(kind, leaving, lost):
    """Nobody computes again what the node had, and the next loss is borne."""
    expected("heat")
    with KINDS[kind]("heat", 4, [*RS, "--spares", "1"]) as job:
        record = ready(job)
        assert drain(job, str(leaving))[-1]["step"] == "left"
        is_gone(job, leaving, record)
        nothing_died(job)
        job.until(lambda: in_vault(job), "the images' return")
        victims = on_node(job.status(), lost)
        before = {rank: job.count("restored", rank=rank) for rank in victims}
        began = job.count("restored", generation=0)
        job.kill_nodes(lost)
        for rank in victims:
            job.wait_event("restored", rank=rank, count=before[rank] + 1)
        assert job.count("restored", generation=0) == began, job.report()
        job.ends_as("heat")
        assert not job.count("diverged"), job.report()


def there_and_back(kind):
    """All ranks, to nodes that have none, and to those that have forgotten them."""
    expected("heat")
    with KINDS[kind]("heat", 2, [*RS, "--spares", "2"]) as job:
        ready(job)
        migrate(job, "--to", "2-3")
        assert set(homes(job)) <= {2, 3}, job.status()
        is_spare(job, 0, 1)
        migrate(job, "--from", "2,3", "--to", "0", "1")
        assert set(homes(job)) <= {0, 1}, job.status()
        is_spare(job, 2, 3)
        nothing_died(job)
        job.until(lambda: in_vault(job), "the images' return")
        before = job.count("restored")
        job.kill_nodes(0)
        job.wait_event("restored", count=before + 2)
        job.ends_as("heat")
        assert not job.count("diverged"), job.report()


def goes_on_saved(kind):
    """By SIGQUIT, and by what was brought while it ran, when all nodes die."""
    expected("farm")
    with KINDS[kind]("farm", 4, RS) as job:
        ready(job)
        save(job)
        restart(job, "--nodes", "4")
        job.wait_event("restored", count=4)
        job.until(lambda: in_vault(job), "the images' return")
        job.kill_nodes(1)
        job.wait_event("restored", count=5)
        job.ends_as("farm")
        assert not job.count("diverged") and not job.count("restored", generation=0), job.report()
    with KINDS[kind]("farm", 4, [*RS, "--save-every", "0.05"]) as job:
        ready(job)
        job.wait_event("flushed", count=2)
        job.kill_nodes(0, 1, 2, 3)
        assert job.wait() == 1, job.report()
        restart(job, "--nodes", "4")
        job.wait_event("restored", count=4)
        job.ends_as("farm")
        assert not job.count("diverged"), job.report()


# Who waits there, and who dies.
STEPS = {
    "together": (
        ("set-3", ("source", "target", "controller")),
        ("back-1", ("source", "target", "controller")),
        ("leave-7", ("source", "controller")),
    ),
    "node": (
        ("leave-5", ("source", "target", "controller")),
        ("leave-6", ("source", "controller")),
        ("leave-7", ("source", "controller")),
    ),
}


def dies_at(kind, point, victim):
    """The node that leaves, the one that takes its ranks, or the controller."""
    with POINTED[kind]("farm", 4, RS) as job:
        record = ready(job)
        pids = {"source": record["nodes"][1]["pid"], "target": record["nodes"][2]["pid"]}
        pids["controller"] = record["daemon_pid"]
        if point != "set-3":
            job.arm(point)
        with Asked(job, "1", "--to", "2") as asked:
            if point == "set-3":
                # One of those that are taken as the node leaves.
                job.wait_event("node-leaving", node=1)
                job.arm(point)
            job.held_at(point)
            os.kill(pids[victim], signal.SIGKILL)
            job.let_go(point)
            code, out, err = asked.over()
        # A node that dies has not left; before it was told to go, that is.
        if (point, victim) == ("back-1", "source"):
            assert code == 1 and "is lost" in out + err, (code, out, err)
            assert not job.count("node-left", node=1) and not job.count("node-stays", node=1)
        job.ends_as("farm")
        assert not job.count("diverged"), job.report()


def deaths(kind):
    expected("farm")
    for point, victims in STEPS[kind]:
        for victim in victims:
            dies_at(kind, point, victim)


def generated():
    cases = [
        (f"a_node_leaves_and_another_is_lost_{kind}", leaves_and_another_is_lost, kind, *nodes)
        for kind, nodes in (("together", (1, 2)), ("node", (1, 2)), ("cluster", (1, 3)))
    ]
    cases += [(f"there_and_back_{kind}", there_and_back, kind) for kind in KINDS]
    cases += [(f"saved_and_gone_on_{kind}", goes_on_saved, kind) for kind in KINDS]
    cases += [(f"deaths_on_the_way_{kind}", deaths, kind) for kind in STEPS]
    return [(label, lambda rest=rest: rest[0](*rest[1:])) for label, *rest in cases]


def test_a_cluster_is_lost_whose_images_the_vault_has():
    """What was on its three nodes comes back in the other one, where nobody goes back."""
    expected("heat")
    with ClusterUnits("heat", 6, ["--vault", "rs:3+3", "--copies", "outside"]) as job:
        ready(job)
        job.until(lambda: in_vault(job), "images in the vault")
        job.kill_nodes(0, 1, 2)
        job.back(0)
        assert set(homes(job)) <= {3, 4, 5}, job.status()
        assert job.count("copied", text="read out of the vault") >= 2, job.report()
        job.ends_well("heat", 0)


def test_all_go_on_that_stood_for_a_node_that_stays():
    """`eyrie drain --cancel` while a set is taken for it; then the node leaves after all."""
    expected("farm")
    for options in ([], RS):
        with PointedTogether("farm", 4, options, every=3600) as job:
            record = job.wait_running(4)
            job.arm("leave-5")
            with Asked(job, "1") as asked:
                job.held_at("leave-5")
                job.eyrie("drain", "--cancel", "last", "1")
                code, out, err = asked.over()
            assert code == 1 and "called off" in out + err, (code, out, err)
            job.wait_event("node-stays", node=1, text="it was called off")
            job.let_go("leave-5")
            # They run: another set is taken of them.
            job.eyrie("checkpoint", "last")
            nothing_died(job)
            assert homes(job) == [r["node"] for r in record["ranks"]], job.status()
            assert drain(job, "1")[-1]["step"] == "left"
            is_gone(job, 1, record)
            refused(job, ["--cancel", "1"], "has left already")
            job.ends_as("farm")
            assert job.count("rolled-back") == 1, job.report()


def test_a_node_leaves_a_job_that_stands_with_all_its_ranks():
    """Suspended, they are moved together, and stand where they are then."""
    for options in ([], RS):
        expected("farm")
        with Together("farm", 4, options) as job:
            record = ready(job)
            suspended(job)
            assert drain(job, "1")[-1]["step"] == "left"
            is_gone(job, 1, record)
            stands_soon(job)
            nothing_died(job)
            goes_on(job)
            job.ends_as("farm")
            assert job.count("rolled-back") == 1, job.report()


def test_a_notice_has_a_node_leave():
    """SIGTERM, as from Slurm: the node leaves; when all have it the job is saved."""
    expected("heat")
    with NodeUnits("heat", 4, RS) as job:
        record = ready(job)
        os.kill(record["nodes"][3]["pid"], signal.SIGTERM)
        job.wait_event("node-left", node=3)
        nothing_died(job)
        for node in record["nodes"][:3]:
            os.kill(node["pid"], signal.SIGTERM)
        assert job.wait() == SAVED, job.report()
        restart(job, "--nodes", "4")
        job.wait_event("restarted")
        job.ends_as("heat")
