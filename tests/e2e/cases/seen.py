"""What a user sees of a job: recoveries as they happen, a screen of status, records of jobs that ended."""

import json
import os
import re
import shutil
import subprocess
import tempfile

import harness
from harness import EYRIE, Gated, Job, example, run_to_end
from programs import SIZES

HEAT = example("heat") + ["--size", "128", "--steps", "300"]
# On a slow machine the death is told by itself, and then the return.
BACK = r"eyrie: (rank 2 died of SIGKILL; back|rank 2 is back) after [\d.]+ m?s, nothing was lost"


def undisturbed():
    return run_to_end(HEAT)[1]


def fits(text):
    """A screen."""
    lines = text.splitlines()
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines) and "\x1b" not in text, text


def killed_once(job):
    """Kills rank 2 when it has a checkpoint, and waits until it is told that it is back."""
    job.wait_running(4)
    job.eyrie("checkpoint", "last")
    job.kill_ranks([2])
    job.wait_event("restored", rank=2)


def history(job):
    return json.loads(job.eyrie("history", "--json")[1])


def refused(job, *words, code=1):
    got, out, err = job.eyrie(*words, check=False)
    assert got == code and not out, (words, got, out, err)
    return err


def test_a_kill_is_told_once_and_the_job_is_known_when_it_has_ended():
    with Gated(HEAT, ckpt_every=3600, options=["--name", "seen-1"]) as job:
        killed_once(job)
        job.says("nothing was lost")
        text = job.eyrie("status", "seen-1")[1]
        fits(text)
        assert "running" in text and "recovered: 1 rank," in text, text
        assert "nothing is in the way" in job.eyrie("explain", "seen-1")[1]
        assert job.eyrie("explain", "last", "rank", "2")[1].startswith("- rank 2 (pid ")
        assert "running" in refused(job, "rm", "seen-1")
        identity = os.path.basename(job.folder())
        job.let_end()
        assert job.wait() == 0 and job.stdout() == undisturbed(), job.report()
        told = job.stderr()
        assert len(re.findall(BACK, told)) == 1 and told.count("brought back") == 1, told
        assert "nothing was lost: 1 death, 1 rank brought back" in told, told
        (record,) = history(job)
        known = (record["job"], record["name"], record["exit_code"], record["account"]["recoveries"])
        assert known == (identity, "seen-1", 0, 1), record
        for name in (identity, "seen-1", "last", identity[:2]):
            status = json.loads(job.eyrie("status", name, "--json")[1])
            assert (status["phase"], status["exit_code"], status["recoveries"]) == ("ended", 0, 1)
        text = job.eyrie("status", "last")[1]
        fits(text)
        assert "ended with exit code 0" in text and "dead" not in text, text
        events = [json.loads(line) for line in job.eyrie("events", "seen-1", "--json")[1].splitlines()]
        same = [[(e["event"], e["rank"], e["text"]) for e in all] for all in (events, job.events())]
        assert same[0] == same[1], same
        line = job.eyrie("events", "seen-1")[1].splitlines()[0]
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[", line), line
        assert "no job" in refused(job, "inject", "seen-1", "kill-rank", "0")
        planted_records_are_refused(job, identity)
        job.eyrie("rm", "seen-1")
        assert history(job) == [] and "no job" in refused(job, "status", "last")


def planted_records_are_refused(job, identity):
    """What others can write to is neither believed nor removed."""
    folder = os.path.join(job.home, "history", identity)
    for name in os.listdir(folder):
        assert os.stat(os.path.join(folder, name)).st_mode & 0o777 == 0o600, name
    file = os.path.join(folder, "record.json")
    os.chmod(file, 0o666)
    code, out, err = job.eyrie("history", check=False)
    assert code == 1 and identity not in out and file in err, (code, out, err)
    assert file in refused(job, "status", identity) and file in refused(job, "rm", identity)
    os.chmod(file, 0o600)


def test_quiet_and_undisturbed_jobs_tell_nothing():
    with Gated(HEAT, ckpt_every=3600, options=["-q", "--nodes", "3"]) as job:
        killed_once(job)
        job.let_end()
        assert job.wait() == 0 and job.stderr() == "", job.report()
    with Job(HEAT) as job:
        assert job.wait() == 0 and job.stderr() == "", job.report()
        assert "is forgotten" in job.eyrie("prune", "--older", "0")[1] and history(job) == []


def test_history_shows_the_newest_jobs():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        env = {**os.environ, "EYRIE_HOME": home}

        def said(*words):
            done = subprocess.run([EYRIE, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            assert done.returncode == 0, done
            return done.stdout, done.stderr

        for n in range(3):
            said("run", "-q", "-n", "1", "--name", f"job-{n}", "true")
        names = lambda out: [line.split()[1] for line in out.splitlines()[1:]]
        out, err = said("history", "--last", "2")
        assert (names(out), err) == (["job-1", "job-2"], ""), (out, err)
        # Many of them: what is left out is told.
        [first, *_] = [r["job"] for r in json.loads(said("history", "--json")[0])]
        folder = os.path.join(home, "history")
        with open(os.path.join(folder, first, "record.json")) as file:
            record = json.load(file)
        begun = record["begun_unix_ms"] - 1000
        for n in range(22):
            copy = shutil.copytree(os.path.join(folder, first), os.path.join(folder, f"old{n:02}"))
            record |= {"job": f"old{n:02}", "begun_unix_ms": begun + n, "name": f"old{n:02}"}
            with open(os.path.join(copy, "record.json"), "w") as file:
                json.dump(record, file)
        out, err = said("history")
        assert names(out) == [*(f"old{n:02}" for n in range(5, 22)), "job-0", "job-1", "job-2"], out
        assert "5 older jobs are not shown" in err and "--all" in err, err
        out, err = said("history", "--all")
        assert len(names(out)) == 25 and not err, (out, err)
        assert len(json.loads(said("history", "--json")[0])) == 25


def test_a_lost_node_is_told_with_its_ranks():
    with Gated(HEAT, ckpt_every=3600, options=["--nodes", "3"]) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.eyrie("inject", "last", "kill-node", "1")
        job.says("nothing was lost")
        job.let_end()
        assert job.wait() == 0 and job.stdout() == undisturbed(), job.report()
        told = job.stderr()
        assert told.count("node 1") == 1 and told.count("of a rank") == 0, told
        assert re.search(r"node 1 was lost with rank 2(; back after|; bringing back)", told), told
        assert "nothing was lost: 1 death, 1 node lost, 1 rank brought back" in told, told


def test_all_ranks_going_back_says_what_is_done_again():
    with Gated(HEAT, ckpt_every=3600, ft="coordinated") as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.kill_ranks([2])
        job.says("of work done again")
        job.let_end()
        assert job.wait() == 0 and job.stdout() == undisturbed(), job.report()
        told = job.stderr()
        assert re.search(r"all ranks from checkpoint \d+: [\d.]+ m?s of work done again", told), told
        assert "all ranks went back 1 time" in told and "nothing was lost" not in told, told


def test_a_saved_job_says_how_to_go_on():
    with Job(example("heat") + SIZES["heat"], ckpt_every=3600) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last", "--end")
        assert job.wait() == 85, job.report()
        identity = os.path.basename(job.folder())
        text = job.eyrie("status", "last")[1]
        fits(text)
        assert "saved" in text and f"eyrie restart {identity}" in text and "dead" not in text, text
        assert f"eyrie restart {identity}" in job.eyrie("explain", "last")[1]
        assert " saved " in job.eyrie("history")[1] and "is saved" in refused(job, "rm", identity)
        assert job.eyrie("prune", "--older", "0")[1] == "" and len(history(job)) == 1
        job.eyrie("abort", "last")
        assert "restart" not in job.eyrie("status", identity)[1]


def test_names_that_mean_something_else_are_refused():
    for name in ("last", "all", "", "a/b"):
        command = [harness.EYRIE, "run", "--name", name, "--", "true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "--name" in done.stderr, done
