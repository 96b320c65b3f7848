"""`--save-every`: what a job over nodes can be restarted from lies in its folder, too, and outlives all
its nodes and its controller."""

import contextlib
import os
import re
import signal
import subprocess

from controller import kill_controller
from coordinated import crash, wait_gone
from coordinated_nodes import Together, one_set
from harness import EYRIE, TIMING, Job, example
from nodes import SIZES, Nodes, expected, gone
from restart import SAVED, hold_up, restart, save


def saving(name, nodes, every=3600, save_every="0.1", options=()):
    return Together(name, nodes, ["--save-every", save_every, *options], every=every)


def saving_logged(name, nodes, every=3600, save_every="0.1"):
    # With snapshots all would return to these.
    options = ["--save-every", save_every, "--fallback-every", "off"]
    return Nodes(name, nodes, options, ckpt_every=every)


MODES = {"together": saving, "logged": saving_logged}


def take_a_set(job):
    """New checkpoints count, and are in the job's folder."""
    before = job.count("flushed")
    job.eyrie("checkpoint", "last")
    job.wait_event("flushed", count=before + 1)


def held(job):
    """Names of the files in the job's folder of images."""
    names = os.listdir(os.path.join(job.folder(), "images"))
    return sorted(n for n in names if not n.endswith(".log"))


def all_nodes_die(name, nodes, again, make=saving):
    """At once: the job ends, and goes on on others."""
    expected(name)
    with make(name, nodes) as job:
        job.wait_running(4)
        take_a_set(job)
        job.kill_nodes(*range(nodes))
        assert job.wait() == 1, job.report()
        job.says("no node is left")
        job.says("to go on from what was saved")
        restart(job, "--nodes", str(again))
        job.wait_event("restored", count=4)
        # It is brought to the folder again and again.
        take_a_set(job)
        job.kill_nodes(*range(again))
        assert job.wait() == 1, job.report()
        restart(job, "--nodes", "2")
        job.wait_event("restored", count=8)
        job.ends_as(name)


def controller_dies(name):
    """Twice; its nodes are to end with it."""
    expected(name)
    with saving(name, 3, every=0.2, options=["--controller-limit", "0"]) as job:
        for number in (1, 2):
            job.wait_event("flushed", count=job.count("flushed") + 1)
            daemons = [n["pid"] for n in job.until(job.status, "a status")["nodes"]]
            crash(job)
            wait_gone(daemons)
            restart(job)
            job.wait_event("restarted", count=number)
            job.wait_running(4)
        job.ends_as(name)


def machine_ends(make):
    """SIGTERM to `eyrie run`: the job is saved once more, and goes on."""
    expected("farm")
    with make("farm", 2, save_every="3600") as job:
        job.wait_running(4)
        job.interrupt(signal.SIGTERM)
        assert job.wait() == SAVED, job.report()
        job.says("is saved and ends")
        restart(job, "--nodes", "3")
        job.wait_event("restored", count=4)
        job.ends_as("farm")
        assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def every_other_checkpoint(make):
    """A state is saved when all ranks have two newer checkpoints, and not before."""
    expected("farm")
    with make("farm", 2, save_every="2g") as job:
        job.wait_running(4)
        for count in (1, 2):
            job.eyrie("checkpoint", "last")
            job.eyrie("checkpoint", "last")
            job.wait_event("flushed", count=count)
        job.ends_as("farm")
        sets = [e["generation"] for e in job.events() if e["event"] == "flushed"]
        assert all(later - before >= 2 for before, later in zip([0, *sets], sets)), sets


def copies_die(name, make):
    """The job goes back to what the folder has, not to the beginning, again and again."""
    expected(name)
    with make(name, 4) as job:
        job.wait_running(4)
        for number in (1, 2):
            take_a_set(job)
            job.kill_nodes(*[n["node"] for n in job.status()["nodes"] if n["state"] == "live"][:2])
            job.wait_event("rolled-back", count=number)
            job.until(lambda n=number: images_since(job, n), "all ranks")
            assert 0 not in images_since(job, number), job.report()
            told = lambda: re.findall(r"nodes lost so far: .*\n.*can be had: (.*)\n", job.stderr())
            job.until(lambda n=number: len(told()) >= n, "what can be had")
            there = r"the one in the job's folder \(checkpoint \d+, \d+ s old\)"
            assert re.fullmatch(there, told()[-1]), job.stderr()
            job.eyrie("grow", "last", "--nodes", "2")
        job.ends_as(name)


def images_since(job, number):
    """What ranks came from when all went back, if all have."""
    events = job.events()
    last = [n for n, e in enumerate(events) if e["event"] == "rolled-back"][number - 1]
    back = {e["rank"]: e["generation"] for e in events[last:] if e["event"] == "restored"}
    return list(back.values()) if len(back) == 4 else None


def controller_is_followed(name, make):
    """The next one goes on, and knows what is in the folder: a job that ends then is restarted."""
    expected(name)
    with make(name, 2, every=0.2) as job:
        job.wait_event("flushed", count=2)
        kill_controller(job)
        job.wait_event("flushed", count=job.count("flushed") + 1)
        kill_controller(job, 2)
        assert job.status()["saved_set"], job.report()
        job.kill_nodes(0, 1)
        assert job.wait() == 1, job.report()
        back = job.count("rolled-back")
        restart(job, "--nodes", "3")
        job.wait_event("restored", count=4)
        job.ends_as(name)
        assert not job.count("diverged") and job.count("rolled-back") == back, job.report()


def generated():
    for name in ("farm", "cg", "heat", "sort"):
        for mode, make in MODES.items():
            test = lambda n=name, m=make: all_nodes_die(n, 3, 3, m)
            yield f"{name}_{mode}_all_nodes_die", test
        yield f"{name}_controller_dies", lambda n=name: controller_dies(n)
    for mode, make in MODES.items():
        test = lambda m=make: all_nodes_die("farm", 2, 4, m)
        yield f"farm_{mode}_goes_on_on_more_nodes", test
        yield f"farm_{mode}_copies_die", lambda m=make: copies_die("farm", m)
        yield f"farm_{mode}_machine_ends", lambda m=make: machine_ends(m)
        yield f"farm_{mode}_every_other_checkpoint", lambda m=make: every_other_checkpoint(m)
        yield f"farm_{mode}_controller_is_followed", lambda m=make: controller_is_followed("farm", m)


def test_nodes_that_had_all_copies_die():
    """All ranks go back to what the folder has, not to the beginning; also if the next set was not
    brought there."""
    expected("farm")
    with saving("farm", 3, save_every="3600") as job:
        job.wait_running(4)
        take_a_set(job)
        job.eyrie("checkpoint", "last")
        job.kill_nodes(0, 1)
        job.all_back(0)
        assert one_set(job) == 1, job.report()
        # Sets go on from there, with numbers of their own.
        job.eyrie("checkpoint", "last")
        job.kill_ranks([1])
        job.all_back(1)
        assert one_set(job) == 3, job.report()
        job.ends_as("farm")
        assert job.count("flushed") == 1, job.report()


def test_only_the_newest_stays():
    expected("cg")
    with saving("cg", 2, every=0.1, save_every="0.01") as job:
        job.wait_event("flushed", count=5)
        record = job.status()
        assert record["saved_set"]["set"] >= 3, record
        assert "lies in the job's folder" in job.eyrie("status", "last", "-v")[1]
        folder = job.folder()
        job.ends_as("cg")
        assert not os.path.exists(os.path.join(folder, "saved")), os.listdir(folder)


def test_what_is_being_brought_stays_on_the_nodes():
    """Sets go on meanwhile. What they do not need any more goes when nothing is being brought."""
    expected("farm")
    with saving("farm", 2, options=["--ckpt", "full"]) as job:
        job.wait_running(4)
        hold_up(job, 1)
        job.eyrie("checkpoint", "last")
        for _ in range(4):
            job.eyrie("checkpoint", "last")
        assert not job.count("flushed"), job.report()
        on_node = os.path.join(job.folder(), "node-0", "images")
        assert "rank-0.gen-1" in os.listdir(on_node), os.listdir(on_node)
        let_go(job)
        gone = lambda: "rank-0.gen-2" not in os.listdir(on_node)
        job.until(gone, "the end of what was held back")
        # The command and the node are told at once, and nobody waits for the other.
        job.says("does not get a newer state")
        take_a_set(job)
        job.ends_as("farm")


def let_go(job):
    """The pipes have a reader for a moment: what is brought cannot be written. The node clears the
    others away itself as soon as it gives up, which may be before we come to them."""
    images = os.path.join(job.folder(), "images")
    names = [n for n in os.listdir(images) if n.endswith(".part")]
    for name in names:
        path = os.path.join(images, name)
        with contextlib.suppress(FileNotFoundError):
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with os.fdopen(reader):
                os.unlink(path)


def test_a_node_dies_while_a_set_is_brought():
    """What was there before stays, and the next one comes."""
    expected("farm")
    with saving("farm", 3) as job:
        job.wait_running(4)
        take_a_set(job)
        for number in (1, 2):
            job.eyrie("checkpoint", "last")
            job.kill_nodes(number)
            job.all_back(number - 1)
            assert held(job), job.report()
        take_a_set(job)
        job.ends_as("farm")


def test_what_cannot_be_written_ends_nothing():
    expected("farm")
    with saving("farm", 2, every=0.2) as job:
        job.wait_running(4)
        obstacle = os.path.join(job.folder(), ".saved.part")
        # The job writes such a file again and again, and renames it.
        while not os.path.isdir(obstacle):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(obstacle)
            with contextlib.suppress(FileExistsError):
                os.mkdir(obstacle)
        job.says("does not get a newer state")
        os.rmdir(obstacle)
        before = job.count("flushed")
        job.wait_event("flushed", count=before + 1)
        job.kill_nodes(0, 1)
        assert job.wait() == 1, job.report()
        restart(job)
        job.ends_as("farm")


def test_a_job_is_saved_while_a_set_is_brought():
    expected("cg")
    with saving("cg", 2, every=0.1, save_every="0.01") as job:
        job.wait_event("flushed", count=2)
        save(job)
        restart(job, "--nodes", "3")
        job.wait_event("flushed", count=job.count("flushed") + 1)
        save(job)
        restart(job, "--nodes", "2")
        job.ends_as("cg")


def test_nothing_stays_of_a_job_that_its_user_ends():
    expected("cg")
    for end, signum in (
        (lambda job: job.interrupt(signal.SIGINT), signal.SIGINT),
        (lambda job: job.eyrie("abort", "last"), signal.SIGTERM),
    ):
        with saving("cg", 2) as job:
            job.wait_running(4)
            take_a_set(job)
            end(job)
            assert job.wait() == 128 + signum, job.report()
            gone(job)


def test_a_job_that_its_machine_ends_is_saved_without_time_by_what_there_is():
    expected("farm")
    with Nodes("farm", 2, ["--save-every", "0.1", "--grace", "0"], ckpt_every=3600) as job:
        job.wait_running(4)
        take_a_set(job)
        job.interrupt(signal.SIGTERM)
        assert job.wait() == 128 + signal.SIGTERM, job.report()
        job.says("to go on from what was saved")
        restart(job, "--nodes", "3")
        job.wait_event("restored", count=4)
        job.ends_as("farm")
        assert not job.count("diverged") and not job.count("rolled-back"), job.report()


def test_where_it_is_of_no_use_it_is_refused():
    command = example("cg") + SIZES["cg"]
    for options, words in (
        (["--nodes", "2", "--ft", "none"], "there are none"),
        (["--ft", "coordinated"], "--save-every is for jobs over nodes"),
    ):
        run = [EYRIE, "run", "-n", "2", "--save-every", "5", *options, "--", *command]
        done = subprocess.run(run, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 2 and words in done.stderr, (done.returncode, done.stderr)


def test_that_it_waits_is_told_once():
    """A rank that ends is in no state of the job any more."""
    script = f"test $EYRIE_RANK = 1 || sleep {TIMING['retry-writes'] + 3}"
    for options in ([], ["--ft", "coordinated"]):
        options = ["--nodes", "2", "--save-every", "0.5", *options]
        with Job(["sh", "-c", script], 2, options=options) as job:
            assert job.wait() == 0, job.report()
            assert job.stderr().count("from now on, as rank 1 has ended") == 1, job.stderr()


def test_logs_that_are_not_there_are_not_kept():
    with saving("cg", 2, save_every="3600") as job:
        job.wait_running(4)
        save(job)
        code, _, err = job.eyrie("restart", "--keep", "last", check=False)
        assert code == 2 and "the job goes on with --ft coordinated" in err, (code, err)
        restart(job)
        job.ends_as("cg")


def test_a_vault_on_too_few_nodes_is_told():
    with Nodes("cg", 3, ["--vault", "rs:4+2"], ckpt_every=3600) as job:
        job.wait_running(4)
        save(job)
        restart(job, "--nodes", "2")
        job.ends_as("cg")
        job.says("rs:4+2 needs 3 nodes at least, and there are 2")
