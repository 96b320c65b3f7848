"""At each step of a round of the vault, and of one that makes anew what a loss has left thin, one
member, as many as are borne, or the controller die: ranks come back from the newest images that were
whole in the vault by then, and the result is that of an undisturbed run (`docs/internals/fault-points.md`)."""

import os
import signal

from drain import Asked
from nodes import Pointed, expected

NODES, SCHEME, BORNE = 6, "rs:4+2", 2
STEPS = [f"vault-{n}" for n in range(1, 7)]
# Where the controller waits.
DECIDED = "vault-4"


class Stepped(Pointed):
    """After their first ones, ranks are checkpointed on request only."""

    def __init__(self, name):
        options = ["--vault", SCHEME, "--ckpt-every", "3600", "--ckpt-first", "0.3"]
        super().__init__(name, NODES, options)

    def newest(self, events):
        """The newest image of each rank that these events tell to be in the vault."""
        known = {}
        for event in events:
            if event["event"] == "vaulted":
                rank = event["rank"]
                known[rank] = max(known.get(rank, 0), event["generation"])
        return known

    def came_from_the_newest(self):
        """Every rank that came back did so from the newest image that was whole when it was lost, or
        from one that has become so since."""
        events, lost = self.events(), None
        for at, event in enumerate(events):
            if event["event"] in ("node-lost", "detected") and lost is None:
                lost = at
            elif event["event"] == "restored":
                first, last = self.newest(events[:lost]), self.newest(events[:at])
                rank, generation = event["rank"], event["generation"]
                assert first[rank] <= generation <= last[rank], (event, first, last, self.report())


class Asking(Asked):
    """`eyrie checkpoint` in the background."""

    command = "checkpoint"


def victims_of(job, record, waits, who, dead):
    """Who dies: the one who waits if it is a member, and others with it."""
    if who == "controller":
        return [record["daemon_pid"]]
    pids = [n["pid"] for n in record["nodes"] if n["node"] not in dead]
    others = [pid for pid in pids if pid != waits]
    first = [waits] if waits in pids else others[:1]
    rest = [pid for pid in others if pid not in first]
    return first + (rest[: BORNE - 1] if who == "members" else [])


def dies(point, who, rebuild):
    with Stepped("farm") as job:
        job.all_checkpointed()
        job.eyrie("checkpoint", "last")
        record, dead = job.status(), set()
        job.arm(point)
        if rebuild:
            dead = {NODES - 1}
            job.kill_nodes(*dead)
        else:
            comes_to(job, point)
        struck(job, point, who, record, dead)
        ends_well(job)


def comes_to(job, point):
    """Rounds are made until somebody waits there: what is still referred to is not dropped."""
    told = os.path.join(job.points, f"{point}.pid")
    while not os.path.exists(told):
        with Asking(job) as asked:
            over = lambda: asked.process.poll() is not None or os.path.exists(told)
            job.until(over, point)


def struck(job, point, who, record, dead):
    waits = job.held_at(point)
    pids = [n["pid"] for n in record["nodes"]]
    assert (waits == record["daemon_pid"]) == (point == DECIDED), (point, waits, record)
    victims = victims_of(job, record, waits, who, dead)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    job.let_go(point)
    lost = [node for node, pid in enumerate(pids) if pid in victims]
    for node in lost:
        job.wait_event("node-lost", node=node)
    for rank in [r["rank"] for r in record["ranks"] if r["node"] in lost]:
        job.wait_event("restored", rank=rank)
    if who == "controller":
        job.wait_event("controller-back")


def ends_well(job):
    """What follows is in the vault, too, which bears the next loss."""
    job.came_from_the_newest()
    before = job.count("restored")
    job.wait_running(4)
    job.eyrie("checkpoint", "last")
    live = [n["node"] for n in job.status()["nodes"] if n["state"] in ("live", "spare")]
    homes = [r["node"] for r in job.status()["ranks"] if r["node"] in live]
    job.kill_nodes(homes[0])
    job.wait_event("restored", count=before + 1)
    job.ends_as("farm")
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def at(point, rebuild):
    expected("farm")
    # In a rebuild one more is borne.
    whos = ("member", "controller") if rebuild else ("member", "members", "controller")
    for who in whos:
        dies(point, who, rebuild)


def generated():
    for step in STEPS:
        name = step.replace("-", "_")
        yield f"{name}_with_a_death", lambda s=step: at(s, False)
        yield f"{name}_of_a_rebuild_with_a_death", lambda s=step: at(s, True)
