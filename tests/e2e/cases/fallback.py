"""`--fallback-every`: ranks that cannot be brought back by what is recorded of them return, all
together, to a snapshot, and not to the beginning."""

import os
import re
import tempfile

from bad_input import program
from faults import flip_a_byte
from harness import Job
from restart import restart, save

RANKS = 4


class Drifting(Job):
    """A program no rank of which repeats itself: each kill of one is a divergence. `begin`: a line for a shell
    before it. `counted`: lives are counted in files, which would be put back."""

    def __init__(self, every="1", ckpt_every=0, leaver=None, options=(), begin=None, counted=True, **more):
        self.made = tempfile.TemporaryDirectory(prefix="eyrie-test-")
        put_back = ["--files-limit", "0"] if counted else []
        options = ["--fallback-every", every, *put_back, *options]
        command = program("drifts") + [self.made.name]
        if leaver is not None:
            command.append(str(leaver))
        if begin is not None:
            command = ["sh", "-c", begin + '; exec "$0" "$@"', *command]
        super().__init__(command, ranks=RANKS, ckpt_every=ckpt_every, options=options, **more)

    def close(self):
        super().close()
        self.made.cleanup()

    def steps(self):
        return [int(line.split()[1]) for line in self.stdout().split("\n")[:-1] if line.startswith("step")]

    def gets_on(self, more=60):
        """What a rank that dies now has to repeat differs from what is recorded."""
        seen = max(self.steps(), default=-1)
        self.until(lambda: max(self.steps(), default=-1) >= seen + more, "more steps")

    def checkpoint(self, all_live=True):
        code, _, err = self.eyrie("checkpoint", "last", check=False)
        assert (code == 0) == all_live, err

    def begun(self):
        """How often each rank began."""
        paths = [os.path.join(self.made.name, f"begun.{rank}") for rank in range(RANKS)]
        return [os.path.getsize(path) for path in paths]

    def snapshots(self):
        """Files of what there was between the ranks, and those of images."""
        names = os.listdir(os.path.join(self.folder(), "images"))
        return sorted(n for n in names if n.startswith("snapshot.")), names

    def diverge(self, rank, back=RANKS):
        """One rank dies, and does not repeat itself. Returns what is told of that."""
        self.gets_on()
        count, restored = self.count("rolled-back"), self.count("restored") + self.count("started")
        self.kill_ranks([rank])
        self.wait_event("rolled-back", count=count + 1)
        there = lambda: self.count("restored") + self.count("started") >= restored + back
        self.until(there, "all ranks again")
        return [e for e in self.events() if e["event"] == "rolled-back"][-1]

    def ends(self):
        """Each line came once, in order, and nobody received what was not sent to him."""
        # Beyond what was printed of another course.
        self.gets_on()
        open(os.path.join(self.made.name, "stop"), "w").close()
        assert self.wait() == 0, self.report()
        steps = self.steps()
        assert steps == list(range(0, len(steps) * 20, 20)) and steps, self.report()
        assert self.stdout().endswith("\ndone\n") and "WRONG" not in self.stdout(), self.report()
        assert not self.left_over(), self.left_over()


def returned(job, event, reason):
    """The user is told to where, what it cost and why."""
    number = event["generation"]
    said = (
        r"all ranks returned to the snapshot of \d\d:\d\d:\d\d \(checkpoint %d\), \d+\.\d s of work "
        r"lost: %s" % (number or -1, reason)
    )
    assert re.fullmatch(said, event["text"]), event
    assert re.search(said, job.stderr()), job.stderr()
    assert "to the beginning" not in job.stderr(), job.stderr()


def test_a_divergence_costs_what_was_done_since_the_snapshot():
    """Twice, of several ranks; the program never begins again."""
    with Drifting() as job:
        job.gets_on()
        job.checkpoint()
        job.wait_event("snapshot")
        assert job.status()["fallback"]["checkpoint"], job.report()
        event = job.diverge(1)
        returned(job, event, "the replay of rank 1 diverged")
        last = [e for e in job.events() if e["event"] == "restored"][-RANKS:]
        assert {e["generation"] for e in last} == {event["generation"]}, last
        job.gets_on()
        job.checkpoint()
        job.wait_event("snapshot", count=2)
        later = job.diverge(2)
        returned(job, later, "the replay of rank 2 diverged")
        assert later["generation"] > event["generation"], later
        assert "snapshot of all ranks to return to: checkpoint" in job.eyrie("status", "last", "-v")[1]
        job.ends()
        assert job.begun() == [1] * RANKS, job.begun()


def test_snapshots_come_by_themselves():
    """In place of every second checkpoint; the newest two are kept, and nothing of those before."""
    with Drifting(every="2", ckpt_every=0.2) as job:
        job.wait_event("snapshot", count=4)
        numbers = [e["generation"] for e in job.events() if e["event"] == "snapshot"]
        assert numbers == sorted(set(numbers)), numbers
        # Of the time between two events the newest may be followed by another.
        job.until(lambda: len(job.snapshots()[0]) <= 3, "removal of what is not needed")
        job.diverge(3)
        returned(job, [e for e in job.events() if e["event"] == "rolled-back"][-1], "the replay of rank 3 diverged")
        job.wait_event("snapshot", count=job.count("snapshot") + 1)
        job.ends()
        assert job.begun() == [1] * RANKS, job.begun()


def test_a_snapshot_that_leads_nowhere_is_given_up():
    """Three times without getting further, then the beginning, as often as it takes."""
    with Drifting() as job:
        job.gets_on()
        job.checkpoint()
        job.wait_event("snapshot")
        for number in range(3):
            assert job.diverge(number)["generation"], job.report()
        assert job.begun() == [1] * RANKS, job.begun()
        assert not job.diverge(3)["generation"], job.report()
        assert re.search(r"snapshot of .* is given up: all ranks returned to it 3 times", job.stderr())
        job.until(lambda: job.begun() == [2] * RANKS, "another beginning")
        for _ in range(2):
            assert not job.diverge(1)["generation"], job.report()
        job.ends()
        assert job.begun() == [4] * RANKS, job.begun()


def test_a_damaged_snapshot_is_passed_over():
    """What was between the ranks in the newest, then an image of the one before that."""
    with Drifting() as job:
        for number in (1, 2):
            job.gets_on()
            job.checkpoint()
            job.wait_event("snapshot", count=number)
        older, newest = [e["generation"] for e in job.events() if e["event"] == "snapshot"]
        images = os.path.join(job.folder(), "images")
        flip_a_byte(os.path.join(images, f"snapshot.{newest}"))
        job.gets_on()
        job.kill_ranks([1])
        job.wait_event("rolled-back", generation=older)
        job.wait_event("restored", generation=older, count=RANKS)
        assert f"the snapshot {newest} cannot be used" in job.stderr(), job.stderr()
        job.ends()
        assert job.begun() == [1] * RANKS, job.begun()


def test_off_means_the_beginning():
    with Drifting(every="off") as job:
        job.gets_on()
        job.checkpoint()
        assert not job.diverge(1)["generation"], job.report()
        assert "all ranks go back to the beginning" in job.stderr(), job.stderr()
        assert not job.count("snapshot") and job.status()["fallback"] is None, job.report()
        job.ends()
        assert job.begun() == [2] * RANKS, job.begun()


def test_a_saved_job_has_nothing_of_its_snapshots():
    """Its last checkpoint is one of all ranks: a restart has nothing to repeat, and so cannot diverge. It takes
    new ones then, and returns to one."""
    with Drifting() as job:
        job.gets_on()
        job.checkpoint()
        job.wait_event("snapshot")
        save(job)
        snapshots, images = job.snapshots()
        assert not snapshots, images
        restart(job)
        job.wait_event("restored", count=RANKS)
        job.gets_on()
        assert not job.count("rolled-back") and "DIVERGED" not in job.stderr(), job.report()
        snapshots = job.count("snapshot")
        job.checkpoint()
        job.wait_event("snapshot", count=snapshots + 1)
        assert job.diverge(2)["generation"], job.report()
        job.ends()
        assert job.begun() == [1] * RANKS, job.begun()


def test_none_while_a_rank_repeats_itself():
    """Ranks that have just been started again from a checkpoint may have to: until they are known not
    to there is no snapshot, whoever asks for one, but each has its checkpoint."""
    with Job(program("times") + ["1000000"], ranks=RANKS, ckpt_every=0, options=["--fallback-every", "1"]) as job:
        job.until(lambda: len(job.stdout().split("\n")) > 400, "lines")
        asked = lambda: job.eyrie("checkpoint", "last", check=False)[0] == 0
        for number in range(1, 4):
            job.kill_ranks([number])
            asked()
            job.wait_event("restored", rank=number)
        # Each rank has caught up by now, or does so when it is next asked.
        job.until(lambda: asked() and job.count("snapshot"), "a snapshot")
        assert not job.count("rolled-back"), job.report()
        job.kill_ranks([0, 2])
        job.wait_event("restored", rank=0)
        assert not job.count("rolled-back"), job.report()
        job.interrupt()
        job.wait()


def leaves(job):
    """Rank 3 ends, the others go on."""
    open(os.path.join(job.made.name, "leave"), "w").close()
    job.wait_event("exited", rank=3)


def test_a_rank_that_had_ended_comes_back_to_where_it_had_not():
    with Drifting(leaver=3) as job:
        job.gets_on()
        job.checkpoint()
        job.wait_event("snapshot")
        leaves(job)
        event = job.diverge(1)
        returned(job, event, "the replay of rank 1 diverged")
        job.wait_event("exited", rank=3, count=2)
        job.ends()
        assert job.begun() == [1] * RANKS, job.begun()


def test_a_rank_that_had_ended_by_then_stays_so():
    with Drifting(leaver=3) as job:
        job.gets_on()
        leaves(job)
        job.gets_on()
        job.checkpoint(all_live=False)
        job.wait_event("snapshot")
        job.diverge(1, back=RANKS - 1)
        job.gets_on()
        job.ends()
        assert job.count("exited", rank=3) == 1 and job.begun() == [1] * RANKS, job.begun()
