"""Jobs for tests: starts `eyrie run` with a home of its own, waits for events instead of time,
cleans up.

What it keeps true: a job's standard output and error go to files, so that nothing blocks on a pipe;
every wait has a limit and reports what the job was doing when it is exceeded; at the end no process
of the job is left, or the test says so."""

import atexit
import contextlib
import fcntl
import functools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
EYRIE = os.path.join(BUILD, "bin", "eyrie")
CACHE = os.environ.get("EYRIE_CACHE") or os.path.expanduser("~/.cache/eyrie")
PYTHON = os.path.join(CACHE, "venv", "bin", "python")
POLL_S = 0.005
TIMEOUT_S = float(os.environ.get("EYRIE_TEST_TIMEOUT", "120"))
# What the machine's own files say, or folders of an allocation, is nothing of the tests.
os.environ["EYRIE_CONFIG"] = os.devnull
for name in ("EYRIE_LOCAL", "SLURM_TMPDIR"):
    os.environ.pop(name, None)


# How long the parts of a job wait for each other in end-to-end tests, in seconds, where these wait for that to be
# over (docs/reference/configuration.md). What a machine under load may exceed is as ever: `silence-least`, and the
# time that ranks have to stand. A test that shows that something else comes first takes the defaults (`DEFAULTS`).
TIMING = {
    "silence-most": 6,
    "lease": 3,
    "stand-after": 10,
    "retry-writes": 1,
    "retry-saves": 2,
    "link-silence": 6,
    "rejoin": 10,
    "gateway-alone": 5,
}
DEFAULTS = {"EYRIE_CONFIG": os.devnull}


def shorten_waits():
    """Has the jobs of this process take these from a file for all users, which is gone at the end."""
    folder = tempfile.mkdtemp(prefix="eyrie-test-timing-")
    owner = os.getpid()
    # Not by a process that a test has forked.
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, True))
    os.chmod(folder, 0o755)
    path = os.path.join(folder, "config.toml")
    with open(path, "w") as file:
        file.write("[timing]\n" + "".join(f"{key} = {value}\n" for key, value in TIMING.items()))
    os.chmod(path, 0o644)
    os.environ["EYRIE_CONFIG"] = path


# Which of the processes that run tests side by side this is; its jobs inherit it.
LANE = "EYRIE_TEST_LANE"


def of_another_lane(pid):
    """Whether a process belongs to a test that runs beside this one."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            marks = [v for v in file.read().split(b"\0") if v.startswith(LANE.encode() + b"=")]
    except OSError:
        return False
    own = f"{LANE}={os.environ.get(LANE, '')}".encode()
    return bool(marks) and marks[0] != own


class NotRun(Exception):
    """A test cannot be run here; says why."""


# Of a report's first lines, one an event: how many, and how long.
TOLD_MOST, TOLD_CHARS = 24, 200


class Hung(Exception):
    """A wait exceeded its limit."""


def example(name):
    """The command of an example program."""
    if name in ("mc", "stencil_ulfm.py"):
        return [PYTHON, os.path.join(ROOT, "examples", name.removesuffix(".py") + ".py")]
    return [os.path.join(BUILD, "examples", name)]


def compile_program(source):
    """Compiles a C program of the tests with Eyrie's compiler wrapper; returns where it lies."""
    os.makedirs(os.path.join(BUILD, "tests"), exist_ok=True)
    out = os.path.join(BUILD, "tests", os.path.basename(source)[:-2])
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-g", "-Wall"]
    mpicc = os.path.join(BUILD, "bin", "mpicc")
    # A test beside this one may just start it.
    part = f"{out}.{os.getpid()}"
    subprocess.run([mpicc, *flags, "-o", part, source, "-lm", "-pthread"], check=True)
    os.replace(part, out)
    return out


def compile_gate():
    """Compiles the library that keeps a job from ending; returns where it lies. It is also loaded
    into `eyrie` itself, so it is not linked with the MPI library."""
    os.makedirs(os.path.join(BUILD, "tests"), exist_ok=True)
    out = os.path.join(BUILD, "tests", "gate.so")
    source = os.path.join(ROOT, "tests", "e2e", "preload", "gate.c")
    # Not twice, also by cases that run at the same time: jobs that were saved with it need the file
    # as it is.
    with open(out + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(source):
            flags = ["-shared", "-fPIC", "-O1", "-Wall", f"-I{BUILD}/include"]
            subprocess.run(["cc", *flags, "-o", out + ".new", source], check=True)
            os.replace(out + ".new", out)
    return out


def born(pid):
    """When a process was started, in ticks; None if it does not exist or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def alive(pid):
    """Whether a process exists and is no zombie."""
    return born(pid) is not None


class Pids(dict):
    """Processes that were seen. Numbers are used again, on a busy machine after minutes."""

    def update(self, pids):
        for pid in pids:
            if born(pid):
                self[pid] = born(pid)

    def left(self):
        """Those that are still there."""
        return sorted(pid for pid, start in self.items() if start and born(pid) == start)


def limited(text, most=4000):
    return text if len(text) <= most else text[: most // 2] + "\n[...]\n" + text[-most // 2 :]


def free_ports(count):
    """Ports for servers that are started later, and perhaps again: none of those that the kernel
    gives to whoever connects meanwhile, also to who connects to a port where nobody listens. Nor do
    tests beside this one take them: each lane has every fourth."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        lowest = int(f.read().split()[0])
    found = []
    ports = range(10000 + int(os.environ.get(LANE, "0")), max(lowest, 16000), 8)
    for port in random.sample(ports, len(ports)):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("0.0.0.0", port))
            found.append(port)
        if len(found) == count:
            return found
    raise NotRun("no ports are free")


def soon(condition, what):
    """Waits until condition() is true. Returns what it says."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Hung(f"no {what}")
        time.sleep(0.05)


# In a user namespace that has no others in it.
NO_NAMESPACES = (
    # In there root's files are nobody's, so that the one of `TIMING` would not be read.
    "env",
    f"EYRIE_CONFIG={os.devnull}",
    *("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"),
    'for of in user pid; do echo 0 > /proc/sys/user/max_${of}_namespaces; done && exec "$@"',
    "sh",
)
# A user without privileges, of whom the machine knows nothing.
ORDINARY_USER = 61234
ORDINARY = {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": []}


@functools.cache
def reachable_folder():
    """A folder that any user may read, gone at the end."""
    folder = tempfile.mkdtemp(prefix="eyrie-test-ordinary-")
    atexit.register(shutil.rmtree, folder, True)
    os.chmod(folder, 0o755)
    return folder


@functools.cache
def reachable(path):
    """A copy of a file of the build, at the same place in a folder that any user may read."""
    copy = os.path.join(reachable_folder(), os.path.relpath(path, BUILD))
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    return shutil.copy(path, copy)


def installed_for_all():
    """`eyrie` with what belongs to it, where any user may start it."""
    reachable(os.path.join(BUILD, "libexec", "eyrie-restorer"))
    for name in ("libmpi.so.12", "libmpi_abi.so.1"):
        reachable(os.path.join(BUILD, "lib", name))
    return reachable(EYRIE)


class Job:
    """One `eyrie run`. Use as a context manager: leaving it ends the job and removes its home."""

    # Whether a user without privileges runs it, if the tests have some.
    ordinary = False
    # What is run, and as whom.
    program, who = EYRIE, {}

    def __init__(
        self,
        command,
        ranks=4,
        ckpt_every=None,
        ft=None,
        options=(),
        stdin=None,
        stdin_file=None,
        env=None,
        subcommand="run",
        cwd=None,
        wrap=(),
    ):
        self.home = tempfile.mkdtemp(prefix="eyrie-test-")
        self.env = {
            **os.environ,
            "EYRIE_HOME": self.home,
            "MPI4PY_MPIABI": "mpich",
            "MPI4PY_LIBMPI": os.path.join(BUILD, "lib", "libmpi.so.12"),
            **(env or {}),
        }
        self.out_path = os.path.join(self.home, "test.out")
        self.err_path = os.path.join(self.home, "test.err")
        self.who = ORDINARY if self.ordinary and os.geteuid() == 0 else {}
        self.program = installed_for_all() if self.who else EYRIE
        if self.who:
            os.chown(self.home, ORDINARY_USER, ORDINARY_USER)
            command = [reachable(w) if w.startswith(BUILD) else w for w in command]
        arguments = [self.program, subcommand] + ([] if ranks is None else ["-n", str(ranks)])
        if ckpt_every is not None:
            arguments += ["--ckpt-every", str(ckpt_every), "--ckpt-first", str(ckpt_every)]
        if ft is not None:
            arguments += ["--ft", ft]
        arguments += [*options, "--", *command]
        self.arguments = arguments
        self.pids = Pids()
        self._events = []
        self._events_file = None
        self._events_at = 0
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                [*wrap, *arguments],
                stdout=out,
                stderr=err,
                env=self.env,
                cwd=cwd,
                stdin=subprocess.PIPE if stdin is not None else stdin_file or subprocess.DEVNULL,
                start_new_session=True,
                **self.who,
            )
        # A wrapper may have put the job in a mount namespace of its own: look through its eyes.
        self.job_home = self.env["EYRIE_HOME"]
        if wrap:
            self.job_home = f"/proc/{self.process.pid}/root{self.job_home}"
            self.env["EYRIE_HOME"] = self.job_home
        if stdin is not None and stdin != "open":
            self.process.stdin.write(stdin)
            self.process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what the job says ----

    def stdout(self):
        with open(self.out_path, "rb") as f:
            return f.read().decode(errors="replace")

    def stderr(self):
        with open(self.err_path, "rb") as f:
            return f.read().decode(errors="replace")

    def folder(self):
        """The job's folder under its home, or None before it exists and after it is removed."""
        jobs = os.path.join(self.job_home, "jobs")
        try:
            names = [n for n in sorted(os.listdir(jobs)) if not n.startswith(".")]
        except OSError:
            return None
        folders = [os.path.join(jobs, n) for n in names if os.path.isdir(os.path.join(jobs, n))]
        return folders[0] if folders else None

    def events(self):
        """All events so far. The file is kept open, so that it can be read after the job's folder is gone."""
        if self._events_file is None:
            folder = self.folder()
            if folder:
                try:
                    path = os.path.join(folder, "events.jsonl")
                    self._events_file = open(path, "rb", buffering=0)
                    self._events_at = 0
                except OSError:
                    pass
        if self._events_file is not None:
            # From the last whole line on: what a controller that died left of one is cut off.
            self._events_file.seek(self._events_at)
            *lines, _ = self._events_file.read().split(b"\n")
            self._events_at += sum(len(line) + 1 for line in lines)
            self._events += [json.loads(line) for line in lines if line]
        return self._events

    def eyrie(self, *arguments, check=True, timeout=TIMEOUT_S):
        """Runs another `eyrie` command on the same home; returns (code, stdout, stderr)."""
        done = subprocess.run(
            [self.program, *arguments],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            **self.who,
        )
        if check and done.returncode != 0:
            raise AssertionError(
                f"eyrie {' '.join(arguments)} ended with {done.returncode}: {done.stderr}"
            )
        return done.returncode, done.stdout, done.stderr

    def status(self):
        """The job's status record, or None when it cannot be asked (not yet or no more there)."""
        code, out, _ = self.eyrie("status", "last", "--json", check=False)
        if code != 0 or not out.strip():
            return None
        record = json.loads(out)
        if record["exit_code"] is not None:
            # By now its numbers may be those of others.
            return record
        self.pids.update(r["pid"] for r in record["ranks"] + record["nodes"] if r["pid"])
        if record.get("daemon_pid"):
            self.pids.update([record["daemon_pid"]])
        return record

    # ---- waiting ----

    def running(self):
        return self.process.poll() is None

    def until(self, condition, what, timeout=TIMEOUT_S):
        """Waits until condition() is true; fails when the job ends before that or time runs out. `what`
        may be a function that tells it as it is then."""
        limit = time.monotonic() + timeout
        while True:
            ended = not self.running()
            value = condition()
            if value:
                return value
            if ended:
                raise AssertionError(
                    f"the job ended with {self.process.returncode} before {what}\n" + self.report()
                )
            if time.monotonic() > limit:
                told = what() if callable(what) else what
                raise Hung(f"no {told} within {timeout:.0f} s\n" + self.report())
            time.sleep(POLL_S)

    def says(self, words):
        """Waits until the command's standard error holds these words."""
        self.until(lambda: words in self.stderr(), f"standard error says {words!r}")

    def count(self, kind, **fields):
        return len(
            [
                e
                for e in self.events()
                if e["event"] == kind and all(e.get(k) == v for k, v in fields.items())
            ]
        )

    def wait_event(self, kind, count=1, timeout=TIMEOUT_S, **fields):
        """Waits until `count` events of a kind have happened."""
        self.until(
            lambda: self.count(kind, **fields) >= count,
            f"{count} event(s) '{kind}' {fields or ''}",
            timeout,
        )

    def wait_running(self, ranks):
        """Waits until every rank has been started and has a process."""

        def all_there():
            record = self.status()
            return record and len([r for r in record["ranks"] if r["pid"]]) == ranks and record

        return self.until(all_there, f"{ranks} running ranks")

    def wait(self, timeout=TIMEOUT_S):
        """Waits for the job's end; returns its exit code."""
        limit = time.monotonic() + timeout
        while self.running():
            self.events()
            if time.monotonic() > limit:
                raise Hung(f"the job has not ended within {timeout:.0f} s\n" + self.report())
            time.sleep(POLL_S)
        self.events()
        return self.process.returncode

    # ---- what is done to it ----

    def kill_ranks(self, ranks):
        return self.eyrie(
            "inject", "last", "kill-rank", ",".join(str(r) for r in ranks), check=False
        )

    def kill_pid(self, rank):
        """SIGKILL to a rank's process behind Eyrie's back; returns whether there was one."""
        record = self.status()
        if not record or not record["ranks"][rank]["pid"]:
            return False
        try:
            os.kill(record["ranks"][rank]["pid"], signal.SIGKILL)
            return True
        except ProcessLookupError:
            return False

    def interrupt(self, number=signal.SIGINT):
        self.process.send_signal(number)

    def report(self):
        """All that helps to understand a job that does not do what it should."""
        parts = [f"command: {' '.join(self.arguments)}"]
        # First what a reader who sees only the beginning has to know.
        parts.append(f"ended with: {self.process.poll()}")
        parts.append("stdout: " + limited(self.stdout()))
        parts.append("stderr: " + limited(self.stderr()))
        common = ("checkpointing", "checkpointed", "node-joined", "started", "exited")
        told = [e for e in self.events() if e["event"] not in common][-TOLD_MOST:]
        for e in told:
            at, node, rank = e["ms"], e["node"], e["rank"]
            parts.append(f"{at:.0f} ms {e['event']} node {node} rank {rank}: {e['text']}"[:TOLD_CHARS])
        try:
            parts.append("status: " + json.dumps(self.status()))
        except (subprocess.TimeoutExpired, ValueError, OSError) as problem:
            parts.append(f"status: {problem}")
        for pid in sorted(self.pids):
            try:
                with open(f"/proc/{pid}/status") as f:
                    state = [
                        l.strip()
                        for l in f
                        if l.startswith(("Name", "State", "TracerPid", "SigPnd"))
                    ]
                with open(f"/proc/{pid}/wchan") as f:
                    state.append("wchan " + f.read())
                parts.append(f"process {pid}: {'; '.join(state)}")
            except OSError:
                parts.append(f"process {pid}: gone")
        events = self.events()
        usual = ("checkpointing", "checkpointed")
        parts += ["before: " + json.dumps(e) for e in events[:-30] if e["event"] not in usual]
        parts += ["events: " + json.dumps(e) for e in events[-30:]]
        folder = self.folder()
        # It may vanish meanwhile.
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(folder)) if folder else []:
                if name.endswith(".log"):
                    with open(os.path.join(folder, name), errors="replace") as f:
                        parts.append(f"{name}: " + limited(f.read()))
        return "\n".join(parts)

    def left_over(self):
        """Processes of the job that are still there, and job folders under its home."""
        left = [f"process {p}" for p in self.pids.left()]
        folder = self.folder()
        return left + ([f"folder {folder}"] if folder else [])

    def settle(self, limit=60):
        """Gives the processes of nodes, which may outlive the command for a moment, time to end."""
        end = time.monotonic() + limit
        while self.left_over() and time.monotonic() < end:
            time.sleep(POLL_S)

    def close(self):
        if self.running():
            try:
                self.status()
            except (subprocess.TimeoutExpired, ValueError, OSError):
                pass
            self.process.kill()
            self.process.wait()
            for pid in self.pids.left():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        if self._events_file:
            self._events_file.close()
            self._events_file = None
        # Processes that are about to end may write there until then.
        end = time.monotonic() + 20
        while os.path.exists(self.home) and time.monotonic() < end:
            shutil.rmtree(self.home, ignore_errors=True)
            time.sleep(POLL_S)


class Gated(Job):
    """A job whose ranks do not end before they are let: they wait in MPI_Finalize, or, those of
    Python, which has its own way to the MPI library, when they are done."""

    gates = None

    def __init__(self, command, env=None, **more):
        self.gates = tempfile.TemporaryDirectory(prefix="eyrie-test-")
        self.gate = os.path.join(self.gates.name, "gate")
        env = {**(env or {}), "EYRIE_TEST_GATE": self.gate}
        script = next((i for i, word in enumerate(command) if word.endswith(".py")), None)
        if script is None:
            env["LD_PRELOAD"] = reachable(compile_gate()) if self.ordinary else compile_gate()
            os.chmod(self.gates.name, 0o755)
        else:
            waits = os.path.join(ROOT, "tests", "e2e", "preload", "gate.py")
            command = [*command[:script], waits, *command[script:]]
        super().__init__(command, env=env, **more)

    def let_end(self):
        open(self.gate, "w").close()

    def close(self):
        super().close()
        self.gates.cleanup()


def run_to_end(command, ranks=4, timeout=TIMEOUT_S, **options):
    """Runs a job to its end; returns (exit code, stdout, stderr)."""
    with Job(command, ranks=ranks, **options) as job:
        code = job.wait(timeout)
        return code, job.stdout(), job.stderr()
