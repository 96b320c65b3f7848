"""Nodes leave a job while it runs (`eyrie drain`): nothing is computed again, and nothing stays."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile

from harness import EYRIE, TIMEOUT_S, alive
from hosts import Hosted, shell
from nodes import SIZES, Nodes, Pointed, expected, kill_stopped
from restart import restart


def drain(job, *words, code=0):
    """Asks and waits; returns what each line of the answer says."""
    got, out, err = job.eyrie("drain", "last", *words, "--json", check=False)
    assert got == code, (got, out, err, job.report())
    return [json.loads(line) for line in out.splitlines()]


class Asked:
    """`eyrie drain` in the background."""

    command = "drain"

    def __init__(self, job, *words):
        self.process = subprocess.Popen(
            [EYRIE, self.command, "last", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=job.env,
            text=True,
        )

    def over(self):
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out, err

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def test_states_are_brought_to_the_jobs_folder_again_when_a_node_has_left():
    """From there the job goes on when all others die."""
    expected("farm")
    with Nodes("farm", 3, ["--save-every", "0.05"], ckpt_every=0.3) as job:
        record = ready(job)
        job.wait_event("flushed")
        drain(job, "1")
        is_gone(job, 1, record)
        before = job.count("flushed")
        job.wait_event("flushed", count=before + 2)
        job.kill_nodes(0, 2)
        assert job.wait() == 1, job.report()
        restart(job, "--nodes", "2")
        job.wait_event("restarted")
        job.ends_as("farm")
        assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def on_node(record, node):
    return [r["rank"] for r in record["ranks"] if r["node"] == node]


def ready(job):
    """All ranks run and have an image; what the nodes are then."""
    job.wait_running(4)
    job.all_checkpointed()
    return job.status()


def is_gone(job, node, record):
    """Its daemon has ended well, and neither storage nor process of it is there."""
    job.wait_event("node-left", node=node)
    left = [e for e in job.events() if e["event"] == "node-left" and e["node"] == node]
    assert [e["count"] for e in left] == [0], left
    assert not alive(record["nodes"][node]["pid"]), job.report()
    folder = os.path.join(job.folder(), f"node-{node}")
    assert not os.path.exists(folder), os.listdir(folder)
    now = job.status()
    assert now["nodes"][node]["state"] == "left" and not on_node(now, node), now
    assert all(node not in r["image_nodes"] for r in now["ranks"]), now


def nothing_again(job, moved):
    """The ranks that moved did so once, and nobody has computed anything again."""
    events = job.events()
    restored = sorted(e["rank"] for e in events if e["event"] == "restored")
    assert restored == sorted(moved), (restored, moved, job.report())
    again = [e for e in events if e["event"] == "caught-up" and e["count"]]
    assert not again, again
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    assert not job.count("node-lost") and not job.count("detected"), job.report()


def leaves(name, nodes, leaving, options=(), home=None):
    """A node leaves in mid-run."""
    expected(name)
    with Nodes(name, nodes, options, ckpt_every=0.5) as job:
        record = ready(job)
        moved = on_node(record, leaving)
        steps = drain(job, str(leaving))
        assert steps[-1]["step"] == "left", steps
        is_gone(job, leaving, record)
        now = job.status()
        assert (now["recoveries"], now["rollbacks"]) == (0, 0), now
        homes = {now["ranks"][rank]["node"] for rank in moved}
        assert home is None or homes == {home}, (homes, now)
        job.ends_as(name)
        nothing_again(job, moved)


def generated():
    cases = [(f"{name}_leaves_one_of_three", leaves, name, 3, 1) for name in SIZES]
    cases += [
        ("the_first_of_two_leaves", leaves, "farm", 2, 0, [], 1),
        ("the_last_of_four_leaves_in_turn", leaves, "heat", 4, 3, ["--map", "cyclic"]),
        ("a_spare_takes_its_ranks", leaves, "heat", 2, 1, ["--spares", "1"], 2),
        ("with_two_replicas", leaves, "farm", 4, 2, ["--log-replicas", "2"]),
        ("with_tls", leaves, "farm", 3, 1, ["--tls"]),
        ("with_a_vault", leaves, "farm", 4, 1, ["--vault", "rs:2+1"]),
        ("with_images_on_their_nodes_only", leaves, "farm", 3, 1, ["--vault", "local"]),
    ]
    return [(label, lambda rest=rest: rest[0](*rest[1:])) for label, *rest in cases]


def test_a_spare_leaves():
    expected("cg")
    with Nodes("cg", 2, ["--spares", "1"], ckpt_every=0.5) as job:
        record = ready(job)
        drain(job, "2")
        is_gone(job, 2, record)
        job.ends_as("cg")
        nothing_again(job, [])


def test_where_ranks_go_can_be_said():
    expected("farm")
    with Nodes("farm", 3, ["--spares", "1"], ckpt_every=0.5) as job:
        record = ready(job)
        drain(job, "1", "--to", "2")
        is_gone(job, 1, record)
        now = job.status()
        moved = on_node(record, 1)
        assert all(now["ranks"][rank]["node"] == 2 for rank in moved), now
        job.ends_as("farm")
        nothing_again(job, moved)


def test_two_nodes_leave_at_once():
    expected("heat")
    with Nodes("heat", 4, ckpt_every=0.5) as job:
        record = ready(job)
        steps = drain(job, "1", "3")
        assert sorted(s["node"] for s in steps if s["step"] == "left") == [1, 3], steps
        for node in (1, 3):
            is_gone(job, node, record)
        job.ends_as("heat")
        nothing_again(job, on_node(record, 1) + on_node(record, 3))


def test_a_node_leaves_while_another_is_leaving():
    """Asked for by commands of their own: the second when an image of the first one's is on its way."""
    expected("farm")
    with Pointed("farm", 4, ckpt_every=0.5) as job:
        record = ready(job)
        job.arm("leave-3")
        with Asked(job, "1") as first:
            job.held_at("leave-3")
            with Asked(job, "3") as second:
                job.until(lambda: job.begun() == [1, 3], "the second node's turn")
                job.let_go("leave-3")
                for asked, node in ((first, 1), (second, 3)):
                    code, out, err = asked.over()
                    told = f"node {node}, " in out and "has left" in out
                    assert code == 0 and told, (code, out, err)
        for node in (1, 3):
            is_gone(job, node, record)
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1) + on_node(record, 3))


def test_one_leaves_after_the_other_down_to_one():
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        for node in (0, 2):
            drain(job, str(node))
            is_gone(job, node, record)
        now = job.status()
        assert on_node(now, 1) == [0, 1, 2, 3], now
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("node-lost"), job.report()


def test_nodes_are_exchanged_one_by_one():
    """Rolling maintenance: a new node joins, an old one leaves."""
    expected("heat")
    with Nodes("heat", 2, ckpt_every=0.5) as job:
        record = ready(job)
        for node in (0, 1):
            job.eyrie("grow", "last")
            moved = on_node(job.status(), node)
            drain(job, str(node))
            is_gone(job, node, record)
            now = job.status()
            assert all(now["ranks"][rank]["node"] == node + 2 for rank in moved), now
        job.ends_as("heat")
        nothing_again(job, [0, 1, 2, 3])


def test_a_host_leaves():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        record = ready(job)
        moved = on_node(record, 1)
        drain(job, "beta")
        job.wait_event("node-left", node=1)
        nodes = os.path.join(job.home, "nodes")
        left = [n for m in os.listdir(nodes) for n in os.listdir(os.path.join(nodes, m))]
        assert len(left) == 2 and not [n for n in left if n.endswith("-1")], left
        assert not alive(record["nodes"][1]["pid"]), job.report()
        job.ends_as("farm")
        nothing_again(job, moved)


def test_what_a_node_that_left_had_kept_outlives_the_next_loss():
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        drain(job, "1")
        is_gone(job, 1, record)
        victims = on_node(job.status(), 2)
        job.kill_nodes(2)
        for rank in victims:
            job.wait_event("restored", rank=rank, node=0)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_node_is_lost_on_its_way_out():
    expected("farm")
    with Pointed("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        victim = record["nodes"][1]["pid"]
        job.arm("leave-1")
        with Asked(job, "1") as asked:
            # So it gets no further.
            job.stopped_at("leave-1", victim)
            job.wait_event("node-leaving", node=1)
            kill_stopped(victim)
            code, out, err = asked.over()
        assert code == 1 and "is lost" in out, (code, out, err)
        for rank in on_node(record, 1):
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("node-left"), job.report()


def test_the_target_is_lost_before_it_has_anything():
    """The ranks go elsewhere."""
    expected("heat")
    with Pointed("heat", 3, ["--spares", "1"], ckpt_every=0.5) as job:
        record = ready(job)
        target = record["nodes"][3]["pid"]
        job.arm("leave-1")
        with Asked(job, "1", "--to", "3") as asked:
            job.stopped_at("leave-1", target)
            job.wait_event("node-leaving", node=1)
            kill_stopped(target)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        is_gone(job, 1, record)
        assert {r["node"] for r in job.status()["ranks"]} <= {0, 2}, job.report()
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_controller_dies_on_the_way():
    """The next one goes on with it."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        with Asked(job, "1") as asked:
            job.wait_event("node-leaving", node=1)
            os.kill(record["daemon_pid"], signal.SIGKILL)
            job.wait_event("controller-back")
            job.wait_event("node-left", node=1)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        assert not alive(record["nodes"][1]["pid"]), job.report()
        assert not os.path.exists(os.path.join(job.folder(), "node-1")), job.report()
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1))


def test_ranks_that_die_on_the_way_do_no_harm():
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        with Asked(job, "1") as asked:
            job.wait_event("node-leaving", node=1)
            job.eyrie("inject", "last", "kill-rank", "0", check=False)
            for rank in on_node(record, 1):
                job.eyrie("inject", "last", "kill-rank", str(rank), check=False)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        is_gone(job, 1, record)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_node_that_is_not_out_in_time_is_given_up():
    expected("heat")
    with Nodes("heat", 3, ckpt_every=0.5) as job:
        record = ready(job)
        steps = drain(job, "1", "--deadline", "0.001", code=1)
        assert [s["step"] for s in steps if s["node"] == 1][-1] == "lost", steps
        assert any(s["step"] == "late" for s in steps), steps
        job.wait_event("node-lost", node=1)
        for rank in on_node(record, 1):
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_deadline_is_held_against_the_memory_of_ranks_without_images():
    expected("heat")
    with Nodes("heat", 3, ckpt_every=100000) as job:
        record = job.wait_running(4)
        steps = drain(job, "1", "--deadline", "0.001", code=1)
        late = steps[0]["text"]
        assert steps[0]["step"] == "late" and "it takes about" in late, steps
        # Which are named depends on what memory they have by now.
        assert "newest image" in late, steps
        assert steps[-1]["step"] == "lost", steps
        for rank in on_node(record, 1):
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("diverged"), job.report()


def test_a_generous_deadline_changes_nothing():
    expected("heat")
    with Nodes("heat", 3, ckpt_every=0.5) as job:
        record = ready(job)
        drain(job, "1", "--deadline", "600")
        is_gone(job, 1, record)
        job.ends_as("heat")
        nothing_again(job, on_node(record, 1))


def refused(job, words, *told):
    code, out, err = job.eyrie("drain", "last", *words, check=False)
    assert code == 1 and not out, (words, code, out, err)
    assert len(err.splitlines()) == 1 and all(t in err for t in told), (words, err)


def test_what_cannot_be_is_refused():
    expected("cg")
    with Nodes("cg", 2, ckpt_every=0.5) as job:
        record = ready(job)
        refused(job, ["7"], "no node 7", "node 0", "node 1")
        refused(job, ["alpha"], "no node alpha")
        refused(job, ["0", "1"], "no node would stay", "eyrie grow")
        refused(job, ["0", "--to", "0"], "leave itself")
        refused(job, ["0", "--to", "9"], "no node 9")
        drain(job, "0")
        is_gone(job, 0, record)
        refused(job, ["0"], "has left already")
        refused(job, ["1"], "no node would stay")
        job.ends_as("cg")


def test_a_node_that_leaves_is_not_asked_again():
    expected("farm")
    with Pointed("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        job.arm("leave-3")
        with Asked(job, "1") as asked:
            # It gets no further, and is not silent, however long the others take.
            job.held_at("leave-3")
            job.wait_event("node-leaving", node=1)
            again = job.eyrie("drain", "last", "1", check=False)
            save = job.eyrie("checkpoint", "last", "--end", check=False)
            job.let_go("leave-3")
            code, out, err = asked.over()
        assert again[0] == 1 and "already" in again[2], again
        assert save[0] == 1 and "node 1" in save[2], save
        assert code == 0 and "has left" in out, (code, out, err)
        is_gone(job, 1, record)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_ranks_that_go_back_together_go_on_elsewhere():
    """All of them, from a set with which they stand: nobody has done anything since."""
    expected("farm")
    with Nodes("farm", 3, ["--ft", "coordinated"], ckpt_every=3600) as job:
        record = job.wait_running(4)
        drain(job, "1")
        is_gone(job, 1, record)
        job.wait_event("rolled-back", text="all ranks, to go on elsewhere where they stood")
        now = job.status()
        assert now["rollbacks"] == 0 and not on_node(now, 1), now
        job.ends_as("farm")
        assert job.count("rolled-back") == 1 and not job.count("node-lost"), job.report()


def test_a_drain_is_called_off_as_long_as_no_rank_has_moved():
    """Ctrl-C ends the command and nothing else, and says how."""
    expected("farm")
    with Pointed("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        refused(job, ["--cancel", "1"], "node 1 is not about to leave")
        job.arm("leave-3")
        with Asked(job, "1") as asked:
            job.held_at("leave-3")
            asked.process.send_signal(signal.SIGINT)
            code, _, err = asked.over()
        assert code == 128 + signal.SIGINT and "eyrie drain --cancel" in err, (code, err)
        assert not job.count("node-stays"), job.report()
        job.eyrie("drain", "--cancel", "last", "1")
        job.wait_event("node-stays", node=1, text="it was called off")
        job.let_go("leave-3")
        drain(job, "1")
        is_gone(job, 1, record)
        refused(job, ["--cancel", "1"], "has left already")
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1))


def test_other_jobs_have_no_node_to_spare():
    for options, told in ([], "--nodes"), (["--nodes", "2", "--ft", "none"], "none"):
        with Nodes("heat", options) as job:
            job.wait_running(4)
            refused(job, ["0"], told)
            job.ends_as("heat")


def test_all_jobs_on_a_machine_are_asked():
    """By its name, for who does not know them; others are let be, and the worst code counts."""
    expected("farm")
    with contextlib.ExitStack() as stack:
        rsh = stack.enter_context(shell())
        one = stack.enter_context(Hosted("farm", rsh, ckpt_every=0.5))
        one.all_checkpointed()
        other = stack.enter_context(Hosted("farm", rsh, hosts="beta,delta", ckpt_every=0.5))
        other.all_checkpointed()
        # Each has a home of its own here.
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="eyrie-test-"))
        os.mkdir(os.path.join(home, "jobs"))
        names = [job.status()["job"] for job in (one, other)]
        for job, name in zip((one, other), names):
            os.symlink(job.folder(), os.path.join(home, "jobs", name))

        def drain_all(*words):
            done = subprocess.run(
                [EYRIE, "drain", "all", *words],
                env={**os.environ, "EYRIE_HOME": home},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            return done.returncode, done.stdout, done.stderr

        code, out, err = drain_all("epsilon")
        assert code == 0 and "no job has a node that is named epsilon" in out, (code, out, err)
        code, out, err = drain_all("1")
        assert code == 2 and "name hosts" in err, (code, out, err)
        code, out, err = drain_all("beta", "--json")
        assert code == 0, (code, out, err)
        left = {(r["job"], r["node"]) for r in map(json.loads, out.splitlines()) if r["step"] == "left"}
        assert left == {(names[0], 1), (names[1], 0)}, out
        # The last node of the other job stays.
        code, out, err = drain_all("gamma", "delta")
        assert code == 1 and f"job {names[1]}: " in err and names[0] not in err, (code, out, err)
        assert f"job {names[0]}, node 2" in out and "has left" in out, (code, out, err)
        other.ends_as("farm")
        one.ends_as("farm")
        for job in (one, other):
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()
