"""Files that ranks append to: what one appended after its checkpoint it appends again when it comes
back, unless its appends are recorded."""

import os
import tempfile

from bad_input import program
from harness import Gated

LINES = 150


def read(path):
    try:
        with open(path) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def appended(how, held, twice, more=("--clocks", "plain")):
    """`held`: another process has the file open for writing when the rank comes back, as it is on
    a file system of which the kernel does not tell. By default appends are not recorded."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        log = os.path.join(folder, "log")
        gate = os.path.join(folder, "gate")
        command = program("appends") + [log, str(LINES), gate]
        options = [*more, *(["--appended", how] if how else [])]
        with Gated(command, ranks=1, ckpt_every=3600, options=options) as job:
            job.until(lambda: len(read(log)) >= 3, "lines")
            job.eyrie("checkpoint", "last")
            before = len(read(log))
            # Half-way it waits for this, so that there are more lines after the checkpoint.
            open(gate, "w").close()
            job.until(lambda: len(read(log)) > before + 3, "more lines")
            other = open(log, "a") if held else None
            job.kill_ranks([0])
            job.wait_event("restored", rank=0)
            if other:
                other.close()
            job.let_end()
            assert job.wait() == 0, job.report()
            lines = [int(line) for line in read(log)]
            assert sorted(set(lines)) == list(range(LINES)), lines
            assert (len(lines) > LINES) == twice, lines
            assert twice or lines == list(range(LINES)), lines
            told = f"rank 0 came back, but {log} was appended to since the checkpoint" in job.stderr()
            assert told == (held and twice), job.stderr()


def generated():
    cases = [
        ("what_is_appended_comes_once", None, False, False),
        ("what_is_appended_comes_twice_where_others_may_write", None, True, True),
        ("what_is_appended_comes_once_if_the_user_says_so", "cut", True, False),
        ("what_is_appended_stays", "keep", False, True),
        ("recorded_it_comes_once", None, False, False, ()),
        ("recorded_it_comes_once_where_others_write", None, True, False, ()),
        ("recorded_it_comes_once_if_it_stays", "keep", False, False, ()),
    ]
    return [(label, lambda rest=rest: appended(*rest)) for label, *rest in cases]
