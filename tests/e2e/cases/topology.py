"""A job that knows the network between its nodes: which spare it takes, and why."""

import json
import os
import subprocess
import tempfile

from controller import kill_controller
from drain import drain, ready
from harness import EYRIE, TIMEOUT_S, example, run_to_end
from hosts import shell
from netns import needs_root
from network import Network
from nodes import SIZES, Nodes

# Two clusters of two hosts, which share a tenth of what a host has between them.
PROBED = """
[clusters.east]
hosts = 2
mbit = 200
[clusters.west]
hosts = 2
mbit = 200
[wan]
mbit = 20
routers = true
"""

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


def written(text):
    file = tempfile.NamedTemporaryFile("w", prefix="eyrie-test-")
    file.write(text)
    file.flush()
    return file


def test_ranks_of_a_node_that_leaves_go_where_they_cost_least():
    """As well as those of one that is lost afterwards, when another controller goes on: to what is left."""
    with written(NETWORK) as file:
        options = ["--spares", "2", "--topology", file.name]
        with Nodes("farm", 4, ckpt_every=0.3, options=options) as job:
            ready(job)
            home = lambda rank: job.status()["ranks"][rank]["node"]
            drain(job, "1")
            assert home(1) == 5, job.report()
            kill_controller(job)
            job.kill_nodes(2)
            job.wait_event("restored", rank=2, node=4)
            placed = [(event["node"], event["count"]) for event in job.events() if event["event"] == "placed"]
            assert placed == [(1, 5), (2, 4)], job.report()
            job.ends_as("farm")


def test_nodes_that_are_named_are_shared_out_by_what_they_cost():
    """Node 1 comes first, and gets the one that is not slow."""
    with written(NETWORK) as file:
        options = ["--spares", "2", "--topology", file.name]
        with Nodes("farm", 4, ckpt_every=0.3, options=options) as job:
            ready(job)
            job.eyrie("migrate", "last", "--from", "1,2", "--to", "4,5")
            ranks = job.status()["ranks"]
            assert [ranks[rank]["node"] for rank in (1, 2)] == [5, 4], job.report()
            job.ends_as("farm")


# What is wrong with a file, and what is said of it.
WRONG = [
    ("", "the file describes no network"),
    ("torus 0x3\n", "line 1: torus"),
    ("graph\nnode n[0-2]\nswitch s\nlink n[0-2] t\n", "line 4: 't' is no node or switch of this file"),
    ("graph\nnode n[0-2]\nlink n0 n1\n", "no way between 'n0' and 'n2'"),
    ("graph\nnode n[0-2]\nlink n0 n0\n", "'n0' is linked with itself"),
    ("SwitchName=l Nodes=n[0-2]\nSwitchName=a Switches=b\nSwitchName=b Switches=a\n", "in a circle: a, b"),
    ("mesh 2x1\n", "it has 2 nodes, and the job 3"),
    ("mesh 3x1\n" + "# " * (128 << 10), "more than 256 KiB"),
]


def test_files_that_describe_no_network_start_no_job():
    for text, why in WRONG:
        with written(text) as file:
            options = ["--nodes", "2", "--spares", "1", "--topology", file.name]
            code, out, err = run_to_end(example("farm") + SIZES["farm"], options=options)
            assert code == 2 and why in err and not out, (text[:80], code, out, err)
    for options, why in (
        (["--nodes", "2", "--topology", "/nowhere/k.topo"], "cannot read /nowhere/k.topo"),
        (["--topology", os.devnull], "--topology is for a job over several nodes"),
    ):
        code, out, err = run_to_end(example("farm") + SIZES["farm"], options=options)
        assert code == 2 and why in err and not out, (options, code, out, err)


def test_what_hosts_get_of_each_other_is_measured_and_a_network():
    needs_root()
    with Network(PROBED) as network, shell(network.remote_shell()) as rsh:
        hosts = list(network.hosts)

        def probe(*more):
            command = [*network.hub.enter, EYRIE, "topo", "probe", "--hosts", ",".join(hosts), "--rsh", rsh, *more]
            return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)

        done = probe("--time", "1", "--json")
        assert done.returncode == 0, done
        found = json.loads(done.stdout)
        assert found["groups"] == [hosts[:2], hosts[2:]], found
        (between,) = found["between"]
        # Much less than two hosts have, however busy this machine is, and no more than the link.
        assert between["bytes_per_second"] < 1.2 * 20e6 / 8, between
        assert len(found["pairs"]) == 12, found
        with written(found["topology"]) as file:
            shown = subprocess.run(
                [EYRIE, "topo", "show", file.name, "--route", hosts[0], hosts[2], "--json"], capture_output=True, text=True
            )
        assert shown.returncode == 0 and json.loads(shown.stdout)["nodes"] == 4, shown
        network.set_link(0, 1, "down")
        done = probe("--limit", "5")
        assert done.returncode == 1 and not done.stdout and hosts[2] in done.stderr, done
    one = subprocess.run([EYRIE, "topo", "probe", "--hosts", "localhost"], capture_output=True, text=True)
    assert one.returncode == 2 and "there is no pair" in one.stderr, one
