"""Jobs whose controller keeps its state in etcd, over a network that is cut: between what does not matter
to the ranks, or to one of them. Root only: elsewhere these tests are told as not run."""

import contextlib
import os

from controller import same_processes
from ha import Etcd, Standby, unharmed
from hosts import Hosted, shell
from netns import needs_root
from network import Network
from nodes import expected

HUB, ONE, OTHER, STORE, SPARE = [f"10.80.0.{n}" for n in range(1, 6)]
HOSTS = "[clusters.all]\nhosts = 4\n"


@contextlib.contextmanager
def over(name):
    """A job on two hosts of a network with its state in an etcd on a third; a fourth is free."""
    expected(name)
    needs_root()
    with Network(HOSTS) as net, shell(net.remote_shell()) as rsh:
        with Etcd(STORE, net.hosts[STORE].enter) as etcd:
            how = dict(hosts=f"{ONE},{OTHER}", address=None, wrap=net.hub.enter, ckpt_every=0.5)
            with Hosted(name, rsh, ["--ha", etcd.url], **how) as job:
                job.says("eyrie standby")
                yield net, job, etcd


def route(network, verb, here, there):
    """Two machines lose their way to each other, or (`del`) have it again."""
    space = lambda address: network.hub if address == HUB else network.hosts[address]
    for one, to in ((here, there), (there, here)):
        space(one).ip("route", verb, "blackhole", to)


def test_a_controller_that_is_cut_off_from_etcd_is_followed():
    """Nodes reach it, and etcd. They go to the next one, which a standby is, as the lease has run out; no
    rank is touched. The first one learns of that when it reaches etcd again, and ends."""
    with over("farm") as (network, job, etcd):
        job.all_checkpointed()
        name = os.path.basename(job.folder())
        with Standby(job, etcd, name, address=SPARE, enter=network.hosts[SPARE].enter) as standby:
            before = job.status()
            route(network, "add", HUB, STORE)
            standby.goes_on()
            job.until(lambda: job.status()["ha"]["away"], "absence of etcd in the status")
            standby.until(
                lambda: {n["state"] for n in standby.status()["nodes"]} == {"live"}, "all nodes"
            )
            assert standby.status()["reign"] == 2, standby.status()
            same_processes(standby, before)
            standby.eyrie("checkpoint", "last")
            seen = len(job.events())
            route(network, "del", HUB, STORE)
            assert job.wait() == 1, job.report()
            job.says("goes on without this command")
            late = [e for e in job.events()[seen:] if e not in standby.events()]
            assert not late, (late, job.report())
            unharmed(standby)
            standby.ends_as("farm")


def test_all_are_cut_off_from_etcd_for_a_while():
    """Ranks go on until another controller might start them elsewhere, then they stand; when etcd is
    reached again they go on."""
    with over("farm") as (network, job, etcd):
        job.all_checkpointed()
        before = job.status()
        for machine in (HUB, ONE, OTHER):
            route(network, "add", machine, STORE)
        job.until(lambda: job.status()["ha"]["away"], "absence of etcd in the status")
        assert all(r["state"] != "suspended" for r in job.status()["ranks"]), job.status()
        stand = lambda: all(r["state"] == "suspended" for r in job.status()["ranks"])
        job.until(stand, "ranks that stand")
        for machine in (HUB, ONE, OTHER):
            route(network, "del", machine, STORE)
        job.until(lambda: job.status()["ha"]["away"] is None, "return of etcd in the status")
        job.until(lambda: not stand(), "ranks that go on")
        same_processes(job, before)
        unharmed(job)
        job.ends_as("farm")
