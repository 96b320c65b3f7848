"""A node leaves, and at a step of that the node, the one that its ranks go to, or the controller dies:
the results are those of an undisturbed run (`docs/fault-points.md`)."""

import os
import signal

from drain import Asked, ready
from nodes import Pointed, expected

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


def generated():
    return [(f"{p.replace('-', '_')}_with_a_death", lambda p=p: at(p)) for p in STEPS]
