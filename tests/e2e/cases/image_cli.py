"""`eyrie-image`: programs without MPI are run, checkpointed, killed and restarted, with their output,
exit code and signals; what a user may get wrong is one clear line; nothing is left behind."""

import contextlib
import json
import os
import re
import pty
import select
import shutil
import signal
import subprocess
import tempfile
import time

import harness

PROGRAM = os.path.join(harness.BUILD, "bin", "eyrie-image")
COUNTS = os.path.join(harness.BUILD, "tests", "counts")
WIRED = os.path.join(harness.BUILD, "tests", "wired")


class Home:
    """A home of its own, and the supervisors started with it."""

    program, who, wrap = PROGRAM, {}, ()

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="eyrie-test-")
        self.env = {**os.environ, "EYRIE_HOME": os.path.join(self.path, "home")}
        self.started = []
        self.pids = harness.Pids()

    def run(self, *arguments, timeout=harness.TIMEOUT_S):
        """Runs one command to its end; returns (code, stdout, stderr)."""
        done = subprocess.run(
            [*self.wrap, self.program, *arguments],
            env=self.env,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            **self.who,
        )
        return done.returncode, done.stdout, done.stderr

    def gated(self, steps):
        """A program that makes some steps, and stands still at 10, 30, 50 ... until it is let."""
        return [COUNTS, "--steps", str(steps), "--gate", os.path.join(self.path, "gate")]

    def let_on(self, *steps):
        """The programs go on with these steps."""
        for step in steps:
            open(os.path.join(self.path, f"gate.{step}"), "w").close()

    def good(self, *arguments):
        code, out, err = self.run(*arguments)
        assert code == 0, (arguments, code, out, err)
        return out

    def start(self, *arguments):
        """Starts a supervisor, with pipes as its standard streams."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*self.wrap, self.program, *arguments],
            env=self.env,
            cwd=self.path,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            **self.who,
        )
        self.started.append(process)
        return process

    def list(self):
        return json.loads(self.good("list", "--json"))

    def until(self, condition, what):
        limit = time.monotonic() + harness.TIMEOUT_S
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < limit, f"no {what}: {self.list()}"
            time.sleep(harness.POLL_S)

    def running(self):
        """Waits for a program to run; returns its record. One that has ended says why."""

        def look():
            last = self.started[-1] if self.started else None
            ended = last is not None and last.poll() is not None
            found = [r for r in self.list() if r["state"] == "running"]
            assert found or not ended, (last.args, rest(last))
            return found

        record = self.until(look, "program")
        self.pids.update({record[0]["pid"], record[0]["supervisor"]})
        return record[0]

    def left_over(self):
        images = os.path.join(self.env["EYRIE_HOME"], "images")
        left = os.listdir(images) if os.path.isdir(images) else []
        return left + self.pids.left()

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()
        shutil.rmtree(self.path, ignore_errors=True)


class Ordinary(Home):
    """That of a user without privileges, who has programs of his own. `right`: the program has, by
    its file, the one to choose numbers of processes."""

    def __init__(self, right=False):
        super().__init__()
        for name in ("bin/eyrie-image", "libexec/eyrie-restorer", "tests/counts"):
            to = os.path.join(self.path, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy(os.path.join(harness.BUILD, name), to)
        self.program = os.path.join(self.path, "bin", "eyrie-image")
        os.chmod(self.path, 0o755)
        if os.geteuid() == 0:
            os.chown(self.path, harness.ORDINARY_USER, harness.ORDINARY_USER)
            self.who = harness.ORDINARY
        if right:
            subprocess.run(["setcap", "cap_checkpoint_restore+ep", self.program], check=True)

    def alone(self, steps):
        """The program, which stands still at 10, 30, 50 ..."""
        _, *words = self.gated(steps)
        return [os.path.join(self.path, "tests", "counts"), *words]

    def family(self, steps):
        """A shell that waits for it."""
        words = self.alone(steps)
        return ["sh", "-c", f"{' '.join(words)}; exit $?"]


@contextlib.contextmanager
def home(make=Home):
    place = make()
    try:
        yield place
    finally:
        place.close()


def lines(process, count):
    """Reads lines until the one that says `count`."""
    read = []
    while not read or read[-1] != f"{count}\n":
        line = process.stdout.readline().decode()
        assert line, (read, process.stderr.read().decode())
        read.append(line)
    return read


def rest(process, timeout=harness.TIMEOUT_S):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out.decode(), err.decode()


def refused(place, *arguments, words=(), code=None):
    got, out, err = place.run(*arguments)
    assert got != 0 and got < 128 and (code is None or got == code), (arguments, got, err)
    assert out == "" and len(err.splitlines()) == 1, (arguments, out, err)
    for word in words:
        assert word in err, (arguments, word, err)


def test_killed_and_restarted_twice():
    """Its output goes on in the new caller's pipe; the exit code is the program's own."""
    with home() as place:
        first = place.start("run", "--", *place.gated(60))
        lines(first, 5)
        record = place.running()
        written = json.loads(place.good("checkpoint", str(record["pid"]), "--json"))
        assert written["bytes"] == os.path.getsize(written["image"]), written
        assert 0 < written["pause_ms"] <= written["took_ms"], written
        os.kill(record["pid"], signal.SIGKILL)
        code, _, err = rest(first)
        assert code == 128 + signal.SIGKILL and "eyrie-image restart" in err, (code, err)
        assert [r["state"] for r in place.list()] == ["killed"], place.list()
        place.let_on(10)
        second = place.start("restart", "last")
        started = int(second.stdout.readline())
        assert started >= 4, started
        lines(second, started + 5)
        record = place.running()
        assert len(record["images"]) == 1, record
        place.good("checkpoint", "last", "--sync")
        os.kill(record["pid"], signal.SIGKILL)
        assert rest(second)[0] == 128 + signal.SIGKILL
        place.let_on(30, 50)
        third = place.start("restart", record["name"])
        code, out, err = rest(third)
        assert code == 3 and err == "", (code, err)
        got = [int(n) for n in out.splitlines()]
        assert got == list(range(got[0], 60)) and got[0] > started, got
        assert not place.left_over(), place.left_over()


def test_images_stay_if_it_is_told_to_end():
    """By SIGTERM, whether it dies of that or ends with a code of its own; Ctrl-C removes them."""
    handles = ["sh", "-c", "trap 'exit 7' TERM; echo 1; while :; do sleep 0.01; done"]
    with home() as place:
        for command, number, code in (
            ([COUNTS, "--steps", "1000000"], signal.SIGTERM, 128 + signal.SIGTERM),
            (handles, signal.SIGHUP, 128 + signal.SIGHUP),
            (handles, signal.SIGTERM, 7),
            (handles, signal.SIGINT, 128 + signal.SIGINT),
        ):
            process = place.start("run", "--", *command)
            process.stdout.readline()
            record = place.running()
            if command is handles:
                place.until(lambda: place.run("checkpoint", "last")[0] == 0, "checkpoint")
            else:
                place.good("checkpoint", "last")
            process.send_signal(number)
            got, _, err = rest(process)
            assert got == code, (got, code, err)
            folder = os.path.join(place.env["EYRIE_HOME"], "images", record["name"])
            if number == signal.SIGINT:
                assert "are removed" in err and not os.path.exists(folder), err
                continue
            assert f"{folder}: `eyrie-image restart {record['name']}`" in err, err
            again = place.start("restart", record["name"])
            place.running()
            again.send_signal(signal.SIGINT)
            assert "are removed" in rest(again)[2] and not os.path.exists(folder)
        assert not place.left_over(), place.left_over()


def test_a_shell_that_has_moved_its_output():
    """What it was given is at another descriptor, and a file in its place."""
    with home() as place:
        script = f"exec 3>&1 1>log; echo begun; {' '.join(place.gated(30))} >&3; echo ended"
        first = place.start("run", "--", "sh", "-c", script)
        lines(first, 5)
        shell = place.running()["pid"]
        place.good("checkpoint", "last")
        with open(f"/proc/{shell}/task/{shell}/children") as file:
            family = (shell, *map(int, file.read().split()))
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        assert rest(first)[0] == 128 + signal.SIGKILL
        place.until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in family), "end of all")
        place.let_on(10)
        code, out, err = place.run("restart", "last")
        assert code == 0 and out.endswith("28\n29\n") and err == "", (code, out, err)
        with open(os.path.join(place.path, "log")) as log:
            assert log.read() == "begun\nended\n"


def test_image_under_a_name():
    """An image with -o stays, and is restarted as often as wanted."""
    with home() as place:
        image = os.path.join(place.path, "at five.img")
        first = place.start("run", *place.gated(20))
        lines(first, 5)
        out = place.good("checkpoint", "last", "-o", "at five.img")
        assert image in out and "stood still" in out, out
        place.let_on(10)
        code, out, _ = rest(first)
        assert code == 3 and out.endswith("19\n"), out
        assert not place.left_over(), place.left_over()
        for _ in range(2):
            code, out, err = place.run("restart", "at five.img")
            assert code == 3 and out.endswith("19\n") and err == "", (code, out, err)
        assert not place.left_over() and os.path.exists(image), place.left_over()


def test_checkpoints_at_intervals():
    """The newest two stay in the folder that was given; a damaged newest one is passed over."""
    with home() as place:
        images = os.path.join(place.path, "images")
        arguments = ["run", "--dir", images, "--every", "0.1", "-v", COUNTS, "--steps", "1000000"]
        process = place.start(*arguments)

        def fourth():
            # Which may be gone already: only the newest stay.
            names = os.listdir(images) if os.path.isdir(images) else []
            found = (re.fullmatch(r"counts\.(\d+)\.img", name) for name in names)
            return any(int(it[1]) >= 4 for it in found if it)

        place.until(fourth, "fourth image")
        record = place.running()
        assert record["images"], record
        out = place.good("checkpoint", images)
        assert os.path.join(images, "counts.") in out, out
        os.kill(record["pid"], signal.SIGKILL)
        assert rest(process)[0] == 128 + signal.SIGKILL
        left = sorted(n for n in os.listdir(images) if not n.startswith("."))
        # Two, and those that they build on.
        assert len(left) >= 2, left
        assert not place.left_over(), place.left_over()
        newest = max((os.path.join(images, n) for n in left), key=os.path.getmtime)
        with open(newest, "r+b") as file:
            file.seek(5000)
            file.write(b"damage")
        again = place.start("restart", images)
        assert int(again.stdout.readline()) > 0
        place.running()
        again.send_signal(signal.SIGTERM)
        assert rest(again)[0] == 128 + signal.SIGTERM


def test_other_addresses():
    """A TCP connection comes back with what was in flight, also under another address."""
    old, new = "127.87.11.1", "127.87.11.2"
    with home() as place:
        first = place.start("run", WIRED)
        assert first.stdout.readline() == b"ready\n"
        record = place.running()
        place.good("checkpoint", str(record["pid"]), "-o", "wired.img")
        os.kill(record["pid"], signal.SIGKILL)
        rest(first)
        for rule, expected in (((), old), (("--map-address", f"{old}={new}"), new)):
            again = place.start("restart", *rule, "wired.img")
            out, err = again.communicate(b"go\n", timeout=harness.TIMEOUT_S)
            told = [f"{what} {expected}" for what in ("listener", "near", "far")]
            assert out.decode().splitlines() == told and again.returncode == 0, (out, err)
        # An address that no machine has (a documentation range).
        rule = f"{old}=192.0.2.1"
        refused(place, "restart", "--map-address", rule, "wired.img", words=("--map-address",))
        for rule in ("127.0.0.1", "127.0.0.1=::1", "a=b"):
            arguments = ("restart", "--map-address", rule, "wired.img")
            refused(place, *arguments, words=(rule,), code=2)
        assert not place.left_over(), place.left_over()


def test_ways_of_taking_an_image():
    """Full, incremental, by copy, by twin, standing still: each is as good as the others."""
    with home() as place:
        process = place.start("run", "--keep", "9", COUNTS, "--steps", "1000000")
        lines(process, 3)
        record = place.running()
        images = []
        for way in ([], [], ["--copy"], ["--twin"], ["--sync"], ["--full"], ["--copy", "--full"]):
            written = json.loads(place.good("checkpoint", "last", "--json", *way))
            images.append(written)
            lines(process, int(process.stdout.readline()) + 2)
        # The first one and those that are asked to be so store everything.
        assert [w["unchanged_pages"] == 0 for w in images] == [True] + [False] * 4 + [True] * 2
        assert [w["mode"] for w in images[2:5]] == ["copy", "twin", "synchronous"], images
        assert images[1]["bytes"] < images[0]["bytes"], images
        os.kill(record["pid"], signal.SIGKILL)
        assert rest(process)[0] == 128 + signal.SIGKILL
        counts = []
        for written in images:
            again = place.start("restart", "--lazy", "5", written["image"])
            counts.append(int(again.stdout.readline()))
            again.kill()
            again.wait()
        assert counts == sorted(counts) and counts[0] < counts[-1], counts


def test_signals_and_input_reach_the_program():
    """What it handles it handles; what ends it leaves nothing behind; its input is the caller's."""
    with home() as place:
        process = place.start("run", COUNTS, "--echo")
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        place.running()
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == b"SIGUSR1\n"
        place.good("checkpoint", "last", "-o", "echo.img")
        process.send_signal(signal.SIGINT)
        # Its input stays open: the end of that would end it too.
        assert process.wait(harness.TIMEOUT_S) == 128 + signal.SIGINT
        assert not place.left_over(), place.left_over()
        again = place.start("restart", "echo.img")
        again.stdin.write(b"two\n")
        again.stdin.flush()
        assert again.stdout.readline() == b"two\n"
        place.running()
        again.send_signal(signal.SIGUSR1)
        assert again.stdout.readline() == b"SIGUSR1\n"
        again.stdin.close()
        assert again.wait(harness.TIMEOUT_S) == 3
        assert not place.left_over(), place.left_over()


class Terminal:
    """A supervisor on a terminal of its own."""

    def __init__(self, place, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.closerange(3, 1024)
            os.execve(PROGRAM, [PROGRAM, *arguments], place.env)

    def say(self, line, answer):
        """Types a line; waits for its echo and then the program's answer."""
        os.write(self.fd, line.encode() + b"\n")
        seen, limit = b"", time.monotonic() + harness.TIMEOUT_S
        while f"{line}\r\n{answer}".encode() not in seen:
            assert time.monotonic() < limit, seen
            if select.select([self.fd], [], [], 1)[0]:
                seen += os.read(self.fd, 4096)

    def interrupt(self):
        os.write(self.fd, b"\x03")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return code


def test_on_a_terminal():
    """Restarted on another terminal it talks to that one; Ctrl-C ends it and leaves nothing."""
    with home() as place:
        image = os.path.join(place.path, "terminal.img")
        first = Terminal(place, "run", COUNTS, "--echo")
        first.say("one", "one")
        place.running()
        place.good("checkpoint", "last", "-o", image)
        assert first.interrupt() == 128 + signal.SIGINT
        second = Terminal(place, "restart", image)
        second.say("two", "two")
        place.running()
        place.good("checkpoint", "last")
        assert second.interrupt() == 128 + signal.SIGINT
        assert not place.left_over(), place.left_over()


def test_a_process_that_others_started():
    """It is taken where it stands, and its parent sees nothing of it."""
    with home() as place:
        process = subprocess.Popen(
            place.gated(60), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        lines(process, 3)
        out = place.good("checkpoint", str(process.pid), "-o", "foreign.img")
        assert "foreign.img" in out, out
        place.let_on(10, 30, 50)
        out, _ = process.communicate(timeout=harness.TIMEOUT_S)
        assert process.returncode == 3 and out.endswith(b"\n59\n"), out
        code, out, err = place.run("restart", "foreign.img")
        assert code == 3 and err == "" and out.endswith("\n59\n"), (code, out, err)


def test_children_that_cannot_be_brought_back():
    """They are not checkpointed, with the reason; the program goes on, and alone it is taken."""
    for arguments, words in (
        (("--own-pids", "no"), "--own-pids no"),
        ((), "user.max_user_namespaces is 0"),
    ):
        with home(Ordinary) as place:
            if not arguments:
                place.wrap = harness.NO_NAMESPACES
                if subprocess.run([*place.wrap, "true"], **place.who).returncode != 0:
                    raise harness.NotRun("user namespaces are not permitted here")
            process = place.start("run", *arguments, *place.family(60))
            lines(process, 3)
            place.running()
            for _ in range(2):
                refused(place, "checkpoint", "last", words=["child processes", words, "exec"])
            place.let_on(10, 30, 50)
            code, out, err = rest(process)
            assert code == 3 and out.endswith("\n59\n") and err == "", (code, out, err)
            process = place.start("run", *arguments, *place.alone(60))
            lines(process, 3)
            place.running()
            place.good("checkpoint", "last")
            process.kill()
            process.wait()


def come_back(place, *arguments):
    """A shell and its child are killed by the numbers that are told, and restarted, three times."""
    process = place.start("run", *arguments, *place.family(60))
    lines(process, 3)
    for step in (10, 30, 50):
        record = place.running()
        assert harness.alive(record["supervisor"]) and harness.alive(record["pid"]), record
        place.good("checkpoint", str(record["pid"]), "-o", "kept.img")
        with open(f"/proc/{record['pid']}/task/{record['pid']}/children") as file:
            (child,) = map(int, file.read().split())
        # The shell collects it and ends.
        os.kill(child, signal.SIGKILL)
        code, _, err = rest(process)
        assert code == 128 + signal.SIGKILL and "eyrie-image" not in err, (code, err)
        place.let_on(step)
        process = place.start("restart", *arguments, "kept.img")
        assert int(process.stdout.readline()) > 0
    code, out, err = rest(process)
    assert code == 3 and out.endswith("59\n") and err == "", (code, out, err)


def test_children_come_back_to_an_ordinary_user():
    """Two programs beside each other, whose numbers are the same."""
    with home(Ordinary) as place:
        come_back(place)
        copy = os.path.join(place.path, "kept.img")
        both = [place.start("restart", copy) for _ in range(2)]
        for process in both:
            code, out, err = rest(process)
            assert code == 3 and out.endswith("59\n") and err == "", (code, out, err)


def test_a_namespace_from_the_start():
    """Signals and exit codes go through it; who is killed outside takes all with him."""
    with home(Ordinary) as place:
        come_back(place, "--own-pids", "yes")
        script = 'trap "exit 7" USR1; echo $$; while :; do sleep 0.01; done'
        process = place.start("run", "--own-pids", "yes", "sh", "-c", script)
        inside, record = int(process.stdout.readline()), place.running()
        with open(f"/proc/{record['pid']}/status") as file:
            numbers = [line.split()[1:] for line in file if line.startswith("NSpid:")]
        assert numbers == [[str(record["pid"]), str(inside)]], (numbers, inside)
        process.send_signal(signal.SIGUSR1)
        code, _, err = rest(process)
        assert code == 7 and err == "", (code, err)
        process = place.start("run", "--own-pids", "yes", "sh", "-c", script)
        process.stdout.readline()
        record = place.running()
        process.kill()
        process.wait()
        place.until(lambda: not harness.alive(record["pid"]), "end of the program")


def test_children_come_back_with_the_right_of_a_file():
    """The program passes it on, so that all may do the same; there is no namespace then."""
    if os.geteuid() != 0:
        print("NOT RUN: setcap takes root")
        return
    with home(lambda: Ordinary(right=True)) as place:
        come_back(place, "--own-pids", "no")


def test_death_of_the_supervisor():
    """The program dies with it; its images can be restarted."""
    with home() as place:
        process = place.start("run", COUNTS, "--steps", "1000000")
        lines(process, 3)
        record = place.running()
        place.good("checkpoint", record["name"])
        process.kill()
        process.wait()
        place.until(lambda: not harness.alive(record["pid"]), "end of the program")
        assert [r["state"] for r in place.list()] == ["killed"], place.list()
        again = place.start("restart", "last")
        assert int(again.stdout.readline()) >= 3
        again.kill()


def test_what_cannot_be_done_is_said():
    """One line each, with what to do."""
    with home() as place:
        refused(place, "run", "no-such-program-of-eyrie", words=["no-such-program"], code=127)
        refused(place, "run", os.path.join(harness.ROOT, "README.md"), words=["README"], code=126)
        refused(place, "run", "--every", "0", COUNTS, words=["too short"], code=2)
        refused(place, "checkpoint", "last", words=["eyrie-image list"])
        refused(place, "checkpoint", "nobody", words=["nobody"])
        refused(place, "checkpoint", "1999999999", words=["no process 1999999999"])
        refused(place, "restart", "nothing", words=["nothing"])
        refused(place, "restart", "/nowhere/an.img", words=["/nowhere/an.img"])
        refused(place, "restart", COUNTS, words=["not an image"])
        refused(place, "restart", place.path, words=["no image in"])
        refused(place, "sleep", words=["sleep"], code=2)
        process = place.start("run", COUNTS, "--socket", "--steps", "1000000")
        lines(process, 2)
        target = str(place.running()["pid"])
        refused(place, "checkpoint", target, words=["socket"])
        refused(place, "checkpoint", target, "-o", "/nowhere/an.img", words=["checkpoint"])
        lines(process, int(process.stdout.readline()) + 2)
