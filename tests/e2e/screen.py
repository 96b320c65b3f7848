"""A terminal for commands: what they have written to it, and what is to be seen in the end."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from harness import TIMEOUT_S, Hung

CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
SIZE = (24, 100)


class Screen:
    """A command in a pseudo-terminal of its own, which is its standard output and error."""

    def __init__(self, command, env, stdout=None, **more):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        env = {k: v for k, v in env.items() if k not in ("NO_COLOR", "CLICOLOR")} | {"TERM": "xterm"}

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            env=env,
            preexec_fn=own_terminal,
            **more,
        )
        os.close(theirs)
        self.raw = b""

    def read(self, seconds):
        """Takes what has come; false: no more will."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return True
        try:
            new = os.read(self.ours, 65536)
        except OSError:
            return False
        self.raw += new
        return bool(new)

    def shows(self, words):
        """Waits until it has been written."""
        end = time.monotonic() + TIMEOUT_S
        while not re.search(words, self.text()):
            if not self.read(0.5) or time.monotonic() > end:
                raise Hung(f"{words!r} is not shown: {self.raw!r}")

    def text(self):
        """All that was written, without what steers."""
        return CONTROL.sub("", self.raw.decode(errors="replace"))

    def types(self, keys):
        os.write(self.ours, keys)

    def over(self):
        """Waits for the end; returns the exit code."""
        end = time.monotonic() + TIMEOUT_S
        while self.read(0.5):
            if time.monotonic() > end:
                raise Hung(f"it does not end: {self.raw!r}")
        return self.process.wait(TIMEOUT_S)

    def lines(self):
        """What is to be seen: rows, of which the last ones may be empty."""
        rows, row, column = [""], 0, 0
        for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)", self.raw.decode(errors="replace")):
            control = CONTROL.fullmatch(part)
            if part == "\r":
                column = 0
            elif part == "\n":
                row += 1
                rows += [""] * (row + 1 - len(rows))
            elif control:
                number = int(control.group(1) or 1) if control.group(1).isdigit() or not control.group(1) else 1
                if control.group(2) == "A":
                    row = max(0, row - number)
                elif control.group(2) == "B":
                    row += number
                    rows += [""] * (row + 1 - len(rows))
                elif control.group(2) == "K":
                    whole = control.group(1) == "2"
                    rows[row] = "" if whole else rows[row][:column]
            else:
                rows[row] = rows[row][:column].ljust(column) + part + rows[row][column + len(part) :]
                column += len(part)
        return [line.rstrip() for line in rows]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.ours)
