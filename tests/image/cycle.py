"""One life of one program in one variant: started, frozen at a random instant, killed, restored by
another daemon, frozen at the next instant and killed and restored again, and so on; its result
compared in the end.

The instants come from the life's seed, and are spread over what the undisturbed run takes, in the
program's own time: from where an image was taken to where the next one is. A life may be over before
it had all its instants; then there are others, of programs that do more, so that nothing depends on
speed."""

import dataclasses
import os
import random
import shutil
import tempfile
import time

import builds
import driver
import table
from driver import Driver, Hung, LIMIT_S, fields

# Exit code of a program that finds no such thing on this machine.
LACKS = 77
ATTEMPTS = 13
CYCLES = 2
# A program that was frozen runs on for as long as this before it is killed.
MOST_AFTER_S = 0.005
# Answers that are no image: the program is over; the freeze was refused, as is expected of it.
OVER, REFUSED = "over", "refused"


class Differs(Exception):
    """The program's result is not that of the undisturbed run."""


class Broken(Exception):
    """Something failed that should not have."""


@dataclasses.dataclass
class Counts:
    """What was done."""

    # Lives that ended with the right result.
    lives: int = 0
    # Freezes that were followed by a kill and a restore, or that were refused.
    instants: int = 0
    freezes: int = 0
    restores: int = 0
    # Of these, restores of a process that had been restored itself.
    second: int = 0
    refusals: int = 0
    bytes: int = 0

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclasses.dataclass
class Undisturbed:
    """An undisturbed run."""

    output: bytes
    seconds: float


def read(folder, name):
    try:
        with open(os.path.join(folder, name), "rb") as f:
            return f.read()
    except OSError:
        return b""


def wait_ready(driver, folder):
    """Waits until the program says that it is ready; returns whether it did before its end."""
    limit = time.monotonic() + LIMIT_S
    while not os.path.exists(os.path.join(folder, "ready")):
        if not os.path.exists(f"/proc/{driver.pid}/fd/0"):
            return False
        if time.monotonic() > limit:
            raise Hung("the program does not get ready")
        time.sleep(0.0005)
    return True


def times(attempt):
    """How many times as much a program does in an attempt: every third time four times as much."""
    return 4 ** (attempt // 3)


def environment(times):
    return {"ROUNDS_TIMES": str(times)} if times > 1 else {}


def undisturbed(command, env=()):
    with tempfile.TemporaryDirectory(prefix="eyrie-image-") as top:
        # One below: what the program makes is noted beside the folder in which it works.
        folder = os.path.join(top, "work")
        os.mkdir(folder)
        began = time.monotonic()
        with Driver.start(folder, command, env) as driver:
            ended = driver.ask("wait")
        seconds = time.monotonic() - began
        output = read(folder, "out")
        said = read(folder, "err").decode(errors="replace")
        if ended == f"exited {LACKS}":
            raise builds.CannotHere(said.strip())
        if ended != "exited 0" or not output:
            raise Broken(f"undisturbed, it {ended}: {output!r}\n{said}")
        return Undisturbed(output, seconds)


class Life:
    """One life in a folder of its own. `images` is where its images go, if not there."""

    def __init__(self, case, expected, seed, times=1, images=None):
        self.case, self.expected, self.times = case, expected, times
        self.random = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="eyrie-image-")
        self.images = tempfile.mkdtemp(prefix="eyrie-image-", dir=images) if images else self.folder
        self.work = os.path.join(self.folder, "work")
        os.makedirs(self.work)
        self.env = {**dict(case.variant.env), **environment(times)}
        if table.ORDINARY in self.env:
            program, *arguments = case.command
            command = (driver.reachable(program), *arguments)
            self.case = dataclasses.replace(case, command=command)
            for folder in {self.folder, self.images, self.work}:
                os.chown(folder, table.ORDINARY_USER, table.ORDINARY_USER)
        self.counts = Counts()
        self.log = []
        # How much of the program's own time has passed, and how much there is, about.
        self.ran_s, self.whole_s = 0.0, expected.seconds

    def say(self, text):
        self.log.append(text)

    def gap_s(self, instants):
        """How long the program runs until the next of so many instants."""
        # Now and then not at all: in the loader, or in the first moments after a restore.
        if self.random.random() < 0.1:
            return self.random.uniform(0, 0.0005)
        remaining = max(self.whole_s - self.ran_s, self.whole_s / 4)
        return self.random.uniform(0, 2 * remaining / (instants + 1))

    def goes(self, instants):
        """The program's life with so many instants, or fewer if it is over before."""
        driver = Driver.start(self.work, self.case.command, self.env)
        while True:
            with driver:
                began = not self.case.program.ready or self.counts.restores
                image = OVER
                if began or wait_ready(driver, self.work):
                    image = self.next_image(driver, instants)
                if image == OVER:
                    return self.finish(driver)
                time.sleep(min(self.gap_s(instants), MOST_AFTER_S))
                driver.ask("kill")
                self.nothing_left(driver)
            self.drop(self.counts.restores - 1)
            driver = Driver.restore(self.work, image, self.case.variant.restore, self.env)
            self.say(driver.answer)
            if driver.pid is None:
                raise Broken(driver.answer)
            self.counts.instants += 1
            self.counts.second += 1 if self.counts.restores else 0
            self.counts.restores += 1

    def next_image(self, driver, instants):
        """Goes on to the next instant at which there is an image; refusals pass by."""
        began = time.monotonic()
        while self.counts.instants < instants:
            image, frozen = self.freeze(driver, instants - self.counts.instants)
            self.ran_s += frozen - began
            if image != REFUSED:
                return image
            self.counts.instants += 1
            self.counts.refusals += 1
            began = time.monotonic()
        return OVER

    def freeze(self, driver, instants):
        """Freezes it as the variant says; returns the last image, and when it was taken."""
        image, frozen = None, time.monotonic()
        gap_us = int(self.gap_s(instants) * 1e6 / len(self.case.variant.freezes))
        for number, how in enumerate(self.case.variant.freezes):
            image = os.path.join(self.images, f"image{self.counts.restores}-{number}")
            delay_us = self.random.randint(0, 2 * gap_us) if number else gap_us
            answer = driver.freeze(how, image, delay_us)
            self.say(f"{how} after {delay_us} us: {answer}")
            if answer == "gone":
                return OVER, time.monotonic()
            if answer.startswith("refused"):
                words = self.case.program.refusal(self.case.variant_name)
                if words and words in answer:
                    return REFUSED, time.monotonic()
                raise Broken(answer)
            told = fields(answer)
            frozen = time.monotonic() - told["us"] / 1e6
            self.counts.freezes += 1
            self.counts.bytes += told["bytes"]
        return image, frozen

    def drop(self, cycle):
        """What the process was restored from that has just been killed is not needed any more."""
        for name in os.listdir(self.images):
            if name.startswith(f"image{cycle}-"):
                os.remove(os.path.join(self.images, name))

    def nothing_left(self, driver):
        left = driver.left()
        if left:
            raise Broken(f"processes are left: {left}")

    def finish(self, driver):
        began = time.monotonic()
        ended = driver.ask("wait")
        self.ran_s += time.monotonic() - began
        self.say(ended)
        output = read(self.work, "out")
        if ended != "exited 0" or output != self.expected.output:
            raise Differs(f"it {ended}\nfound    {output!r}\nexpected {self.expected.output!r}")
        self.nothing_left(driver)
        self.counts.lives += 1
        # The machine was busier when the undisturbed run was measured.
        self.expected.seconds = min(self.expected.seconds, self.ran_s)

    def whole(self, instants):
        """Returns what was done. On an error the folder stays and is named in it."""
        try:
            self.goes(instants)
        except Exception as problem:
            if self.images != self.folder:
                shutil.move(self.images, os.path.join(self.folder, "images"))
            said = read(self.work, "err").decode(errors="replace")[-600:]
            told = "\n".join(self.log[-8:])
            problem.args = (f"{problem}\n{told}\n{said}\nsee {self.folder}",)
            raise
        for folder in {self.images, self.folder}:
            shutil.rmtree(folder, ignore_errors=True)
        return self.counts


def twice(case, reference, seed):
    """Lives until one had `CYCLES` instants; returns what was done in all of them. `reference` is
    the undisturbed run of the program when it does so many times as much."""
    counts = Counts()
    for attempt in range(ATTEMPTS):
        more = times(attempt)
        life = Life(case, reference(more), seed * ATTEMPTS + attempt, more)
        life.whole_s *= 0.5**attempt
        counts.add(life.whole(CYCLES))
        if life.counts.instants == CYCLES:
            return counts
    raise Broken(f"it is over before it can be frozen {CYCLES} times")
