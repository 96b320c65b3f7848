"""The vault of a job that runs is looked into by its nodes, which repair what is damaged."""

import glob
import json
import os
import signal
import subprocess

from controller import kill_controller
from harness import EYRIE
from nodes import Nodes, expected
from vault_nodes import ends_without_going_back


def flip(path):
    """Changes a byte of each chunk."""
    with open(path, "r+b") as file:
        for at in range(1000, os.path.getsize(path), 1 << 16):
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))


def content(folder):
    """What a node's part of the vault has of its generations, by file."""
    files = {}
    for path in glob.glob(os.path.join(folder, "gen-*")):
        with open(path, "rb") as file:
            files[os.path.basename(path)] = file.read()
    return files


def looked(job, *command):
    code, out, err = job.eyrie("vault", *command, "last", "--json", check=False)
    return code, json.loads(out) if out else None, err


def test_what_was_damaged_under_a_running_job_is_repaired():
    expected("heat")
    options = ["--vault", "rs:2+1", "--scrub-every", "0"]
    with Nodes("heat", 3, options, ckpt_every=0) as job:
        record = job.wait_running(4)
        job.eyrie("checkpoint", "last")
        _, text, _ = job.eyrie("vault", "ls", "last", "--objects")
        assert "rs:2+1  3" in text and "whole" in text and "rank-3.gen-" in text, text
        folder = os.path.join(job.folder(), "node-1", "vault")
        before = content(folder)
        for name in before:
            if name.endswith((".data", ".parity")):
                flip(os.path.join(folder, name))
        code, found, err = looked(job, "verify")
        assert code == 1 and "eyrie vault scrub" in err, (found, err)
        assert found["damaged"] >= 2 and found["repaired"] == found["lost"] == 0, found
        assert content(folder) != before, "it only looks"
        code, done, err = looked(job, "scrub")
        assert code == 0, (done, err)
        for member in done["members"]:
            hit = found["damaged"] if member["node"] == 1 else 0
            assert member["damaged"] == member["repaired"] == hit, done
            assert member["error"] is None and member["lost"] == 0, done
        assert content(folder) == before
        assert looked(job, "verify")[1]["damaged"] == 0
        scrub = job.status()["vault_scrub"]
        assert scrub["repaired_so_far"] == found["damaged"], scrub
        assert scrub["every_ms"] is None and scrub["ended_unix_ms"], scrub
        assert job.count("scrubbed", node=1) >= 2, job.report()
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "; scrubbed " in text, text
        # What was repaired is what the lost node's images are made of.
        victims = [r["rank"] for r in record["ranks"] if r["node"] == 0]
        job.kill_nodes(0)
        for rank in victims:
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "heat", victims)


def test_what_cannot_be_mended_is_brought_in_anew():
    """Two members of three are damaged, and one is borne: the nodes have the images as files."""
    expected("heat")
    options = ["--vault", "rs:2+1", "--scrub-every", "0"]
    with Nodes("heat", 3, options, ckpt_every=0) as job:
        record = job.wait_running(4)
        job.eyrie("checkpoint", "last")
        generations = lambda: {r["vault_generation"] for r in job.status()["ranks"]}
        before = generations()
        for node in (0, 1):
            for path in glob.glob(os.path.join(job.folder(), f"node-{node}", "vault", "gen-*")):
                if path.endswith((".data", ".parity")):
                    flip(path)
        code, found, err = looked(job, "verify")
        assert code == 1 and found["lost"] > 0, (found, err)
        assert generations() == before, "it only looks"
        code, found, err = looked(job, "scrub")
        assert code == 1 and found["lost"] > 0 and "as files" in err, (found, err)
        told = [e["text"] for e in job.events() if e["event"] == "scrubbed"]
        assert any(" made anew, " in t and not t.endswith(" 0 cannot be had") for t in told), told
        job.until(lambda: not generations() & before, "a round")
        code, found, err = looked(job, "verify")
        assert code == 0 and found["damaged"] == 0, (found, err)
        victims = [r["rank"] for r in record["ranks"] if r["node"] == 0]
        job.kill_nodes(0)
        for rank in victims:
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "heat", victims)


def test_passes_meet_rounds_and_losses():
    """Nothing is taken for damaged that is not, whatever goes on meanwhile."""
    expected("farm")
    options = ["--vault", "rs:2+2", "--scrub-every", "10ms"]
    with Nodes("farm", 4, options, ckpt_every=0.2) as job:
        job.all_checkpointed(2)
        job.until(lambda: job.status()["vault_scrub"]["ended_unix_ms"], "a pass unasked")
        code, done, err = looked(job, "scrub")
        assert code == 0 and done["sound"] > 0, (done, err)
        command = [EYRIE, "vault", "scrub", "last", "--limit", "1M"]
        slow = subprocess.Popen(
            command, env=job.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        job.until(lambda: job.status()["vault_scrub"]["underway"], "a pass that was asked for")
        job.kill_nodes(1)
        _, told = slow.communicate(timeout=120)
        assert slow.returncode == 0 or "the node is lost" in told, told
        job.wait_event("restored", rank=1)
        os.kill(job.status()["daemon_pid"], signal.SIGKILL)
        job.wait_event("controller-back")
        code, done, err = looked(job, "scrub")
        assert code == 0 or "the node is lost" in err, (done, err)
        ends_without_going_back(job, "farm")
        assert not job.count("scrubbed"), job.report()


def test_the_next_controller_knows_what_was_found():
    """Also that the day is not over."""
    expected("heat")
    options = ["--vault", "rs:2+1", "--scrub-every", "3600"]
    with Nodes("heat", 3, options, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        folder = os.path.join(job.folder(), "node-1", "vault")
        for name in content(folder):
            if name.endswith(".parity"):
                flip(os.path.join(folder, name))
        assert looked(job, "scrub")[0] == 0
        known = lambda: {k: v for k, v in job.status()["vault_scrub"].items() if k != "underway"}
        before = known()
        assert before["damaged"] and before["repaired_so_far"] == before["repaired"], before
        kill_controller(job)
        assert known() == before, (before, job.status()["vault_scrub"])
        assert looked(job, "verify")[0] == 0
        kill_controller(job, 2)
        after = known()
        assert after["damaged"] == 0 and after["repaired_so_far"] == before["repaired"], after
        assert after["ended_unix_ms"] > before["ended_unix_ms"], (before, after)
        job.ends_as("heat")


def test_a_pass_that_was_asked_for_ends_with_its_client():
    """Also where a node would wait for hours before it reads the next chunk."""
    expected("heat")
    options = ["--vault", "rs:2+1", "--scrub-every", "0"]
    with Nodes("heat", 3, options, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        command = [EYRIE, "vault", "scrub", "last", "--limit", "1"]
        null = subprocess.DEVNULL
        slow = subprocess.Popen(command, env=job.env, stdout=null, stderr=null)
        job.until(lambda: job.status()["vault_scrub"]["underway"], "a pass that was asked for")
        slow.kill()
        slow.wait()
        code, found, err = looked(job, "verify")
        assert code == 0 and found["sound"] > 0, (found, err)
        job.ends_as("heat")


def test_a_job_without_parity_has_no_generations_but_images_to_look_into():
    with Nodes("farm", 2, ["--vault", "partner"]) as job:
        job.wait_running(4)
        code, _, err = job.eyrie("vault", "ls", "last", check=False)
        assert code == 1 and "--vault is partner" in err, err
        job.eyrie("checkpoint", "last")
        for action in ("verify", "scrub"):
            _, text, _ = job.eyrie("vault", action, "last")
            assert " images are sound, 0 damaged" in text, text
            assert "no parity to look at" in text and "chunks" not in text, text
        code, _, err = job.eyrie("vault", "ls", "nothing-of-that-name", check=False)
        assert code == 1 and "no folder nothing-of-that-name, and no such job" in err, err
        job.ends_as("farm")
