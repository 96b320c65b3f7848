"""Files that ran ahead of the checkpoint that a program comes back from: updated in place, a database
with a write-ahead log, a script's `>> log`, a log that is moved on."""

import os
import signal
import subprocess
import sys
import tempfile

import harness
from bad_input import program
from harness import Gated
from image_cli import Home, Ordinary, home, rest

SQLITE = """
import os, sqlite3, sys, time
db = sqlite3.connect("base", isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table t (i integer primary key, before integer)")
for i in range(30):
    while i in (10, 20) and not os.path.exists(f"go.{i}"):
        time.sleep(0.002)
    count = db.execute("select count(*), sum(before) from t").fetchone()
    db.execute("insert into t values (?, ?)", (i, count[0] + i * (count[1] or 1) % 1009))
    open("at", "a").write(f"{i}\\n")
print(db.execute("select count(*), sum(before) from t").fetchone())
"""

SCRIPT = """
i=0
mkdir new.9
while test $i -lt 30; do
    while test $i = 10 -o $i = 20 && ! test -e go.$i; do sleep 0.01; done
    echo $i >> log
    mkdir -p below; date +$i >> below/dates
    mkdir -p new.$i; echo $i > new.$i/one
    echo $i >> new.9/two; test $i -ge 9 && cat new.9/two >> log
    echo $i >> at
    i=$((i + 1))
done
cat log below/dates new.9/*
"""

ROTATES = """
import os, time
log = open("log", "a", buffering=1)
for i in range(30):
    while i in (10, 20) and not os.path.exists(f"go.{i}"):
        time.sleep(0.002)
    if i % 8 == 7:
        os.replace("log", "log.1")
        log = open("log", "a", buffering=1)
    print(i, file=log)
    open("at", "a").write(f"{i}\\n")
print([open(name).read() for name in ("log.1", "log")])
"""


# Renames over others, has nothing open in between, and no child while it waits.
RENAMES = """
i=0; echo begin > old
while test $i -lt 30; do
    while test $i = 10 -o $i = 20 && ! test -e go.$i; do :; done
    echo $i >> log
    { cat old; echo $i; } > new && mv new old
    echo $i >> at
    i=$((i + 1))
done
cat log old
"""

# Makes folders that are never open.
MAY_MAKE = """
i=0
while test $i -lt 30; do
    while test $i = 10 -o $i = 20 && ! test -e go.$i; do :; done
    mkdir -p dir.$i; ln -sf dir.$i link.$i
    echo $i >> at
    i=$((i + 1))
done
echo dir.* link.*
"""

# Moves folders away, one of them twice, and goes on in new ones of their names.
FOLDERS = """
i=0; mkdir run run/sub
while test $i -lt 30; do
    while test $i = 10 -o $i = 20 && ! test -e go.$i; do sleep 0.01; done
    echo $i >> run/sub/log
    case $i in
    12) mv run a; mv a b; mkdir run run/sub;;
    16) mv b c; mv run/sub run/other; mkdir run/sub;;
    esac
    echo $i >> at
    i=$((i + 1))
done
for file in $(find c run -type f | sort); do echo $file; cat $file; done
"""

# Makes folders and files that must be new, by itself: of a child that is gone at once it may not be
# known whose it was.
MAKES = """
import os, time
for i in range(30):
    while i in (10, 20) and not os.path.exists(f"go.{i}"):
        time.sleep(0.002)
    os.mkdir(f"dir.{i}")
    for name in (f"dir.{i}/new", f"once.{i}", "next"):
        with open(name, "x") as file:
            print(i, file=file)
    os.rename("next", "old")
    with open("at", "a") as file:
        print(i, file=file)
print(sorted(os.listdir(".")), open("old").read())
"""

# With a journal that is rolled back, two connections, and files that are written anew as a whole.
JOURNALS = """
import os, sqlite3, time
one, two = (sqlite3.connect("base", isolation_level=None) for _ in range(2))
one.execute("pragma journal_mode=delete")
one.execute("create table t (i integer primary key, before integer, more blob)")
one.execute("pragma cache_size=4")
for i in range(30):
    while i in (10, 20) and not os.path.exists(f"go.{i}"):
        time.sleep(0.002)
    db = (one, two)[i % 2]
    count = db.execute("select count(*), sum(before) from t").fetchone()
    db.execute("begin immediate")
    db.execute("insert into t values (?, ?, ?)", (i, count[0] + i * (count[1] or 1) % 1009, bytes(9000)))
    db.execute("rollback" if i % 5 == 4 else "commit")
    if i % 7 == 6:
        db.execute("delete from t where i % 3 = 0")
        db.execute("vacuum")
    open("at", "a").write(f"{i}\\n")
print(one.execute("select count(*), sum(before) from t").fetchone(), *one.execute("pragma integrity_check"))
"""


# A file, and another that shares its blocks where the file system can (FICLONE): each is made of the
# other again and again, so that what one holds hangs on both.
CLONES = """
import fcntl, os, time
def clone(source, to):
    with open(source, "rb") as a, open(to, "r+b") as b:
        try:
            fcntl.ioctl(b, 0x40049409, a.fileno())
        except OSError:
            b.write(a.read())
open("state", "wb").write(bytes(65536))
open("before", "wb").close()
state = open("state", "r+b", buffering=0)
for i in range(30):
    while i in (10, 20) and not os.path.exists(f"go.{i}"):
        time.sleep(0.002)
    clone(*(("state", "before") if i % 3 else ("before", "state")) if i else ("state", "before"))
    at = i % 4 * 4096
    held = os.pread(state.fileno(), 8, at)
    with open("before", "rb") as file:
        other = file.read()
    os.pwrite(state.fileno(), (int.from_bytes(held, "big") * 31 + sum(other) + i).to_bytes(16, "big")[8:], at)
    with open("at", "a") as file:
        print(i, file=file)
print(sum(b * i for i, b in enumerate(open("state", "rb").read() + open("before", "rb").read())))
"""

# Owners, rights, attributes, and lists of files that are written to, removed, replaced and not kept open.
MARKED = """
import os, struct, time
NAMES = ("rewritten", "removed", "replaced", "closed", "marked", "made")
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in (
    (1, 6, -1), (2, 4, 1234), (4, 4, -1), (16, 4, -1), (32, 0, -1)))
def marks():
    def of(name):
        about = os.stat(name)
        xattrs = [(k, os.getxattr(name, k)) for k in sorted(os.listxattr(name))]
        return name, oct(about.st_mode), about.st_uid, about.st_gid, about.st_mtime_ns % 1000 * (name != "made"), xattrs
    return [of(name) for name in NAMES]
def mark(name, ns, kind, acl, mode, owner):
    os.chown(name, *(owner if os.geteuid() == 0 else (-1, -1)))
    os.setxattr(name, "user.kind", kind)
    acl and os.setxattr(name, "system.posix_acl_access", acl)
    os.chmod(name, mode)
    os.utime(name, ns=(ns, ns))
files = {}
for i in range(30):
    while i in (10, 20) and not os.path.exists(f"go.{i}"):
        time.sleep(0.002)
    if i == 5:
        for name in NAMES:
            if name == "made":
                os.mkdir(name)
            elif name == "closed":
                open(name, "w").write("one")
            else:
                files[name] = open(name, "w+")
                print("one", end="", file=files[name], flush=True)
            mark(name, 7, b"one", ACL, 0o750, (1234, 2345))
    if i == 10:
        print(*marks(), sep="\\n")
        print([open(n).read() for n in NAMES if n != "made"])
        for name in NAMES:
            mark(name, 9, b"two", b"", 0o700, (0, 0))
            os.removexattr(name, "system.posix_acl_access")
            os.setxattr(name, "user.more", b"two")
        print("two", file=files["rewritten"], flush=True)
        print("two", file=open("closed", "a"))
        os.unlink("removed")
        open("new", "w").close()
        os.replace("new", "replaced")
        os.rmdir("made")
    with open("at", "a") as file:
        print(i, file=file)
"""


def lines(path):
    try:
        with open(path) as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def alone(command, folder):
    """What the program prints if nothing happens to it."""
    for step in (10, 20):
        open(os.path.join(folder, f"go.{step}"), "w").close()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def comes_back(command, options=(), make=Home):
    """The program is checkpointed at step 10, killed at step 20 and brought back."""
    with home(make) as place:
        other = os.path.join(place.path, "alone")
        work = os.path.join(place.path, "work")
        os.mkdir(other)
        os.mkdir(work)
        if place.who:
            os.chown(work, place.who["user"], place.who["group"])
        expected = alone(command, other)

        def start(*words):
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                [place.program, *words],
                cwd=work,
                env=place.env,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                **place.who,
            )
            place.started.append(process)
            return process

        def at(step):
            place.until(lambda: lines(os.path.join(work, "at"))[-1:] == [str(step)], f"step {step}")

        run = start("run", "--", *command)
        at(9)
        record = place.running()
        place.good("checkpoint", "last")
        open(os.path.join(work, "go.10"), "w").close()
        at(19)
        os.kill(record["pid"], signal.SIGKILL)
        assert run.wait(harness.TIMEOUT_S) == 137, rest(run)
        again = start("restart", *options, "last")
        open(os.path.join(work, "go.20"), "w").close()
        return (*rest(again), expected)


def right(command, told, make=Home):
    code, out, err, expected = comes_back(command, make=make)
    assert (code, out) == (0, expected), (code, out, expected, err)
    assert all(word in err for word in told), err


def test_a_database_with_a_log_of_its_own():
    right([sys.executable, "-c", SQLITE], ["base", "put back"])


def test_a_database_with_a_journal_that_is_rolled_back():
    right([sys.executable, "-c", JOURNALS], ["base", "put back"])


def test_a_script_that_appends_has_no_line_twice():
    if os.geteuid() == 0:
        return right(["sh", "-c", SCRIPT], ["log", "put back"])
    # Who writes to a file that is not kept open the kernel tells only to root.
    code, out, err, _ = comes_back(["sh", "-c", SCRIPT])
    assert code != 0 or "10\n11" in out, (out, err)


def test_a_script_that_renames_over_others():
    right(["sh", "-c", RENAMES], ["log", "/old was replaced", "put back"])


def test_a_program_that_makes_what_must_be_new():
    if os.geteuid() == 0:
        right([sys.executable, "-c", MAKES], ["/old was replaced", "/once.15 came after", "put back"])


def test_folders_that_get_other_names_more_than_once():
    if os.geteuid() == 0:
        right(["sh", "-c", FOLDERS], ["/run was renamed to", "/c since the checkpoint; it is put back"])


def test_what_an_ordinary_user_may_have_made_is_named():
    code, out, err, expected = comes_back(["sh", "-c", MAY_MAKE], make=Ordinary)
    assert (code, out) == (0, expected), (code, out, expected, err)
    if os.geteuid() == 0:
        assert "came after the checkpoint, as did " in err and "not known who made that" in err, err


def test_a_file_whose_blocks_are_shared():
    if os.geteuid() == 0:
        right([sys.executable, "-c", CLONES], ["/state was changed", "/before was changed"])


def test_owners_rights_and_attributes_come_back():
    if os.geteuid() == 0:
        told = ["/rewritten was changed", "/removed was removed", "/marked has another owner"]
        right([sys.executable, "-c", MARKED], [*told, "other attributes, other access rights than at the checkpoint"])


def test_a_script_of_an_ordinary_user():
    right(["sh", "-c", RENAMES], ["log", "/old was replaced", "put back"], make=Ordinary)


def direct(compiler, *options):
    """The program with direct access files, built."""
    out = os.path.join(harness.BUILD, "tests", "scratch_f" + "".join(options))
    source = os.path.join(harness.ROOT, "tests", "e2e", "programs", "scratch_f.F90")
    command = [compiler, "-O1", "-ffree-line-length-none", *options, "-o", out, source]
    done = subprocess.run(command, capture_output=True, text=True, cwd=os.path.dirname(out))
    assert done.returncode == 0, done.stderr
    return [out]


def test_a_scratch_file_of_fortran():
    if os.geteuid() == 0:
        right(direct("gfortran", "-DALONE"), ["direct.0", "put back", "/new.15 came after"])


def test_a_scratch_file_of_a_rank_of_fortran():
    goes_on(direct(os.path.join(harness.BUILD, "bin", "mpifort")), [])


def test_a_log_that_is_moved_on():
    right([sys.executable, "-c", ROTATES], ["log was"])


def test_what_differs_is_refused_if_it_is_to_be():
    command = [sys.executable, "-c", SQLITE]
    code, out, err, _ = comes_back(command, ["--files", "refuse"])
    assert code != 0 and out == "" and "--files refuse" in err, (code, err)
    assert "/base-wal was changed" in err and "/at was changed" in err, err


def test_what_differs_is_only_named_if_it_is_to_be():
    command = [sys.executable, "-c", SQLITE]
    code, _, err, _ = comes_back(command, ["--files", "warn"])
    assert code != 0 and "left as it is: --files warn" in err, (code, err)


def goes_on(command, steps):
    """Two ranks are checkpointed, and killed and brought back when they have the result."""
    with harness.Job(command + steps, ranks=2) as job:
        assert job.wait() == 0, job.report()
        expected = job.stdout()
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "go")
        with Gated(command + steps + [gate], ranks=2, ckpt_every=3600) as job:
            job.wait_running(2)
            job.eyrie("checkpoint", "last")
            open(gate, "w").close()
            # By then the files are gone, too.
            job.until(lambda: expected in job.stdout(), "the result")
            for rank in (1, 0):
                job.kill_ranks([rank])
                job.wait_event("restored", rank=rank)
            job.let_end()
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected, (job.stdout(), expected, job.stderr())


def test_a_file_of_a_rank_that_is_updated_in_place():
    goes_on(program("inplace"), ["600"])
