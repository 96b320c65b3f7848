"""`--ft cluster` (and `node`): a job is saved as a whole, each recovery unit by a set of its own and by
what was recorded since, and goes on from there."""

import os
import signal

from cluster_units import ClusterUnits, came_from
from nodes import expected
from restart import SAVED, restart, save
from unit_nodes import NodeUnits


def goes_on(job, name, *options):
    """All ranks come back; then one of them dies, and its unit comes back from a set."""
    before = job.count("restored", rank=0)
    restart(job, *options)
    for rank in range(4):
        job.wait_event("restored", rank=rank, count=before + 1)
    job.strike(1)
    for rank in (0, 1):
        job.wait_event("restored", rank=rank, count=before + 2)
    assert came_from(job, 0) >= 1, job.report()
    job.ends_as(name)
    assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def told_to_end(job):
    """All its nodes, which have nowhere to go then."""
    for node in job.status()["nodes"]:
        os.kill(node["pid"], signal.SIGTERM)
    assert job.wait() == SAVED, job.report()


def test_it_goes_on_where_it_was_and_on_fewer_nodes():
    for name, saves, options in (("farm", save, []), ("heat", told_to_end, ["--nodes", "2"])):
        expected(name)
        with ClusterUnits(name) as job:
            job.all_checkpointed()
            saves(job)
            assert job.count("saved") == 1, job.report()
            goes_on(job, name, *options)


def test_ranks_have_to_be_laid_out_as_before():
    """Else what is a unit would be another one. What is saved stays."""
    expected("farm")
    with ClusterUnits("farm", every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last", "--end")
        assert job.wait() == SAVED, job.report()
        restart(job, "--nodes", "2", "--map", "cyclic")
        assert job.wait() != 0, job.report()
        job.says("laid out as before")
        goes_on(job, "farm")


def test_a_state_is_brought_while_it_runs():
    """All nodes die; the job goes on from there."""
    expected("heat")
    with ClusterUnits("heat", 4, ["--save-every", "0.05"], every=0.3) as job:
        job.wait_event("flushed", count=2)
        job.kill_nodes(0, 1, 2, 3)
        assert job.wait() == 1, job.report()
        goes_on(job, "heat")


def test_without_a_rank_of_a_unit_there_is_nothing_to_save():
    expected("cg")
    with ClusterUnits("cg", every=3600) as job:
        job.wait_running(4)
        job.let_end(1)
        job.wait_event("exited", rank=1)
        code, _, err = job.eyrie("checkpoint", "last", "--end", check=False)
        assert code != 0 and "rank 1 has ended" in err, (code, err)
        job.ends_as("cg")


def test_units_that_are_nodes_go_on():
    expected("farm")
    with NodeUnits("farm", 2) as job:
        job.all_checkpointed()
        save(job)
        goes_on(job, "farm")
