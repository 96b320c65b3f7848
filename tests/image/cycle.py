"""One run of one program in one variant: started, frozen at a random instant, killed, restored by
another daemon, frozen and killed and restored once more, its result compared.

The instants come from the run's seed and from how long the undisturbed run took. A run that was over
before it could be frozen is tried again with earlier instants, and then with a program that runs for
longer, so that nothing depends on speed."""

import dataclasses
import os
import random
import shutil
import tempfile
import time

import builds
from driver import Driver, Hung, LIMIT_S, fields

# Exit code of a program that finds no such thing on this machine.
LACKS = 77
ATTEMPTS = 10
CYCLES = 2


class Differs(Exception):
    """The program's result is not that of the undisturbed run."""


class Broken(Exception):
    """Something failed that should not have."""


@dataclasses.dataclass
class Counts:
    """What was done."""

    runs: int = 0
    freezes: int = 0
    restores: int = 0
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


def longer(attempt):
    """The environment for an attempt: every third time programs do four times as much."""
    times = 4 ** (attempt // 3)
    return {"ROUNDS_TIMES": str(times)} if times > 1 else {}


def undisturbed(command, env=()):
    with tempfile.TemporaryDirectory(prefix="eyrie-image-") as folder:
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


class Run:
    """One run in a folder of its own."""

    def __init__(self, case, expected, seed):
        self.case, self.expected = case, expected
        self.random = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="eyrie-image-")
        self.counts = Counts()
        self.log = []

    def say(self, text):
        self.log.append(text)

    def delay_us(self, most_s):
        # Now and then at once: in the loader, or in the first moments after a restore.
        if self.random.random() < 0.1:
            return self.random.randrange(500)
        return int(self.random.uniform(0, most_s) * 1e6)

    def attempt(self, number):
        """Returns whether the program could be frozen as often as it should."""
        more = longer(number)
        if more != longer(number - 1):
            self.expected = undisturbed(self.case.command, more)
        most = self.expected.seconds * 0.5**number
        work = os.path.join(self.folder, "work")
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        env = {**dict(self.case.variant.env), **more}
        driver = Driver.start(work, self.case.command, env)
        for cycle in range(CYCLES):
            with driver:
                if cycle == 0 and self.case.program.ready and not wait_ready(driver, work):
                    return False
                image = self.images(driver, cycle, most)
                if image is None:
                    return False
                if self.counts.refusals:
                    return self.finish(driver, work)
                time.sleep(self.delay_us(most / 10) / 1e6)
                driver.ask("kill")
                left = driver.left()
                if left:
                    raise Broken(f"processes are left: {left}")
            driver = Driver.restore(work, image, self.case.variant.restore, env)
            self.say(driver.answer)
            if driver.pid is None:
                raise Broken(driver.answer)
            self.counts.restores += 1
        with driver:
            return self.finish(driver, work)

    def images(self, driver, cycle, most):
        """Freezes it as the variant says; returns the last image, or None when it was over."""
        image = None
        for number, how in enumerate(self.case.variant.freezes):
            image = os.path.join(self.folder, f"image{cycle}-{number}")
            delay = self.delay_us(most / len(self.case.variant.freezes))
            answer = driver.freeze(how, image, delay)
            self.say(f"{how} after {delay} us: {answer}")
            if answer == "gone":
                return None
            if answer.startswith("refused"):
                words = self.case.program.refusal(self.case.variant_name)
                if words and words in answer:
                    self.counts.refusals += 1
                    return image
                raise Broken(answer)
            self.counts.freezes += 1
            self.counts.bytes += fields(answer)["bytes"]
        return image

    def finish(self, driver, work):
        ended = driver.ask("wait")
        self.say(ended)
        output = read(work, "out")
        if ended != "exited 0" or output != self.expected.output:
            raise Differs(f"it {ended}\nfound    {output!r}\nexpected {self.expected.output!r}")
        left = driver.left()
        if left:
            raise Broken(f"processes are left: {left}")
        self.counts.runs += 1
        return True

    def whole(self):
        """Tries until the program could be frozen; returns what was done. On an error the folder
        stays and is named in it."""
        try:
            for attempt in range(ATTEMPTS):
                self.log.append(f"attempt {attempt}")
                if self.attempt(attempt):
                    break
            else:
                raise Broken(f"it is over before it can be frozen {CYCLES} times")
        except Exception as problem:
            said = read(os.path.join(self.folder, "work"), "err").decode(errors="replace")[-600:]
            problem.args = (f"{problem}\n" + "\n".join(self.log[-8:]) + f"\n{said}\nsee {self.folder}",)
            raise
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.counts
