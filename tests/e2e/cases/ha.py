"""Jobs whose controller keeps its state in etcd: another machine goes on. The machines are this one
under other names, each with a home of its own; etcd is Debian's."""

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from harness import EYRIE, POLL_S, TIMEOUT_S, TIMING, Hung, Job, NotRun, Pids, alive, free_ports, soon
from controller import same_processes
from hosts import Hosted, on_node, refused, shell
from nodes import Points, checkpointed_again, expected
from restart import SAVED, restart


class Etcd:
    """One etcd of our own, which may be stopped and started again; in a network of its own, if `enter`
    says how that is entered."""

    def __init__(self, address="127.0.0.1", enter=()):
        self.binary = shutil.which("etcd")
        if not self.binary:
            raise NotRun("there is no etcd here (Debian: etcd-server)")
        self.folder = tempfile.mkdtemp(prefix="eyrie-test-")
        self.port, peers = free_ports(2)
        self.url = f"etcd://{address}:{self.port}/test/eyrie"
        here, peers = f"http://{address}:{self.port}", f"http://127.0.0.1:{peers}"
        self.http, self.enter = here, [*enter]
        self.command = [*enter, self.binary, "--name", "one", "--data-dir", f"{self.folder}/data"]
        self.command += ["--listen-client-urls", here, "--advertise-client-urls", here]
        self.command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        self.command += ["--initial-cluster", f"one={peers}", "--log-level", "error"]
        self.start()

    def start(self):
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

        ask = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5).read())"

        def healthy():
            call = [*self.enter, sys.executable, "-c", ask, f"{self.http}/health"]
            return b"true" in subprocess.run(call, capture_output=True).stdout

        soon(healthy, "etcd")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def keys(self):
        """The names of all keys, as etcdctl would print them; asked as Eyrie asks."""
        body = b'{"key":"AA==","range_end":"AA==","keys_only":true}'
        request = urllib.request.Request(f"{self.http}/v3/kv/range", body)
        answer = json.load(urllib.request.urlopen(request, timeout=TIMEOUT_S))
        return sorted(base64.b64decode(kv["key"]).decode() for kv in answer.get("kvs", []))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Standby(Job):
    """`eyrie standby` for a job, on another machine as it were."""

    def __init__(self, job, etcd, name, stdin=None, address="127.0.0.1", enter=()):
        self.first = job
        self.home = self.job_home = tempfile.mkdtemp(prefix="eyrie-test-")
        self.program, self.who = job.program, job.who
        if self.who:
            os.chown(self.home, self.who["user"], self.who["group"])
        self.env = {**job.env, "EYRIE_HOME": self.home}
        self.out_path = os.path.join(self.home, "test.out")
        self.err_path = os.path.join(self.home, "test.err")
        self.arguments = [*enter, self.program, "standby", f"{etcd.url}/{name}", "--address", address]
        self.pids, self._events, self._events_file, self._events_at = Pids(), [], None, 0
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                self.arguments,
                stdin=stdin or subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.env,
                start_new_session=True,
                **self.who,
            )
        self.says("standing by")

    def goes_on(self):
        self.wait_event("controller-back")

    def ends_as(self, name):
        """Both together printed what an undisturbed run prints; the second one all that the first
        one had not, and at most a piece twice. Nothing is left."""
        want, before = expected(name), self.first.stdout()
        self.first.let_end()
        assert self.wait() == 0, self.report()
        after = self.stdout()
        assert want.startswith(before) and want.endswith(after), (before, after, self.report())
        assert len(before) + len(after) >= len(want), (before, after)
        self.settle()
        assert not self.left_over(), self.left_over()
        soon(lambda: not self.first.left_over(), "end of " + str(self.first.left_over()))


class Pointed(Points, Hosted):
    pass


@contextlib.contextmanager
def replicated(name="farm", options=(), kind=Hosted, **more):
    """A job with its state in an etcd; yields both, and the job's name."""
    expected(name)
    more = {"ckpt_every": 0.5, **more}
    with Etcd() as etcd, shell() as rsh:
        with kind(name, rsh, ["--ha", etcd.url, *options], **more) as job:
            job.says("eyrie standby")
            yield job, etcd, os.path.basename(job.until(job.folder, "folder"))


def lose_machine(job, *others):
    """The machine of `eyrie run` is gone, with the job's folder and other processes. What only sees
    its end, as the remote shells here, does not count."""
    record = job.status()
    os.kill(record["daemon_pid"], signal.SIGSTOP)
    job.process.kill()
    for pid in [record["daemon_pid"], *others]:
        os.kill(pid, signal.SIGKILL)
    job.process.wait()
    shutil.rmtree(os.path.join(job.home, "jobs"))
    return record


def unharmed(job):
    for event in ("detected", "restored", "node-lost", "rolled-back", "diverged"):
        assert not job.count(event), job.report()


def forgotten(etcd, name):
    assert etcd.keys() == [f"test/eyrie/{name}/ended"], etcd.keys()


def test_a_standby_goes_on():
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        with Standby(job, etcd, name) as standby:
            before = lose_machine(job)
            standby.goes_on()
            after = standby.status()
            assert after["reign"] == 2 and after["ha"]["away"] is None, after
            same_processes(standby, before)
            standby.eyrie("checkpoint", "last")
            unharmed(standby)
            standby.ends_as("farm")
        forgotten(etcd, name)


def another_mode(mode, *options):
    """No rank is touched; what dies afterwards is brought back as in that mode."""
    with replicated("farm", ["--ft", mode, *options]) as (job, etcd, name):
        job.wait_running(4)
        if mode != "none":
            job.all_checkpointed()
        with Standby(job, etcd, name) as standby:
            before = lose_machine(job)
            standby.goes_on()
            same_processes(standby, before)
            unharmed(standby)
            if mode != "none":
                standby.kill_ranks([1])
                standby.wait_event("restored", rank=1)
            if mode == "coordinated":
                for rank in range(4):
                    standby.wait_event("restored", rank=rank)
            standby.ends_as("farm")
            assert standby.count("rolled-back") == int(mode == "coordinated"), standby.report()
        forgotten(etcd, name)


CLUSTERS = "alpha cluster=east slots=2\nbeta cluster=west slots=1\ngamma cluster=west slots=1\n"


def over_clusters(mode, *options):
    """The next controller has gateways of its own; those that were end with the one before."""
    with tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write(CLUSTERS)
        file.flush()
        options = ["--ft", mode, *options]
        with replicated("farm", options, hosts=file.name) as (job, etcd, name):
            job.all_checkpointed()
            with Standby(job, etcd, name) as standby:
                before = lose_machine(job)
                old = [c["gateway"]["pid"] for c in before["clusters"]]
                standby.goes_on()
                same_processes(standby, before)
                clusters = lambda: standby.status()["clusters"]
                live = lambda: all(c["gateway"]["state"] == "live" for c in clusters())
                standby.until(live, "gateways")
                assert {c["gateway"]["pid"] for c in clusters()}.isdisjoint(old), clusters()
                standby.until(lambda: not any(alive(pid) for pid in old), "end of gateways")
                standby.eyrie("checkpoint", "last")
                unharmed(standby)
                # What it needs comes from the other cluster.
                standby.kill_ranks([2])
                standby.wait_event("restored", rank=2)
                standby.eyrie("inject", "last", "kill-node", "2")
                standby.wait_event("restored", rank=3)
                standby.ends_as("farm")
                assert not standby.count("rolled-back"), standby.report()
            forgotten(etcd, name)


def generated():
    yield "over_clusters", lambda: over_clusters("logged")
    yield "over_clusters_that_go_back_together", lambda: over_clusters("cluster")
    yield "coordinated", lambda: another_mode("coordinated")
    yield "coordinated_with_a_vault", lambda: another_mode("coordinated", "--vault", "xor:2")
    yield "node", lambda: another_mode("node")
    yield "routed", lambda: another_mode("routed", "--routers", "4")
    yield "none", lambda: another_mode("none")


def test_all_go_back_as_a_node_dies_with_the_controller():
    with replicated("cg", ["--ft", "coordinated"]) as (job, etcd, name):
        job.all_checkpointed()
        with Standby(job, etcd, name) as standby:
            lose_machine(job, job.status()["nodes"][1]["pid"])
            standby.goes_on()
            for rank in range(4):
                standby.wait_event("restored", rank=rank)
            standby.ends_as("cg")
            assert standby.count("rolled-back") == 1, standby.report()


def test_a_node_dies_with_the_controller():
    with replicated("cg") as (job, etcd, name):
        job.all_checkpointed()
        victims = on_node(job.status(), 1)
        with Standby(job, etcd, name) as standby:
            pid = job.status()["nodes"][1]["pid"]
            lose_machine(job, pid)
            standby.goes_on()
            for rank in victims:
                standby.wait_event("restored", rank=rank)
            standby.ends_as("cg")
            restored = {e["rank"] for e in standby.events() if e["event"] == "restored"}
            assert sorted(restored) == victims, standby.report()
            assert not standby.count("rolled-back") and not standby.count("diverged")


def test_of_two_standbys_one_goes_on():
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        with Standby(job, etcd, name) as one, Standby(job, etcd, name) as two:
            lose_machine(job)

            def winner():
                assert one.running() and two.running(), one.report() + two.report()
                return next((s for s in (one, two) if s.count("controller-back")), None)

            limit = time.monotonic() + TIMEOUT_S
            while not winner():
                if time.monotonic() > limit:
                    raise Hung(one.report() + two.report())
                time.sleep(POLL_S)
            first = winner()
            second = two if first is one else one
            second.says("controller 2 leads")
            # And once more.
            lose_machine(first)
            second.goes_on()
            assert second.status()["reign"] == 3
            unharmed(second)
            second.ends_as("farm")


def test_a_standby_hears_of_the_end():
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        with Standby(job, etcd, name) as standby:
            job.ends_as("farm")
            assert standby.wait() == 0 and "has ended with exit code 0" in standby.stderr()
            assert not standby.stdout() and not standby.left_over()
        forgotten(etcd, name)


def test_the_next_controller_of_the_same_machine_waits_for_no_lease():
    with replicated("heat") as (job, etcd, name):
        job.all_checkpointed()
        for count in (1, 2):
            os.kill(job.status()["daemon_pid"], signal.SIGKILL)
            job.wait_event("controller-back", count=count)
        assert job.status()["reign"] == 3
        checkpointed_again(job)
        unharmed(job)
        job.ends_as("heat")
        forgotten(etcd, name)


def test_etcd_is_away_for_a_while():
    """Longer than a lease: decisions wait, and nobody else is there to take the lead."""
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        etcd.stop()
        job.until(lambda: job.status()["ha"]["away"], "absence of etcd in the status")
        assert "decisions wait" in job.eyrie("status", "last", "-v")[1]
        # What dies now is brought back then.
        victim = job.status()["ranks"][3]
        os.kill(victim["pid"], signal.SIGKILL)
        time.sleep(TIMING["lease"] + 1)
        assert not job.count("restored") and job.running()
        etcd.start()
        job.until(lambda: job.status()["ha"]["away"] is None, "return of etcd in the status")
        job.wait_event("restored", rank=3)
        checkpointed_again(job)
        assert not job.count("node-lost"), job.report()
        job.ends_as("farm")
        job.says("nothing can be written to etcd")
        job.says("etcd is back")
        forgotten(etcd, name)


def test_etcd_is_away_while_the_controller_dies():
    """Nodes wait for both."""
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        etcd.stop()
        os.kill(job.status()["daemon_pid"], signal.SIGKILL)
        etcd.start()
        job.wait_event("controller-back")
        unharmed(job)
        job.ends_as("farm")


def test_etcd_is_gone_for_good():
    """The job computes on; Ctrl-C ends it, and nothing is left."""
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        etcd.stop()
        job.until(lambda: job.status()["ha"]["away"], "absence of etcd")
        record = job.status()
        assert all(alive(r["pid"]) for r in record["ranks"])
        job.interrupt()
        job.ends_with_nothing_left(130)
        job.says("the job ends without it")


def test_a_deposed_controller_does_nothing():
    """It is stopped, another one takes its place, and it wakes up."""
    with replicated() as (job, etcd, name):
        job.all_checkpointed()
        with Standby(job, etcd, name) as standby:
            record = job.status()
            os.kill(record["daemon_pid"], signal.SIGSTOP)
            standby.goes_on()
            seen = len(job.events())
            os.kill(record["daemon_pid"], signal.SIGCONT)
            assert job.wait() == 1, job.report()
            job.says("goes on without this command")
            # What it had decided, and etcd had taken, when it was stopped is known to both.
            late = [e for e in job.events()[seen:] if e not in standby.events()]
            assert not late, (late, job.report())
            same_processes(standby, record)
            standby.eyrie("checkpoint", "last")
            unharmed(standby)
            standby.ends_as("farm")


def test_a_deposed_controller_saves_nothing():
    """It is stopped when all images have come, another one has the job, and it wakes up."""
    with replicated(kind=Pointed) as (job, etcd, name):
        job.all_checkpointed()
        folder = job.folder()
        with Standby(job, etcd, name) as standby:
            job.arm("save-1")
            job.interrupt(signal.SIGQUIT)
            pid = job.held_at("save-1")
            os.kill(pid, signal.SIGSTOP)
            standby.goes_on()
            job.let_go("save-1")
            os.kill(pid, signal.SIGCONT)
            assert job.wait() == 1, job.report()
            job.says("goes on without this command")
            assert not os.path.exists(os.path.join(folder, "saved")), job.report()
            for rank in range(4):
                standby.wait_event("restored", rank=rank)
            standby.ends_as("farm")


def test_a_controller_dies_as_the_job_is_saved():
    """Etcd does not know of it: the next one on that machine finds what is saved."""
    with replicated(kind=Pointed) as (job, etcd, name):
        job.all_checkpointed()
        job.arm("save-2")
        job.interrupt(signal.SIGQUIT)
        os.kill(job.held_at("save-2"), signal.SIGKILL)
        job.let_go("save-2")
        assert job.wait() == SAVED, job.report()
        forgotten(etcd, name)
        restart(job)
        job.wait_event("restarted")
        job.says("goes on without --ha")
        job.ends_as("farm")


def test_standard_input_is_there_for_the_next_one():
    """Rank 0 reads lines; after the loss of the machine it dies, and reads them again from etcd."""
    code = "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)\n"
    lines = [f"line {n}\n" for n in range(2000)]
    with Etcd() as etcd, shell() as rsh:
        options = ["--hosts", "alpha,beta", "--rsh", rsh, "--address", "127.0.0.1"]
        program = ["python3", "-c", code]
        options += ["--ha", etcd.url]
        with Job(program, ranks=2, options=options, stdin="open") as job:
            job.process.stdin.write("".join(lines[:1000]).encode())
            job.process.stdin.flush()
            job.until(lambda: "got line 999\n" in job.stdout(), "output")
            name = os.path.basename(job.folder())
            read, write = os.pipe()
            with Standby(job, etcd, name, stdin=read) as standby:
                os.close(read)
                lose_machine(job)
                standby.goes_on()
                assert standby.kill_pid(0)
                standby.wait_event("restored", rank=0)
                with open(write, "wb") as rest:
                    rest.write("".join(lines[1000:]).encode())
                assert standby.wait() == 0, standby.report()
                want = "".join(f"got {line}" for line in lines)
                before, after = job.stdout(), standby.stdout()
                assert want.startswith(before) and want.endswith(after), standby.report()
                assert len(before) + len(after) >= len(want), standby.report()


def test_what_cannot_be_is_refused():
    away = f"etcd://127.0.0.1:{free_ports(1)[0]}/x"
    refused(["--ha", away], "etcd", "refused")
    refused(["--ha", "http://a/x"], "--ha", "etcd://HOST:PORT", code=2)
    refused(["--ha", "etcds://a/x"], "--ha-ca", code=2)
    refused(["--ha", away, "--save-every", "9"], "--save-every", code=2)
    for options in ([], ["--nodes", "2"]):
        with Job(["true"], options=[*options, "--ha", away]) as job:
            assert job.wait() == 2 and "--hosts" in job.stderr(), job.report()
    with Etcd() as etcd:
        command = [EYRIE, "standby", f"{etcd.url}/nojob"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and "there is no job" in done.stderr, done
