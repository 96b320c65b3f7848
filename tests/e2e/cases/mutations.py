"""What was stored is changed, a file at a time: a byte is another one, a region is zero, the end is
missing, something stands behind it. Then what is made of it is what it would have been, or it is
refused, in words that name the file; never a crash, a wait for ever, or something else in silence; and
what else is there serves. A few of many changes, with --all more, with EYRIE_TEST_SEED others."""

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import zlib

from bad_input import program
from controller import kill_both, resume
from harness import EYRIE, TIMEOUT_S, Job, soon
from image_cli import home, lines, rest
from nodes import Nodes, expected
from restart import save

KINDS = ("flip", "zero", "cut", "extend")
# How many changes are tried with --all.
MANY = 80
# Where a file is as likely to be hit as in all that is behind.
HEAD_BYTES = 128


def seed(name):
    """The same each time, unless EYRIE_TEST_SEED says otherwise."""
    return int(os.environ.get("EYRIE_TEST_SEED", "0")) ^ zlib.crc32(name.encode())


def changed(content, kind, chance):
    """The content with one such change."""
    count = len(content)
    at = chance.randrange(min(count, HEAD_BYTES) if chance.random() < 0.3 else count) if count else 0
    if kind == "flip" and count:
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    if kind == "zero" and count:
        length = min(count - at, chance.choice((1, 16, 512, 4096)))
        return content[:at] + bytes(length) + content[at + length :]
    if kind == "cut":
        return content[:at]
    return content + chance.choice((bytes(1), bytes(4096), chance.randbytes(1), chance.randbytes(700)))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def changes(name, paths, few):
    """Of these files one at a time is changed, so often at a commit; yields its path and what was done, and
    puts it back."""
    chance = random.Random(seed(name))
    whole = {path: read(path) for path in paths}
    count = MANY if os.environ.get("EYRIE_TEST_ALL") else few
    for n in range(count):
        path = paths[(n + seed(name)) % len(paths)] if n < len(paths) else chance.choice(paths)
        kind = KINDS[(n + seed(name) // 7) % len(KINDS)]
        content = changed(whole[path], kind, chance)
        if content == whole[path]:
            continue
        with open(path, "wb") as file:
            file.write(content)
        yield path, f"{kind} of {os.path.basename(path)}, {len(whole[path])} bytes, seed {seed(name)} step {n}"
        with open(path, "wb") as file:
            file.write(whole[path])


def is_refused(code, out, err, path, what):
    """No more than a line, which names the file (or the set that it is a part of)."""
    assert 0 < code < 128 and code != 85 and out == "", (what, code, out, err)
    named = os.path.basename(path)
    assert named in err or "cannot be restarted" in err and named.split(".gen-")[0].replace("-", " ") in err, (
        what,
        err,
    )
    assert "panic" not in err, (what, err)


def test_of_a_folder_of_images():
    """Two images that do not need each other: the newest one is refused, and the one before serves."""
    with home() as place:
        images = os.path.join(place.path, "images")
        process = place.start("run", "--dir", images, "--", *place.gated(60))
        for step in (10, 30):
            lines(process, step - 1)
            record = place.running()
            place.good("checkpoint", "last", "--full")
            place.let_on(step)
        os.kill(record["pid"], signal.SIGKILL)
        rest(process)
        place.let_on(50)
        paths = sorted(os.path.join(images, n) for n in os.listdir(images) if n.endswith(".img"))
        assert len(paths) == 2, paths
        want = [f"{n}\n" for n in range(60)]
        for path, what in changes("images", paths, 6):
            code, out, err = place.run("restart", path)
            if code != 3:
                is_refused(code, out, err, path, what)
            else:
                assert out.splitlines(True) == want[-out.count("\n") :] and out, (what, out)
            # The folder: the other one is whole.
            code, out, err = place.run("restart", images)
            assert code == 3 and out.splitlines(True) == want[-out.count("\n") :], (what, code, out, err)


def again(job):
    done = subprocess.run([EYRIE, "restart", "last"], env=job.env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, errors="replace")
    return done.returncode, done.stdout, done.stderr


def is_free(folder):
    """Nobody is at this job."""
    try:
        with open(os.path.join(folder, "lock")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def saved_is_changed(name, command, options, stdin, is_there, few):
    """A job that was saved, with what it had of its input."""
    with Job(command, ranks=2, ckpt_every=3600, options=options, stdin=stdin) as job:
        assert job.wait() == 0, job.report()
        want = job.stdout()
    gates = tempfile.TemporaryDirectory(prefix="eyrie-test-")
    gate = os.path.join(gates.name, "gate")
    how = {"options": options, "stdin": stdin, "env": {"LINES_GATE": gate}}
    with gates, Job(command, ranks=2, ckpt_every=3600, **how) as job:
        job.until(lambda: is_there in job.stdout(), "the first lines")
        save(job)
        before, folder = job.stdout(), job.folder()
        aside = os.path.join(job.home, "aside")
        shutil.copytree(folder, aside)
        open(gate, "w").close()
        paths = [os.path.join(base, n) for base, _, names in os.walk(folder) for n in names]
        paths = sorted(p for p in paths if os.path.isfile(p) and not p.endswith(("/lock", "/node.log")))
        for path, what in changes(name, paths, few):
            code, out, err = again(job)
            if code == 0:
                assert before + out == want, (what, err)
            else:
                is_refused(code, out, err, path, what)
                assert os.path.exists(os.path.join(folder, "saved")), what
            soon(lambda: is_free(folder), "end of the one that was refused")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(aside, folder)
        code, out, err = again(job)
        assert (code, before + out) == (0, want), err


def test_of_a_saved_job():
    text = b"".join(b"line %d of the input\n" % n for n in range(31000))
    saved_is_changed("saved", program("lines"), [], text, "29999: ", 4)


def test_of_a_saved_job_over_nodes():
    text = b"".join(b"line %d of the input\n" % n for n in range(31000))
    saved_is_changed("nodes", program("lines"), ["--nodes", "2"], text, "29999: ", 2)


def test_of_a_journal():
    """The controller and the command are gone, and the job's nodes wait for the next one."""
    expected("cg")
    with Nodes("cg", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        kill_both(job)
        path = os.path.join(job.folder(), "journal")
        for _, what in changes("journal", [path], 6):
            if "extend" in what or "cut" in what:
                # That may be what a controller leaves that dies as it writes (see `controller`).
                continue
            code, out, err = job.eyrie("resume", "last", check=False)
            is_refused(code, out, err, path, what)
        resume(job)
        job.wait_event("controller-back")
        job.ends_as("cg")


def first_record(path):
    """How long it is: the state of the job at its beginning, before any rank was started."""
    with open(path, "rb") as file:
        return 12 + struct.unpack("<I", file.read(4))[0]


def test_of_a_journal_the_end_is_missing():
    """That may be what a controller leaves that dies as it writes. What nodes have heard and it does not
    know ends the job, in words, and nodes that would wait for a controller for an hour end, too."""
    want = expected("cg")
    with Nodes("cg", 2, ["--controller-limit", "3600"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        kill_both(job)
        path = os.path.join(job.folder(), "journal")
        os.truncate(path, first_record(path) + 1)
        resume(job)
        assert job.wait() == 1, job.report()
        assert "journal: its end is missing" in job.stderr(), job.report()
        assert job.stderr().count("its end is missing") == 1, job.report()
        job.settle()
        assert not job.left_over(), job.left_over()
    with Nodes("cg", 2, ["--controller-limit", "3600"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        kill_both(job)
        path = os.path.join(job.folder(), "journal")
        chance = random.Random(seed("missing"))
        first = first_record(path)
        os.truncate(path, first + int((os.path.getsize(path) - first) * chance.uniform(0.1, 0.999)))
        resume(job)
        job.let_end()
        code = job.wait()
        assert code == 0 and job.stdout() == want or code == 1 and "journal: its end" in job.stderr(), job.report()
        job.settle()
        assert not job.left_over(), job.left_over()
