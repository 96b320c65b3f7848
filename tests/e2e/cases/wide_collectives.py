"""Collectives over two clusters: what they give, also where ranks, nodes and gateways die among them,
is what they give on one node."""

import os

from clusters import Clusters
from harness import ROOT, compile_program, run_to_end
from networked import networked
from nodes import Nodes

SOURCE = os.path.join(ROOT, "tests", "e2e", "programs", "wide.c")
ROUNDS = 120
CANONICAL = ["--reduce-order", "canonical"]
_known = {}


def program(rounds=ROUNDS):
    return [compile_program(SOURCE), str(rounds)]


def alone(rounds=ROUNDS, ranks=4):
    """`exact` and `sums` of ranks on one node."""
    if (rounds, ranks) not in _known:
        code, out, err = run_to_end(program(rounds), ranks=ranks)
        assert code == 0, (code, out, err)
        _known[rounds, ranks] = results(out)
    return _known[rounds, ranks]


def results(out):
    lines = out.splitlines()
    assert lines[-2].startswith("exact ") and lines[-1].startswith("sums "), out
    return lines[-2:]


def undisturbed(job, rounds=ROUNDS, ranks=4, sums=True):
    """It ends with what one node gives; returns that."""
    job.let_end()
    assert job.wait() == 0, job.report()
    got, want = results(job.stdout()), alone(rounds, ranks)
    assert got[: 1 + sums] == want[: 1 + sums], (got, want, job.report())
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    return got


def over(nodes, rounds, options=(), ranks=4, sums=True, make=Clusters):
    with make(program(rounds), nodes, options, ckpt_every=0.5, ranks=ranks) as job:
        return undisturbed(job, rounds, ranks, sums)


def test_all_come_out_alike_over_clusters():
    """Sums have bits of their own there, the same ones each time."""
    first = over(4, 15, sums=False)
    assert over(2, 15, sums=False) == first
    over(5, 15, ranks=9, sums=False)


def test_canonical_sums_are_the_same_bits_on_any_nodes():
    over(4, 15, CANONICAL)
    over(4, 15, [*CANONICAL, "--map", "cyclic"])
    over(3, 15, CANONICAL, make=Nodes)


def test_a_rank_of_each_cluster_dies_among_them():
    with Clusters(program(), 4, CANONICAL, ckpt_every=0.5) as job:
        job.all_checkpointed()
        for ranks in ([0, 3], [1], [2]):
            had = {rank: job.count("restored", rank=rank) for rank in ranks}
            job.kill_ranks(ranks)
            for rank in ranks:
                job.wait_event("restored", rank=rank, count=had[rank] + 1)
        undisturbed(job)


def test_a_node_and_a_gateway_die_among_them():
    undisturbed_sums = over(4, ROUNDS, sums=False)
    with Clusters(program(), 4, ["--spares", "1"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_gateways(1)
        job.kill_nodes(3)
        job.wait_event("restored", rank=3)
        assert undisturbed(job, sums=False) == undisturbed_sums, job.report()


def test_they_cross_a_link_that_loses_packets():
    wan = "[clusters.east]\nhosts = 2\n[clusters.west]\nhosts = 2\n[wan]\ndelay_ms = 2\nloss = 0.002\n"
    alone(40)
    with networked(program(40), wan, ckpt_every=0.5) as (_, job):
        job.all_checkpointed()
        job.kill_ranks([1, 2])
        undisturbed(job, 40, sums=False)
