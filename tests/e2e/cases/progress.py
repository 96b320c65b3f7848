"""How far long work is, on a terminal and nowhere else; the terminal is as it was when it is over."""

import json
import os
import signal
import subprocess
import tempfile

from harness import BUILD, EYRIE, Job, example, run_to_end
from nodes import Pointed, expected
from programs import SIZES
from screen import Screen

IMAGE = os.path.join(BUILD, "bin", "eyrie-image")


def left(screen):
    """The lines that are to be seen in the end; no bar is among them."""
    lines = [line for line in screen.lines() if line]
    assert not any(" of " in line and "[" in line for line in lines), screen.raw
    return lines


def test_checkpoints_and_a_restart():
    with Job(example("heat") + SIZES["heat"], ckpt_every=3600) as job:
        job.wait_running(4)
        with Screen([EYRIE, "checkpoint", "last"], job.env) as screen:
            assert screen.over() == 0, screen.raw
            assert "of 4 ranks" in screen.text() and "checkpoint [" in screen.text(), screen.raw
            lines = left(screen)
            assert len(lines) == 4 and all(line.startswith("rank ") for line in lines), lines
        for quiet in (["-q"], ["--json"]):
            with Screen([EYRIE, "checkpoint", "last", *quiet], job.env) as screen:
                assert screen.over() == 0 and "of 4 ranks" not in screen.text(), screen.raw
        _, out, err = job.eyrie("checkpoint", "last")
        assert err == "" and "\x1b" not in out and "of 4" not in out, (out, err)
        with Screen([EYRIE, "checkpoint", "last", "--end"], job.env) as screen:
            assert screen.over() == 0 and "of 4 ranks" in screen.text(), screen.raw
            left(screen)
        assert job.wait() == 85, job.report()
        with Screen([EYRIE, "restart", "last"], job.env) as screen:
            assert screen.over() == 0, screen.raw
            assert "restoring [" in screen.text() and "of 4 ranks" in screen.text(), screen.raw
            printed = [line.rstrip() for line in left(screen)]
    whole = run_to_end(example("heat") + SIZES["heat"])[1].splitlines()
    assert printed and printed == whole[-len(printed) :], (printed, whole)


def test_a_node_that_leaves():
    expected("farm")
    with Pointed("farm", 3, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.all_checkpointed()
        job.arm("leave-3")
        with Screen([EYRIE, "drain", "last", "1"], job.env) as screen:
            job.held_at("leave-3")
            screen.shows(r"draining \[-+\] 0 of 1 nodes")
            screen.types(b"\x03")
            assert screen.over() == 128 + signal.SIGINT, screen.raw
            lines = left(screen)
            assert "eyrie drain --cancel" in lines[-1], lines
        job.eyrie("drain", "--cancel", "last", "1")
        job.let_go("leave-3")
        with Screen([EYRIE, "drain", "last", "1"], job.env) as screen:
            assert screen.over() == 0 and "of 1 nodes" in screen.text(), screen.raw
            assert "has left" in left(screen)[-1], screen.raw
        job.ends_as("farm")


def vault(folder, *words):
    done = subprocess.run([EYRIE, "vault", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "\x1b" not in done.stderr, (words, done)
    return done.stdout


def test_vaults_in_folders():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        env = {**os.environ, "EYRIE_HOME": os.path.join(folder, "home")}
        os.makedirs(os.path.join(folder, "from", "node-0"))
        with open(os.path.join(folder, "from", "node-0", "a"), "wb") as file:
            file.write(os.urandom(3 << 20))
        members = ["n0", "n1", "n2"]
        words = ["import", "--vault", "rs:2+1", "--from", "from", *members]
        with Screen([EYRIE, "vault", *words], env, cwd=folder) as screen:
            assert screen.over() == 0, screen.raw
            for part in ("reading [", "of 3.00 MiB"):
                assert part in screen.text(), (part, screen.raw)
            assert left(screen)[0].startswith("generation 1: 1 objects, 3.0 MiB"), screen.raw
        for words in (["verify", *members], ["export", "--to", "to", *members]):
            with Screen([EYRIE, "vault", *words], env, cwd=folder) as screen:
                assert screen.over() == 0 and f"{words[0]} [" in screen.text(), screen.raw
                assert len(left(screen)) == 1, screen.raw
        assert json.loads(vault(folder, "verify", "--json", *members))["damaged"] == 0
        # Damaged, and mended as slowly as can be: there is time to call it off.
        [name] = [name for name in os.listdir(os.path.join(folder, "n0")) if name.endswith("data")]
        with open(os.path.join(folder, "n0", name), "r+b") as file:
            file.seek(1000)
            file.write(b"damaged")
        with Screen([EYRIE, "vault", "scrub", "--limit", "1", *members], env, cwd=folder) as screen:
            screen.shows(r"scrub \[-+\] 0 B of")
            screen.types(b"\x03")
            assert screen.over() == -signal.SIGINT and left(screen) in ([], ["^C"]), screen.raw


def test_images_of_programs():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        env = {**os.environ, "EYRIE_HOME": home}
        script = "import os, time; held = os.urandom(70 << 20); print('begins', flush=True)\n"
        script += "while not os.path.exists(os.environ['EYRIE_HOME'] + '/go'): time.sleep(0.05)\n"
        script += "print('ends')"
        with Screen([IMAGE, "run", "python3", "-c", script], env) as program:
            program.shows("begins")
            with Screen([IMAGE, "checkpoint", "last"], env) as screen:
                assert screen.over() == 0 and "the image is being written" in screen.text(), screen.raw
                assert len(left(screen)) == 1, screen.raw
            [entry] = json.loads(subprocess.check_output([IMAGE, "list", "--json"], env=env))
            os.kill(entry["pid"], signal.SIGKILL)
            program.over()
        open(os.path.join(home, "go"), "w").close()
        with Screen([IMAGE, "restart", "last"], env) as screen:
            assert screen.over() == 0 and "restoring " in screen.text(), screen.raw
            assert left(screen) == ["ends"], screen.raw
