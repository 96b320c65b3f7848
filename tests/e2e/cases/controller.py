"""Jobs over nodes whose controller dies: another one goes on by its journal, and so does the job."""

import contextlib
import os
import signal
import subprocess
import time

from harness import EYRIE, POLL_S, Job, alive, example, run_to_end, soon
from nodes import Nodes, Pointed, checkpointed_again, expected, gone


def kill_controller(job, count=1):
    """SIGKILL, and all nodes are with the next one."""
    record = job.until(job.status, "a status")
    os.kill(record["daemon_pid"], signal.SIGKILL)
    job.wait_event("controller-back", count=count)


def same_processes(job, before):
    """The ranks are those of that status: same processes, never started again. What a node says of
    them may come a moment after the next controller is there."""

    told = lambda record: [(r["pid"], r["incarnation"]) for r in record["ranks"]]
    same = lambda: (now := job.status()) and told(now) == told(before)
    job.until(same, f"the same processes, {told(before)}")


def unharmed(job):
    """No rank was touched."""
    assert not job.count("detected") and not job.count("restored"), job.report()
    assert not job.count("node-lost") and not job.count("rolled-back"), job.report()


def test_a_job_outlives_its_controller():
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = job.status()
        kill_controller(job)
        after = job.status()
        assert (before["reign"], after["reign"]) == (1, 2), after
        assert before["daemon_pid"] != after["daemon_pid"]
        same_processes(job, before)
        checkpointed_again(job)
        unharmed(job)
        job.ends_as("farm")
        assert job.count("controller-lost") == 1, job.report()


def test_it_is_killed_again_and_again():
    expected("heat")
    with Nodes("heat", 3, ckpt_every=0.2) as job:
        job.all_checkpointed()
        for count in range(1, 6):
            kill_controller(job, count)
        assert job.status()["reign"] == 6
        unharmed(job)
        job.ends_as("heat")


# Longer than a node bears that its controller could not kill (2.5 s).
SILENCE_S = 4


def stands_still(job):
    record = job.status()
    os.kill(record["daemon_pid"], signal.SIGSTOP)
    # That time passes is what it is about.
    time.sleep(SILENCE_S)
    return record


def test_it_stands_still_for_long_and_goes_on():
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = stands_still(job)
        os.kill(before["daemon_pid"], signal.SIGCONT)
        job.ends_as("farm")
        unharmed(job)


def test_it_takes_long_to_die():
    """As one does that a disk holds: its connections stand, and nothing comes over them."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = stands_still(job)
        os.kill(before["daemon_pid"], signal.SIGKILL)
        job.wait_event("controller-back")
        job.ends_as("farm")
        unharmed(job)


def ends_though_killed(job, point):
    """The controller dies at that point of the end of the job."""
    job.arm(point)
    job.let_end()
    os.kill(job.held_at(point), signal.SIGKILL)
    job.let_go(point)
    assert job.wait() == 0, job.report()
    assert job.stdout() == expected("cg"), job.report()
    unharmed(job)


def test_it_dies_when_the_job_is_over():
    with Pointed("cg", 2) as job:
        ends_though_killed(job, "end-1")
        gone(job)


def test_it_dies_when_a_job_is_over_that_is_kept():
    with Pointed("cg", 2, ["--keep"]) as job:
        ends_though_killed(job, "end-1")
        left = os.listdir(job.folder())
        assert {"ended.json", "node-0", "node-1"} <= set(left), left
        assert not {"journal", "nodes", "node.sock"} & set(left), left
        _, text, _ = job.eyrie("ps")
        assert "ended" in text, text


def test_eyrie_inject_kills_it():
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.eyrie("inject", "last", "kill-controller")
        job.wait_event("controller-back")
        assert job.count("injected") == 1
        job.eyrie("checkpoint", "last")
        job.ends_as("farm")


def test_ranks_and_nodes_that_die_with_it_come_back():
    """What dies while there is no controller is told to the next one, or missed by it."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.3) as job:
        job.all_checkpointed()
        record = job.status()
        on_last = [r["rank"] for r in record["ranks"] if r["node"] == 2]
        os.kill(record["daemon_pid"], signal.SIGSTOP)
        os.kill(record["ranks"][0]["pid"], signal.SIGKILL)
        os.kill(record["nodes"][2]["pid"], signal.SIGKILL)
        os.kill(record["daemon_pid"], signal.SIGKILL)
        job.wait_event("restored", rank=0)
        job.wait_event("node-lost", node=2)
        for rank in on_last:
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_it_dies_while_a_node_is_recovered():
    expected("farm")
    with Nodes("farm", 4, ["--spares", "1"], ckpt_every=0.3) as job:
        job.all_checkpointed()
        record = job.status()
        lost = [r["rank"] for r in record["ranks"] if r["node"] == 1]
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        os.kill(record["daemon_pid"], signal.SIGKILL)
        for rank in lost:
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_it_dies_while_checkpoints_are_taken():
    expected("heat")
    with Nodes("heat", 2, ckpt_every=0.2) as job:
        job.all_checkpointed()
        for count in range(1, 5):
            seen = job.count("checkpointing")
            pid = job.status()["daemon_pid"]
            job.wait_event("checkpointing", count=seen + 1)
            os.kill(pid, signal.SIGKILL)
            job.wait_event("controller-back", count=count)
        checkpointed_again(job)
        job.ends_as("heat")
        unharmed(job)


def test_standard_input_and_output_come_once():
    """Lines go in and come out while controllers die; none is missing, doubled or out of order."""
    lines = [f"line {n}" for n in range(3000)]
    code = "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)\n"
    program = ["python3", "-c", code]
    with Job(program, ranks=2, options=["--nodes", "2"], stdin="open") as job:
        for at in range(0, 3000, 500):
            job.process.stdin.write("".join(l + "\n" for l in lines[at : at + 500]).encode())
            job.process.stdin.flush()
            job.until(lambda: f"got line {at + 100}\n" in job.stdout(), "output")
            job.eyrie("inject", "last", "kill-controller")
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
        assert job.stdout() == "".join(f"got {l}\n" for l in lines), job.report()
        # One may be killed before all nodes are with it.
        assert job.count("controller-lost") == 6, job.report()
        gone(job)


def resume(job):
    """A new `eyrie run`, as it were, in the place of the one that is dead."""
    job.process.wait()
    with open(job.out_path, "ab") as out, open(job.err_path, "ab") as err:
        job.process = subprocess.Popen(
            [EYRIE, "resume", "last"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=job.env,
            start_new_session=True,
        )


def kill_both(job):
    record = job.status()
    # It must not see that its console is gone.
    os.kill(record["daemon_pid"], signal.SIGSTOP)
    job.process.kill()
    os.kill(record["daemon_pid"], signal.SIGKILL)
    job.process.wait()
    # Until then it holds the job's lock.
    soon(lambda: not alive(record["daemon_pid"]), "end of the controller")
    return record


def test_eyrie_resume_takes_the_place_of_eyrie_run():
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = kill_both(job)
        job.eyrie("ps")
        resume(job)
        job.wait_event("controller-back")
        same_processes(job, before)
        unharmed(job)
        job.ends_as("farm")


def all_end(job, record, limit=60):
    """Ranks and nodes end by themselves, though nobody is there to tell them."""
    pids = [e["pid"] for e in record["nodes"] + record["ranks"]]
    end = time.monotonic() + limit
    while any(alive(p) for p in pids):
        assert time.monotonic() < end, job.report()
        time.sleep(POLL_S)


def test_nodes_give_up_when_nobody_resumes():
    with Nodes("farm", 2, ["--controller-limit", "2"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = kill_both(job)
        all_end(job, record)
        # A process whose first thread has ended may hold its locks until its others have.
        soon(lambda: job.eyrie("ps") and not job.folder(), "end of the job's folder")
        code, _, err = job.eyrie("resume", "last", check=False)
        assert code == 1 and "no job" in err, err
        gone(job)


def test_what_has_a_controller_or_no_nodes_is_not_resumed():
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("resume", "last", check=False)
        assert code == 1 and "is running" in err, err
        job.ends_as("farm")
    code, _, err = run_to_end(example("farm"), options=["--controller-limit", "5"])
    assert code == 2 and "--controller-limit is for jobs over nodes" in err, err


def test_a_torn_record_is_cut_off():
    """Half a record at the end of the journal: the controller died while it wrote."""
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        kill_both(job)
        with open(os.path.join(job.folder(), "journal"), "ab") as f:
            f.write(b"\x40\x00\x00\x00torn")
        resume(job)
        job.wait_event("controller-back")
        unharmed(job)
        job.ends_as("farm")


def test_a_damaged_journal_is_refused():
    with Nodes("farm", 2, ["--controller-limit", "2"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = kill_both(job)
        with open(os.path.join(job.folder(), "journal"), "r+b") as f:
            f.seek(20)
            f.write(b"?")
        code, _, err = job.eyrie("resume", "last", check=False)
        assert code == 1 and "journal: it is damaged at byte 0" in err, err
        all_end(job, record)


# A file system that is soon full.
SMALL = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount -t tmpfs -o size=48m,mode=700 none "$EYRIE_HOME" && exec "$@"',
    "sh",
]


def test_the_disk_of_the_controller_is_full_for_a_while():
    """Standard input waits, the journal is given up, events are not written, each with a line; when there
    is room again the job takes its input, and outlives its controller."""
    code = "import sys\nfor line in sys.stdin: print(len(line), flush=True)\nprint('end')"
    how = dict(ranks=1, options=["--nodes", "2"], stdin="open", ckpt_every=3600, wrap=SMALL)
    with Job(["python3", "-c", code], **how) as job:

        def send(text):
            job.process.stdin.write(text)
            job.process.stdin.flush()

        send(b"first\n")
        job.until(lambda: job.stdout() == "6\n", "the first line")
        filler = os.path.join(job.job_home, "filler")
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        send(b"y" * 100_000 + b"\n")
        job.says("standard input cannot be kept")

        def said_of_files():
            # What was begun of a page of each file has room.
            job.eyrie("checkpoint", "last", check=False)
            texts = ("journal cannot be written", "events are not written")
            return all(text in job.stderr() for text in texts)

        job.until(said_of_files, "lines about journal and events")
        assert job.stdout() == "6\n" and job.running(), job.report()
        os.remove(filler)
        job.says("standard input is kept, and read, again")
        job.until(lambda: job.stdout() == "6\n100001\n", "the long line")
        job.says("journal is written again")
        os.kill(job.status()["daemon_pid"], signal.SIGKILL)
        job.says("another one goes on")
        send(b"last\n")
        job.until(lambda: job.stdout().endswith("\n5\n"), "the last line")
        # The next controller has written their file anew, without the line that was torn.
        job._events, job._events_at = [], 0
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
        assert job.stdout() == "6\n100001\n5\nend\n", job.report()
        for text in ("cannot be kept", "cannot be written", "events are not written"):
            assert job.stderr().count(text) == 1, job.stderr()
