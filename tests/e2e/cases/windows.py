"""Windows in memory that ranks share: what they hold survives with their recovery unit."""

import os

from bad_input import program
from coordinated import finished
from harness import ROOT, Gated, compile_program, run_to_end
from nodes import Nodes, gone
from restart import restart, save

ROUNDS = "600"
# Of ranks per node; made once.
_expected = {}


def common(*arguments):
    return [compile_program(os.path.join(ROOT, "tests", "e2e", "programs", "common.c")), *arguments]


def expected(options=()):
    """The output of an undisturbed, unprotected run with the ranks laid out like this."""
    if options not in _expected:
        code, out, err = run_to_end(common(ROUNDS), ft="none", options=options)
        assert code == 0 and "checksum" in out, (code, out, err[-2000:])
        _expected[options] = out
    return _expected[options]


def coordinated(every=0.1):
    return Gated(common(ROUNDS), ft="coordinated", ckpt_every=every)


def over_nodes(ft, nodes):
    return Nodes(common(ROUNDS), ["--nodes", str(nodes), "--spares", "1"], ["--ft", ft], ckpt_every=0.2)


def ends_as(job, want):
    job.let_end()
    assert job.wait() == 0, job.report()
    assert job.stdout() == want and not job.count("diverged"), job.report()
    gone(job)


def shared_on(ranks):
    code, out, err = run_to_end(common("40"), ranks=ranks, ft="none")
    assert code == 0 and out.startswith("common: 40 rounds"), (code, out, err[-2000:])


def generated():
    for ranks in (1, 2, 3, 5):
        yield f"shared_on_{ranks}", lambda r=ranks: shared_on(r)


def test_protected_runs_make_the_same():
    code, out, err = run_to_end(common(ROUNDS), ft="coordinated", ckpt_every=0.1)
    assert code == 0 and out == expected(), (code, out, err[-2000:])


def test_a_job_that_logs_says_which_option_works():
    """Each rank may come back without the others, who have seen what it stored."""
    for options in ((), ("--nodes", "2")):
        code, out, err = run_to_end(common("refused"), options=options)
        assert code == 0 and out == "common: refused\n", (code, out, err)
        assert err.count("cannot share memory") >= 1 and "--ft coordinated" in err, err


def test_what_is_shared_goes_back_with_its_ranks():
    want = expected()
    with coordinated() as job:
        job.wait_event("checkpointed", count=4)
        for times, victims in ((1, [2]), (2, [0, 3]), (3, [1])):
            job.until(lambda v=victims: job.kill_ranks(v)[0] == 0, "processes to be killed")
            job.wait_event("restored", count=4 * times)
        finished(job, want)


def test_before_any_checkpoint_all_is_made_anew():
    want = expected()
    with coordinated(every=3600) as job:
        job.wait_running(4)
        job.kill_ranks([1])
        job.until(lambda: job.count("started") + job.count("restored") >= 8, "all ranks again")
        finished(job, want)


def test_what_is_shared_is_saved_and_restarted():
    want = expected()
    with coordinated(every=3600) as job:
        job.wait_running(4)
        save(job)
        restart(job)
        job.wait_event("restored", count=4)
        save(job)
        restart(job)
        job.wait_event("restored", count=8)
        finished(job, want)


def unit_comes_back(ft, kill):
    """Two nodes with two ranks each, which share memory; a spare."""
    want = expected(("--nodes", "2"))
    with over_nodes(ft, 2) as job:
        job.all_checkpointed()
        before = job.count("restored")
        kill(job)
        job.until(lambda: job.count("restored") >= before + 2, "ranks again")
        ends_as(job, want)


def test_a_unit_of_a_node_comes_back_with_what_it_shares():
    unit_comes_back("node", lambda job: job.kill_ranks([1]))


def test_a_unit_whose_node_is_lost_comes_back_with_what_it_shares():
    unit_comes_back("node", lambda job: job.kill_nodes(0))


def test_all_nodes_go_back_with_what_they_share():
    unit_comes_back("coordinated", lambda job: job.kill_ranks([3]))


def test_ranks_of_a_lost_node_share_memory_on_the_spare():
    unit_comes_back("coordinated", lambda job: job.kill_nodes(1))


def test_operations_that_go_straight_into_memory_survive_kills():
    """Windows of `MPI_Win_allocate`, where nothing is recorded."""
    code, want, err = run_to_end(program("rma"), ft="none")
    assert code == 0, err
    with Gated(program("rma"), ft="coordinated", ckpt_every=0.05) as job:
        job.wait_event("checkpointed", count=4)
        job.kill_ranks([0, 2])
        job.wait_event("restored", count=4)
        job.let_end()
        assert job.wait() == 0, job.report()
        # How often it looks differs from run to run.
        assert job.stdout().split()[:2] == want.split()[:2], job.report()
