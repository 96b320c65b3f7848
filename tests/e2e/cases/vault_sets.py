"""Sets of checkpoints in a vault, with `--ft coordinated` and `--ft node`: as many nodes as the
scheme bears may vanish at once, and who goes back goes back to the newest set."""

import re

from coordinated_nodes import Together, one_set
from nodes import expected
from unit_nodes import NodeUnits, came_from

RS = ["--vault", "rs:4+2"]


def read_out(job, rank):
    return job.count("copied", rank=rank, text="read out of the vault")


def guarded(job):
    """The newest set is in the vault, over all nodes that are left."""
    record = job.status()
    live = sum(n["state"] in ("live", "spare") for n in record["nodes"])
    newest = [r["checkpoint"]["generation"] for r in record["ranks"] if r["checkpoint"]]
    told = [e for e in job.events() if e["event"] == "vaulted" and e["generation"] in newest]
    return {e["rank"] for e in told if f"over {live} nodes" in e["text"]} == {0, 1, 2, 3}


def test_two_nodes_vanish_and_two_of_those_that_are_left():
    expected("farm")
    with Together("farm", 6, RS) as job:
        record = job.wait_running(4)
        homes = {r["rank"]: r["node"] for r in record["ranks"]}
        job.sets(2)
        job.kill_nodes(0, 1)
        job.all_back(0)
        assert one_set(job) >= 1, job.report()
        for rank in (r for r in homes if homes[r] in (0, 1)):
            assert read_out(job, rank), job.report()
        job.until(lambda: guarded(job), "the images' return")
        before = job.count("rolled-back")
        job.kill_nodes(2, 3)
        job.all_back(before)
        assert one_set(job) >= 1, job.report()
        job.ends_as("farm")


def test_two_nodes_vanish_while_a_set_is_encoded():
    """The round is slow enough to be met; what it was for counts as a whole or not at all."""
    expected("heat")
    with Together("heat", 6, [*RS, "--vault-rate", "40"], every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        commands = []

        def met():
            # A machine that is busy may be late for a round; then there is another.
            if not commands or commands[-1].poll() is not None:
                commands.append(job.ask_for_a_set())
            return job.status()["vault_round"] is not None

        job.until(met, "a round")
        job.kill_nodes(1, 4)
        job.all_back(0)
        # The last one that was asked for, or the one before.
        assert one_set(job) in (len(commands), len(commands) + 1), job.report()
        job.until(lambda: commands[-1].poll() is not None, "an answer")
        job.ends_as("heat")


def test_more_than_it_bears_begins_again():
    expected("farm")
    with Together("farm", 4, ["--vault", "rs:3+1"]) as job:
        job.sets(2)
        job.kill_nodes(0, 2)
        job.all_back(0)
        assert not one_set(job), job.report()
        job.ends_as("farm")
        told = job.stderr()
        assert re.search(r"nodes lost so far: 0 and 2; gone: checkpoint \d+ of rank ", told), told
        assert "on 4 nodes, of which 0 and 2 are lost and 1 may be" in told, told
        assert "can be had: only their beginning" in told, told


def test_units_outlive_their_nodes():
    """Both nodes with ranks: each unit comes back as a whole, from a set, and nobody begins again."""
    expected("heat")
    options = ["--vault", "rs:2+2", "--spares", "2"]
    with NodeUnits("heat", 2, options) as job:
        job.all_checkpointed(2)
        job.kill_nodes(0, 1)
        job.back(0, 1)
        assert all(came_from(job, unit) >= 1 for unit in (0, 1)), job.report()
        assert all(read_out(job, rank) for rank in range(4)), job.report()
        job.ends_well("heat", 0, 1)
