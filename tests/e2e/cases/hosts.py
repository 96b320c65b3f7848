"""Jobs over hosts: their nodes are started through a remote shell. The hosts are this machine under
other names, reached by a script, by a real sshd on loopback, or in network namespaces (root)."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from controller import kill_both, kill_controller, resume, same_processes, unharmed
from harness import (
    EYRIE,
    LANE,
    TIMEOUT_S,
    Hung,
    Job,
    NotRun,
    alive,
    free_ports,
    of_another_lane,
    run_to_end,
    soon,
)
from nodes import SIZES, Nodes, checkpointed_again, expected, gone
from space import Space

# What a remote shell does: the rest of its arguments is a command for a shell of the host.
PLAIN = 'shift\nexec sh -c "$*"\n'
NAMES = "alpha,beta,gamma"


@contextlib.contextmanager
def shell(body=PLAIN):
    """A remote shell of our own."""
    folder = tempfile.mkdtemp(prefix="eyrie-test-")
    path = os.path.join(folder, "rsh")
    with open(path, "w") as file:
        file.write("#!/bin/sh\n" + body)
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        shutil.rmtree(folder)


def daemons(commands=(b"__host", b"__member")):
    """Processes of this build that carry out one of these commands; nodes on hosts by default."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            ours = words[0] == EYRIE.encode() and words[1] in commands
            if ours and not of_another_lane(pid):
                found.add(int(pid))
    return found


def without_controller(job, record):
    os.kill(record["daemon_pid"], signal.SIGKILL)
    assert job.wait() != 0
    job.settle()
    assert not job.left_over(), job.left_over()


class Hosted(Nodes):
    """A job over hosts: finds what is left of it there."""

    def __init__(self, name, rsh, options=(), hosts=NAMES, address="127.0.0.1", **more):
        where = ["--hosts", hosts, "--rsh", rsh]
        where += ["--address", address] if address else []
        self.before = daemons()
        super().__init__(name, where, options, **more)

    def left_over(self):
        left = [f"process {p}" for p in sorted(daemons() - self.before)]
        nodes = os.path.join(self.home, "nodes")
        for machine in os.listdir(nodes) if os.path.isdir(nodes) else []:
            left += [f"storage {n}" for n in os.listdir(os.path.join(nodes, machine))]
        return super().left_over() + left

    def ends_with_nothing_left(self, code):
        assert self.wait() == code, self.report()
        self.settle()
        assert not self.left_over(), self.left_over()


def refused(options, *words, code=1, rsh=PLAIN, program=None, **more):
    """A job that cannot begin: there is one line that says why, and nothing is left."""
    with shell(rsh) as path:
        before = daemons()
        options = ["--hosts", NAMES, "--address", "127.0.0.1", "--rsh", path, *options]
        with Job(program or ["true"], options=options, **more) as job:
            assert job.wait() == code, job.report()
            lines = job.stderr().splitlines()
            assert len(lines) == 1 and all(w in lines[0] for w in words), lines
            job.left_over = lambda: Job.left_over(job) + sorted(daemons() - before)
            job.settle()
            assert not job.left_over(), job.report()


def restored_alone(job, name, ranks):
    job.ends_as(name)
    restored = sorted({e["rank"] for e in job.events() if e["event"] == "restored"})
    assert restored == ranks, (restored, ranks)
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def on_node(record, node):
    return [r["rank"] for r in record["ranks"] if r["node"] == node]


def loses_a_node(name, how, **more):
    expected(name)
    with shell() as rsh, Hosted(name, rsh, ckpt_every=0.5, **more) as job:
        job.wait_running(4)
        job.all_checkpointed()
        record = job.status()
        victims = on_node(record, 1)
        assert victims, record
        how(job, record["nodes"][1])
        job.wait_event("node-lost", node=1)
        for rank in victims:
            job.wait_event("restored", rank=rank)
        restored_alone(job, name, victims)


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def members(groups):
    """Processes of these process groups that have not ended."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, ProcessLookupError):
            if os.getpgid(int(pid)) in groups and alive(pid):
                found.append(pid)
    return found


def test_a_job_runs_on_three_hosts():
    expected("cg")
    log = 'echo "$*" >> "$0.log"\n' + PLAIN
    with shell(log) as rsh, Hosted("cg", rsh, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        assert [n["host"] for n in record["nodes"]] == NAMES.split(","), record
        assert [r["node"] for r in record["ranks"]] == [0, 0, 1, 2], record
        with open(rsh + ".log") as file:
            calls = sorted(file.read().splitlines())
        # No key, nor anything else, in what others may see.
        assert calls == [f"{name} {EYRIE} __host" for name in sorted(NAMES.split(","))], calls
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "HOST" in text and "gamma" in text, text
        job.ends_as("cg")
        assert not job.count("detected") and not job.count("node-lost"), job.report()


def test_hosts_are_read_from_a_file():
    expected("farm")
    with shell() as rsh:
        path = os.path.join(os.path.dirname(rsh), "hosts")
        with open(path, "w") as file:
            file.write("# those\nalpha slots=1\nbeta slots=3  # the big one\ngamma\n")
        options = ["--spares", "1", "--map", "cyclic"]
        with Hosted("farm", rsh, options, hosts=path, ckpt_every=0.5) as job:
            record = job.wait_running(4)
            assert [r["node"] for r in record["ranks"]] == [0, 1, 1, 1], record
            assert record["nodes"][2]["state"] == "spare", record
            job.ends_as("farm")


def test_a_rank_is_killed():
    expected("heat")
    with shell() as rsh, Hosted("heat", rsh, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_ranks([2])
        job.wait_event("restored", rank=2)
        restored_alone(job, "heat", [2])


def test_a_daemon_is_killed():
    loses_a_node("heat", lambda job, node: os.kill(node["pid"], signal.SIGKILL))


def test_a_keeper_is_killed():
    loses_a_node("cg", lambda job, node: os.kill(parent(node["pid"]), signal.SIGKILL))


def test_a_host_hangs_and_comes_to_later():
    """Its remote shell does not end, either: it is waited for no longer than its daemon may take."""
    expected("heat")
    with shell() as rsh, Hosted("heat", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        record = job.status()
        victims, node = on_node(record, 1), record["nodes"][1]["pid"]
        keeper = parent(node)
        for pid in (keeper, node):
            os.kill(pid, signal.SIGSTOP)
        try:
            job.wait_event("node-lost", node=1)
            for rank in victims:
                job.wait_event("restored", rank=rank)
            soon(lambda: not alive(keeper), "end of the keeper")
            assert alive(node)
        finally:
            os.kill(node, signal.SIGCONT)
        restored_alone(job, "heat", victims)


def test_a_node_is_killed_on_request():
    loses_a_node("heat", lambda job, node: job.kill_nodes(1))


def test_a_node_is_killed_and_a_spare_takes_its_ranks():
    spare = {"options": ["--spares", "1"], "hosts": NAMES + ",delta"}
    loses_a_node("cg", lambda job, node: job.kill_nodes(1), **spare)


def test_variables_and_working_folder_go_along():
    """... and those of the machine do not."""
    script = 'echo "$PWD $ODD_NAME $HOSTNAME"'
    body = "shift\nHOSTNAME=own\nexport HOSTNAME\nunset ODD_NAME\ncd /\n" + 'exec sh -c "$*"\n'
    with shell(body) as rsh, tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        options = ["--hosts", "alpha", "--rsh", rsh, "--address", "127.0.0.1", "--ft", "none"]
        env = {"ODD_NAME": "a 'b' \"c\"", "HOSTNAME": "other"}
        with Job(["sh", "-c", script], 1, options=options, env=env, cwd=folder) as job:
            assert job.wait() == 0, job.report()
            assert job.stdout() == f"{folder} a 'b' \"c\" own\n", job.report()


def test_standard_input_reaches_the_first_rank():
    with shell() as rsh:
        options = ["--hosts", "a,b", "--rsh", rsh, "--address", "127.0.0.1", "--ft", "none"]
        text = b"".join(b"%d\n" % n for n in range(20000))
        with Job(["cat"], 2, options=options, stdin=text) as job:
            assert job.wait() == 0, job.report()
            assert job.stdout().encode() == text, job.report()


def test_nothing_is_left_after_an_interrupt():
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.interrupt()
        job.ends_with_nothing_left(130)


def test_nothing_is_left_after_an_interrupt_while_hosts_join():
    """The remote shells hang, and what they run does, too."""
    body = 'echo $$ >> "$0.pids"\nsleep 1000 & wait\n'
    with shell(body) as rsh, Hosted("farm", rsh) as job:
        log = rsh + ".pids"
        read = lambda: open(log).read().split() if os.path.exists(log) else []
        pids = job.until(lambda: len(read()) == 3 and read(), "three remote shells")
        groups = {int(p) for p in pids}
        job.interrupt()
        job.ends_with_nothing_left(130)
        # They were killed with their shells, which alone were waited for.
        soon(lambda: not members(groups), f"end of {members(groups)}")


def test_nothing_is_left_of_a_job_whose_controller_is_killed():
    options = ["--controller-limit", "0"]
    with shell() as rsh, Hosted("farm", rsh, options, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        without_controller(job, record)


def outlived(job):
    """The controller dies, and again; then a host is lost, and what was on it comes back."""
    job.all_checkpointed()
    before = job.status()
    kill_controller(job)
    after = job.status()
    assert [n["host"] for n in before["nodes"]] == [n["host"] for n in after["nodes"]], after
    unharmed(job)
    kill_controller(job, 2)
    checkpointed_again(job)
    unharmed(job)
    victims = on_node(job.status(), 1)
    job.kill_nodes(1)
    job.wait_event("node-lost", node=1)
    for rank in victims:
        job.wait_event("restored", rank=rank)
    restored_alone(job, "farm", victims)


def test_a_job_outlives_its_controller():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        outlived(job)


def test_a_job_is_resumed_when_all_here_was_killed():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.all_checkpointed()
        before = kill_both(job)
        # It stays where commands look for jobs.
        job.eyrie("ps")
        assert job.folder()
        resume(job)
        job.wait_event("controller-back")
        same_processes(job, before)
        unharmed(job)
        job.ends_as("farm")


def test_a_host_that_dies_while_nobody_is_there_is_missed():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = kill_both(job)
        os.kill(record["nodes"][1]["pid"], signal.SIGKILL)
        resume(job)
        job.wait_event("node-lost", node=1)
        for rank in on_node(record, 1):
            job.wait_event("restored", rank=rank)
        restored_alone(job, "farm", on_node(record, 1))


def test_nodes_give_a_controller_up_that_does_not_come_back():
    options = ["--controller-limit", "2"]
    with shell() as rsh, Hosted("farm", rsh, options, ckpt_every=0.5) as job:
        job.wait_running(4)
        kill_both(job)
        soon(lambda: all(l.startswith("folder") for l in job.left_over()), "end of all nodes")
        # The folder goes when nodes must have given up, as nothing is seen of them here.
        soon(lambda: job.eyrie("ps") and not job.left_over(), "end of the folder")
        code, _, err = job.eyrie("resume", "last", check=False)
        assert code == 1 and "no job" in err, err


def test_nothing_is_left_when_the_next_controller_ends_the_job():
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        kill_controller(job)
        job.interrupt()
        job.ends_with_nothing_left(130)


def test_a_keeper_is_told_to_end():
    """At once, also after the death of a controller."""
    expected("cg")
    with shell() as rsh, Hosted("cg", rsh, ckpt_every=0.5) as job:
        job.all_checkpointed()
        kill_controller(job)
        record = job.status()
        node = record["nodes"][1]["pid"]
        keeper = parent(node)
        os.kill(keeper, signal.SIGHUP)
        job.wait_event("node-lost", node=1)
        soon(lambda: not alive(keeper) and not alive(node), "end of the keeper")
        restored_alone(job, "cg", on_node(record, 1))


def test_nothing_is_left_of_a_job_whose_console_is_killed():
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.process.kill()
        job.process.wait()
        job.settle()
        assert not job.left_over(), job.left_over()


def test_eyrie_is_missing_on_a_host():
    words = ["on host", "/nowhere/bin/eyrie was not found", "--prefix"]
    refused(["--prefix", "/nowhere"], *words)


def test_another_remote_shell_is_needed():
    body = "test $1 = beta || { shift; exec sh -c \"$*\"; }\necho 'no route to beta' >&2\nexit 255\n"
    refused([], "node 1 on host beta", "(no route to beta)", "--rsh", rsh=body)
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        none = os.path.join(folder, "none")
        command = [EYRIE, "run", "--hosts", "a", "--rsh", none, "true"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2 and "--rsh" in done.stderr and none in done.stderr, done


def test_a_host_does_not_join():
    body = 'test $1 = gamma && exec sleep 1000\nshift\nexec sh -c "$*"\n'
    # Time enough for the others, also on a busy machine: only one is told of.
    words = ["node 2 on host gamma did not join within 4 s", "127.0.0.1", "--address"]
    refused(["--join-limit", "4"], *words, rsh=body)


def test_a_host_lacks_the_program():
    program = ["/nowhere/program"]
    refused([], "on host", "program '/nowhere/program' not found", program=program)


def test_a_host_lacks_the_working_folder():
    folder = tempfile.mkdtemp(prefix="eyrie-test-")
    # The last one, so that the controller has looked at its own by then.
    body = f'cd /\ntest $1 != gamma || rmdir "{folder}"\nshift\nexec sh -c "$*"\n'
    refused([], "on host", f"working folder {folder}", "No such file", rsh=body, cwd=folder)


def test_what_is_no_list_of_hosts_is_told():
    def wrong(*options):
        command = [EYRIE, "run", "-n", "4", *options, "true"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2 and not done.stdout, done
        return done.stderr

    assert "'x' is no number" in wrong("--hosts", "a:x")
    assert "no/such" in wrong("--hosts", "no/such")
    assert "2 slots for 4 ranks" in wrong("--hosts", "a:1,b:1")
    assert "--nodes" in wrong("--hosts", "a", "--nodes", "2")
    assert "spares" in wrong("--hosts", "a,b", "--spares", "2")
    assert "--spares is for jobs over nodes" in wrong("--spares", "1")
    assert "192.0.2.1" in wrong("--hosts", "a", "--address", "192.0.2.1")


def test_more_ranks_than_slots():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ["--oversubscribe"], hosts="a:1,b:1") as job:
        record = job.wait_running(4)
        assert [r["node"] for r in record["ranks"]] == [0, 0, 1, 1], record
        job.ends_as("farm")


def test_what_a_killed_node_left_is_removed_by_the_next():
    """Daemon and keeper are killed at once: nobody is left who could clear away."""
    expected("cg")
    with shell() as rsh, Hosted("cg", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        node = job.status()["nodes"][1]
        pids = [parent(node["pid"]), node["pid"]]
        # A daemon that runs on when its keeper is gone clears away.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
        job.wait_event("node-lost", node=1)
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == expected("cg"), job.report()
        # That of the other nodes goes with their keepers, which may take a moment more.
        storage = lambda: [l for l in job.left_over() if l.startswith("storage")]
        soon(lambda: len(storage()) <= 1, "end of the other nodes' storage")
        assert len(storage()) == 1, job.left_over()
        options = ["--hosts", "a", "--rsh", rsh, "--address", "127.0.0.1", "--ft", "none"]
        command = [EYRIE, "run", *options, "true"]
        subprocess.run(command, env=job.env, check=True)
        gone(job)


# ---- a real sshd ----


class Server:
    """An sshd on loopback, with keys of its own."""

    def __init__(self, folder):
        self.folder = folder
        program = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if not program or not shutil.which("ssh") or not shutil.which("ssh-keygen"):
            raise NotRun("there is no sshd here (package openssh-server)")
        # Started by root it wants this folder.
        self.made = os.geteuid() == 0 and not os.path.exists("/run/sshd")
        if self.made:
            os.mkdir("/run/sshd", mode=0o755)
        for name in ("host", "user", "stranger"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.file(name)]
            subprocess.run(keygen, check=True)
        shutil.copy(self.file("user.pub"), self.file("authorized"))
        [self.port] = free_ports(1)
        self.hosts = [f"127.0.0.{n}" for n in (1, 2, 3)]
        listen = "".join(f"ListenAddress {host}:{self.port}\n" for host in self.hosts)
        self.write(
            "sshd.conf",
            f"{listen}HostKey {self.file('host')}\nAuthorizedKeysFile {self.file('authorized')}\n"
            "PidFile none\nStrictModes no\nPasswordAuthentication no\nUsePAM no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"MaxStartups 100\nAcceptEnv {LANE}\n",
        )
        self.write("known", "")
        for name in ("user", "stranger"):
            self.write(
                f"{name}.conf",
                f"Port {self.port}\nIdentityFile {self.file(name)}\nIdentitiesOnly yes\n"
                f"IdentityAgent none\nUserKnownHostsFile {self.file('known')}\nLogLevel ERROR\n"
                f"StrictHostKeyChecking accept-new\nBatchMode yes\nSendEnv {LANE}\n",
            )
        command = [program, "-D", "-e", "-f", self.file("sshd.conf")]
        self.log = open(self.file("log"), "wb")
        self.process = subprocess.Popen(command, stderr=self.log, stdin=subprocess.DEVNULL)

    def file(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.file(name), "w") as file:
            file.write(text)

    def rsh(self, who="user"):
        return f"ssh -F {self.file(who + '.conf')}"

    def wait(self):
        """Until it lets us in."""
        limit = time.monotonic() + TIMEOUT_S
        while time.monotonic() < limit:
            command = [*self.rsh().split(), self.hosts[0], "true"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                return self
            if self.process.poll() is not None:
                break
        with open(self.file("log")) as file:
            raise Hung(f"sshd does not let us in: {done.stderr} {file.read()}")

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        if self.made:
            os.rmdir("/run/sshd")


@contextlib.contextmanager
def server():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with contextlib.closing(Server(folder)) as it:
            yield it.wait()


def over_ssh(name, it, options=()):
    hosts = ",".join(it.hosts)
    return Hosted(name, it.rsh(), options, hosts=hosts, address=None, ckpt_every=0.5)


def test_ssh_a_job_runs_and_a_rank_is_killed():
    with server() as it:
        expected("cg")
        with over_ssh("cg", it) as job:
            record = job.wait_running(4)
            assert [n["host"] for n in record["nodes"]] == it.hosts, record
            job.all_checkpointed()
            job.kill_ranks([3])
            job.wait_event("restored", rank=3)
            restored_alone(job, "cg", [3])


def test_ssh_a_daemon_is_killed():
    with server() as it:
        expected("heat")
        with over_ssh("heat", it) as job:
            job.wait_running(4)
            job.all_checkpointed()
            record = job.status()
            os.kill(record["nodes"][1]["pid"], signal.SIGKILL)
            job.wait_event("node-lost", node=1)
            restored_alone(job, "heat", on_node(record, 1))


def test_ssh_a_connection_is_killed():
    """The session on the host ends; what ran in it is cleared away."""
    with server() as it:
        expected("cg")
        with over_ssh("cg", it) as job:
            job.wait_running(4)
            job.all_checkpointed()
            record = job.status()
            node = record["nodes"][1]["pid"]
            os.kill(parent(parent(node)), signal.SIGKILL)
            job.wait_event("node-lost", node=1)
            restored_alone(job, "cg", on_node(record, 1))
            assert not alive(node)


def test_ssh_nothing_is_left():
    with server() as it:
        with over_ssh("farm", it) as job:
            job.wait_running(4)
            job.interrupt()
            job.ends_with_nothing_left(130)
        with over_ssh("farm", it, ["--controller-limit", "0"]) as job:
            record = job.wait_running(4)
            without_controller(job, record)


def test_ssh_a_job_outlives_its_controller():
    expected("farm")
    with server() as it, over_ssh("farm", it) as job:
        outlived(job)


def test_ssh_errors_are_told():
    with server() as it:
        options = ["--hosts", it.hosts[1], "--ft", "none"]
        code, out, err = run_to_end(["true"], 1, options=[*options, "--rsh", it.rsh("stranger")])
        assert code == 1 and not out and len(err.splitlines()) == 1, (code, out, err)
        assert f"host {it.hosts[1]}" in err and "Permission denied" in err, err
        code, out, err = run_to_end(
            ["true"], 1, options=[*options, "--rsh", it.rsh(), "--prefix", "/no where"]
        )
        assert code == 1 and "/no where/bin/eyrie was not found" in err, (code, out, err)
        it.process.terminate()
        it.process.wait()
        code, out, err = run_to_end(["true"], 1, options=[*options, "--rsh", it.rsh()])
        assert code == 1 and "Connection refused" in err, (code, out, err)


# ---- network namespaces ----


@contextlib.contextmanager
def network(count=3):
    """A namespace with a bridge, and so many joined to it: 10.78.0.1, .2 ..., fd78::1, ::2 ..."""
    if os.geteuid() != 0:
        raise NotRun("network namespaces take root")
    with contextlib.ExitStack() as stack:
        spaces = [stack.enter_context(contextlib.closing(Space())) for _ in range(count + 1)]
        hub = spaces[0]
        hub.ip("link", "add", "bridge", "type", "bridge")
        for number, space in enumerate(spaces[1:], 2):
            hub.plug(f"port{number}", space)
            hub.ip("link", "set", f"port{number}", "master", "bridge", "up")
        devices = ["bridge"] + ["eth0"] * count
        for number, (space, device) in enumerate(zip(spaces, devices), 1):
            space.ip("address", "add", f"10.78.0.{number}/24", "dev", device)
            space.ip("address", "add", f"fd78::{number}/64", "dev", device, "nodad")
            space.ip("link", "set", device, "up")
        yield spaces


def spaced(name, spaces, form):
    """A job whose hosts are namespaces: its remote shell goes into that of the address."""
    cases = "".join(
        f"{form.format(n)}) pid={space.holder.pid};;\n" for n, space in enumerate(spaces[1:], 2)
    )
    body = f'case $1 in\n{cases}esac\nshift\nexec nsenter --net=/proc/$pid/ns/net sh -c "$*"\n'
    hosts = ",".join(form.format(n) for n in range(2, len(spaces) + 1))
    return shell(body), dict(hosts=hosts, address=None, wrap=spaces[0].enter, ckpt_every=0.5)


def over_network(name, form, local):
    expected(name)
    with network() as spaces:
        remote, how = spaced(name, spaces, form)
        with remote as rsh, Hosted(name, rsh, **how) as job:
            record = job.wait_running(4)
            addresses = [n["address"].rsplit(":", 1)[0] for n in record["nodes"]]
            assert addresses == [local.format(n) for n in (2, 3, 4)], record
            job.all_checkpointed()
            victims = on_node(job.status(), 1)
            spaces[0].ip("link", "set", "port3", "down")
            job.wait_event("node-lost", node=1)
            lost = next(e for e in job.events() if e["event"] == "node-lost")
            assert "nothing was heard of it" in lost["text"], lost
            restored_alone(job, name, victims)


def test_namespaces_are_hosts_and_one_is_cut_off():
    over_network("heat", "10.78.0.{}", "10.78.0.{}")


def test_namespaces_are_hosts_with_ipv6():
    over_network("cg", "fd78::{}", "[fd78::{}]")


def test_namespaces_a_host_cannot_reach_the_controller():
    with network() as spaces:
        remote, how = spaced("farm", spaces, "10.78.0.{}")
        spaces[0].ip("link", "set", "port4", "down")
        with remote as rsh, Hosted("farm", rsh, ["--join-limit", "4"], **how) as job:
            job.ends_with_nothing_left(1)
            job.says("host 10.78.0.4 did not join within 4 s")
            assert "10.78.0.1" in job.stderr() and json.dumps("") not in job.stderr()
