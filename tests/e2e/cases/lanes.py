"""Jobs whose nodes have several TCP connections with each other: `--transport tcp:COUNT`."""

import os
import sys
import tempfile

from harness import ROOT, Job, compile_program, run_to_end
from libfabric import refused
from netns import needs_root
from nodes import Nodes, expected, killed

sys.path.insert(0, os.path.join(ROOT, "tests", "net"))
from routes import Routes  # noqa: E402

OVER = ["--transport", "tcp:4"]
# Without what goes ahead as datagrams all messages take the links.
LATE = {"EYRIE_EARLY": "off"}


def undisturbed(name):
    expected(name)
    with Nodes(name, 3, OVER, env=LATE, ckpt_every=0.5) as job:
        job.all_checkpointed()
        assert {n["transport"] for n in job.status()["nodes"]} == {"tcp:4"}, job.status()
        job.ends_as(name)
        assert not job.count("detected") and not job.count("rolled-back"), job.report()


def generated():
    names = ("heat", "farm", "sort")
    return [(f"{name}_over_three_nodes", lambda name=name: undisturbed(name)) for name in names]


def test_a_node_is_lost():
    killed("heat", 3, [1], options=OVER)


def test_a_node_is_lost_with_nothing_early():
    killed("farm", 3, [0], options=OVER, env=LATE)


def test_two_routes_that_are_equally_good_both_carry():
    needs_root()
    with Routes(2, 50) as net, tempfile.TemporaryDirectory(prefix="eyrie-lanes-") as folder:
        shell = os.path.join(folder, "rsh")
        with open(shell, "w") as file:
            file.write("#!/bin/sh\n" + net.remote_shell())
        os.chmod(shell, 0o755)
        options = [*OVER, "--hosts", ",".join(net.hosts), "--rsh", shell, "--ft", "none"]
        bulk = [compile_program(os.path.join(ROOT, "tests", "e2e", "programs", "bulk.c"))]
        code, want, err = run_to_end(bulk, ranks=2)
        assert code == 0, err
        before = net.carried()
        with Job(bulk, ranks=2, options=options, wrap=net.hub.enter) as job:
            assert job.wait() == 0 and job.stdout() == want, job.report()
        carried = {way: after - before[way] for way, after in net.carried().items()}
    for node in (0, 1):
        routes = [carried[node, f"route {route}"] for route in (0, 1)]
        assert min(routes) > 0.2 * sum(routes) > 0, carried


def test_what_does_not_go_together_is_said():
    for words in (["tcp:1"], ["tcp:17"], ["tcp:x"]):
        code, said = refused("--transport", *words)
        assert code == 2 and "tcp:2 to tcp:16" in said, (code, said)
    code, said = refused(*OVER, "--tls")
    assert code == 2 and "not encrypted" in said, (code, said)
