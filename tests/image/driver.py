"""The other end of `image-driver`: a small daemon that owns one program. Each wait has a limit, and
what the program was doing when it is exceeded is told."""

import atexit
import functools
import os
import select
import shutil
import subprocess
import tempfile
import time

import builds
import table

LIMIT_S = float(os.environ.get("EYRIE_TEST_TIMEOUT", "120"))
# Within this time helpers of a process that has ended must have ended too.
SETTLED_S = 20
TARGET = os.environ.get("CARGO_TARGET_DIR") or os.path.join(builds.CACHE, "target")
CARGO = os.environ.get("CARGO", "cargo")
PROFILE = builds.profile()
DRIVER = os.path.join(TARGET, PROFILE, "image-driver")
RESTORER = os.path.join(TARGET, PROFILE, "eyrie-restorer")


def build():
    """Builds the driver, with fault points in it, and the restorer."""
    for arguments in (
        ["-p", "eyrie-image-driver", "--features", "faults"],
        ["-p", "eyrie-restorer"],
    ):
        subprocess.run(
            [CARGO, "build", "--quiet", "--locked", "--profile", PROFILE, *arguments],
            check=True,
            cwd=builds.ROOT,
            env={**os.environ, "CARGO_TARGET_DIR": TARGET},
        )


@functools.cache
def reachable(path):
    """A copy of a program where any user may start it."""
    folder = tempfile.mkdtemp(prefix="eyrie-image-ordinary-")
    atexit.register(shutil.rmtree, folder, True)
    os.chmod(folder, 0o755)
    return shutil.copy(path, folder)


class Hung(Exception):
    """A wait exceeded its limit."""


class Died(Exception):
    """The driver itself died."""


def doing(pid):
    """What a process and its threads are doing."""
    lines = []
    try:
        for task in sorted(os.listdir(f"/proc/{pid}/task")):
            parts = [task]
            for name in ("comm", "wchan", "syscall"):
                with open(f"/proc/{pid}/task/{task}/{name}") as f:
                    parts.append(f.read().strip())
            with open(f"/proc/{pid}/task/{task}/status") as f:
                parts += [l.strip() for l in f if l.startswith(("State", "SigPnd", "SigBlk"))]
            lines.append(" ".join(parts))
    except OSError as problem:
        lines.append(str(problem))
    return "\n".join(lines)


class Driver:
    """One daemon with one program. Use as a context manager: leaving it ends both."""

    def __init__(self, *arguments, env=()):
        env = dict(env)
        who, program = {}, DRIVER
        if os.geteuid() == 0 and env.pop(table.ORDINARY, None):
            program = reachable(DRIVER)
            who = {"user": table.ORDINARY_USER, "group": table.ORDINARY_USER, "extra_groups": []}
        self.process = subprocess.Popen(
            [program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            **who,
        )
        self.rest = b""
        self.pid = None
        self.answer = self._line()
        words = self.answer.split()
        if words[0] in ("started", "restored"):
            self.pid = int(words[1])

    @classmethod
    def start(cls, folder, command, env=()):
        return cls("start", folder, "--", *command, env=env)

    @classmethod
    def restore(cls, folder, image, how="whole", env=()):
        restorer = reachable(RESTORER) if table.ORDINARY in dict(env) else RESTORER
        return cls("restore", folder, image, restorer, how, env=env)

    def _line(self):
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
            if not ready:
                raise Hung(f"no answer within {LIMIT_S:.0f} s; the program:\n{doing(self.pid)}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Died(f"the driver ended with {self.process.wait()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def ask(self, *words):
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self._line()

    def freeze(self, how, image, delay_us=0):
        return self.ask("freeze", how, image, delay_us)

    def left(self):
        """Children that are still there after all that should have ended had time to."""
        limit = time.monotonic() + SETTLED_S
        while True:
            left = self.ask("left").split()[1:]
            if not left or time.monotonic() > limit:
                return left
            time.sleep(0.002)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def fields(answer):
    """`name=value` in an answer, as numbers."""
    return {k: int(v) for k, v in (w.split("=") for w in answer.split() if "=" in w)}
