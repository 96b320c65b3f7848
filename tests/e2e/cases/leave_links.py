"""Ranks move, and at a step of that a link dies: between their node and the one that they go to, all
of that of either, that of their node to the controller (`docs/internals/fault-points.md`), or the wide-area
link between the two clusters. The results are those of an undisturbed run.

Root only: elsewhere these tests are told as not run."""

import contextlib

from drain import Asked
from harness import DEFAULTS
from leave_steps import LEAVES, STEPS, TAKES
from migrate import Asking, homes, is_spare
from migrate_links import FAST, PointedHosted, cut, mend, nobody_died, over
from networked import networked
from nodes import expected

CONTROLLER, STAYS, SOURCE, TARGET = "10.80.0.1", "10.80.0.2", "10.80.0.3", "10.80.0.4"
STAYED, MOVED = [0, 0, 1, 1], [0, 0, 2, 2]


@contextlib.contextmanager
def held(point, asks=Asking, words=("--from", SOURCE, "--to", TARGET), **more):
    """A job of which ranks move, a node of it waits at that point, and who asked for it."""
    with over("heat", FAST, PointedHosted, **more) as (network, job):
        record = job.wait_running(4)
        job.arm(point)
        with asks(job, *words) as asked:
            assert job.held_at(point) == record["nodes"][STEPS[point][0]]["pid"], (point, record)
            yield network, job, asked


def between_at(point):
    """Source and target do not reach each other for as long as it takes to be noticed. Either the
    ranks move when they do again, or they stay, which is told, and move when that is asked for anew."""
    with held(point) as (network, job, asked):
        cut(network, SOURCE, TARGET)
        job.let_go(point)
        job.wait_event("link-lost")
        mend(network, SOURCE, TARGET)
        code, out, err = asked.over()
        assert code in (0, 1), (code, out, err)
        assert homes(job) == (STAYED if code else MOVED), job.status()
        if code:
            job.wait_event("node-stays", node=LEAVES)
            job.eyrie("migrate", "last", "--from", SOURCE, "--to", TARGET)
        assert homes(job) == MOVED, job.status()
        is_spare(job, LEAVES)
        job.ends_as("heat")
        nobody_died(job)


# What is said to a node that is silent is given up after 20 s by default, or more.
SOON_S = 15


def ends_somewhere(job, asked, lost, places):
    """That node is lost, all ranks run on at one of these places, and the result is right. Nobody waits
    for what was said to it longer than until it is lost."""
    job.wait_event("node-lost", node=lost)
    job.until(lambda: asked.process.poll() is not None, "an answer", timeout=SOON_S)
    code, out, err = asked.over()
    assert code in (0, 1), (code, out, err)
    job.until(lambda: homes(job) in places and all_run(job), "ranks elsewhere")
    job.ends_as("heat")
    assert job.count("node-lost") == 1, job.report()
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def all_run(job):
    return all(rank["pid"] for rank in job.status()["ranks"])


def source_at(point):
    """Nobody hears of the source any more: it is lost, and its ranks come back at the target."""
    with held(point, env=DEFAULTS) as (network, job, asked):
        network.hosts[SOURCE].ip("link", "set", "eth0", "down")
        job.let_go(point)
        ends_somewhere(job, asked, LEAVES, [MOVED])


def test_the_link_between_dies_for_good():
    """One of the two gives way after a while, and the ranks go on at the other, or elsewhere."""
    with held("leave-4", Asked, (str(LEAVES), "--to", str(TAKES))) as (network, job, asked):
        cut(network, SOURCE, TARGET)
        job.let_go("leave-4")
        job.wait_event("node-lost")
        code, out, err = asked.over()
        assert code in (0, 1), (code, out, err)
        [lost] = [e["node"] for e in job.events() if e["event"] == "node-lost"]
        places = {LEAVES: [MOVED, [0, 0, 0, 0]], TAKES: [[0, 0, 0, 0]]}[lost]
        job.until(lambda: homes(job) in places and all_run(job), "ranks elsewhere")
        job.ends_as("heat")
        assert job.count("node-lost") == 1, job.report()
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def from_the_controller(network):
    network.hosts[SOURCE].ip("route", "add", "blackhole", CONTROLLER)
    network.hub.ip("route", "add", "blackhole", SOURCE)


def controller_at(point):
    """The source and the controller do not reach each other, and both reach the target."""
    with held(point, env=DEFAULTS) as (network, job, asked):
        from_the_controller(network)
        job.let_go(point)
        ends_somewhere(job, asked, LEAVES, [MOVED])


def target_at(point):
    """Nobody hears of the target any more: its ranks go elsewhere."""
    with held(point, Asked, (str(LEAVES), "--to", str(TAKES)), env=DEFAULTS) as (network, job, asked):
        network.hosts[TARGET].ip("link", "set", "eth0", "down")
        job.let_go(point)
        ends_somewhere(job, asked, TAKES, [[0, 0, 0, 0]])


def goes(way):
    """The node is told to go, and nothing hangs on it any more: it has left, whatever way is cut."""
    with held("leave-7", Asked, (str(LEAVES), "--to", str(TAKES))) as (network, job, asked):
        if way == "between":
            cut(network, SOURCE, TARGET)
        elif way == "controller":
            from_the_controller(network)
        else:
            network.hosts[SOURCE].ip("link", "set", "eth0", "down")
        job.let_go("leave-7")
        code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        job.wait_event("node-left", node=LEAVES)
        assert homes(job) == MOVED, job.status()
        job.ends_as("heat")
        assert job.count("restored") == 2, job.report()
        nobody_died(job)


# Of the last two `migrate_links` knows more.
BETWEEN = ("leave-3", "leave-4")
WAYS = {
    "the_sources_link": source_at,
    "the_sources_way_to_the_controller": controller_at,
    "the_targets_link": target_at,
}
GOES = {
    "the_link_between": "between",
    "the_sources_link": "source",
    "the_sources_way_to_the_controller": "controller",
}


def generated():
    for point in STEPS:
        name = point.replace("-", "_")
        if point in BETWEEN:
            yield f"{name}_without_the_link_between", lambda p=point: between_at(p)
        for way, at in WAYS.items():
            if point != "leave-7":
                yield f"{name}_without_{way}", lambda p=point, at=at: at(p)
        yield f"{name}_without_the_wan", lambda p=point: wan_at(p)
    for way, which in GOES.items():
        yield f"leave_7_without_{way}", lambda w=which: goes(w)


# Two hosts each: what is on the second goes through the gateway on the first.
PAIR = "[clusters.east]\nhosts = 2\n[clusters.west]\nhosts = 2\n[wan]\ndelay_ms = 2\n"
WEST, EAST = ([0, 1, 2, 3], [[0, 1, 0, 1], [0, 1, 1, 0]])


def clusters(name, network=PAIR):
    """A job over two clusters."""
    expected(name)
    return networked(name, network, make=PointedHosted, ckpt_every=3600)


def connections(job):
    record = job.status() or {}
    return [c["gateway"]["carried"]["connections"] for c in record.get("clusters", [])]


def away_and_back(network, job, asked):
    """The link is down until both gateways have given up what they had there, and then up again."""
    over_by_then = lambda: asked.process.poll() is not None
    job.until(lambda: over_by_then() or not any(connections(job)), "broken connections")
    network.set_link(0, 1, "up")


def the_cluster_leaves(job, asked):
    """It has left, or stays, which is told, and leaves when that is asked for anew."""
    code, out, err = asked.over()
    assert code in (0, 1), (code, out, err)
    if code:
        assert homes(job) == WEST, (out, job.status())
        job.wait_event("node-stays", count=2)
        job.eyrie("drain", "last", "cluster=west")
    assert homes(job) in EAST, job.status()
    left = {e["node"]: e["count"] for e in job.events() if e["event"] == "node-left"}
    assert left == {2: 0, 3: 0}, job.report()


def wan_at(point):
    with clusters("heat") as (network, job):
        job.wait_running(4)
        job.arm(point)
        with Asked(job, "cluster=west") as asked:
            job.held_at(point)
            network.set_link(0, 1, "down")
            job.let_go(point)
            away_and_back(network, job, asked)
            the_cluster_leaves(job, asked)
        job.ends_as("heat")
        nobody_died(job)


def test_a_cluster_whose_wan_does_not_come_back_stays():
    """That is told, with the reason, and its ranks go on; it leaves when the link is there again."""
    with clusters("heat") as (network, job):
        job.wait_running(4)
        job.arm("leave-4")
        with Asked(job, "cluster=west") as asked:
            job.held_at("leave-4")
            network.set_link(0, 1, "down")
            job.let_go("leave-4")
            code, out, err = asked.over()
            assert code == 1 and "no way to the other cluster" in out, (code, out, err)
            network.set_link(0, 1, "up")
            assert homes(job) == WEST, job.status()
        with Asked(job, "cluster=west") as asked:
            the_cluster_leaves(job, asked)
        job.ends_as("heat")
        nobody_died(job)


def test_the_wan_dies_while_images_are_poured():
    """At 8 Mbit/s images are on the way when it does."""
    with clusters("heat", PAIR + "mbit = 8\n") as (network, job):
        job.wait_running(4)
        with Asked(job, "cluster=west") as asked:
            job.wait_event("node-leaving", count=2)
            job.wait_event("checkpointing")
            network.set_link(0, 1, "down")
            assert not job.count("checkpointed"), job.report()
            away_and_back(network, job, asked)
            the_cluster_leaves(job, asked)
        job.ends_as("heat")
        nobody_died(job)
