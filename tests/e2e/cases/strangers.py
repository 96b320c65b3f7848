"""What reaches a job over nodes and does not belong to it, and machines that do not keep time: the job
goes on to the right result, and tells of it in one line each and in the counters of its status."""

import contextlib
import glob
import os
import signal
import socket
import subprocess
import threading
import time

from harness import BUILD, ROOT, compile_gate
from hosts import Hosted, shell
from nodes import Nodes, expected
from vault_scrub import content, flip, looked

MAGIC = b"EYRIENET"


def hello(role, job, node=0, epoch=1, to=(0, 0)):
    """A caller's introduction, as docs/formats/link.md has it."""
    words = lambda size, *numbers: b"".join(n.to_bytes(size, "little") for n in numbers)
    name = job.encode().ljust(16, b"\0")
    head = MAGIC + words(4, 1, role) + name + words(4, node, to[0]) + words(8, epoch, to[1])
    return head + os.urandom(16) + bytes(8)


def ports(pid):
    """TCP ports at which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    with open(f"/proc/{pid}/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return sorted(int(r[1].split(":")[1], 16) for r in rows if r[3] == "0A" and r[9] in inodes)


def say(port, *pieces):
    """Says that to a port, and returns what comes back until the other end hangs up."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.settimeout(60)
        heard = b""
        for piece in pieces:
            with contextlib.suppress(ConnectionError):
                stream.sendall(piece)
            with contextlib.suppress(ConnectionError):
                heard += stream.recv(4096)
        with contextlib.suppress(ConnectionError):
            while piece := stream.recv(4096):
                heard += piece
        return heard


def test_strangers_are_closed_told_of_and_counted():
    """Garbage, another job, another role, a wrong key, and who says nothing at all."""
    expected("cg")
    with Nodes("cg", 2, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        link, store = int(record["nodes"][1]["address"].rsplit(":", 1)[1]), None
        there = ports(record["nodes"][1]["pid"])
        [store] = [p for p in there if p != link]
        [controller] = ports(record["daemon_pid"])
        silent = [socket.create_connection(("127.0.0.1", p)) for p in (link, store, controller)]
        name, peer = record["job"], (1, record["nodes"][1]["epoch"])
        for port, role in ((link, 3), (store, 5), (controller, 2)):
            assert say(port, b"GET / HTTP/1.0\r\n\r\n" + bytes(80)) == b""
            assert say(port, hello(role, "other")) == b""
            assert say(port, hello(9, name)) == b""
            # With the right name it is answered, but a proof takes the key.
            heard = say(port, hello(role, name, to=peer), bytes(32))
            assert len(heard) == 80 and heard.startswith(MAGIC), heard
        # Those who say nothing are told of when their time is over.
        job.until(lambda: job.status()["nodes"][1]["strangers"] >= 10, "ten strangers")
        job.until(lambda: job.status()["malformed_frames"] >= 5, "five at the controller")
        record = job.status()
        assert record["nodes"][0]["strangers"] == 0, record
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "strangers" in text, text
        with open(os.path.join(job.folder(), "node.log")) as file:
            log = file.read()
        assert log.count("a caller is turned away: it does not know the job's key") == 1, log
        for stream in silent:
            stream.close()
        job.ends_as("cg")
        assert not job.count("detected") and not job.count("node-lost"), job.report()


def test_two_jobs_side_by_side_do_not_reach_each_other():
    """Each is a stranger to the other's nodes; what one has lies where only its owner looks; what
    one loses is nothing to the other."""
    expected("farm")
    expected("cg")
    with Nodes("farm", 2, ckpt_every=0.5) as one, Nodes("cg", 2, ckpt_every=0.5) as other:
        records = [job.wait_running(4) for job in (one, other)]
        for record, name in zip(records, (records[1]["job"], records[0]["job"])):
            link = int(record["nodes"][1]["address"].rsplit(":", 1)[1])
            assert say(link, hello(3, name, to=(1, record["nodes"][1]["epoch"]))) == b""
        for job in (one, other):
            job.until(lambda j=job: j.status()["nodes"][1]["strangers"] >= 1, "the other's caller")
            job.all_checkpointed()
            places = [job.folder(), *glob.glob(os.path.join(job.folder(), "node-*"))]
            assert len(places) == 3 and all(os.stat(place).st_mode & 0o077 == 0 for place in places), places
            job.kill_ranks([1])
            job.wait_event("restored", rank=1)
        other.kill_ranks([2])
        other.wait_event("restored", rank=2)
        assert {e["rank"] for e in one.events() if e["event"] == "detected"} == {1}, one.report()
        other.ends_as("cg")
        one.ends_as("farm")


def test_many_callers_who_say_nothing_keep_nobody_out():
    """More of them than anybody listens to; a node that is lost meanwhile is replaced all the same,
    and its node's daemon is let in. Nobody has a thread for each of them."""
    expected("cg")
    spared = Nodes("cg", 2, ckpt_every=0.5, options=["--spares", "1"])
    with spared as job, contextlib.ExitStack() as held:
        record = job.wait_running(4)
        daemon = record["daemon_pid"]
        [controller] = ports(daemon)
        link = int(record["nodes"][1]["address"].rsplit(":", 1)[1])
        other = record["nodes"][1]["pid"]
        for port in (link, controller):
            calls = [socket.create_connection(("127.0.0.1", port)) for _ in range(400)]
            list(map(held.enter_context, calls))
            # The first ones are hung up on, when they had their second.
            assert calls[0].recv(1) == b"" and calls[100].recv(1) == b""
        threads = lambda: [len(os.listdir(f"/proc/{pid}/task")) for pid in (daemon, other)]
        job.until(lambda: max(threads()) < 350, "threads of those who were hung up on to end")
        job.all_checkpointed()
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        job.ends_as("cg")
        assert job.count("node-lost") == 1, job.report()


def test_a_repeated_introduction_is_worth_nothing():
    """What a node says to another is heard, and said again word for word."""
    expected("heat")
    with Nodes("heat", 2, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        name, [controller] = record["job"], ports(record["daemon_pid"])
        # A hello of a node that there is, with what would be a proof on another connection.
        old = hello(2, name, node=1, epoch=record["nodes"][1]["epoch"])
        first = say(controller, old, bytes(32))
        again = say(controller, old, bytes(32))
        assert len(first) == len(again) == 80 and first != again
        job.until(lambda: job.status()["malformed_frames"] >= 2, "two strangers")
        job.ends_as("heat")
        assert not job.count("node-lost"), job.report()


class Slowed(threading.Thread):
    """Lets processes run a tenth of the time only."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.pids, self.over = pids, threading.Event()

    def run(self):
        while not self.over.is_set():
            self.tell(signal.SIGSTOP)
            time.sleep(0.45)
            self.tell(signal.SIGCONT)
            self.over.wait(0.05)

    def tell(self, number):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.tell(signal.SIGCONT)


def test_a_slow_node_is_waited_for():
    """One tenth of the speed, for daemon and ranks alike: nothing is given up, nothing is lost."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        on = [r["pid"] for r in record["ranks"] if r["node"] == 1]
        with Slowed([record["nodes"][1]["pid"], *on]):
            job.all_checkpointed(2)
            job.kill_ranks([r["rank"] for r in record["ranks"] if r["node"] == 0][:1])
            job.wait_event("restored", rank=0)
        job.ends_as("farm")
        assert not job.count("node-lost") and not job.count("rolled-back"), job.report()


def clocks():
    """A library that lets the time of day be another one, compiled."""
    library = os.path.join(BUILD, "tests", "clock.so")
    source = os.path.join(ROOT, "tests", "e2e", "preload", "clock.c")
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library + ".new", source]
    subprocess.run(command, check=True)
    os.replace(library + ".new", library)
    return library


def test_clocks_may_jump():
    """The time of day goes back and forth by an hour in daemons and ranks."""
    expected("cg")
    env = {"LD_PRELOAD": f"{compile_gate()}:{clocks()}", "EYRIE_TEST_CLOCK": "jumps"}
    with Nodes("cg", 2, env=env, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed(2)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        for rank in (2, 3):
            job.wait_event("restored", rank=rank)
        job.ends_as("cg")
        assert not job.count("rolled-back"), job.report()


def off_by(seconds):
    """One of a vault's members, and its ranks: its part is read, and made anew, all the same, and then
    it is lost itself."""
    expected("farm")
    off = f"EYRIE_TEST_CLOCK={seconds}"
    body = f'case $1 in\nhost1) export {off};;\nesac\nshift\nexec sh -c "$*"\n'
    env = {"LD_PRELOAD": f"{compile_gate()}:{clocks()}"}
    how = dict(hosts="host0,host1,host2,host3", env=env, ckpt_every=0)
    with shell(body) as rsh, Hosted("farm", rsh, ["--vault", "rs:2+1"], **how) as job:
        record = job.wait_running(4)
        for process in record["nodes"] + record["ranks"]:
            with open(f"/proc/{process['pid']}/environ") as file:
                assert (off in file.read().split("\0")) == (process["node"] == 1), process
        job.eyrie("checkpoint", "last")
        [folder] = glob.glob(os.path.join(job.home, "nodes", "*", "*-1", "store", "vault"))
        before = content(folder)
        for name in filter(lambda name: not name.endswith(".commit"), before):
            flip(os.path.join(folder, name))
        code, done, err = looked(job, "scrub")
        assert code == 0 and done["damaged"] == done["repaired"] > 0, (done, err)
        assert content(folder) == before
        for lost in (0, 1):
            count = {r["rank"]: job.count("restored", rank=r["rank"]) for r in record["ranks"]}
            victims = [r["rank"] for r in job.status()["ranks"] if r["node"] == lost]
            job.kill_nodes(lost)
            for rank in victims:
                job.wait_event("restored", rank=rank, count=count[rank] + 1)
            job.eyrie("checkpoint", "last")
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_clock_is_an_hour_ahead():
    off_by(3600)


def test_a_clock_is_an_hour_behind():
    off_by(-3600)
