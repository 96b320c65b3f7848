"""Hosts that join a job over hosts while it runs."""

from controller import kill_controller, unharmed
from hosts import NAMES, PLAIN, Hosted, on_node, shell
from nodes import checkpointed_again, expected


def joined(job, *hosts):
    """They join; returns the status then."""
    before = job.count("node-joined")
    _, out, _ = job.eyrie("grow", "last", *hosts, "--address", "127.0.0.1")
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
