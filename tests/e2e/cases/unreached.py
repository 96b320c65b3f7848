"""Hosts that all reach the controller, and not each other: it is told which, and one of them gives way.

Root only: elsewhere these tests are told as not run."""

from harness import TIMING
from migrate import homes
from migrate_links import cut
from networked import networked
from nodes import expected

HOSTS = "[clusters.all]\nhosts = 3\n"
ONE, OTHER = "10.80.0.2", "10.80.0.3"


def over(name, first=None, **more):
    """A job on two hosts of a network, and its third as a spare; `first` is done before."""
    expected(name)
    how = dict(options=["--spares", "1"], clusters=False, first=first)
    return networked(name, HOSTS, **how, **more)


def unreached(job):
    """Who does not reach whom, as the status says."""
    nodes = (job.status() or {}).get("nodes", [])
    return {(n["node"], other["node"]) for n in nodes for other in n["unreached"]}


def one_gives_way(job):
    """Of two with as many ranks the second; its ranks come back on the spare."""
    job.wait_event("link-lost")
    assert unreached(job) <= {(0, 1), (1, 0)} and unreached(job), job.status()
    told = lambda: f"on host {OTHER} " in job.stderr() and "--address" in job.stderr()
    job.until(told, "a line about that host")
    job.wait_event("node-lost", node=1)
    lost = [e for e in job.events() if e["event"] == "node-lost"]
    assert f"have not reached each other for {TIMING['silence-most']} s" in lost[0]["text"], lost
    job.until(lambda: homes(job) == [0, 0, 2, 2], "the ranks of that host on the spare")
    assert not unreached(job), job.status()
    job.ends_as("heat")
    assert job.count("node-lost") == 1 and not job.count("diverged"), job.report()


def test_hosts_with_a_firewall_between_them():
    """From the beginning on, as when ports are closed."""
    with over("heat", lambda net: cut(net, ONE, OTHER), ckpt_every=1) as (_, job):
        one_gives_way(job)


def test_the_link_between_two_hosts_dies():
    """While the job runs, and for good; both still reach the controller and the third host."""
    with over("heat", ckpt_every=1) as (net, job):
        job.wait_running(4)
        job.all_checkpointed()
        cut(net, ONE, OTHER)
        one_gives_way(job)
        assert not job.count("rolled-back"), job.report()
