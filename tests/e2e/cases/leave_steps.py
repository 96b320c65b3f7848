"""A node leaves, and at a step of that the node, the one that its ranks go to, the controller or a
gateway dies: the results are those of an undisturbed run (`docs/internals/fault-points.md`)."""

import os
import signal

from clusters import Clusters
from drain import Asked, is_gone, ready
from nodes import Pointed, Points, expected

LEAVES, TAKES = 1, 2
# Who waits there, and who dies.
STEPS = {
    "leave-3": (LEAVES, ("source", "target")),
    "leave-4": (TAKES, ("source", "target")),
    "leave-5": (LEAVES, ("source", "target", "controller")),
    "leave-6": (LEAVES, ("source", "target", "controller")),
    "leave-7": (LEAVES, ("source", "controller")),
}


def dies_at(point, holder, victim):
    with Pointed("farm", 3, ckpt_every=0.3) as job:
        record = ready(job)
        pids = {"source": record["nodes"][LEAVES]["pid"], "target": record["nodes"][TAKES]["pid"]}
        pids["controller"] = record["daemon_pid"]
        job.arm(point)
        with Asked(job, str(LEAVES), "--to", str(TAKES)) as asked:
            assert job.held_at(point) == record["nodes"][holder]["pid"], (point, record)
            os.kill(pids[victim], signal.SIGKILL)
            job.let_go(point)
            asked.over()
        job.ends_as("farm")
        assert not job.count("diverged"), job.report()


def at(point):
    expected("farm")
    holder, victims = STEPS[point]
    for victim in victims:
        dies_at(point, holder, victim)


class PointedClusters(Points, Clusters):
    pass


def gateways_die_at(point, *clusters):
    """The ranks go to the other cluster, through gateways: their death is a pause."""
    with PointedClusters("farm", 4, ckpt_every=0.3) as job:
        record = ready(job)
        gateways = job.gateways_live()
        job.arm(point)
        with Asked(job, str(LEAVES), "--to", str(TAKES)) as asked:
            assert job.held_at(point) == record["nodes"][STEPS[point][0]]["pid"], (point, record)
            for cluster in clusters:
                os.kill(gateways[cluster]["pid"], signal.SIGKILL)
            job.let_go(point)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err, job.report())
        is_gone(job, LEAVES, record)
        job.wait_event("gateway-back", count=len(clusters))
        job.ends_as("farm")
        for kind in ("rolled-back", "diverged", "detected", "node-lost"):
            assert not job.count(kind), (kind, job.report())


def gateways_at(point):
    """That of where the ranks are, that of where they go, both."""
    expected("farm")
    for clusters in ((0,), (1,), (0, 1)):
        gateways_die_at(point, *clusters)


def generated():
    for point in STEPS:
        name = point.replace("-", "_")
        yield f"{name}_with_a_death", lambda p=point: at(p)
        yield f"{name}_with_the_death_of_gateways", lambda p=point: gateways_at(p)
