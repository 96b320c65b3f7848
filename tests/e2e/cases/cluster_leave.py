"""`--ft cluster` (and `node`): nodes, a whole cluster among them, leave a job while it runs. What goes
with a node are parts of recovery units: each stands as a whole, and nothing is computed again."""

import contextlib
import os
import signal

from cluster_units import ClusterUnits, came_from
from controller import kill_controller
from drain import Asked, drain, is_gone, on_node, ready
from harness import alive
from migrate import is_spare, migrate
from nodes import expected
from unit_nodes import NodeUnits


def nothing_again(job, *units, times=1):
    """All ranks of these units came back so often, from where they stood; nobody else did."""
    events = job.events()
    want = sorted(rank for unit in units for rank in job.units()[unit]) * times
    restored = sorted(e["rank"] for e in events if e["event"] == "restored")
    assert restored == sorted(want), (restored, want, job.report())
    again = [e for e in events if e["event"] == "caught-up" and e["count"]]
    assert not again, again
    for kind in ("rolled-back", "diverged", "node-lost", "detected"):
        assert not job.count(kind), (kind, job.report())


def test_a_node_leaves_its_cluster():
    """Its rank goes to the other node of that; the rank there comes back where it was."""
    expected("heat")
    with ClusterUnits("heat") as job:
        record = ready(job)
        steps = drain(job, "3")
        assert [s["step"] for s in steps if s["node"] == 3][-1] == "left", steps
        is_gone(job, 3, record)
        now = job.status()
        assert (now["recoveries"], now["rollbacks"]) == (0, 0), now
        assert job.homes() == [0, 1, 2, 2], now
        job.ends_as("heat")
        nothing_again(job, 1)


def test_a_node_that_is_told_to_end_leaves():
    """By SIGTERM, as before its machine goes down."""
    expected("farm")
    with ClusterUnits("farm") as job:
        record = ready(job)
        os.kill(record["nodes"][1]["pid"], signal.SIGTERM)
        is_gone(job, 1, record)
        assert job.homes() == [0, 0, 2, 3], job.status()
        job.ends_as("farm")
        nothing_again(job, 0)


def test_a_cluster_leaves_and_ranks_come_back_to_it():
    expected("farm")
    with ClusterUnits("farm", 4, ["--copies", "outside"]) as job:
        record = ready(job)
        migrate(job, "--from", "cluster=1", "--to", "cluster=0")
        assert job.homes() == [0, 1, 0, 1], job.status()
        is_spare(job, 2, 3)
        migrate(job, "--from", "1", "--to", "3")
        assert job.homes() == [0, 3, 0, 3], job.status()
        # Ranks of a unit stay one, wherever they are.
        job.strike(2)
        job.until(lambda: job.count("restored", rank=3) >= 3, "rank 3")
        drain(job, "cluster=0", "--to", "2")
        assert job.homes() == [2, 3, 2, 3], job.status()
        for node in (0, 1):
            is_gone(job, node, record)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_ranks_nodes_and_controllers_die_on_the_way():
    expected("farm")
    with ClusterUnits("farm", 4, ["--spares", "2"]) as job:
        record = ready(job)
        with Asked(job, "3") as asked:
            job.wait_event("node-leaving", node=3)
            for rank in (3, 2, 0):
                job.eyrie("inject", "last", "kill-rank", str(rank), check=False)
            kill_controller(job)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        assert not alive(record["nodes"][3]["pid"]), job.report()
        target = job.status()["nodes"][4]["pid"]
        with Asked(job, "1", "--to", "4") as asked:
            job.wait_event("node-leaving", node=1)
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        job.wait_event("node-lost", node=4)
        job.wait_running(4)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_rank_that_has_ended_keeps_its_unit_where_it_is():
    """There is no set of its unit any more; that is told, and the others go on."""
    expected("cg")
    with ClusterUnits("cg") as job:
        ready(job)
        job.let_end(3)
        job.wait_event("exited", rank=3)
        code, out, err = job.eyrie("drain", "last", "2", check=False)
        assert code == 1 and "rank 3 has ended" in out, (code, out, err)
        drain(job, "1")
        now = job.status()
        assert [r["node"] for r in now["ranks"]] == [0, 0, 2, 3], now
        job.ends_as("cg")


def test_a_node_that_is_a_unit_leaves():
    expected("farm")
    with NodeUnits("farm", 2, ["--spares", "1"]) as job:
        record = ready(job)
        moved = on_node(record, 1)
        steps = drain(job, "1")
        assert steps[-1]["step"] == "left", steps
        is_gone(job, 1, record)
        assert {job.status()["ranks"][rank]["node"] for rank in moved} == {2}, job.status()
        assert came_from(job, 1) >= 1, job.report()
        job.ends_as("farm")
        nothing_again(job, 1)
