"""Jobs whose nodes have network namespaces of their own: the loss of nodes, and of the way to them.

Root only: elsewhere these tests are told as not run."""

import os
import signal
import subprocess

from controller import kill_controller, unharmed
from harness import EYRIE, NotRun, alive, example, of_another_lane, run_to_end
from nodes import SIZES, Nodes, checkpointed_again, expected, killed


# What was sent while a link was down for so long is sent again soon enough.
SHORT_S = 0.2


def needs_root():
    if os.geteuid() != 0:
        raise NotRun("network namespaces take root")


def space(pid):
    """The network namespace of a process, or None if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def processes_in(spaces):
    found = [(pid, space(pid)) for pid in os.listdir("/proc") if pid.isdigit()]
    left = [(pid, where) for pid, where in found if where in spaces and not of_another_lane(pid)]
    return [f"process {pid} in {where}" for pid, where in left]


def devices(*enter):
    command = [*enter, "ip", "-o", "link"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Spaces(Nodes):
    """A job over nodes in namespaces: knows these, and finds what is left of them."""

    def __init__(self, name, nodes, options=(), **more):
        needs_root()
        self.spaces, self.name = set(), None
        super().__init__(name, nodes, ["--netns", *options], **more)

    def status(self):
        record = super().status()
        if record:
            self.name = record["job"]
            pids = [record["daemon_pid"]] + [n["pid"] for n in record["nodes"]]
            self.spaces |= {space(p) for p in pids if p} - {None, space("self")}
        return record

    def left_over(self):
        left = super().left_over() + processes_in(self.spaces)
        names = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
        mark = f"eyr-{self.name}"
        return left + [text for text in (devices(), names) if self.name and mark in text]

    def inside(self, node, script):
        """Has a shell in the controller's namespace do that to its end of a node's pair, `$l`, which is
        at the bridge `$b`."""
        record = self.status()
        bridge = f"eyr-{record['job']}"
        command = ["nsenter", "-t", str(record["daemon_pid"]), "-n", "sh", "-ec", script]
        env = {**os.environ, "b": bridge, "l": f"{bridge}-{node}"}
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    def cut_off(self, node):
        """Sets the controller's end of a node's pair down."""
        self.inside(node, "ip link set $l down")

    def down_for_a_moment(self, node):
        """Takes it off the bridge, and puts it back; returns for how many seconds it was off at most.
        (Set down, the node would have to ask for the controller's hardware address again, which the
        kernel does once a second.)"""
        off_and_on = "ip link set $l nomaster; sleep 0.1; ip link set $l master $b"
        times = self.inside(node, f"cat /proc/uptime; {off_and_on}; cat /proc/uptime").split()
        return float(times[2]) - float(times[0])


def test_each_node_has_a_network_of_its_own():
    expected("farm")
    with Spaces("farm", 3, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        pids = [record["daemon_pid"]] + [n["pid"] for n in record["nodes"]]
        assert len({space(p) for p in pids} | {space("self")}) == 5, record
        addresses = [n["address"].rsplit(":", 1)[0] for n in record["nodes"]]
        assert addresses == [f"10.77.0.{n + 2}" for n in range(3)], addresses
        for rank in record["ranks"]:
            assert space(rank["pid"]) == space(record["nodes"][rank["node"]]["pid"]), record
        inside = devices("nsenter", "-t", str(pids[0]), "-n")
        assert all(f"eyr-{record['job']}-{n}@" in inside for n in range(3)), inside
        assert "eyr-" + record["job"] not in devices(), devices()
        job.ends_as("farm")
        assert not job.count("detected") and not job.count("node-lost"), job.report()


def test_a_node_is_killed():
    killed("heat", 3, [1], make=Spaces)


def test_a_link_is_down_for_a_moment():
    """Too short to count: nobody is given up, and what was sent comes."""
    expected("farm")
    with Spaces("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        for node in (0, 1, 2, 1):
            took = job.down_for_a_moment(node)
            checkpointed_again(job)
            if took > SHORT_S:
                # The machine is too busy to set it up in time: the node may be lost, and no more.
                break
            for kind in ("node-lost", "detected", "restored"):
                assert not job.count(kind), (kind, job.report())
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def cut_off(options=()):
    """Nothing is heard of a node any more: it is fenced, and its ranks come back elsewhere."""
    expected("farm")
    with Spaces("farm", 3, options, ckpt_every=0.5) as job:
        job.all_checkpointed()
        victims = [r["rank"] for r in job.status()["ranks"] if r["node"] == 1]
        job.cut_off(1)
        job.wait_event("node-lost", node=1)
        lost = next(e for e in job.events() if e["event"] == "node-lost")
        assert "nothing was heard of it" in lost["text"], lost
        for rank in victims:
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        restored = [e["rank"] for e in job.events() if e["event"] == "restored"]
        assert sorted(restored) == victims and not job.count("rolled-back"), job.report()


def test_a_node_is_cut_off():
    cut_off()


def test_a_daemon_that_is_stopped_is_no_machine_that_is_gone():
    """Its machine acknowledges what comes: it has as long as its daemon is borne."""
    expected("farm")
    with Spaces("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        os.kill(job.status()["nodes"][1]["pid"], signal.SIGSTOP)
        job.wait_event("node-lost", node=1)
        lost = next(e for e in job.events() if e["event"] == "node-lost")
        assert "nothing was heard of it for" in lost["text"], lost
        job.ends_as("farm")


def test_a_node_is_cut_off_while_another_is_killed():
    expected("heat")
    with Spaces("heat", 4, ["--spares", "1"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.cut_off(0)
        job.kill_nodes(2)
        job.wait_event("node-lost", node=2)
        job.wait_event("node-lost", node=0)
        job.ends_as("heat")
        assert not job.count("rolled-back"), job.report()


def test_nothing_is_left_after_an_interrupt():
    with Spaces("farm", 2, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.interrupt()
        assert job.wait() == 130, job.report()
        job.settle()
        assert not job.left_over(), job.left_over()


def test_nothing_is_left_of_a_job_whose_controller_is_killed():
    with Spaces("farm", 2, ["--controller-limit", "0"], ckpt_every=0.5) as job:
        record = job.wait_running(4)
        os.kill(record["daemon_pid"], 9)
        assert job.wait() != 0
        job.settle()
        assert not job.left_over(), job.left_over()
        assert not any(alive(n["pid"]) for n in record["nodes"])


def test_a_job_outlives_its_controller():
    """The next one is in the same network, and cuts and losses are noticed as before."""
    expected("farm")
    with Spaces("farm", 3, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = space(job.status()["daemon_pid"])
        kill_controller(job)
        assert space(job.status()["daemon_pid"]) == before
        unharmed(job)
        kill_controller(job, 2)
        job.cut_off(1)
        job.wait_event("node-lost", node=1)
        job.wait_running(4)
        job.ends_as("farm")
        assert not job.count("rolled-back"), job.report()


def test_it_is_said_what_is_missing():
    """Without the rights there is a clear error, and no job."""
    needs_root()
    wrap = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    options = ["--nodes", "2", "--netns"]
    code, out, err = run_to_end(example("farm") + SIZES["farm"], options=options, wrap=wrap)
    assert code == 1 and not out, (code, out, err)
    assert "--netns needs root" in err, err
    done = subprocess.run([EYRIE, "run", "--netns", "true"], capture_output=True, text=True)
    assert done.returncode == 2 and "--nodes" in done.stderr, done
