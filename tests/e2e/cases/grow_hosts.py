"""Hosts that join a job over hosts while it runs."""

import contextlib
import tempfile

from clusters import hosted
from controller import kill_controller, unharmed
from drain import drain
from hosts import NAMES, PLAIN, Hosted, on_node, shell
from nodes import checkpointed_again, expected
from restart import restart, save


def joined(job, *words):
    """Hosts join, in clusters if these are named; returns the status then."""
    before, hosts = job.count("node-joined"), [word for word in words if "=" not in word]
    _, out, _ = job.eyrie("grow", "last", *words, "--address", "127.0.0.1")
    assert out.count("has joined") == len(hosts), out
    job.wait_event("node-joined", count=before + len(hosts))
    return job.status()


def loses(job, node):
    """A node is lost; its ranks come back. Returns where they are."""
    victims = on_node(job.status(), node)
    before = {rank: job.count("restored", rank=rank) for rank in victims}
    job.kill_nodes(node)
    for rank in victims:
        job.wait_event("restored", rank=rank, count=before[rank] + 1)
    record = job.wait_running(4)
    return {record["nodes"][record["ranks"][rank]["node"]]["host"] for rank in victims}


def test_a_host_that_joins_is_a_spare():
    expected("cg")
    with shell() as rsh, Hosted("cg", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        record = joined(job, "delta", "epsilon")
        assert [n["host"] for n in record["nodes"]] == [*NAMES.split(","), "delta", "epsilon"]
        assert loses(job, 1) <= {"delta", "epsilon"}, job.report()
        job.ends_as("cg")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_lost_host_is_started_again():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        loses(job, 1)
        record = joined(job, "beta")
        assert record["nodes"][3]["host"] == "beta", record
        checkpointed_again(job)
        assert loses(job, 0) == {"beta"}, job.report()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_next_controller_has_them_and_others_join():
    expected("cg")
    with shell() as rsh, Hosted("cg", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        joined(job, "delta")
        kill_controller(job)
        record = joined(job, "epsilon")
        assert [n["host"] for n in record["nodes"]] == [*NAMES.split(","), "delta", "epsilon"]
        unharmed(job)
        kill_controller(job, 2)
        job.all_checkpointed()
        assert loses(job, 1) <= {"delta", "epsilon"}, job.report()
        job.ends_as("cg")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_hosts_that_do_not_join_harm_nothing():
    """Who is there already, whose remote shell fails, who never calls; and what is no host."""
    expected("cg")
    body = 'case "$1" in bad) echo "no way there" >&2; exit 255;; mute) exec sleep 1000;; esac\n'
    with shell(body + PLAIN) as rsh, Hosted("cg", rsh, ["--join-limit", "5"]) as job:
        job.wait_running(4)
        for words, told in (
            (["beta"], "already"),
            (["bad"], "no way there"),
            (["mute"], "did not join within"),
            (["--nodes", "1"], "--hosts"),
        ):
            code, _, err = job.eyrie("grow", "last", *words, check=False)
            assert code == 1 and told in err, (words, code, err)
        code, _, err = job.eyrie("grow", "last", "a:3", check=False)
        assert code == 2 and "slots" in err, (code, err)
        assert not job.count("node-joined", node=3), job.report()
        job.ends_as("cg")
        assert not job.count("detected"), job.report()


APART = "alpha cluster=east slots=2\nbeta cluster=west slots=2\n"


def clusters(job):
    return {c["name"]: c["nodes"] for c in job.status()["clusters"]}


def joins_a_cluster(*options):
    """It takes the ranks of the cluster's other host, and its gateway."""
    expected("farm")
    with shell() as rsh, hosted(rsh, APART, options) as job:
        job.all_checkpointed()
        joined(job, "gamma", "cluster=west")
        assert clusters(job) == {"east": [0], "west": [1, 2]}, job.report()
        drain(job, "beta")
        assert on_node(job.status(), 2) == [2, 3], job.report()
        live = lambda: all(c["gateway"]["state"] == "live" for c in job.status()["clusters"])
        job.until(live, "gateways")
        assert job.status()["clusters"][1]["gateway"]["host"] == "gamma", job.report()
        checkpointed_again(job)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def generated():
    return [
        ("a_host_joins_one_of_several_clusters", joins_a_cluster),
        ("a_host_joins_a_cluster_behind_a_gateway", lambda: joins_a_cluster("--wan-only")),
    ]


def test_the_next_controller_knows_which_clusters_hosts_joined():
    """One of them is lost, another joins; and a saved job begins with those that it had."""
    expected("farm")
    with shell() as rsh, hosted(rsh, APART) as job:
        job.all_checkpointed()
        joined(job, "gamma", "cluster=west", "delta", "cluster=east")
        kill_controller(job)
        joined(job, "epsilon", "cluster=east")
        assert clusters(job) == {"east": [0, 3, 4], "west": [1, 2]}, job.report()
        checkpointed_again(job)
        loses(job, 1)
        live = lambda: all(c["gateway"]["state"] == "live" for c in job.status()["clusters"])
        job.until(live, "gateways")
        checkpointed_again(job)
        save(job)
        restart(job)
        job.wait_running(4)
        assert clusters(job) == {"east": [0], "west": [1]}, job.report()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


@contextlib.contextmanager
def racked(racks, *options):
    """Hosts in these domains, named like the letters."""
    with shell() as rsh, tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write("".join(f"host{n} domain={rack}\n" for n, rack in enumerate(racks)))
        file.flush()
        with Hosted("farm", rsh, list(options), hosts=file.name, ckpt_every=0.5) as job:
            job.wait_running(4)
            job.all_checkpointed()
            yield job


def lost_together(job, *nodes):
    victims = [rank for node in nodes for rank in on_node(job.status(), node)]
    job.kill_nodes(*nodes)
    for node in nodes:
        job.wait_event("node-lost", node=node)
    for rank in victims:
        job.wait_event("restored", rank=rank)
    job.ends_as("farm")
    assert victims and not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_copies_leave_the_domain_that_a_host_joined():
    """It is the next one after another of that domain; the next controller knows it, too."""
    expected("farm")
    with racked("aab") as job:
        joined(job, "delta", "domain=b")
        loses(job, 1)
        joined(job, "host1")
        kill_controller(job)
        record = job.wait_running(4)
        checkpointed_again(job)
        near = [on_node(record, node) for node in (2, 3)]
        images = {r["rank"]: set(r["image_nodes"]) for r in job.status()["ranks"]}
        assert all(near) and all(images[rank] & {0, 4} for rank in near[0] + near[1]), (near, images)
        lost_together(job, 2, 3)


def test_groups_of_the_vault_leave_the_domain_that_a_host_joined():
    expected("farm")
    with racked("aabcd", "--vault", "rs:2+1", "--log-replicas", "2") as job:
        joined(job, "delta", "domain=c")
        # Nothing is kept any more that is from before.
        for _ in range(3):
            checkpointed_again(job)
        lost_together(job, 3, 5)


def test_domains_are_named_for_all_or_none():
    expected("cg")
    with shell() as rsh, Hosted("cg", rsh) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("grow", "last", "delta", "domain=b", check=False)
        assert code == 1 and "leave domain= out" in err, (code, err)
        code, _, err = job.eyrie("grow", "last", "delta", "domain=b", "epsilon", check=False)
        assert code == 2 and "host epsilon has no domain=NAME" in err, (code, err)
        job.ends_as("cg")


def test_a_cluster_that_was_left_is_joined_again():
    expected("farm")
    with shell() as rsh, hosted(rsh, APART) as job:
        job.all_checkpointed()
        drain(job, "cluster=west")
        assert on_node(job.status(), 0) == [0, 1, 2, 3], job.report()
        joined(job, "gamma", "cluster=west")
        live = lambda: job.status()["clusters"][1]["gateway"]["state"] == "live"
        job.until(live, "a gateway")
        job.eyrie("migrate", "last", "--from", "cluster=east", "--to", "cluster=west")
        assert on_node(job.status(), 2) == [0, 1, 2, 3], job.report()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("detected"), job.report()


def test_a_host_joins_no_cluster_that_there_is_not():
    expected("farm")
    with shell() as rsh, hosted(rsh, APART) as job:
        job.wait_running(4)
        for code, words, told in (
            (1, ["gamma"], "several clusters (east, west)"),
            (1, ["gamma", "cluster=north"], "no cluster north"),
            (2, ["gamma", "delta", "cluster=west"], "host gamma has no cluster=NAME"),
            (2, ["cluster=west", "gamma"], "of which host"),
            (2, ["gamma", "room=4"], "is not known"),
        ):
            got, _, err = job.eyrie("grow", "last", *words, "--address", "127.0.0.1", check=False)
            assert got == code and told in err and err.count("\n") == 1, (words, got, err)
        job.ends_as("farm")
        unharmed(job)
