"""Jobs over nodes that are saved as a whole, and go on on the same nodes or on others."""

import os
import signal

from bad_input import program
from controller import kill_controller
from harness import Job, soon
from hosts import Hosted, shell
from nodes import Nodes, expected, kill_stopped
from restart import SAVED, hold_up, lines, restart, save


def ended_well(job, name):
    job.ends_as(name)
    assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def homes(job):
    return [r["node"] for r in job.wait_running(4)["ranks"]]


def moved(name):
    """Saved on 4 nodes, on 2, on 3: the result is that of an undisturbed run."""
    expected(name)
    with Nodes(name, 4, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.wait_event("checkpointed", rank=2)
        for number, nodes in ((1, 2), (2, 3)):
            save(job)
            folder = job.folder()
            assert not [n for n in os.listdir(folder) if n.startswith("node-")], os.listdir(folder)
            restart(job, "--nodes", str(nodes))
            job.wait_event("restored", count=4 * number)
            assert homes(job) == [r * nodes // 4 for r in range(4)], job.report()
        ended_well(job, name)
        assert job.count("saved") == 2, job.report()


def loses_a_node_after_a_restart(name, moment, count, **fields):
    """At once, while ranks come back, or when all of them have but not all has its second copy."""
    expected(name)
    with Nodes(name, 3, ckpt_every=3600) as job:
        job.wait_running(4)
        save(job)
        restart(job, "--nodes", "3", "--map", "cyclic")
        job.wait_event(moment, count=count, **fields)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        job.ends_as(name)
        assert not job.count("diverged"), job.report()


def generated():
    for name in ("farm", "cg", "heat", "sort"):
        yield f"{name}_moved", lambda n=name: moved(n)
    for name in ("farm", "cg"):
        # The second time, as the job had begun on three nodes, too.
        test = lambda n=name: loses_a_node_after_a_restart(n, "node-joined", 2, node=1)
        yield f"{name}_loses_a_node_that_has_joined", test
        for count in (1, 4):
            test = lambda n=name, c=count: loses_a_node_after_a_restart(n, "restored", c)
            yield f"{name}_loses_a_node_when_{count}_are_back", test


def test_on_the_same_nodes():
    """Saved by a command, with a node that had been lost and a spare; all goes on on as many."""
    expected("farm")
    with Nodes("farm", 3, ["--spares", "1", "--map", "cyclic"], ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        job.kill_nodes(1)
        job.wait_event("restored", rank=1)
        _, out, _ = job.eyrie("checkpoint", "last", "--end")
        assert out.count("checkpoint") == 4, out
        assert job.wait() == SAVED, job.report()
        assert job.status()["phase"] == "saved", job.status()
        restored = job.count("restored")
        restart(job)
        job.wait_event("restored", count=restored + 4)
        record = job.wait_running(4)
        assert [n["node"] for n in record["nodes"]] == [0, 1, 2, 3], record
        assert [r["node"] for r in record["ranks"]] == [0, 1, 2, 0], record
        ended_well(job, "farm")


def test_what_is_saved_goes_when_nodes_have_it():
    """By then the loss of a node is survived by what the others have."""
    expected("cg")
    with Nodes("cg", 3, ckpt_every=3600) as job:
        job.wait_running(4)
        save(job)
        restart(job)
        folder = job.folder()
        job.until(lambda: not os.path.exists(os.path.join(folder, "saved")), "the end of it")
        images = os.path.join(folder, "images")
        job.until(lambda: not os.listdir(images), "the end of its images")
        restored = job.count("restored")
        job.kill_nodes(2)
        job.wait_event("restored", count=restored + 1)
        ended_well(job, "cg")


def test_ranks_that_have_ended():
    """They are run again, as the others may need what they sent."""
    expected("cg")
    with Nodes("cg", 2, ckpt_every=3600) as job:
        job.wait_running(4)
        job.let_end(1, 2)
        job.wait_event("exited", count=2)
        save(job)
        restart(job, "--nodes", "3")
        job.wait_event("restored", count=4)
        ended_well(job, "cg")


def test_a_node_dies_while_the_job_is_saved():
    """When all ranks have been killed: the job is not saved, goes on, and is saved later."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=3600) as job:
        job.wait_running(4)
        hold_up(job, 1)
        job.interrupt(signal.SIGQUIT)
        job.until(lambda: (job.status() or {}).get("phase") == "saving", "the saving")
        job.kill_nodes(1)
        job.says("is not saved")
        job.wait_event("restored", count=4)
        save(job)
        restart(job, "--nodes", "2")
        job.wait_event("restored", count=8)
        ended_well(job, "farm")


def test_a_node_dies_before_all_have_their_checkpoints():
    """Its ranks come back, get theirs, and then the job is saved; unless the copy of an image was on
    its way to that node: then it goes on, and is saved the next time."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=3600) as job:
        record = job.wait_running(4)
        os.kill(record["nodes"][1]["pid"], signal.SIGSTOP)
        job.interrupt(signal.SIGQUIT)
        job.wait_event("checkpointing")
        kill_stopped(record["nodes"][1]["pid"])
        job.until(lambda: not job.running() or "is not saved" in job.stderr(), "an answer")
        if job.running():
            # Images may fail to come there before the node is known to be lost.
            job.wait_event("node-lost", node=1)
            save(job)
        assert job.wait() == SAVED, job.report()
        assert job.count("node-lost") == 1, job.report()
        restart(job, "--nodes", "2", "--spares", "1")
        job.wait_event("restarted")
        job.ends_as("farm")
        assert not job.count("diverged"), job.report()


def test_what_cannot_be_written_ends_nothing():
    expected("farm")
    for path, kind in (("images", os.mkfifo), (".saved.part", os.mkdir)):
        with Nodes("farm", 2, ckpt_every=3600) as job:
            job.wait_running(4)
            path = os.path.join(job.folder(), path)
            kind(path)
            job.interrupt(signal.SIGQUIT)
            job.says("is not saved")
            (os.unlink if kind is os.mkfifo else os.rmdir)(path)
            job.wait_event("restored", count=4)
            save(job)
            restart(job)
            ended_well(job, "farm")


def test_input_goes_on():
    """What came before is kept; rank 0 is on another node then."""
    first, rest = lines(20), b"and\nthe\nrest\n"
    with Job(program("lines"), ckpt_every=3600, stdin=first + rest) as job:
        assert job.wait() == 0, job.report()
        want = job.stdout()
    with Job(program("lines"), ckpt_every=3600, stdin="open", options=["--nodes", "2"]) as job:
        job.process.stdin.write(first)
        job.process.stdin.flush()
        job.until(lambda: "19: " in job.stdout(), "the first lines")
        save(job)
        restart(job, "--nodes", "1", "--spares", "1", stdin=-1)
        job.process.stdin.write(rest)
        job.process.stdin.close()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        job.settle()
        assert not job.left_over(), job.left_over()


def test_on_other_hosts():
    """Over three hosts, then over two others, then over nodes here."""
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=3600) as job:
        job.wait_running(4)
        save(job)
        # But for the job's folder. The command has ended, keepers may take a moment more.
        empty = lambda: all("folder" in left for left in job.left_over())
        soon(empty, "hosts without anything of the job")
        where = ["--rsh", rsh, "--address", "127.0.0.1"]
        restart(job, "--hosts", "delta,epsilon:1", *where)
        job.wait_event("restored", count=4)
        record = job.wait_running(4)
        assert [n["host"] for n in record["nodes"]] == ["delta", "epsilon"], record
        assert [r["node"] for r in record["ranks"]] == [0, 0, 0, 1], record
        save(job)
        # The same hosts, as nothing else is said.
        restart(job)
        job.wait_event("restored", count=8)
        assert [n["host"] for n in job.wait_running(4)["nodes"]] == ["delta", "epsilon"]
        save(job)
        restart(job, "--nodes", "2")
        job.wait_event("restored", count=12)
        ended_well(job, "farm")


def test_wrong_places_are_refused():
    with Nodes("cg", 2, ckpt_every=3600) as job:
        job.wait_running(4)
        save(job)
        for options, word in (
            (["--address", "127.0.0.1"], "--hosts"),
            (["--hosts", "a", "--nodes", "2"], "--nodes"),
            (["--hosts", "a:0", "--rsh", "true"], "slots"),
            (["--hosts", "a:1,b:1", "--rsh", "true", "--address", "127.0.0.1"], "slots"),
        ):
            code, _, err = job.eyrie("restart", *options, "last", check=False)
            assert code == 2 and word in err, (options, code, err)
        assert job.status()["phase"] == "saved", job.status()
        job.eyrie("abort", "last")
        assert not job.left_over(), job.left_over()


def test_its_controller_dies_after_a_restart():
    """While nodes join, while ranks come back, and when all are back; a node goes with the last."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        save(job)
        restart(job, "--nodes", "3")
        job.wait_event("node-joined", count=4)
        job.until(lambda: os.path.exists(os.path.join(job.folder(), "journal")), "the journal")
        kill_controller(job)
        job.wait_event("restored")
        kill_controller(job, 2)
        job.wait_event("restored", count=4)
        job.wait_running(4)
        pid, lost = job.status()["daemon_pid"], job.status()["nodes"][2]["pid"]
        os.kill(lost, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
        job.wait_event("node-lost", node=2)
        job.wait_running(4)
        job.ends_as("farm")
        assert not job.count("diverged"), job.report()


def test_it_is_saved_once_more_by_another_controller():
    """What is saved goes when it is not needed, and comes again."""
    expected("cg")
    with Nodes("cg", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        save(job)
        restart(job, "--nodes", "3")
        job.wait_running(4)
        kill_controller(job)
        file = os.path.join(job.folder(), "saved")
        job.until(lambda: not os.path.exists(file), "the end of what was saved")
        save(job)
        assert os.path.exists(file) and job.status()["phase"] == "saved"
        restart(job)
        job.wait_running(4)
        ended_well(job, "cg")
