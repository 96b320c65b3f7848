"""Jobs over several clusters: nodes of different ones reach each other through gateways only, which
may die; programs, faults and recoveries are as ever."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile

from controller import kill_controller, unharmed
from harness import EYRIE, alive, example, free_ports, run_to_end
from hosts import PLAIN, Hosted, shell
from nodes import SIZES, Nodes, checkpointed_again, expected, killed
from restart import restart, save
from strangers import hello, ports, say
from vault_nodes import lost_at_once

TWO = ["--clusters", "2"]
OUTSIDE = ["--copies", "outside"]


class Clusters(Nodes):
    """A job over clusters: knows its gateways, and what they leave behind."""

    def __init__(self, name, nodes, options=(), **more):
        super().__init__(name, nodes, [*TWO, *options], **more)

    def status(self):
        record = super().status()
        if record:
            gateways = [c["gateway"] for c in record["clusters"]]
            self.pids.update(g["pid"] for g in gateways if g["pid"])
        return record

    def gateways(self):
        return [c["gateway"] for c in (self.status() or {}).get("clusters", [])]

    def gateways_live(self):
        """The gateways, when all are there."""
        live = lambda all: all if all and {g["state"] for g in all} == {"live"} else None
        return self.until(lambda: live(self.gateways()), "live gateways")

    def kill_gateways(self, *clusters):
        """Through `eyrie inject`; others are there."""
        lost, back = self.count("gateway-lost"), self.count("gateway-back")
        self.gateways_live()
        self.eyrie("inject", "last", "kill-gateway", ",".join(str(c) for c in clusters))
        self.wait_event("gateway-lost", count=lost + len(clusters))
        self.wait_event("gateway-back", count=back + len(clusters))


@contextlib.contextmanager
def hosted(rsh, text, options=()):
    """A job over the hosts of this file."""
    with tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write(text)
        file.flush()
        with Hosted("farm", rsh, options, hosts=file.name, ckpt_every=0.5) as job:
            yield job


def divided(name, nodes, options=()):
    expected(name)
    with Clusters(name, nodes, options, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        record = job.status()
        half = nodes // 2
        first = [list(range(half)), list(range(half, nodes))]
        assert [c["nodes"][:half] for c in record["clusters"]] == first, record["clusters"]
        # They tell of it now and then.
        used = lambda c: c["bytes_sent"] > 0 and c["streams"] > 0
        job.until(lambda: all(used(g["carried"]) for g in job.gateways_live()), "use of gateways")
        job.ends_as(name)
        unharmed(job)
        assert not job.count("gateway-lost"), job.report()


def generated():
    cases = [(f"{name}_over_two_clusters", divided, name, 4) for name in SIZES]
    spare = ["--spares", "1"]
    cases += [
        ("farm_over_two_clusters_unencrypted", divided, "farm", 2, ["--wan-plain"]),
        ("heat_over_two_clusters_all_encrypted", divided, "heat", 2, ["--tls"]),
        ("sort_over_three_connections", divided, "sort", 4, ["--wan-connections", "3"]),
        ("cg_paced", divided, "cg", 2, ["--wan-rate", "200"]),
        ("farm_in_a_vault_over_clusters", lost_at_once, "farm", 6, "rs:4+2", [1, 4], TWO),
        ("farm_over_clusters_loses_a_node", killed, "farm", 4, [1], (), Clusters),
        ("farm_loses_a_cluster_of_two", killed, "farm", 4, [2, 3], OUTSIDE, Clusters),
        ("heat_over_clusters_loses_two_nodes", killed, "heat", 4, [0, 2], spare, Clusters),
    ]
    return [(label, lambda f=f, rest=rest: f(*rest)) for label, f, *rest in cases]


def test_a_rank_dies_and_its_messages_come_from_the_other_cluster():
    expected("farm")
    with Clusters("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_ranks([0, 3])
        for rank in (0, 3):
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("node-lost"), job.report()


def test_a_whole_cluster_is_lost():
    """Its images are in the other: with one node each the partner is there."""
    expected("heat")
    with Clusters("heat", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        for rank in (2, 3):
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("rolled-back"), job.report()


def test_a_gateway_dies_and_no_rank_is_touched():
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = job.gateways_live()
        job.kill_gateways(1)
        after = job.gateways_live()
        assert [g["starts"] for g in after] == [1, 2], after
        assert before[1]["pid"] != after[1]["pid"] and not alive(before[1]["pid"])
        checkpointed_again(job)
        unharmed(job)
        job.ends_as("farm")


def test_both_gateways_die_again_and_again():
    expected("heat")
    with Clusters("heat", 4, ckpt_every=0.3) as job:
        job.all_checkpointed()
        for _ in range(4):
            job.kill_gateways(0, 1)
        unharmed(job)
        job.ends_as("heat")
        assert job.count("gateway-lost") == 8 and not job.count("diverged"), job.report()


def test_a_gateway_is_killed_behind_its_back():
    expected("cg")
    with Clusters("cg", 2, ckpt_every=0.5) as job:
        [first, _] = job.gateways_live()
        os.kill(first["pid"], signal.SIGKILL)
        job.wait_event("gateway-back")
        job.ends_as("cg")
        unharmed(job)


def test_a_gateway_dies_with_a_rank_and_a_node():
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = job.status()
        there = [r["rank"] for r in record["ranks"] if r["node"] == 3]
        job.eyrie("inject", "last", "kill-gateway", "0")
        job.kill_nodes(3)
        job.kill_ranks([0])
        job.wait_event("gateway-back")
        for rank in [0, *there]:
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_gateway_that_falls_silent_is_replaced():
    """Its process is there, and does nothing: another node of the cluster has the next one."""
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = job.gateways_live()[1]
        os.kill(before["pid"], signal.SIGSTOP)
        job.wait_event("gateway-back")
        lost = next(e["text"] for e in job.events() if e["event"] == "gateway-lost")
        assert "cluster 1" in lost and "nothing was heard" in lost, lost
        after = job.gateways_live()[1]
        assert (before["node"], after["node"]) == (2, 3) and not alive(before["pid"]), after
        checkpointed_again(job)
        unharmed(job)
        job.ends_as("farm")


def test_all_nodes_of_a_cluster_are_lost():
    """It has no gateway then, and has one again when a node joins; the job goes on."""
    expected("heat")
    with Clusters("heat", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = job.gateways_live()[1]
        job.kill_nodes(2, 3)
        job.until(lambda: job.gateways()[1]["state"] == "ended", "the end of a gateway")
        assert not alive(before["pid"]), job.gateways()
        job.wait_event("rolled-back")
        grow = lambda: job.eyrie("grow", "last", "--nodes", "2", check=False)
        # Not while all ranks just go back.
        job.until(lambda: grow()[0] == 0, "new nodes")
        assert job.gateways_live()[1]["node"] == 5, job.gateways()
        job.ends_as("heat")
        assert not job.count("diverged"), job.report()


def test_a_controller_dies_and_its_gateways_with_it():
    """The next one starts others; no rank is touched."""
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = job.gateways_live()
        kill_controller(job)
        after = job.gateways_live()
        job.until(lambda: not any(alive(g["pid"]) for g in before), "the end of the first gateways")
        assert {g["pid"] for g in before}.isdisjoint(g["pid"] for g in after)
        checkpointed_again(job)
        unharmed(job)
        job.ends_as("farm")


def test_blocked_clusters_are_silent_until_they_are_unblocked():
    """Also when a gateway dies meanwhile, and the controller."""
    expected("heat")
    with Clusters("heat", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        pair = ("last", "0", "1")
        code, _, err = job.eyrie("clusters", "unblock", *pair, check=False)
        assert code == 1 and "not blocked" in err, err
        code, _, err = job.eyrie("clusters", "block", "last", "0", "7", check=False)
        assert code == 1 and "no cluster '7'" in err, err
        _, out, _ = job.eyrie("clusters", "block", *pair)
        assert "nothing is under way" in out, out
        carried = lambda: [g["carried"] for g in job.gateways_live()]
        nothing = lambda: all(not c["bytes_sent"] and not c["bytes_received"] for c in carried())
        assert not nothing(), job.gateways()
        job.kill_gateways(0, 1)
        job.eyrie("clusters", "block", *pair)
        job.until(lambda: all(c["connections"] for c in carried()), "connections")
        kill_controller(job)
        job.until(lambda: all(c["connections"] for c in carried()), "connections")
        job.eyrie("clusters", "block", *pair)
        blocked = [c["blocked"] for c in job.status()["clusters"]]
        silent = lambda cluster: [{"cluster": cluster, "silent": True}]
        assert nothing() and blocked == [silent("1"), silent("0")], (blocked, job.gateways())
        job.eyrie("clusters", "unblock", *pair)
        job.ends_as("heat")
        unharmed(job)


def test_a_slow_node_holds_up_no_other_stream():
    """A node's daemon stands still; another's images still go to the other cluster."""
    expected("heat")
    with Clusters("heat", 4, ckpt_every=0.2) as job:
        job.all_checkpointed()
        still = job.status()["nodes"][3]["pid"]
        os.kill(still, signal.SIGSTOP)
        try:
            # The partner of node 1 is node 2. If it takes too long node 3 is given up meanwhile.
            had = job.count("checkpointed", rank=1)
            job.wait_event("checkpointed", rank=1, count=had + 1)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(still, signal.SIGCONT)
        job.ends_as("heat")
        assert not job.count("diverged") and not job.count("gateway-lost"), job.report()


def test_a_node_that_joins_late_is_in_a_cluster():
    expected("heat")
    with Clusters("heat", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.eyrie("grow", "last", "--nodes", "2")
        assert [c["nodes"] for c in job.status()["clusters"]] == [[0, 2], [1, 3]]
        job.kill_nodes(0)
        for rank in (0, 1):
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("rolled-back"), job.report()


def test_a_job_over_clusters_is_saved_and_goes_on():
    expected("cg")
    with Clusters("cg", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        save(job)
        restart(job)
        job.wait_running(4)
        assert len(job.gateways_live()) == 2
        job.ends_as("cg")


def test_hosts_are_in_clusters_that_their_file_names():
    expected("farm")
    file = "alpha cluster=east\nbeta cluster=west slots=2\ngamma cluster=east # the last\n"
    with shell() as rsh, hosted(rsh, file) as job:
        job.all_checkpointed()
        record = job.status()
        assert [(c["name"], c["nodes"]) for c in record["clusters"]] == [
            ("east", [0, 2]),
            ("west", [1]),
        ], record["clusters"]
        before = [c["gateway"] for c in record["clusters"]]
        assert all(g["state"] == "live" and g["host"] for g in before), before
        job.eyrie("inject", "last", "kill-gateway", "1")
        job.wait_event("gateway-back")
        checkpointed_again(job)
        job.ends_as("farm")
        unharmed(job)


def test_nodes_join_the_cluster_that_is_named():
    """And else in turn: node 4 would be in the first."""
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.eyrie("grow", "last", "--cluster", "1")
        job.eyrie("grow", "last")
        nodes = [c["nodes"] for c in job.status()["clusters"]]
        assert nodes == [[0, 1], [2, 3, 4, 5]], nodes
        code, _, err = job.eyrie("grow", "last", "--cluster", "2", check=False)
        assert code == 1 and "no cluster 2" in err, (code, err)
        job.kill_nodes(3)
        job.wait_event("restored", rank=3)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_host_that_takes_no_gateway_is_passed_over_and_tried_again():
    """The next one of the cluster has it, until that is lost."""
    expected("farm")
    text = "alpha cluster=east slots=2\nbeta cluster=west\ngamma cluster=west\n"
    once = 'case "$*" in beta*__gateway) mkdir "$0.once" 2>/dev/null && exit 255;; esac\n'
    with shell(once + PLAIN) as rsh, hosted(rsh, text) as job:
        job.all_checkpointed()
        west = lambda: job.status()["clusters"][1]["gateway"]
        live = lambda host: (g := west())["state"] == "live" and g["host"] == host and g
        first = job.until(lambda: live("gamma"), "a gateway on the other host")
        job.kill_nodes(2)
        job.wait_event("node-lost", node=2)
        job.until(lambda: live("beta"), "a gateway on the host that is left")
        assert not alive(first["pid"]), west()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_gateways_listen_where_their_file_says():
    """With the host that has a place for one, as soon as its port is free; the next one, too."""
    expected("farm")
    [port] = free_ports(1)
    place = f"127.0.0.1:{port}"
    text = f"alpha cluster=east slots=2\nbeta cluster=west\ngamma cluster=west gateway={place}\n"
    taken = socket.create_server(("127.0.0.1", port))
    with taken, shell() as rsh, hosted(rsh, text) as job:
        job.says(f"no port of {port} ")
        taken.close()
        live = lambda: [g for c in job.status()["clusters"] if (g := c["gateway"])["pid"]]
        first = job.until(lambda: len(found := live()) == 2 and found, "gateways")[1]
        assert (first["host"], first["outside"]) == ("gamma", place), first
        job.all_checkpointed()
        job.eyrie("inject", "last", "kill-gateway", "1")
        job.wait_event("gateway-back")
        after = job.until(lambda: len(found := live()) == 2 and found, "gateways")[1]
        assert (after["host"], after["outside"]) == ("gamma", place), after
        assert after["pid"] != first["pid"], after
        checkpointed_again(job)
        unharmed(job)
        job.ends_as("farm")


def test_the_controller_of_hosts_in_clusters_dies():
    """The next one starts gateways on the hosts, too."""
    expected("farm")
    file = "alpha cluster=east\nbeta cluster=west slots=2\ngamma cluster=east\n"
    with shell() as rsh, hosted(rsh, file) as job:
        job.all_checkpointed()
        before = [c["gateway"]["pid"] for c in job.status()["clusters"]]
        kill_controller(job)
        live = lambda: [c["gateway"] for c in job.status()["clusters"]]
        job.until(lambda: all(g["state"] == "live" for g in live()), "gateways")
        assert {g["pid"] for g in live()}.isdisjoint(before), (before, live())
        checkpointed_again(job)
        job.ends_as("farm")
        unharmed(job)


def test_strangers_at_a_gateway_are_closed_told_of_and_counted():
    """Garbage, another job, and a wrong key: at the nodes' door and at that of gateways."""
    expected("cg")
    with Clusters("cg", 2, ckpt_every=0.5) as job:
        gateways, name = job.gateways_live(), job.status()["job"]
        doors = [int(gateways[1][side].rsplit(":", 1)[1]) for side in ("inside", "outside")]
        assert sorted(doors) == ports(gateways[1]["pid"])
        silent = [socket.create_connection(("127.0.0.1", port)) for port in doors]
        for words in (b"GET / HTTP/1.0\r\n\r\n" + bytes(80), hello(9, "other")):
            assert say(doors[0], words) == b""
        heard = say(doors[0], hello(9, name, to=(0, 0)), bytes(32))
        assert len(heard) == 80, heard
        # Who does not encrypt hears at most why not.
        assert b"EYRIENET" not in say(doors[1], hello(11, name, to=(1, 1)), bytes(32))
        turned = lambda: job.gateways()[1]["carried"]["strangers"]
        # Those who say nothing are told of when their time is over.
        job.until(lambda: turned() >= 6, "six strangers")
        assert job.gateways()[0]["carried"]["strangers"] == 0
        for stream in silent:
            stream.close()
        job.ends_as("cg")
        unharmed(job)
        assert not job.count("gateway-lost"), job.report()


def test_status_and_events_name_clusters():
    expected("cg")
    with Clusters("cg", 4, ckpt_every=0.5) as job:
        job.gateways_live()
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "CLUSTER" in text and "GATEWAY" in text and "0,1" in text, text
        job.kill_gateways(0)
        lost = next(e for e in job.events() if e["event"] == "gateway-lost")
        assert "cluster 0" in lost["text"] and "SIGKILL" in lost["text"], lost
        back = next(e for e in job.events() if e["event"] == "gateway-back")
        assert back["took_ms"] > 0, back
        code, _, err = job.eyrie("inject", "last", "kill-gateway", "7", check=False)
        assert code != 0 and "cluster 7 has no gateway" in err, err
        job.ends_as("cg")


def test_what_does_not_go_with_clusters_is_said():
    program = example("farm") + SIZES["farm"]
    for options, word in (
        (["--clusters", "2"], "--nodes or --hosts"),
        (["--nodes", "2", "--clusters", "3"], "too few"),
        (["--nodes", "2", "--wan-rate", "10"], "--clusters"),
        (["--nodes", "2", "--gateway-port", "7400"], "--clusters"),
        (["--nodes", "2", "--clusters", "2", "--gateway-port", "7400"], "7400-7401"),
        (["--nodes", "2", "--clusters", "2", "--ft", "none"], "--ft logged"),
        (["--nodes", "2", "--clusters", "2", "--ft", "coordinated"], "--ft logged"),
    ):
        code, out, err = run_to_end(program, options=options)
        assert code == 2 and not out and word in err, (options, code, err)
        assert len(err.strip().splitlines()) == 1, err
    done = subprocess.run([EYRIE, "run", "--help"], capture_output=True, text=True, check=True)
    assert "--clusters" in done.stdout and "--wan-rate" in done.stdout
    with Nodes("cg", 2, ckpt_every=0.5) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("inject", "last", "kill-gateway", "0", check=False)
        assert code != 0 and "--clusters" in err, err
        job.ends_as("cg")
