"""Processes that ranks, and programs without MPI, leave behind: nobody waits for them, so they are in
no checkpoint. It is refused by their numbers and commands, or they are left out by request."""

import os
import signal
import tempfile
import time

import harness
from harness import Gated, example
from image_cli import home, lines, rest
from programs import SIZES, expected

RANKS = 4
# Writes the number of what it leaves behind to a file, and becomes the program.
LEAVES = """
mark=$1; shift
(unset LD_PRELOAD; setsid sh -c 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 6000' \\
    "$mark.$EYRIE_RANK" < /dev/null > /dev/null 2>&1 &)
exec "$@"
"""


def left(mark, rank):
    """The process that a rank has left behind, once it is what it is to be."""
    try:
        with open(f"{mark}.{rank}") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return pid if file.read() == b"sleep\x006000\x00" else None
    except FileNotFoundError:
        return None


def gone(pid):
    end = time.monotonic() + harness.TIMEOUT_S
    while harness.alive(pid):
        assert time.monotonic() < end, f"{pid} is left"
        time.sleep(harness.POLL_S)


class Leaving(Gated):
    """A job of ranks each of which has left a process behind, in `self.orphans`."""

    def __init__(self, *options):
        self.marks = tempfile.TemporaryDirectory(prefix="eyrie-test-")
        self.mark = os.path.join(self.marks.name, "left")
        command = ["sh", "-c", LEAVES, "sh", self.mark, *example("cg"), *SIZES["cg"]]
        super().__init__(command, ranks=RANKS, ckpt_every=3600, options=options)
        self.wait_running(RANKS)
        find = lambda: [left(self.mark, rank) for rank in range(RANKS)]  # noqa: E731
        self.until(lambda: all(find()), "processes that are left behind")
        self.orphans = find()
        self.pids.update(self.orphans)

    def ends_well(self):
        self.let_end()
        assert self.wait() == 0, self.report()
        assert self.stdout() == expected("cg"), self.report()
        for pid in self.orphans:
            gone(pid)

    def close(self):
        super().close()
        self.marks.cleanup()


def test_a_rank_that_has_left_a_process_behind_is_not_checkpointed():
    """The line names it and what to do; the job goes on, and at its end nothing is left. When the
    process is gone there is a checkpoint."""
    with Leaving() as job:
        for rank, pid in enumerate(job.orphans):
            code, _, err = job.eyrie("checkpoint", "last", "--rank", str(rank), check=False)
            assert code != 0 and f"process {pid} (sleep 6000) behind" in err, (code, err)
            assert "--orphans leave" in err and "wait for what it starts" in err, err
        failed = [e["text"] for e in job.events() if e["event"] == "checkpoint-failed"]
        assert len(failed) == RANKS and all("(sleep 6000)" in text for text in failed), failed
        assert all(map(harness.alive, job.orphans)), job.orphans
        os.kill(job.orphans[1], signal.SIGKILL)
        gone(job.orphans[1])
        job.eyrie("checkpoint", "last", "--rank", "1")
        job.ends_well()


def test_what_a_rank_has_left_behind_is_left_out_by_request():
    """It lives on until the rank comes back from its checkpoint, and nobody else's is touched."""
    with Leaving("--orphans", "leave") as job:
        job.eyrie("checkpoint", "last")
        assert all(map(harness.alive, job.orphans)), job.orphans
        job.kill_ranks([0])
        job.wait_event("restored", rank=0)
        (event,) = [e for e in job.events() if e["event"] == "restored"]
        assert event["generation"], event
        gone(job.orphans[0])
        assert harness.alive(job.orphans[1])
        job.ends_well()


def without_mpi(place, *options):
    """A program that counts, and what it has left behind."""
    mark = os.path.join(place.path, "left")
    command = ["sh", "-c", LEAVES, "sh", mark, *place.gated(60)]
    process = place.start("run", *options, *command)
    lines(process, 3)
    place.running()
    pid = place.until(lambda: left(mark, ""), "process that is left behind")
    return process, pid


def test_a_program_that_has_left_a_process_behind_is_not_checkpointed():
    with home() as place:
        process, pid = without_mpi(place)
        code, _, err = place.run("checkpoint", "last")
        assert code != 0 and f"process {pid} (sleep 6000) behind" in err, (code, err)
        assert "--orphans leave" in err, err
        os.kill(pid, signal.SIGKILL)
        # The supervisor collects it.
        gone(pid)
        place.good("checkpoint", "last")
        place.let_on(10, 30, 50)
        code, out, err = rest(process)
        assert code == 3 and out.endswith("\n59\n") and err == "", (code, out, err)


def test_what_a_program_has_left_behind_goes_on_and_that_is_said():
    with home() as place:
        process, pid = without_mpi(place, "--orphans", "leave")
        try:
            place.good("checkpoint", "last")
            place.let_on(10, 30, 50)
            code, out, err = rest(process)
            assert code == 3 and out.endswith("\n59\n"), (code, out, err)
            assert f"process {pid} (sleep 6000)" in err and len(err.splitlines()) == 1, err
            assert harness.alive(pid)
        finally:
            os.kill(pid, signal.SIGKILL)
