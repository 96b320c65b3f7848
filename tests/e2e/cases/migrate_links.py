"""Ranks that move over links of a test network (tests/net): the link between source and target dies on
the way, or that of the source to all; and what `eyrie drain --deadline` says of a link that is too slow.

Root only: elsewhere these tests are told as not run."""

from drain import drain
from harness import example, run_to_end
from hosts import Hosted
from late import said
from migrate import Asking, homes, is_spare
from networked import networked
from nodes import Points, expected

# Images take seconds.
SLOW = "[clusters.all]\nhosts = 3\nmbit = 8\n"


# The third, first of its cluster, is far from the first; from the second there is a short way.
FAR = "[clusters.here]\nhosts = 2\n[clusters.there]\nhosts = 1\n[wan]\ndelay_ms = 10\n"
# Keys that no compression makes small: more than what goes by one connection anyhow.
MUCH = ["--log2", "24", "--iterations", "4", "--progress"]
# No more than what a program sends.
FAST = "[clusters.all]\nhosts = 3\n"


class PointedHosted(Points, Hosted):
    pass


def over(name, network=SLOW, make=Hosted, **more):
    """A job on two hosts of a network, and its third as a spare."""
    how = dict(options=["--spares", "1"], make=make, clusters=False, ckpt_every=3600)
    return networked(name, network, **how, **more)


def cut(network, here, there):
    """Hosts lose their way to each other: `mend` gives it back."""
    for one, other in ((here, there), (there, here)):
        network.hosts[one].ip("route", "add", "blackhole", other)


def mend(network, here, there):
    for one, other in ((here, there), (there, here)):
        network.hosts[one].ip("route", "del", "blackhole", other)


def on_the_way(job):
    """An image of a rank that moves is being sent."""
    job.wait_event("node-leaving")
    job.wait_event("checkpointing")


def nobody_died(job):
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    assert not job.count("detected") and not job.count("node-lost"), job.report()


def test_the_link_between_source_and_target_dies():
    """Nothing moves while it is down, and the ranks go on where they are; when it is back they move.
    It is slow for the images to be on the way when it dies, and afterwards nothing hangs on that."""
    expected("heat")
    with over("heat") as (network, job):
        job.wait_running(4)
        source, target = "10.80.0.3", "10.80.0.4"
        with Asking(job, "--from", source, "--to", target) as asked:
            on_the_way(job)
            cut(network, source, target)
            # For longer, and one of the two would count as lost (`unreached`).
            job.wait_event("link-lost", node=1)
            assert homes(job) == [0, 0, 1, 1] and not job.count("checkpointed"), job.report()
            network.lift_limits()
            mend(network, source, target)
            code, out, err = asked.over()
        assert code in (0, 1), (code, out, err)
        if code:
            assert homes(job) == [0, 0, 1, 1], job.status()
            job.wait_event("node-stays", node=1)
            job.eyrie("migrate", "last", "--from", source, "--to", target)
        assert homes(job) == [0, 0, 2, 2], job.status()
        is_spare(job, 1)
        assert not any(n["uninvited"] for n in job.status()["nodes"]), job.status()
        job.ends_as("heat")
        nobody_died(job)


def dies_at(point):
    """The link between source and target, when the ranks stand with their last images: at leave-5
    these are not there yet, at leave-6 they are, and nothing but the controller's word is missing."""
    source, target = "10.80.0.3", "10.80.0.4"
    expected("farm")
    with over("farm", FAST, PointedHosted) as (network, job):
        record = job.wait_running(4)
        job.arm(point)
        with Asking(job, "--from", source, "--to", target) as asked:
            assert job.held_at(point) == record["nodes"][1]["pid"], record
            cut(network, source, target)
            job.let_go(point)
            if point == "leave-6":
                # The target has all that it needs.
                for rank in (2, 3):
                    job.wait_event("restored", rank=rank, node=2)
            else:
                job.until(
                    lambda: job.count("checkpoint-failed") or job.count("restored") >= 2,
                    "an image that is not brought, or ranks that had theirs there",
                )
            mend(network, source, target)
            code, out, err = asked.over()
        assert code in (0, 1), (code, out, err)
        assert homes(job) == ([0, 0, 2, 2] if code == 0 else [0, 0, 1, 1]), job.status()
        if code:
            job.eyrie("migrate", "last", "--from", source, "--to", target)
        assert homes(job) == [0, 0, 2, 2], job.status()
        is_spare(job, 1)
        job.ends_as("farm")
        nobody_died(job)


def test_the_link_dies_before_the_last_images_are_told_of():
    dies_at("leave-5")


def test_the_link_dies_when_the_last_images_are_there():
    dies_at("leave-6")


def test_the_link_of_the_source_dies():
    """To everybody: it is lost, and its ranks come back where they were to go."""
    expected("farm")
    with over("farm") as (network, job):
        job.wait_running(4)
        source, target = "10.80.0.3", "10.80.0.4"
        with Asking(job, "--from", source, "--to", target) as asked:
            on_the_way(job)
            network.hosts[source].ip("link", "set", "eth0", "down")
            code, out, err = asked.over()
        assert code == 1 and "is lost" in out, (code, out, err)
        for rank in (2, 3):
            job.wait_event("restored", rank=rank)
        assert homes(job) == [0, 0, 2, 2], job.status()
        job.ends_as("farm")
        assert not job.count("diverged"), job.report()


def test_a_deadline_that_the_link_cannot_meet_is_told_at_once():
    """By what images have taken over it; what is not out in time comes back from the newest ones. One
    rank after the other is stopped, so that they do not share the link."""
    expected("heat")
    with over("heat") as (_, job):
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        steps = drain(job, "1", "--deadline", "0.5", code=1)
        first, last = steps[0], steps[-1]
        assert first["step"] == "late" and "it takes about" in first["text"], steps
        # Before anything else is, and not when the time is over.
        assert first["took_ms"] < last["took_ms"] and last["step"] == "lost", steps
        assert "one after the other" in first["text"], steps
        kinds = [e["event"] for e in job.events()]
        way = kinds[kinds.index("node-leaving") : kinds.index("node-lost")]
        assert way.count("checkpointing") <= way.count("checkpointed") + 1, way
        for rank in (2, 3):
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_images_go_far_by_several_connections():
    """Two ranks at once, four connections each, as a round trip takes 20 ms."""
    code, want, err = run_to_end(example("sort") + MUCH)
    assert code == 0 and "checksum" in want, (code, want, err)
    with over("sort", FAR, sizes=MUCH) as (network, job):
        network.hub.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        network.hosts["10.80.0.3"].ip("route", "add", "10.81.0.0/24", "via", "10.80.0.1")
        network.hosts["10.81.0.2"].ip("route", "add", "10.80.0.3/32", "via", "10.81.0.1")
        job.wait_running(4)
        job.eyrie("migrate", "last", "--from", "10.80.0.2", "--to", "10.81.0.2")
        assert homes(job) == [2, 2, 1, 1], job.status()
        told = said(job, "an image goes by ")
        assert told and said(job, "an image goes by 4 connections") == told, (told, job.report())
        assert not any(n["uninvited"] for n in job.status()["nodes"]), job.status()
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        job.settle()
        assert not job.left_over(), job.left_over()
        nobody_died(job)
