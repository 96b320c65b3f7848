"""Jobs over several nodes: the loss of ranks, of nodes with their storage, and of the controller."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time

from harness import BUILD, Job, alive, compile_gate, example, reachable, run_to_end

# Short runs: what is tested is the course of events.
SIZES = {
    "farm": ["--tasks", "2000"],
    "heat": ["--size", "256", "--steps", "1500", "--progress"],
    "cg": ["--class", "S", "--repeat", "1"],
    "sort": ["--log2", "18", "--iterations", "10", "--progress"],
}
_expected = {}
_gate = []


def expected(name):
    """The output of an undisturbed run on one node, made once."""
    if name not in _expected:
        code, out, err = run_to_end(example(name) + SIZES[name])
        assert code == 0 and "checksum" in out, (code, out, err)
        _expected[name] = out
    return _expected[name]


class Nodes(Job):
    """A job over nodes (so many, or as these options say) that runs an example, or this command:
    knows their daemons, and what they leave behind. Its ranks do not end before they are let."""

    def __init__(self, name, nodes, options=(), env=None, sizes=None, **more):
        if not _gate:
            _gate.append(compile_gate())
        where = nodes if isinstance(nodes, list) else ["--nodes", str(nodes)]
        options = [*where, *options]
        self.gates = tempfile.mkdtemp(prefix="eyrie-test-")
        self.gate = os.path.join(self.gates, "gate")
        preload = _gate[0]
        if self.ordinary:
            preload = reachable(preload)
            os.chmod(self.gates, 0o755)
        env = {"LD_PRELOAD": preload, "EYRIE_TEST_GATE": self.gate, **(env or {})}
        command = name if isinstance(name, list) else example(name) + (sizes or SIZES[name])
        super().__init__(command, options=options, env=env, **more)

    def close(self):
        super().close()
        shutil.rmtree(self.gates, ignore_errors=True)

    def let_end(self, *ranks):
        """Ranks may end: these, or all."""
        for name in [f"{self.gate}.{rank}" for rank in ranks] or [self.gate]:
            open(name, "w").close()

    def kill_nodes(self, *nodes):
        return self.eyrie("inject", "last", "kill-node", ",".join(str(n) for n in nodes))

    def all_checkpointed(self, count=1):
        """Every rank has completed so many checkpoints."""
        for rank in range(4):
            self.wait_event("checkpointed", rank=rank, count=count)

    def ends_as(self, name):
        """The output is that of an undisturbed run, and nothing is left."""
        want = expected(name)
        self.let_end()
        assert self.wait() == 0, self.report()
        assert self.stdout() == want, self.report()
        gone(self)


class Points:
    """Of a job over nodes whose controller waits at the points that are armed."""

    def __init__(self, *arguments, env=None, armed=(), **more):
        self.points = tempfile.mkdtemp(prefix="eyrie-test-")
        for point in armed:
            self.arm(point)
        env = {"EYRIE_POINTS": self.points, **(env or {})}
        super().__init__(*arguments, env=env, **more)

    def close(self):
        super().close()
        shutil.rmtree(self.points, ignore_errors=True)

    def arm(self, point):
        open(os.path.join(self.points, point), "w").close()

    def held_at(self, point):
        """Its process, when the controller has come to that point, where it waits."""

        def told_who():
            try:
                with open(os.path.join(self.points, f"{point}.pid")) as file:
                    return file.read()
            except OSError:
                return ""

        return int(self.until(told_who, point))

    def let_go(self, point):
        os.remove(os.path.join(self.points, f"{point}.held"))

    def dies_at(self, point, count):
        """The controller has come to that point, and dies there; the next one goes on."""
        os.kill(self.held_at(point), signal.SIGKILL)
        self.let_go(point)
        self.wait_event("controller-back", count=count)


class Pointed(Points, Nodes):
    def begun(self):
        return [e["node"] for e in self.events() if e["event"] == "node-leaving"]

    def stopped_at(self, point, node):
        """The controller has come to that point: before it goes on, this node stops, whose process
        that is. That it is silent by then, and not lost yet, hangs on nobody's speed."""
        self.held_at(point)
        os.kill(node, signal.SIGSTOP)
        self.let_go(point)


def kill_stopped(pid):
    """A node that had stopped: its silence may have been noticed by now, and it killed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def gone(job):
    """No process and no folder of the job is left, soon."""
    job.settle()
    assert not job.left_over(), job.left_over()


def undisturbed(name, nodes, options=()):
    expected(name)
    with Nodes(name, nodes, options, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        homes = [r["node"] for r in record["ranks"]]
        if "cyclic" in options:
            assert homes == [r % nodes for r in range(4)], homes
        else:
            assert homes == [r * nodes // 4 for r in range(4)], homes
        job.ends_as(name)
        assert not job.count("detected") and not job.count("rolled-back"), job.report()


def killed(name, nodes, lost, options=(), make=Nodes):
    """Nodes are killed with all that is on them, after all ranks have images."""
    expected(name)
    with make(name, nodes, options, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        job.all_checkpointed()
        folder = job.folder()
        job.kill_nodes(*lost)
        for node in lost:
            job.wait_event("node-lost", node=node)
        victims = [r["rank"] for r in record["ranks"] if r["node"] in lost]
        for rank in victims:
            job.wait_event("restored", rank=rank)
        for node in lost:
            assert not os.path.exists(os.path.join(folder, f"node-{node}")), os.listdir(folder)
        job.status()
        job.ends_as(name)
        restored = [e["rank"] for e in job.events() if e["event"] == "restored"]
        assert sorted(restored) == victims, restored
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def generated():
    cases = [(f"{name}_on_{n}", undisturbed, name, n) for name in SIZES for n in (2, 4)]
    cases += [("farm_in_turn", undisturbed, "farm", 3, ["--map", "cyclic"])]
    for name in ("farm", "heat"):
        cases += [
            (f"{name}_loses_a_node", killed, name, 2, [1]),
            (f"{name}_loses_the_first_of_three", killed, name, 3, [0]),
            (f"{name}_loses_two_and_has_a_spare", killed, name, 4, [0, 2], ["--spares", "1"]),
        ]
    return [(label, lambda f=f, rest=rest: f(*rest)) for label, f, *rest in cases]


def test_ranks_die_on_their_nodes():
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_ranks([0, 3])
        job.wait_event("restored", rank=0)
        job.wait_event("restored", rank=3)
        job.status()
        job.ends_as("farm")


def test_a_daemon_is_killed_behind_its_back():
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        os.kill(job.status()["nodes"][1]["pid"], signal.SIGKILL)
        job.wait_event("node-lost", node=1)
        job.ends_as("farm")


def test_a_node_is_lost_while_a_checkpoint_is_taken():
    expected("heat")
    with Nodes("heat", 3, ckpt_every=0.2) as job:
        job.all_checkpointed()
        on_last = [r["rank"] for r in job.status()["ranks"] if r["node"] == 2]
        seen = job.count("checkpointing", rank=on_last[0])
        job.wait_event("checkpointing", rank=on_last[0], count=seen + 1)
        job.kill_nodes(2)
        job.wait_event("restored", rank=on_last[0])
        job.ends_as("heat")


def test_a_node_is_lost_while_another_is_recovered():
    expected("farm")
    with Nodes("farm", 4, ckpt_every=0.5, options=["--spares", "1"]) as job:
        job.all_checkpointed()
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        job.kill_nodes(3)
        job.wait_event("node-lost", node=3)
        job.ends_as("farm")


def checkpointed_again(job):
    """Every rank has completed a checkpoint that was begun from now on. It was told through the gate
    of its node, so all that was recorded before it is held elsewhere."""
    begun = {rank: job.count("checkpointing", rank=rank) for rank in range(4)}
    for rank in range(4):
        job.wait_event("checkpointing", rank=rank, count=begun[rank] + 1)
    done = {rank: job.count("checkpointed", rank=rank) for rank in range(4)}
    for rank in range(4):
        job.wait_event("checkpointed", rank=rank, count=done[rank] + 1)


def test_homes_die_in_a_row_while_ranks_are_on_their_way():
    """The spare that ranks go to is lost before they run there, and then the next home."""
    expected("farm")
    with Nodes("farm", 4, ckpt_every=0.3, options=["--spares", "1"]) as job:
        job.all_checkpointed()
        # It does nothing more, so that nothing starts on it.
        spare = job.status()["nodes"][4]["pid"]
        os.kill(spare, signal.SIGSTOP)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        # Its silence may have been noticed by now.
        with contextlib.suppress(ProcessLookupError):
            os.kill(spare, signal.SIGKILL)
        job.wait_event("node-lost", node=4)
        job.wait_event("restored", rank=1)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_last_node_is_silent_for_a_while_and_goes_on():
    """Nobody could take its place, so it is waited for much longer than any other would be."""
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.3) as job:
        job.all_checkpointed()
        node = job.status()["nodes"][1]["pid"]
        lost = [r["rank"] for r in job.status()["ranks"] if r["node"] == 0]
        job.kill_nodes(0)
        for rank in lost:
            job.wait_event("restored", rank=rank)
        os.kill(node, signal.SIGSTOP)
        # Twice what is borne of a node that is not the last.
        time.sleep(5)
        os.kill(node, signal.SIGCONT)
        job.ends_as("farm")
        assert job.count("node-lost") == 1, job.report()


def test_three_nodes_die_one_after_the_other():
    expected("farm")
    with Nodes("farm", 4, ckpt_every=0.3, options=["--spares", "1"]) as job:
        job.all_checkpointed()
        for count, node in enumerate([1, 4, 2], 1):
            lost = [r["rank"] for r in job.status()["ranks"] if r["node"] == node]
            assert lost, job.report()
            before = {rank: job.count("restored", rank=rank) for rank in lost}
            job.kill_nodes(node)
            job.wait_event("node-lost", count=count)
            for rank in lost:
                job.wait_event("restored", rank=rank, count=before[rank] + 1)
            checkpointed_again(job)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def all_begin_again(nodes):
    """A node and its partner, which holds images and outcomes, are lost together."""
    expected("heat")
    with Nodes("heat", nodes, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_nodes(0, 1)
        job.wait_event("rolled-back")
        job.ends_as("heat")


def test_without_images_and_outcomes_all_begin_again():
    all_begin_again(3)


def test_all_begin_again_on_several_nodes():
    """Some ranks have other homes then, and all hear of each other."""
    all_begin_again(4)


def test_a_rank_that_had_ended_is_restored_for_those_who_still_run():
    """All ranks of a node may end, and the node be lost: what they sent is sent again."""
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.3) as job:
        job.all_checkpointed()
        job.let_end(2, 3)
        job.wait_event("exited", rank=2)
        job.wait_event("exited", rank=3)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        job.ends_as("farm")
        assert job.count("exited", rank=2) == 2, job.report()


def test_nothing_is_left_of_a_job_that_is_to_end_with_its_controller():
    with Nodes("farm", 2, ["--controller-limit", "0"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = job.status()
        os.kill(record["daemon_pid"], signal.SIGKILL)
        assert job.wait() != 0
        job.says("ended early")
        gone(job)


def test_nodes_that_hear_nothing_of_their_controller_end_by_themselves():
    with Nodes("farm", 2, ["--controller-limit", "3"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = job.status()
        os.kill(record["daemon_pid"], signal.SIGSTOP)
        pids = [e["pid"] for e in record["nodes"] + record["ranks"]]
        job.until(lambda: not any(alive(p) for p in pids), "end of nodes and ranks")
        assert not any(n.startswith("node-") for n in os.listdir(job.folder())), job.report()
        os.kill(record["daemon_pid"], signal.SIGCONT)
        assert job.wait() == 1, job.report()
        gone(job)


def test_nothing_is_left_of_a_job_whose_console_is_killed():
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.status()
        job.process.kill()
        job.process.wait()
        gone(job)


def test_status_and_events_name_nodes():
    # The images of a snapshot lie on one node more.
    options = ["--spares", "1", "--fallback-every", "off"]
    with Nodes("farm", 2, options, ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = job.status()
        assert [n["state"] for n in record["nodes"]] == ["live", "live", "spare"], record
        assert [r["image_nodes"] for r in record["ranks"]] == [[0, 1]] * 2 + [[1, 2]] * 2, record
        assert alive(record["nodes"][2]["pid"])
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "NODE" in text and "spare" in text, text
        code, _, err = job.eyrie("inject", "last", "kill-node", "7", check=False)
        assert code == 1 and "no live node 7" in err, err
        job.kill_nodes(2)
        job.wait_event("node-lost", node=2)
        _, text, _ = job.eyrie("events", "last", "--json")
        assert any(json.loads(line)["node"] == 2 for line in text.splitlines()), text
        job.ends_as("farm")


def test_one_node_left_goes_on():
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_nodes(0)
        job.wait_event("node-lost", node=0)
        for rank in (0, 1):
            job.wait_event("restored", rank=rank)
        checkpointed_again(job)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, count=2)
        job.ends_as("farm")


def test_a_node_that_joins_late_takes_ranks():
    expected("heat")
    with Nodes("heat", 2, ckpt_every=0.3) as job:
        job.all_checkpointed()
        code, out, err = job.eyrie("grow", "last")
        assert code == 0 and out == "node 2 has joined\n", (code, out, err)
        record = job.status()
        assert [n["state"] for n in record["nodes"]] == ["live", "live", "spare"], record
        job.kill_nodes(1)
        for rank in (2, 3):
            job.wait_event("restored", rank=rank, node=2)
        job.ends_as("heat")
        assert not job.count("rolled-back"), job.report()


def test_a_job_on_its_only_node_is_saved_by_one_that_joins():
    expected("farm")
    with Nodes("farm", 1, ckpt_every=0.3) as job:
        job.all_checkpointed()
        code, out, err = job.eyrie("grow", "last", "--nodes", "2")
        assert code == 0 and sorted(out.splitlines())[0] == "node 1 has joined", (code, out, err)
        # What the first node alone had is brought to another one.
        for rank in range(4):
            job.wait_event("copied", rank=rank)
        job.kill_nodes(0)
        for rank in range(4):
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")


def test_ranks_that_share_memory_are_those_of_a_node():
    """By MPI_Comm_split_type, as they were placed then: also when a rank was lost, and its node."""
    command = [os.path.join(BUILD, "tests", "node_ranks"), "20000"]
    options = ["--nodes", "2", "--map", "cyclic"]
    code, want, err = run_to_end(command, ranks=4, options=options)
    words = sorted(line.split()[:-1] for line in want.splitlines())
    assert code == 0 and words == [[f"{r}:", str(r % 2), str(r % 2 + 2)] for r in range(4)], (want, err)
    with Nodes(command, 2, options[2:], ranks=4, ckpt_every=0.1) as job:
        job.wait_event("checkpointed", rank=1)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        job.eyrie("inject", "last", "kill-node", "1")
        job.wait_event("restored", rank=3)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert sorted(job.stdout().splitlines()) == sorted(want.splitlines()), job.report()


def test_only_jobs_over_nodes_grow():
    with Nodes("heat", [], ["--ckpt-every", "0"]) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("grow", "last", check=False)
        assert code == 1 and "--nodes" in err, err
        job.ends_as("heat")


def is_given_up(job):
    """Ctrl-C ends it, and leaves nothing."""
    job.interrupt()
    assert job.wait() == 130, job.report()
    gone(job)


def test_a_node_that_has_not_called_yet_is_ended_with_the_job():
    """Nobody listens to its call any more, and who runs the job waits for its end."""
    with Pointed("farm", 2, armed=["join-1"]) as job:
        daemon = job.held_at("join-1")
        job.until(lambda: job.count("node-joined") == 1, "the other node")
        is_given_up(job)
        assert not alive(daemon), daemon


def test_a_node_that_calls_after_the_others_were_told_to_end_is_told():
    """The job waits for one that is just joining; meanwhile another one calls, and is ready first."""
    with Pointed("farm", 2, armed=["join-1", "join-2"]) as job:
        job.held_at("join-1")
        job.held_at("join-2")
        job.interrupt()
        job.until(lambda: job.events() and job.count("ended"), "the end of the job")
        job.let_go("join-1")
        job.wait_event("node-joined")
        job.let_go("join-2")
        assert job.wait() == 130, job.report()
        gone(job)
