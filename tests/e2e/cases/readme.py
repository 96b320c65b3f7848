"""What README tells people to type works as it stands there. Its batch script is run in slurm.py."""

import contextlib
import os
import re
import shlex
import subprocess
import tempfile

from harness import BUILD, ROOT, TIMEOUT_S, compile_gate, soon
from hosts import shell
from nodes import Nodes

CACHE = os.environ.get("EYRIE_CACHE", os.path.expanduser("~/.cache/eyrie"))
WORDS = 900


def readme():
    with open(os.path.join(ROOT, "README.md")) as file:
        return file.read()


def environment(home):
    """A user's with an empty home, who has the Python of `scripts/setup` and finds Eyrie in PATH."""
    own = os.path.expanduser("~")
    kept = {name: os.environ.get(name, f"{own}/{folder}") for name, folder in KEPT.items()}
    path = f"{BUILD}/bin:{CACHE}/venv/bin:{os.environ['PATH']}"
    env = {**os.environ, **kept, "HOME": home, "EYRIE_CACHE": CACHE, "PATH": path}
    return {name: value for name, value in env.items() if not name.startswith("MPI4PY")}


# Where tools keep what they would else look for in the home.
KEPT = {"CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}


def blocks(start):
    """Blocks of commands that begin so."""
    found = [b.partition("\n")[2] for b in readme().split("```")[1::2]]
    return [block for block in found if block.startswith(start)]


def test_it_is_short_and_begins_with_two_commands():
    text = readme()
    assert len(text.split()) <= WORDS, len(text.split())
    assert blocks("make")[0].split("\n")[:2] == ["make demo", "make test"]
    subprocess.run(["make", "-n", "demo", "test"], cwd=ROOT, check=True, capture_output=True)
    for path in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert os.path.exists(os.path.join(ROOT, path)), path


def test_a_first_job_in_each_language():
    (block,) = blocks("make install")
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        tree = os.path.join(home, "clone")
        # What is built lands in a folder of its own.
        os.mkdir(tree)
        for name in set(os.listdir(ROOT)) - {".git"}:
            os.symlink(os.path.join(ROOT, name), os.path.join(tree, name))
        # It is built: that is not tried here.
        command = block.replace("make install", "make -o build install")
        assert command != block
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=tree,
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done
        assert os.path.exists(os.path.join(home, "eyrie", "bin", "eyrie"))
        assert done.stdout.count("checksum") == block.count("eyrie run"), done


def shape(line):
    """A line without its numbers."""
    return re.sub(r"\d+(\.\d+)?( [mµ]?s\b| [KMG]iB| B\b)?", "N", line)


# A recovery of over 2 s is told in two lines.
LATE = re.compile(r"; bringing back\n(?:eyrie: .*\n)*?eyrie: .* back (after .*, nothing was lost)")


def test_what_a_recovery_looks_like():
    """What Eyrie says in the first screen's transcript, of the same deaths in the same order."""
    (block,) = blocks("$ eyrie run -n 4 --nodes 3")
    want = [shape(line) for line in block.splitlines() if line.startswith("eyrie: ")]
    with Nodes("cg", 3, ckpt_every=3600) as job:
        # All is computed: who is brought back has nothing to repeat.
        job.until(lambda: "cg:  15 " in job.stdout(), "its last round")
        job.eyrie("checkpoint", "last")
        for count, kill in (1, lambda: job.kill_ranks([2])), (2, lambda: job.kill_nodes(1)):
            kill()
            job.until(lambda: job.stderr().count("nothing was lost") == count, "word of the return")
        job.let_end()
        assert job.wait() == 0, job.report()
        text = LATE.sub(r"; back \1", job.stderr())
        said = [shape(line) for line in text.splitlines()]
        # Not all of it fits the page.
        there = iter(said)
        assert want and all(line in there for line in want), (said, want)


def commands():
    """The everyday commands, by their second word."""
    rows = re.findall(r"^\| `(eyrie [^`]+)` \|", readme(), re.MULTILINE)
    assert len(rows) == 8, rows
    return {row.split()[1]: shlex.split(row) for row in rows}


@contextlib.contextmanager
def heat():
    """A folder with a `heat` whose ranks wait at their end, and a remote shell."""
    with shell() as rsh, tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        os.symlink(os.path.join(BUILD, "examples", "heat"), os.path.join(folder, "heat"))
        env = environment(folder)
        env.update(EYRIE_RSH=rsh, EYRIE_HOME=folder + "/state", LD_PRELOAD=compile_gate())
        env["EYRIE_TEST_GATE"] = os.path.join(folder, "gate")
        yield folder, env


def test_everyday_commands():
    typed = commands()
    with heat() as (folder, env):
        quiet = {"cwd": folder, "env": env, "stderr": subprocess.STDOUT, "text": True}

        def tell(words):
            done = subprocess.run(words, stdout=subprocess.PIPE, timeout=TIMEOUT_S, **quiet)
            return done.returncode, done.stdout

        def run(name):
            code, text = tell(typed[name])
            assert code == 0, text
            return text

        def start(name):
            return subprocess.Popen(typed[name], stdout=subprocess.PIPE, **quiet)

        def wait(process):
            text, _ = process.communicate(timeout=TIMEOUT_S)
            return process.returncode, text

        def happened(event, count):
            what = f"{count} times '{event}'"
            soon(lambda: tell(["eyrie", "events", "last"])[1].count(f" {event}") >= count, what)

        first = start("run")
        happened("started", 6)
        assert "heat" in run("ps")
        assert "rank" in run("status")
        run("drain")
        run("checkpoint")
        code, text = wait(first)
        assert code == 85 and "eyrie restart" in text, text
        second = start("restart")
        happened("restarted", 1)
        kill = shlex.split(re.search(r"`(eyrie inject [^`]+)`", readme()).group(1))
        soon(lambda: tell(kill)[0] == 0, "a process of the rank")
        run("abort")
        code, text = wait(second)
        assert code != 0, text
        open(env["EYRIE_TEST_GATE"], "w").close()
        assert "deterministic" in run("verify")
