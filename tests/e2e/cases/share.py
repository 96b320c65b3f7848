"""Jobs that take turns on the same nodes (`eyrie share`), over hosts and over network namespaces: all
ranks of one run and stand together, on whichever nodes, also when ranks and nodes die meanwhile; and
they run on when the command is ended. (`suspend` has what one node shows.)"""

import contextlib
import os
import signal

from harness import soon
from hosts import Hosted, shell
from netns import Spaces
from nodes import expected
from suspend import Pair, all_run, ended, ranks_of, tasks

SLICE = ("--slice", "500ms")


@contextlib.contextmanager
def sharing(make):
    """Two jobs that `make` makes, and the command."""
    for name in ("farm", "heat"):
        expected(name)
    with make("farm", ["--name", "one"], ckpt_every=0.5) as one:
        home = {"EYRIE_HOME": one.home}
        with make("heat", ["--name", "two"], ckpt_every=0.5, env=home) as two:
            with Pair(one, two, *SLICE) as share:
                yield one, two, share


def states(record):
    """State and processor time of all threads of all ranks."""
    return [task for pid in ranks_of(record) for task in tasks(pid).values()]


def settled(share):
    """What the jobs say of themselves while the command stands still: nobody is just being stopped,
    or on its way back."""

    def both():
        records = [share.status(n) for n in (0, 1)]
        halts = [r["suspended"] for r in records]
        whole = all(h is None or h["whole"] for h in halts)
        there = all(len(ranks_of(r)) == 4 for r in records)
        return records if whole and there else None

    return soon(both, "jobs that run or stand as a whole")


def who_runs(share):
    """That of the two jobs all ranks of which run, or None between two turns. All of the other stand."""
    records = settled(share)
    running = [n for n, record in enumerate(records) if record["suspended"] is None]
    assert len(running) < 2, records
    for n, record in enumerate(records):
        assert len({rank["node"] for rank in record["ranks"]}) > 1, record
        if n not in running:
            before = states(record)
            assert {state for state, _ in before} == {"t"}, (n, before, record)
    if not running:
        return None
    [runs] = running
    stands = records[1 - runs]
    before = states(stands)
    # Stopped for the moment of a checkpoint at most.
    goes_on = lambda pid: any(state != "t" for state, _ in tasks(pid).values())
    for pid in ranks_of(records[runs]):
        soon(lambda: goes_on(pid), "rank that runs")
    assert states(stands) == before, (before, records)
    return runs


def one_at_a_time(share):
    """Each is seen to run as a whole while the other stands as a whole: whenever the command is stopped, which
    leaves things as they are for longer than it takes to look."""
    seen = set()
    while not {0, 1} <= seen:
        share.turns(1)
        runs = lambda n: share.status(n)["suspended"] is None
        soon(lambda: runs(0) or runs(1), "turn that has begun")
        share.process.send_signal(signal.SIGSTOP)
        seen.add(who_runs(share))
        share.process.send_signal(signal.SIGCONT)


def over_nodes(make):
    with sharing(make) as (one, two, share):
        one_at_a_time(share)
        os.kill(share.status(0)["ranks"][3]["pid"], signal.SIGKILL)
        os.kill(share.status(1)["nodes"][1]["pid"], signal.SIGKILL)
        share.turns(4)
        back = lambda n: share.status(n)["recoveries"] > 0
        soon(lambda: back(0) and back(1), "ranks that are back")
        one_at_a_time(share)
        share.process.send_signal(signal.SIGINT)
        share.process.communicate(timeout=120)
        all_run(share)
        ended(one, two, share)
        for job in (one, two):
            assert "diverged" not in job.stderr(), job.stderr()


def test_hosts_are_shared():
    with shell() as rsh:
        over_nodes(lambda name, options, **more: Hosted(name, rsh, options, **more))


def test_nodes_in_network_namespaces_are_shared():
    over_nodes(lambda name, options, **more: Spaces(name, 3, options, **more))
