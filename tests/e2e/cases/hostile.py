"""Machines that are too small, files that others planted, programs of another machine: told, and not
run into."""

import contextlib
import os
import shutil
import stat
import struct
import subprocess
import tempfile

import harness
from bad_input import program
from harness import EYRIE, Gated, Job, NotRun, example, run_to_end
from netns import needs_root
from nodes import Nodes
from programs import SIZES

LIMIT_BYTES = 48 << 20
NOBODY = 65534


@contextlib.contextmanager
def small_group():
    """A control group that allows little memory; the file to which its processes write their number."""
    needs_root()
    v1, v2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
    with open("/proc/self/cgroup") as f:
        lines = [line.rstrip("\n").split(":", 2) for line in f]
    old = [path for _, names, path in lines if "memory" in names.split(",")]
    new = [path for _, names, path in lines if names == ""]
    root, limit = (v1, "memory.limit_in_bytes") if old else (v2, "memory.max")
    here = os.path.join(root, (old or new or ["/"])[0].lstrip("/"))
    folder = os.path.join(here if os.path.isdir(here) else root, f"eyrie-test-{os.getpid()}")
    try:
        os.mkdir(folder)
    except OSError as error:
        raise NotRun(f"no control group can be made: {error}") from error
    try:
        if not os.path.exists(os.path.join(folder, limit)):
            raise NotRun("the memory controller is not there for groups of this one")
        with open(os.path.join(folder, limit), "w") as f:
            f.write(str(LIMIT_BYTES))
        yield os.path.join(folder, "cgroup.procs")
    finally:
        harness.soon(lambda: gone(folder), "empty control group")


def gone(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


def hungry(group, most):
    """Rank 1 is in the small group, and takes so many MiB."""
    script = 'if [ "$EYRIE_RANK" = 1 ]; then echo $$ > "$0"; fi; exec "$@"'
    return ["sh", "-c", script, group, *program("hungry"), "1", str(most)]


def dies_for_memory(options):
    with small_group() as group:
        with Job(hungry(group, 400), ranks=2, options=options) as job:
            job.says("rank 1 was killed for memory: ")
            job.says("growing pauses")
            died = [e for e in job.events() if e["event"] == "detected"]
            assert died and all("killed for memory" in e["text"] for e in died), died
            assert job.stderr().count("was killed for memory") == 1, job.report()
            job.eyrie("abort", "last")
            job.wait()


def test_a_rank_killed_for_memory_is_told_and_not_tried_for_ever():
    dies_for_memory([])


def test_a_rank_over_nodes_killed_for_memory_is_told():
    dies_for_memory(["--nodes", "2"])


def test_a_rank_that_fits_is_not_told():
    with small_group() as group:
        with Job(hungry(group, 4), ranks=2) as job:
            assert job.wait() == 0, job.report()
            assert job.stdout() == "4 MiB\n" and "memory" not in job.stderr(), job.report()


def other_machine(folder):
    """A program of this machine, changed into one of another."""
    path = os.path.join(folder, "other")
    shutil.copy("/bin/true", path)
    with open(path, "r+b") as f:
        f.seek(18)
        f.write(struct.pack("<H", 183))
    return path


def refused(command, home, said, code=126):
    env = {**os.environ, "EYRIE_HOME": home}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=harness.TIMEOUT_S)
    told = done.stdout + done.stderr
    assert done.returncode == code and said in told, (done.returncode, told)
    assert "syntax error" not in told and "not found" not in told, told


def test_a_program_of_another_machine_is_given_to_no_shell():
    with tempfile.TemporaryDirectory() as folder:
        home = os.path.join(folder, "home")
        other = other_machine(folder)
        noise = os.path.join(folder, "noise")
        with open(noise, "wb") as f:
            f.write(b"\0\1\2echo run by a shell\n")
        os.chmod(noise, 0o755)
        image = os.path.join(os.path.dirname(EYRIE), "eyrie-image")
        for run in ([EYRIE, "run", "-n", "1", "--"], [image, "run", "--"]):
            refused([*run, other], home, "64-bit ARM (aarch64), and this machine is x86-64")
            refused([*run, noise], home, "neither a program for this machine (x86-64) nor a script")
        refused([EYRIE, "run", "-n", "2", "--nodes", "2", "--", other], home, "aarch64")
        # What it is run by is missing, and not the program; a part of the file is.
        broken = os.path.join(folder, "broken")
        for content, said in (
            (b"#!/nonexistent/shell\necho\n", "its first line names '/nonexistent/shell': No such file"),
            (b"#!/bin/sh\r\necho\n", "its first line ends with a carriage return"),
            (open("/bin/true", "rb").read(9000), "is damaged: it has 9000 bytes"),
        ):
            with open(broken, "wb") as f:
                f.write(content)
            os.chmod(broken, 0o755)
            for run in ([EYRIE, "run", "-n", "1", "--"], [image, "run", "--"]):
                refused([*run, broken], home, said)
        # What only another node finds there is refused there: the file is another by then.
        script = os.path.join(folder, "script")
        with open(script, "w") as f:
            f.write("echo text\n")
        os.chmod(script, 0o755)
        done = subprocess.run([image, "run", "--", script], env={**os.environ, "EYRIE_HOME": home},
                              capture_output=True, text=True, timeout=harness.TIMEOUT_S)
        assert (done.returncode, done.stdout) == (0, "text\n"), done


def open_to_others(folder):
    """Files and folders that others may read or write, sockets and links apart."""
    found = []
    for base, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode
            if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & 0o077:
                found.append((oct(mode), os.path.relpath(path, folder)))
    return found


def test_nothing_of_a_job_is_open_to_others_whatever_the_umask():
    umask = ["sh", "-c", 'umask 0; exec "$@"', "sh"]
    with Nodes("heat", 3, ["--spares", "1", "--save-every", "0.2"], ckpt_every=0.3, wrap=umask) as job:
        job.wait_event("flushed")
        job.kill_nodes(1)
        job.wait_event("restored")
        job.wait_event("flushed", count=job.count("flushed") + 1)
        found = open_to_others(os.path.join(job.home, "jobs"))
        assert not found, f"{found}\n{job.report()}"
        job.ends_as("heat")


def test_pipes_folders_and_endless_files_keep_nobody_waiting():
    """In the places of records, in a job's folder and among images: every command ends, with the name of
    what it does not like, and goes by it where it is not what was asked for."""
    image = os.path.join(os.path.dirname(EYRIE), "eyrie-image")
    with tempfile.TemporaryDirectory() as home:
        jobs = os.path.join(home, "jobs")
        for name, make in (("apipe", os.mkfifo), ("adir", os.mkdir), ("ahuge", endless)):
            for record in ("lock", "saved", "journal", "events.jsonl", "ended.json", "printed", "stdin"):
                folder = os.path.join(jobs, f"{name}{record[:2]}")
                os.makedirs(folder, mode=0o700)
                for other in ("lock", "saved", "events.jsonl"):
                    os.close(os.open(os.path.join(folder, other), os.O_CREAT | os.O_WRONLY, 0o600))
                path = os.path.join(folder, record)
                with contextlib.suppress(FileNotFoundError):
                    os.remove(path)
                make(path)
                if name != "ahuge":
                    refused([EYRIE, "status", os.path.basename(folder)], home, f"{path} is a ", 1)
        refused([EYRIE, "ps"], home, "JOB", 0)
        refused([EYRIE, "status", "ahugesa"], home, "ahugesa/saved: not a saved job", 1)
        refused([EYRIE, "events", "ahugeev"], home, "has no end", 1)
        pipe, folder = os.path.join(home, "pipe.img"), os.path.join(home, "images", "job-1")
        os.mkfifo(pipe)
        os.makedirs(folder, mode=0o700)
        for name in ("lock", "run.json"):
            os.mkfifo(os.path.join(folder, name))
        refused([image, "restart", pipe], home, "is a pipe", 1)
        refused([EYRIE, "image", "verify", pipe], home, "is a pipe", 1)
        refused([image, "list"], home, "", 0)


def endless(path):
    """A file without content, longer than any memory."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    os.truncate(path, 1 << 40)


def test_a_program_that_is_not_there_is_told_with_its_node():
    """After it was tried at the other one, its exit code is the job's."""
    script = '[ "$EYRIE_RANK" = 1 ] && exec /nonexistent/program; exec sleep 600'
    with Job(["sh", "-c", script], ranks=2, options=["--nodes", "2"]) as job:
        assert job.wait() == 127, job.report()
        job.says("rank 1 cannot be run on node 1 (exit code 127, before MPI_Init: as a rule the program")
        job.says("rank 1 exited with code 127 (on node 0, before MPI_Init: as a rule the program")


def test_a_program_that_is_missing_on_one_node_runs_on_another():
    """Nothing has died by that."""
    heat = example("heat") + SIZES["heat"]
    script = 'if [ "$EYRIE_RANK" = 1 ] && mkdir "$0/tried" 2>/dev/null; then exec /nonexistent/program; fi; exec "$@"'
    want = run_to_end(heat, ranks=2)[1]
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with Job(["sh", "-c", script, folder, *heat], ranks=2, options=["--nodes", "2"]) as job:
            assert job.wait() == 0 and job.stdout() == want, job.report()
            assert job.count("unfit", rank=1, node=1) == 1, job.report()
            assert job.count("started", rank=1, node=0) == 1, job.report()
            assert "node 1" in job.stderr() and "brought back" not in job.stderr(), job.report()


def test_what_others_planted_is_refused():
    needs_root()
    with Gated(example("heat") + SIZES["heat"], ckpt_every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last", "--end")
        assert job.wait() == 85, job.report()
        folder = job.folder()
        name = os.path.basename(folder)
        jobs = os.path.dirname(folder)
        for path in (os.path.join(folder, "saved"), folder, jobs, job.home):
            before = os.stat(path)
            os.chown(path, NOBODY, NOBODY)
            refused([EYRIE, "restart", name], job.home, "belongs to user 65534", 1)
            os.chown(path, before.st_uid, before.st_gid)
            os.chmod(path, before.st_mode | 0o022)
            refused([EYRIE, "restart", name], job.home, "can be written to by others", 1)
            os.chmod(path, before.st_mode)
        assert os.path.exists(os.path.join(folder, "saved")), "it is left alone"
        image = os.path.join(os.path.dirname(EYRIE), "eyrie-image")
        os.chmod(job.home, 0o777)
        refused([image, "run", "--", "true"], job.home, "can be written to by others", 1)
        os.chmod(job.home, 0o700)
        # An image that is named is run by whoever restarts it, wherever it is.
        path = os.path.join(job.home, "planted.img")
        with subprocess.Popen(["sleep", "600"]) as sleeps:
            env = {**os.environ, "EYRIE_HOME": job.home}
            subprocess.run([image, "checkpoint", str(sleeps.pid), "-o", path], env=env, check=True, stdout=subprocess.DEVNULL)
            sleeps.kill()
        os.chown(path, NOBODY, NOBODY)
        refused([image, "restart", path], job.home, "belongs to user 65534, and what it holds would run as you", 1)
