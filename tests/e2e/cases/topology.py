"""A job that knows the network between its nodes: which spare it takes, and why."""

import os
import tempfile

from harness import example, run_to_end
from nodes import SIZES, Nodes

# Six nodes at a switch, of which the first spare has a slow link.
NETWORK = "graph\nnode n[0-5]\nswitch s\nlink n[0-3] s\nlink n5 s\nlink n4 s 0.001\nbandwidth 10K\n"


def test_a_lost_node_is_replaced_by_the_spare_that_costs_least():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        file, small = os.path.join(folder, "k.topo"), os.path.join(folder, "small.topo")
        with open(file, "w") as out:
            out.write(NETWORK)
        with open(small, "w") as out:
            out.write("mesh 2x2\n")
        refused = ["--nodes", "4", "--spares", "1", "--topology", small]
        code, _, err = run_to_end(example("farm") + SIZES["farm"], options=refused)
        assert code == 2 and "it has 4 nodes, and the job 5" in err, (code, err)
        options = ["--spares", "2", "--topology", file]
        with Nodes("farm", 4, ckpt_every=0.3, options=options) as job:
            job.all_checkpointed()
            sent = job.eyrie("topo", "traffic", "last")[1]
            pairs = [line.split() for line in sent.splitlines() if not line.startswith("#")]
            assert ["0", "1"] in [pair[:2] for pair in pairs], sent
            job.kill_nodes(1)
            job.wait_event("placed", node=1)
            placed = [event for event in job.events() if event["event"] == "placed"]
            assert [event["count"] for event in placed] == [5], job.report()
            job.wait_event("restored", rank=1, node=5)
            why = job.eyrie("explain", "last", "node", "1")[1]
            assert "node 5 was chosen for its ranks" in why and "node 4 costs" in why, why
            why = job.eyrie("explain", "last", "node", "5")[1]
            assert "it was chosen for the ranks of node 1" in why, why
            job.ends_as("farm")
