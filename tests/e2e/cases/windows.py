"""Windows in memory that ranks share: what they hold survives with their recovery unit."""

import os
import tempfile

from bad_input import program
from coordinated import finished
from harness import ROOT, Gated, compile_program, run_to_end
from nodes import Nodes, Points, gone
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
    for point in ("snapshot-2", "snapshot-3", "regroup-1", "return-1", "return-2"):
        yield f"the_controller_dies_at_{point}", lambda p=point: controller_dies_at(p)


def test_protected_runs_make_the_same():
    code, out, err = run_to_end(common(ROUNDS), ft="coordinated", ckpt_every=0.1)
    assert code == 0 and out == expected(), (code, out, err[-2000:])


def test_a_job_that_cannot_have_larger_units_says_which_option_works():
    """Each rank may come back without the others, who have seen what it stored."""
    code, out, err = run_to_end(common("refused"), options=("--keep",))
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


# ---- ranks that come back alone, until they share memory

ONE = "all ranks come back together (--ft coordinated)"
NODE = "the ranks of each node come back together (--ft node)"


def become(who, options=(), anew=False):
    """The result is that of an undisturbed run; nothing is computed again, unless that must be."""
    want = expected(options)
    code, out, err = run_to_end(common(ROUNDS), options=options)
    assert code == 0 and out == want, (code, out, err[-2000:])
    assert err.count(who) == 1 and ("begin anew" in err) == anew, err


def test_ranks_that_come_back_alone_become_one_unit():
    become(ONE)


def test_ranks_of_a_node_that_come_back_alone_become_one_unit():
    become(NODE, ("--nodes", "2"))


def test_where_all_cannot_stand_together_they_begin_anew():
    want = expected(("--nodes", "2"))
    options = ("--nodes", "2", "--spares", "1")
    code, out, err = run_to_end(common(ROUNDS), ft="routed", options=options)
    assert code == 0 and out == want, (code, out, err[-2000:])
    assert err.count(NODE) == 1 and "begin anew" in err, err


class Late:
    """Its ranks share memory from when they are told to."""

    def __init__(self, options=(), every=0.1, **more):
        self.folder_of_file = tempfile.TemporaryDirectory(prefix="eyrie-test-")
        self.file = os.path.join(self.folder_of_file.name, "now")
        self.begin(common(ROUNDS, self.file), options, every, **more)

    def close(self):
        super().close()
        self.folder_of_file.cleanup()

    def share(self, who):
        open(self.file, "w").close()
        self.says(who)

    def share_at(self, point):
        """The controller dies at that point of it."""
        open(self.file, "w").close()
        self.dies_at(point, 1)
        self.says(NODE)

    def strike(self, *ranks):
        """Kills ranks, as soon as all of them have processes."""
        self.until(lambda: self.kill_ranks(ranks)[0] == 0, f"processes of ranks {ranks}")

    def next_checkpoint(self):
        self.wait_event("checkpointed", count=self.count("checkpointed") + 4)

    def comes_back(self, count, kill):
        """Of so many ranks at least."""
        before = self.count("restored")
        kill()
        self.until(lambda: self.count("restored") >= before + count, "ranks again")


class LateOnOne(Late, Gated):
    def begin(self, command, options, every):
        Gated.__init__(self, command, options=options, ckpt_every=every)


class LateOverNodes(Late, Nodes):
    def begin(self, command, options, every):
        Nodes.__init__(self, command, ["--nodes", "2", *options], ckpt_every=every)


class LatePointed(Late, Points, Nodes):
    def begin(self, command, options, every, armed=()):
        where = ["--nodes", "2", *options]
        Points.__init__(self, command, where, ckpt_every=every, armed=armed)


def test_ranks_die_before_in_and_after_what_they_share():
    want = expected()
    with LateOnOne() as job:
        job.next_checkpoint()
        job.comes_back(1, lambda: job.strike(1))
        job.wait_event("caught-up")
        assert job.count("restored") == 1, job.report()
        job.share(ONE)
        job.wait_event("restored", count=5)
        job.comes_back(4, lambda: job.strike(2))
        job.next_checkpoint()
        job.comes_back(4, lambda: job.strike(0, 3))
        job.until(lambda: "checksum" in job.stdout(), "the end of the windows")
        job.comes_back(4, lambda: job.strike(1))
        assert job.status()["ft"] == "coordinated", job.report()
        finished(job, want)


def test_before_the_first_checkpoint_of_all_they_come_back_from_where_they_stood():
    want = expected()
    with LateOnOne(every=3600) as job:
        job.wait_running(4)
        job.share(ONE)
        job.wait_event("restored", count=4)
        job.comes_back(4, lambda: job.strike(3))
        finished(job, want)


def test_what_is_shared_later_is_saved_and_restarted():
    want = expected()
    with LateOnOne(every=3600) as job:
        job.wait_running(4)
        job.share(ONE)
        job.wait_event("restored", count=4)
        save(job)
        restart(job)
        job.wait_event("restored", count=8)
        job.comes_back(4, lambda: job.strike(0))
        finished(job, want)


def late_over_nodes(first, second, options=()):
    """Something dies before, and after that."""
    want = expected(("--nodes", "2"))
    with LateOverNodes(["--spares", "2", *options]) as job:
        job.next_checkpoint()
        first(job)
        job.share(NODE)
        job.wait_event("restored", rank=3)
        job.next_checkpoint()
        job.comes_back(2, lambda: second(job))
        assert job.status()["ft"] == "node", job.report()
        ends_as(job, want)


def strike_alone(job):
    job.comes_back(1, lambda: job.strike(1))
    job.wait_event("caught-up")


def lose_first(job):
    job.comes_back(2, lambda: job.kill_nodes(0))
    job.wait_event("caught-up", count=2)


def test_a_rank_and_then_its_unit_come_back():
    late_over_nodes(strike_alone, lambda job: job.strike(1))


def test_a_node_is_lost_after_its_ranks_began_to_share():
    late_over_nodes(strike_alone, lambda job: job.kill_nodes(1))


def test_a_node_is_lost_before_its_ranks_share_on_the_spare():
    late_over_nodes(lose_first, lambda job: job.strike(0))


def test_a_node_is_lost_with_its_vault_part_when_its_ranks_share():
    late_over_nodes(strike_alone, lambda job: job.kill_nodes(1), ["--vault", "rs:2+1"])


def test_ranks_that_share_leave_a_node_together():
    want = expected(("--nodes", "2"))
    with LateOverNodes(["--spares", "1"]) as job:
        job.wait_running(4)
        job.share(NODE)
        job.wait_event("restored", rank=3)
        job.next_checkpoint()
        code, out, err = job.eyrie("drain", "last", "1")
        assert code == 0, (out, err, job.report())
        ends_as(job, want)


def controller_dies_at(point):
    want = expected(("--nodes", "2"))
    with LatePointed(["--spares", "1", "--fallback-every", "off"], armed=[point]) as job:
        job.wait_running(4)
        job.share_at(point)
        job.wait_event("restored", rank=3)
        job.next_checkpoint()
        job.comes_back(2, lambda: job.strike(2))
        ends_as(job, want)
