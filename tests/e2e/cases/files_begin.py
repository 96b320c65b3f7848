"""Ranks that begin anew find their files as they were when they began first: before the first checkpoint,
all together or one of them, and after a divergence without a snapshot."""

import os
import stat
import sys
import tempfile

import fallback
import harness
from files_ahead import lines
from harness import Job

# What a rank that starts a second time would do twice or could not do, each with a file of its own.
SCRIPT = """
set -e
r=$EYRIE_RANK; i=0
NEW
test -e input.$r; rm input.$r; mv moved.$r elsewhere.$r; mv folder.$r other.$r
while test $i -lt 30; do
    echo $i >> log.$r; echo $i >> large.$r
    n=$(cat count.$r); echo $((n * 3 % 1009 + i)) > count.$r
    { cat old.$r; echo $i; } > next.$r; mv next.$r old.$r
    echo $i >> other.$r/in
    echo $i >> at.$r
    while test $i = 19 && ! test -e GATE; do sleep 0.01; done
    i=$((i + 1))
done
"""
# The same by a process alone: whose a child is that is gone at once is not known where several ranks work.
PROGRAM = """
import os, time
r, mild, i = os.environ["EYRIE_RANK"], MILD, 0
def add(name, text, how="a"):
    with open(name, how) as file:
        file.write(f"{text}\\n")
mild and os.path.exists(f"new.{r}") or os.mkdir(f"new.{r}")
add(f"once.{r}", "once", "w" if mild else "x")
os.remove(f"input.{r}")
os.rename(f"moved.{r}", f"elsewhere.{r}")
os.rename(f"folder.{r}", f"other.{r}")
for i in range(30):
    for name in "log", "large":
        add(f"{name}.{r}", i)
    n = int(open(f"count.{r}").read())
    add(f"count.{r}", n * 3 % 1009 + i, "w")
    add(f"next.{r}", open(f"old.{r}").read() + str(i), "w")
    os.rename(f"next.{r}", f"old.{r}")
    add(f"other.{r}/in", i)
    add("shared.log", r)
    add(f"at.{r}", i)
    while i == 19 and not os.path.exists("GATE"):
        time.sleep(0.01)
"""

# What must not be there, and the same by who does not mind.
NEW = "mkdir new.$r; ln -s log.$r link.$r; set -C; echo once > once.$r; set +C"
MAYBE_NEW = "mkdir -p new.$r; ln -sf log.$r link.$r; echo once > once.$r"
LARGE = "a line of a large file\n" * 100000


def rank_files(folder, ranks):
    os.mkdir(folder)
    for rank in range(ranks):
        os.mkdir(f"{folder}/folder.{rank}")
        texts = {"log": "before\n", "count": "5\n", "input": "-", "moved": "-", "old": "begin\n", "at": "begin\n", "large": LARGE}
        for name, text in {**texts, f"folder.{rank}/in": "before\n"}.items():
            path = os.path.join(folder, name if "/" in name else f"{name}.{rank}")
            with open(path, "w") as file:
                file.write(text)


def held(folder):
    """All that is in a folder: rights, and content."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(at, name)
            about = os.lstat(path)
            text = os.readlink(path) if stat.S_ISLNK(about.st_mode) else None
            if stat.S_ISREG(about.st_mode):
                with open(path) as file:
                    text = file.read()
            found[os.path.relpath(path, folder)] = (oct(about.st_mode), text)
    return found


def differing(folder, other):
    a, b = held(folder), held(other)
    return {name: (a.get(name), b.get(name)) for name in {*a, *b} if a.get(name) != b.get(name)}, (a, b)


def begins_anew(ft, ranks, killed, mild=False, options=(), job_of=Job):
    """Ranks are killed before there is any checkpoint. What differs then from an undisturbed run, and what
    was told."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        os.chmod(folder, 0o755)
        alone, work, gate = (os.path.join(folder, name) for name in ("alone", "work", "go"))
        command = ["sh", "-c", SCRIPT.replace("GATE", gate).replace("NEW", MAYBE_NEW if mild else NEW)]
        if ranks > 1:
            command = [sys.executable, "-c", PROGRAM.replace("GATE", gate).replace("MILD", str(mild))]
        for place in (alone, work):
            rank_files(place, ranks)
            if job_of.ordinary and os.geteuid() == 0:
                for at, folders, files in os.walk(place):
                    for path in [at, *(os.path.join(at, name) for name in [*folders, *files])]:
                        os.chown(path, harness.ORDINARY_USER, harness.ORDINARY_USER)
        open(gate, "w").close()
        with job_of(command, ranks=ranks, ft="none", cwd=alone) as job:
            assert job.wait() == 0, job.report()
        os.remove(gate)
        options = ["--fallback-every", "off", *options] if ft == "logged" else options
        more = {"ranks": ranks, "ft": ft, "ckpt_every": 3600, "cwd": work, "options": options}
        with job_of(command, **more) as job:
            at = lambda rank: lines(os.path.join(work, f"at.{rank}"))[-1:] == ["19"]
            # Twice: the second life is put back as the first was.
            for life in (2, 3) if "refuse" not in options else ():
                job.until(lambda: all(map(at, range(ranks))), "step 19")
                job.kill_ranks([killed])
                back = range(ranks) if ft == "coordinated" else [killed]
                for rank in back:
                    job.wait_event("started", rank=rank, count=life)
            if "refuse" in options:
                job.until(lambda: at(0), "step 19")
                job.kill_ranks([killed])
            open(gate, "w").close()
            code = job.wait()
            differ, both = differing(alone, work)
            if ranks > 1:
                differ["both"] = both
            return code, differ, job.stderr(), job.report()


def test_a_rank_that_is_killed_before_its_first_checkpoint():
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    for ft in ("coordinated", "logged"):
        code, differ, told, report = begins_anew(ft, 1, 0)
        assert code == 0 and not differ, (ft, code, differ, report)
        assert "came back, but" not in told, told


def test_ranks_that_all_go_back_to_the_beginning():
    """Also what several of them appended to."""
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    code, differ, told, report = begins_anew("coordinated", 2, 1)
    # The order of its lines is another matter.
    alone, shared = (place["shared.log"][1].split() for place in differ.pop("both"))
    assert code == 0 and set(differ) <= {"shared.log"}, (code, differ, report)
    assert sorted(shared) == sorted(alone) and len(alone) == 60, (alone, shared)
    assert "came back, but" not in told, told


def test_a_rank_that_begins_anew_alone():
    """What the other one wrote to as well stays, and is named; what it made stays, as the other may use it."""
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    code, differ, told, report = begins_anew("logged", 2, 1, mild=True)
    shared = differ.pop("both")[1]["shared.log"][1].split()
    assert code == 0 and set(differ) == {"shared.log"}, (code, differ, report)
    assert "rank 1 came back, but " in told and "/shared.log was written to since the rank began" in told, told
    assert shared.count("0") == 30 and shared.count("1") == 70, shared


# What removes its results before it makes them again, and tells whether there were any.
REMOVES = """
import os, time
r = os.environ["EYRIE_RANK"]
def wait(step):
    with open(f"at.{r}", "a") as at:
        print(step, file=at)
    while not os.path.exists(f"FOLDER/{step}"):
        time.sleep(0.01)
def again(step):
    for name in "out", "new":
        try:
            os.remove(f"{name}.{r}")
            print(step, name, "was there", flush=True)
        except FileNotFoundError:
            print(step, name, "was not there", flush=True)
        with open(f"{name}.{r}", "x") as file:
            print(step, file=file)
    wait(step)
wait("begun")
again("first")
again("second")
"""


def removes_again(checkpoint_at, killed_at):
    """The rank is killed where its results are other files than before, with or without a checkpoint."""
    steps = ["begun", "first", "second"]
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        alone, work, gates = (os.path.join(folder, name) for name in ("alone", "work", "gates"))
        command = [sys.executable, "-c", REMOVES.replace("FOLDER", gates)]
        for place in (alone, work, gates):
            os.mkdir(place)
        for place in (alone, work):
            with open(os.path.join(place, "out.0"), "w") as file:
                file.write("before\n")
        opened = lambda step: open(os.path.join(gates, step), "w").close()
        for step in steps:
            opened(step)
        with Job(command, ranks=1, ft="none", cwd=alone) as job:
            assert job.wait() == 0, job.report()
            expected = job.stdout()
        for step in steps:
            os.remove(os.path.join(gates, step))
        with Job(command, ranks=1, ckpt_every=3600, cwd=work, options=["--fallback-every", "off"]) as job:
            for step in steps:
                job.until(lambda: lines(os.path.join(work, "at.0"))[-1:] == [step], step)
                if step == checkpoint_at:
                    job.eyrie("checkpoint", "last")
                if step == killed_at:
                    job.kill_ranks([0])
                    job.wait_event("restored" if checkpoint_at else "started", count=1 if checkpoint_at else 2)
                    for before in steps[: steps.index(step)]:
                        opened(before)
                    job.until(lambda: lines(os.path.join(work, "at.0"))[-1:] == [step], f"{step} again")
                opened(step)
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected, (job.stdout(), expected, job.stderr())
            assert not differing(alone, work)[0], differing(alone, work)


def test_what_removes_its_results_and_begins_anew():
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    for killed_at in ("first", "second"):
        removes_again(None, killed_at)


def test_what_removes_its_results_after_a_checkpoint():
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    removes_again("first", "second")
    # It had neither opened nor written to what it removes then.
    removes_again("begun", "first")
    removes_again("begun", "second")


# Changes what was there before it in all ways, between a checkpoint and a death.
CHANGES = """
set -e
r=$EYRIE_RANK; i=0
while test $i -lt 12; do
    if test $i = 6; then
        rm gone.$r; rm -r folder.$r; rm link.$r; mv moved.$r elsewhere.$r; mv named.$r other.$r
        cat old.$r > next.$r; echo $i >> next.$r; mv next.$r old.$r
        echo $(cat count.$r) $i > count.$r; echo $i >> log.$r; chmod 600 mode.$r
    fi
    echo $i >> at.$r
    while test $i = 4 -o $i = 8 && ! test -e GATE.$i; do sleep 0.01; done
    i=$((i + 1))
done
"""


def changes(ranks, ft, kills):
    """It is checkpointed at step 4 and killed at step 8, as often as that."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        alone, work, gate = (os.path.join(folder, name) for name in ("alone", "work", "go"))
        command = ["sh", "-c", CHANGES.replace("GATE", gate)]
        for place in (alone, work):
            for rank in range(ranks):
                for made in (f"folder.{rank}/below", f"named.{rank}"):
                    os.makedirs(os.path.join(place, made))
                names = [f"{n}.{rank}" for n in ("gone", "moved", "old", "count", "log", "mode")]
                for name in [*names, f"folder.{rank}/in", f"folder.{rank}/below/in", f"named.{rank}/in"]:
                    with open(os.path.join(place, name), "w") as file:
                        file.write(f"{name}\n")
                os.symlink(f"old.{rank}", os.path.join(place, f"link.{rank}"))
        opened = lambda step: open(f"{gate}.{step}", "w").close()
        opened(4), opened(8)
        with Job(command, ranks=ranks, ft="none", cwd=alone) as job:
            assert job.wait() == 0, job.report()
        os.remove(f"{gate}.4"), os.remove(f"{gate}.8")
        with Job(command, ranks=ranks, ft=ft, ckpt_every=3600, cwd=work) as job:
            at = lambda step: all(lines(os.path.join(work, f"at.{r}"))[-1:] == [step] for r in range(ranks))
            job.until(lambda: at("4"), "step 4")
            job.eyrie("checkpoint", "last")
            opened(4)
            for count in range(1, kills + 1):
                job.until(lambda: at("8"), "step 8")
                job.kill_ranks([0])
                job.wait_event("restored", rank=0, count=count)
            job.until(lambda: at("8"), "step 8 again")
            opened(8)
            assert job.wait() == 0, job.report()
            assert not differing(alone, work)[0], (differing(alone, work), job.report())
            assert "came back, but" not in job.stderr(), job.stderr()


def test_what_changes_files_of_before_since_a_checkpoint():
    """Of which the image knows nothing."""
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    changes(1, "logged", 3)
    changes(2, "logged", 2)
    changes(1, "coordinated", 2)


class Ordinary(Job):
    ordinary = True


def test_a_rank_of_an_ordinary_user():
    """What it may have made stays, and is named."""
    code, differ, told, report = begins_anew("logged", 1, 0, mild=True, job_of=Ordinary)
    assert code == 0 and not differ, (code, differ, report)
    if os.geteuid() == 0:
        assert "not known who made that" in told, told


def test_all_go_back_after_a_divergence():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        path = os.path.join(folder, "log")
        with open(path, "w") as file:
            file.write("before\n")
        with fallback.Drifting(every="off", cwd=folder, begin=f"echo life >> {path}", counted=False) as job:
            job.gets_on()
            job.checkpoint()
            job.diverge(1)
            assert "all ranks go back to the beginning" in job.stderr(), job.stderr()
            job.ends()
        if os.geteuid() == 0:
            assert lines(path) == ["before", *["life"] * fallback.RANKS], lines(path)


def test_what_is_to_be_refused_ends_the_job():
    if os.geteuid() != 0:
        raise harness.NotRun("who made what the kernel tells only to root")
    code, _, told, report = begins_anew("coordinated", 1, 0, options=["--files", "refuse"])
    assert code != 0 and "--files refuse" in told, (code, told, report)
