"""Every fault point taken once, with every action that makes sense there.

A generation is written undisturbed, then the fault strikes in the next one, or in a restore. What
must hold then: the program ends as it does undisturbed (or is reported gone, where it was the one
that was killed), the earlier generation is restored and ends so too, no process and no temporary
file is left (after a crash a temporary file may be)."""

import dataclasses
import os
import random
import shutil
import subprocess
import tempfile
import time

import builds
import cycle
import driver
import table
from driver import Died, Driver, Hung

FIRST_IN_WRITE, FIRST_IN_RESTORE = 20, 40
# From this point on there is a twin, or a restored child, that can be killed.
FIRST_WITH_TWIN, FIRST_WITH_CHILD = 8, 43
# Points that only one way of freezing passes.
WAYS = {10: "shot:copy", 11: "shot:auto", 12: "shot:auto"}
# Points in what is done ahead of the freeze: a failure there is no failure of the image.
AHEAD = (11, 12)
# Points at which "fail" is a stop that never comes: the limit ends the wait, and says so.
LIMITS = {14: "did not stand still within", 15: "did not come back within"}
PROGRAM = table.Program("threads.c")
# Which answers are right where the fault was a kill: the image may have been out of reach of it.
ANSWERS = {
    "fail": ("refused",),
    "kill": ("gone", "frozen"),
    "kill-others": ("refused", "frozen"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A point and what happens there."""

    name: str
    number: int
    action: str


def cases():
    """All points that the driver knows, with their actions."""
    told = subprocess.run([driver.DRIVER, "points"], capture_output=True, text=True, check=True)
    for line in told.stdout.splitlines():
        number = int(line.split()[0])
        actions = ["fail", "die"]
        if number < FIRST_IN_RESTORE:
            actions.append("kill")
        if FIRST_WITH_TWIN <= number < FIRST_IN_RESTORE or number >= FIRST_WITH_CHILD:
            actions.append("kill-others")
        for action in actions:
            yield Case(f"fault.{number}.{action}", number, action)


class Fault:
    """A fault in a folder of its own."""

    def __init__(self, case, command, expected, seed):
        self.case, self.command, self.expected = case, command, expected
        self.random = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="eyrie-fault-")
        self.work = os.path.join(self.folder, "work")
        self.counts = cycle.Counts()
        self.how = WAYS.get(case.number, "twin")

    def image(self, number):
        return os.path.join(self.folder, f"image{number}")

    def check(self, holds, what):
        if not holds:
            raise cycle.Broken(what)

    def run(self):
        for attempt in range(cycle.ATTEMPTS):
            shutil.rmtree(self.folder)
            os.makedirs(self.work)
            more = cycle.environment(cycle.times(attempt))
            ahead = {"EYRIE_IMAGE_AHEAD": "always"} if self.case.number in AHEAD else {}
            if cycle.times(attempt) != cycle.times(attempt - 1):
                self.expected = cycle.undisturbed(self.command, more)
            most_us = self.expected.seconds * 1e6 / 4 * 0.5**attempt
            with Driver.start(self.work, self.command, {**more, **ahead}) as daemon:
                delays = [int(self.random.uniform(0, most_us)) for _ in range(2)]
                answer = daemon.freeze(self.how, self.image(0), delays[0])
                if answer == "gone":
                    continue
                self.check(answer.startswith("frozen"), answer)
                self.counts.freezes += 1
                if self.case.number < FIRST_IN_RESTORE:
                    if not self.in_checkpoint(daemon, delays[1]):
                        continue
                else:
                    daemon.ask("kill")
            break
        else:
            raise cycle.Broken("the program is over before it can be frozen twice")
        self.nothing_left()
        if self.case.number >= FIRST_IN_RESTORE:
            self.in_restore()
        for number in range(2):
            if os.path.exists(self.image(number)):
                self.restored(number)
        shutil.rmtree(self.folder)
        return self.counts

    def in_checkpoint(self, daemon, delay_us):
        """The fault strikes in the second checkpoint; returns whether there was one."""
        daemon.ask("fault", self.case.number, self.case.action)
        try:
            answer = daemon.freeze(self.how, self.image(1), delay_us)
        except Died:
            self.check(self.case.action == "die", "the driver died")
            return True
        if daemon.ask("armed") == "armed":
            self.check(answer == "gone", f"point {self.case.number} was not passed: {answer}")
            return False
        answers = ANSWERS[self.case.action]
        if self.case.number in AHEAD and self.case.action != "kill" and answer == "gone":
            return False  # it was over before the freeze
        if self.case.action == "fail" and self.case.number in AHEAD:
            answers = ("frozen",)
        self.check(answer.startswith(answers), answer)
        if self.case.action == "fail" and self.case.number not in AHEAD:
            words = LIMITS.get(self.case.number, f"fault point {self.case.number}")
            self.check(words in answer, answer)
        ended = daemon.ask("wait")
        if self.case.action == "kill" and ended == "exited 0":
            return False  # it was over before the point was passed
        if self.case.action == "kill":
            self.check(ended == "signalled 9", f"killed, it {ended}")
        else:
            self.same(ended, "the program that was to be frozen")
        left = daemon.left()
        self.check(not left, f"processes are left: {left}")
        names = [n for n in os.listdir(self.folder) if n.endswith(".tmp")]
        self.check(not names, f"files are left: {names}")
        return True

    def in_restore(self):
        how = f"{self.case.number}:{self.case.action}"
        try:
            with Driver.restore(self.work, self.image(0), how) as daemon:
                if daemon.pid is None:
                    expected = f"fault point {self.case.number}" if self.case.action == "fail" else ""
                    self.check(daemon.answer.startswith("refused"), daemon.answer)
                    self.check(expected in daemon.answer, daemon.answer)
                else:
                    self.check(self.case.action == "kill-others", f"it {daemon.answer}")
                    self.check(daemon.ask("armed") == "struck", "the point was not passed")
        except Died:
            self.check(self.case.action == "die", "the driver died")
        self.nothing_left()

    def nothing_left(self):
        """Waits until no process works in our folder."""
        limit = time.monotonic() + driver.LIMIT_S
        while True:
            left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self.ours(pid)]
            if not left:
                return
            if time.monotonic() > limit:
                raise Hung(f"processes are left: {left}")
            time.sleep(0.002)

    def ours(self, pid):
        try:
            return os.readlink(f"/proc/{pid}/cwd").startswith(self.folder)
        except OSError:
            return False

    def restored(self, number):
        with Driver.restore(self.work, self.image(number)) as daemon:
            self.check(daemon.pid is not None, f"generation {number}: {daemon.answer}")
            self.same(daemon.ask("wait"), f"generation {number}")
        self.counts.restores += 1

    def same(self, ended, what):
        output = cycle.read(self.work, "out")
        if ended != "exited 0" or output != self.expected.output:
            said = cycle.read(self.work, "err").decode(errors="replace")[-2000:]
            text = f"{what} {ended}\nfound    {output!r}\nexpected {self.expected.output!r}"
            raise cycle.Differs(f"{text}\n{said}\nsee {self.folder}")


class Suite:
    """Runs the cases; the program is built and run undisturbed once."""

    def __init__(self, seed):
        self.seed = seed
        self.command = [*builds.command(PROGRAM, "gcc"), "1500"]
        self.expected = cycle.undisturbed(self.command)

    def run(self, case):
        began = time.monotonic()
        seed = self.seed * 1000003 + case.number * 10 + len(case.action)
        counts = Fault(case, self.command, self.expected, seed).run()
        return counts, time.monotonic() - began
