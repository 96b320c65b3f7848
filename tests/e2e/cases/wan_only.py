"""Jobs with `--wan-only`: nodes of other clusters reach the controller through gateways, too, and no
host but a gateway's has a way to another cluster. Ranks, nodes, gateways and controllers die, and
clusters leave; results are as ever.

Those in a test network (tests/net) are for root only: elsewhere they are told as not run."""

import os
import signal
import tempfile

from clusters import Clusters
from controller import kill_both, kill_controller, resume, unharmed
from drain import drain
from harness import example, run_to_end
from hosts import PLAIN, Hosted, on_node, shell
from network import Network, Wrong
from networked import networked
from nodes import SIZES, checkpointed_again, expected
from restart import restart, save
from wan_links import no_way

ONLY = ["--wan-only"]
EAST, WEST = ["10.80.0.2", "10.80.0.3"], ["10.81.0.2", "10.81.0.3"]
FAR = "[clusters.east]\nhosts = 2\n[clusters.west]\nhosts = 2\nfar = true\n[wan]\ndelay_ms = 3\n"


def far(name, options=()):
    """A job over two clusters; the controller, in the first, has no route to the hosts of the other
    one, of which one has a link to the first."""
    expected(name)
    return networked(name, FAR, [*ONLY, *options], ckpt_every=0.5)


def gateways(job):
    return [c["gateway"] for c in job.status()["clusters"]]


def kill_gateways(job, *clusters):
    lost, back = job.count("gateway-lost"), job.count("gateway-back")
    live = lambda: {g["state"] for g in gateways(job)} == {"live"}
    job.until(live, "live gateways")
    job.eyrie("inject", "last", "kill-gateway", ",".join(str(c) for c in clusters))
    job.wait_event("gateway-lost", count=lost + len(clusters))
    job.wait_event("gateway-back", count=back + len(clusters))


def all_are_back(job):
    """Every node is with the controller."""
    states = lambda: [n["state"] for n in job.status()["nodes"]]
    job.until(lambda: set(states()) <= {"live", "spare"}, "nodes that are back")


def again(job):
    all_are_back(job)
    checkpointed_again(job)


def restored_alone(job, *ranks):
    for rank in ranks:
        job.wait_event("restored", rank=rank)


def nothing_repeated(job):
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_hosts_have_no_way_to_the_controller_and_a_rank_dies():
    with far("farm", ["--tls"]) as (network, job):
        record = job.wait_running(4)
        assert [c["name"] for c in record["clusters"]] == ["east", "west"], record
        for host in WEST:
            assert no_way(network, host, "10.80.0.1") and no_way(network, host, EAST[1]), host
        assert no_way(network, WEST[1], EAST[0]) and no_way(network, EAST[1], WEST[0])
        job.all_checkpointed()
        job.kill_ranks([0, 3])
        restored_alone(job, 0, 3)
        job.ends_as("farm")
        assert not job.count("node-lost"), job.report()
        nothing_repeated(job)


def test_gateways_and_controllers_die_between_nodes_without_another_way():
    with far("heat") as (_, job):
        job.all_checkpointed()
        for clusters in ([1], [0], [0, 1]):
            kill_gateways(job, *clusters)
            again(job)
        unharmed(job)
        kill_controller(job)
        again(job)
        unharmed(job)
        job.ends_as("heat")
        nothing_repeated(job)


def loses(job, node, name):
    """A node dies: its ranks alone are restored, and nobody else is missed."""
    victims = on_node(job.status(), node)
    job.kill_nodes(node)
    job.wait_event("node-lost", node=node)
    restored_alone(job, *victims)
    job.ends_as(name)
    assert job.count("node-lost") == 1, job.report()
    nothing_repeated(job)


def test_a_node_without_another_way_is_lost():
    with far("heat") as (_, job):
        job.all_checkpointed()
        loses(job, 3, "heat")


def test_a_host_behind_a_gateway_that_is_cut_off_is_missed_by_that():
    """Its connection to the gateway stands, and says nothing: that one's kernel knows why."""
    with far("farm") as (network, job):
        job.all_checkpointed()
        victims = on_node(job.status(), 3)
        assert gateways(job)[1]["node"] == 2, job.status()
        network.hub.ip("link", "set", "port1-3", "down")
        job.wait_event("node-lost", node=3)
        [lost] = [e["text"] for e in job.events() if e["event"] == "node-lost"]
        assert "nor of its machine by its gateway" in lost, lost
        restored_alone(job, *victims)
        job.ends_as("farm")
        assert job.count("node-lost") == 1 and not job.count("gateway-lost"), job.report()
        nothing_repeated(job)


def test_a_daemon_behind_a_gateway_that_is_stopped_is_not_missed_by_that():
    """Its machine acknowledges what comes."""
    with far("heat") as (_, job):
        job.all_checkpointed()
        pid = job.status()["nodes"][3]["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            kill_gateways(job, 0)
        finally:
            os.kill(pid, signal.SIGCONT)
        again(job)
        job.ends_as("heat")
        assert not job.count("node-lost"), job.report()
        nothing_repeated(job)


def test_a_cluster_without_another_way_leaves():
    with far("heat") as (_, job):
        job.all_checkpointed()
        drain(job, "cluster=west")
        record = job.status()
        assert {r["node"] for r in record["ranks"]} <= {0, 1}, record
        assert gateways(job)[1]["state"] == "ended", record
        job.ends_as("heat")
        assert not job.count("node-lost"), job.report()
        nothing_repeated(job)


def test_what_is_saved_goes_through_gateways_there_and_back():
    """With no copy left elsewhere, and ranks that move between the clusters before."""
    with far("farm", ["--tls"]) as (network, job):
        job.all_checkpointed()
        job.eyrie("migrate", "last", "--from", "3", "--to", "1")
        assert on_node(job.status(), 1) == [1, 3], job.status()
        job.eyrie("migrate", "last", "--from", "0", "--to", "3")
        assert on_node(job.status(), 3) == [0], job.status()
        save(job)
        # Through the eyes of the first `eyrie run` there is nothing any more.
        job.job_home = job.env["EYRIE_HOME"] = job.home
        restart(job, wrap=network.hub.enter)
        for rank in range(4):
            job.wait_event("restored", rank=rank)
        again(job)
        job.ends_as("farm")
        nothing_repeated(job)


def test_the_cluster_of_the_controller_leaves():
    """Its gateway is on the controller's machine then, and may die there, too."""
    expected("heat")
    with Clusters("heat", 4, ONLY, ckpt_every=0.5) as job:
        job.all_checkpointed()
        drain(job, "cluster=0")
        home = job.gateways_live()[0]
        assert (home["node"], home["host"]) == (None, None), home
        again_left(job)
        job.kill_gateways(0)
        again_left(job)
        job.kill_gateways(0, 1)
        again_left(job)
        kill_controller(job)
        again_left(job)
        job.ends_as("heat")
        assert not job.count("node-lost") and not job.count("detected"), job.report()
        nothing_repeated(job)


def again_left(job):
    """As `again`, but for nodes that have left."""
    states = lambda: [n["state"] for n in job.status()["nodes"]]
    job.until(lambda: set(states()) <= {"live", "left"}, "nodes that are back")
    checkpointed_again(job)


def test_gateways_die_again_and_again_and_nodes_come_back():
    expected("farm")
    with Clusters("farm", 4, ONLY, ckpt_every=0.3) as job:
        job.all_checkpointed()
        for clusters in ([1], [0, 1], [0], [1], [0, 1]):
            job.kill_gateways(*clusters)
        again(job)
        unharmed(job)
        job.ends_as("farm")
        nothing_repeated(job)


def test_a_gateway_falls_silent_and_its_nodes_come_back_through_another():
    """Nobody ends what stands through it until it is killed."""
    expected("farm")
    with Clusters("farm", 4, ONLY, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = job.gateways_live()[1]
        os.kill(before["pid"], signal.SIGSTOP)
        job.wait_event("gateway-back")
        assert job.gateways_live()[1]["node"] == 3
        again(job)
        unharmed(job)
        job.ends_as("farm")


def test_a_node_dies_with_its_gateway():
    expected("heat")
    with Clusters("heat", 4, [*ONLY, "--spares", "1"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        assert job.gateways_live()[1]["node"] == 2
        loses(job, 2, "heat")


def test_nodes_whose_gateway_does_not_come_back_are_lost():
    """They are awaited for a time, and their ranks come back where the controller is."""
    expected("farm")
    never = 'case "$*" in *__gateway*) test -e "$0.shut" && exit 1;; esac\n' + PLAIN
    with shell(never) as rsh, tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write("a cluster=x\nb cluster=x\nc cluster=y\n")
        file.flush()
        options = [*ONLY, "--copies", "outside"]
        with Hosted("farm", rsh, options, hosts=file.name, ckpt_every=0.5) as job:
            job.all_checkpointed()
            victims = on_node(job.status(), 2)
            open(rsh + ".shut", "w").close()
            job.eyrie("inject", "last", "kill-gateway", "1")
            job.wait_event("node-lost", node=2)
            [lost] = [e["text"] for e in job.events() if e["event"] == "node-lost"]
            assert "did not call again" in lost, lost
            restored_alone(job, *victims)
            job.ends_as("farm")
            nothing_repeated(job)


def test_eyrie_resume_takes_the_place_of_all_of_it():
    expected("farm")
    with Clusters("farm", 4, ONLY, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.gateways_live()
        kill_both(job)
        resume(job)
        job.wait_event("controller-back")
        again(job)
        unharmed(job)
        job.ends_as("farm")


def test_what_does_not_go_with_it_is_said():
    program = example("farm") + SIZES["farm"]
    code, out, err = run_to_end(program, options=["--nodes", "2", *ONLY])
    assert code == 2 and not out and "--clusters" in err, (code, err)
    try:
        Network(FAR.replace("hosts = 2\n[clusters.west]", "hosts = 2\nfar = true\n[clusters.west]"))
        raise AssertionError("the controller's own cluster is far")
    except Wrong as problem:
        assert "far" in str(problem), problem
    with Clusters("cg", 2, ONLY, ckpt_every=0.5) as job:
        job.gateways_live()
        code, _, err = job.eyrie("clusters", "block", "last", "0", "1", check=False)
        assert code != 0 and "--wan-only" in err, (code, err)
        job.ends_as("cg")
