"""Jobs whose memory goes out while they stand (`eyrie suspend --swap`), and comes back: what /proc says
of it, what dies meanwhile, and what cannot be. The results are those of undisturbed runs."""

import contextlib
import os
import signal

from controller import kill_both, kill_controller, resume
from drain import refused
from harness import alive, example, run_to_end, soon
from hosts import Hosted, shell
from nodes import expected
from restart import SAVED, Gated, restart
from suspend import family, goes_on, on, ranks_of, stands, told

MIB = 32
COORDINATED = ["--ft", "coordinated"]
PLATE = [*example("heat"), "--mib", str(MIB), "--steps", "300", "--every", "10", "--progress"]
_plate = []


def plate():
    """The output of an undisturbed run."""
    if not _plate:
        code, out, err = run_to_end(PLATE)
        assert code == 0 and "checksum" in out, (code, out, err)
        _plate.append(out)
    return _plate[0]


def resident(pids):
    """MiB of their own that these processes and all below them have in memory."""
    kib = 0
    for pid in {each for leader in pids if alive(leader) for each in family(leader)}:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
            lines = [line.split() for line in file]
            kib += sum(int(words[1]) for words in lines if words[0] == "RssAnon:")
    return kib / 1024


def daemons(record):
    return {record["daemon_pid"], *(n["pid"] for n in record["nodes"] if n["state"] != "lost")}


def is_out(job, ranks=4):
    """No rank has a process, and status says so; what the job says then."""
    record = job.status()
    assert record["suspended"] and record["suspended"]["whole"], record
    assert record["suspended"]["swapped"], record
    assert not ranks_of(record), record["ranks"]
    assert [r["state"] for r in record["ranks"]] == ["swapped-out"] * ranks, record["ranks"]
    return record


def swapped(job):
    before = job.status()
    job.eyrie("suspend", "last", "--swap")
    record = is_out(job)
    for pid in ranks_of(before):
        soon(lambda pid=pid: not alive(pid), "the end of a process")
    return record


def back(job, recoveries=0):
    """It goes on, with all its processes, and nobody counts as having died."""
    record = goes_on(job)
    job.until(lambda: len(ranks_of(job.status())) == 4, "processes")
    assert job.status()["recoveries"] == recoveries, job.report()
    return record


def memory_goes(options, freeze):
    want = plate()
    env = {"EYRIE_IMAGE_FREEZE": freeze}
    with Gated(PLATE, ranks=4, options=options, ckpt_every=60, env=env) as job:
        record = job.wait_running(4)
        leaders = daemons(record)
        full = lambda: resident(leaders) > 4 * MIB
        job.until(full, "the memory of the ranks")
        for count in (1, 2):
            swapped(job)
            # What was read of them goes with its twins, which are being collected, or its copies.
            job.until(lambda: resident(leaders) < 2 * MIB, "memory that is free")
            assert job.count("swapped-out") == 4 * count, job.report()
            back(job)
            job.until(full, "the memory of the ranks")
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        assert not job.count("detected") and not job.count("diverged"), job.report()


def comes_back(name, nodes, options=()):
    with on(name, nodes, options, ckpt_every=0.5) as job:
        # They are read from here on, as its folder goes with the job.
        job.wait_event("started", count=4)
        for _ in range(2):
            swapped(job)
            back(job)
        job.ends_as(name)
        assert job.count("swapped-out") == 8, job.report()
        bad = [job.count(kind) for kind in ("detected", "diverged", "rolled-back")]
        assert not any(bad), job.report()


def saved(end, nodes, options=()):
    """By the images that its memory went to."""
    expected("farm")
    with on("farm", nodes, options, ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = swapped(job)
        before = job.count("checkpointed")
        end(job, record)
        assert job.wait() == SAVED, job.report()
        assert job.count("checkpointed") == before, job.report()
        restart(job, *(["--nodes", "2"] if nodes else []))
        job.wait_event("restored", count=4)
        job.ends_as("farm")
        lost = [job.count(kind) for kind in ("diverged", "rolled-back", "node-lost")]
        assert not any(lost), job.report()


def asked(job, _):
    job.eyrie("checkpoint", "last", "--end")


def all_told(job, record):
    for node in record["nodes"]:
        os.kill(node["pid"], signal.SIGTERM)


def loses_a_node(options=()):
    """While its memory is out: it is replaced when the job goes on."""
    with on("heat", 3, ["--spares", "1", *options], ckpt_every=0.5) as job:
        job.all_checkpointed()
        record = swapped(job)
        on_it = [r["rank"] for r in record["ranks"] if r["node"] == 1]
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        is_out(job)
        goes_on(job)
        for rank in on_it:
            job.wait_event("restored", rank=rank)
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def next_controller(options=()):
    with on("farm", 2, options, ckpt_every=0.5) as job:
        job.all_checkpointed()
        swapped(job)
        kill_controller(job)
        is_out(job)
        kill_controller(job, 2)
        back(job)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def generated():
    cases = [
        ("memory_goes_and_comes", memory_goes, [], "twin"),
        ("memory_of_all_nodes_goes_and_comes", memory_goes, ["--nodes", "2"], "copy"),
    ]
    cases += [(f"{name}_on_{n or 1}", comes_back, name, n) for name in ("farm", "cg") for n in (0, 3)]
    cases += [
        ("a_node_that_dies_meanwhile_is_replaced_when_it_goes_on", loses_a_node),
        ("the_next_controller_brings_it_back", next_controller),
        ("with_a_vault", comes_back, "farm", 3, ["--vault", "rs:2+1"]),
        ("with_clusters", comes_back, "farm", 4, ["--clusters", "2"]),
        ("with_routers", comes_back, "farm", 3, ["--ft", "routed", "--routers", "1"]),
        ("memory_of_a_set_goes_and_comes", memory_goes, COORDINATED, "twin"),
        ("memory_of_a_unit_goes_and_comes", memory_goes, ["--nodes", "2", "--ft", "node"], "copy"),
        ("sets_on_1", comes_back, "farm", 0, COORDINATED),
        ("sets_on_3", comes_back, "farm", 3, COORDINATED),
        ("sets_with_a_vault", comes_back, "heat", 3, [*COORDINATED, "--vault", "rs:2+1"]),
        ("units_of_nodes", comes_back, "farm", 2, ["--ft", "node"]),
        ("units_of_clusters", comes_back, "farm", 4, ["--clusters", "2", "--ft", "cluster"]),
        ("a_set_is_saved_on_1", saved, asked, 0, COORDINATED),
        ("a_set_is_saved_on_3", saved, asked, 3, COORDINATED),
        ("units_are_saved", saved, asked, 2, ["--ft", "node"]),
        ("a_set_of_a_lost_node_comes_back", loses_a_node, COORDINATED),
        ("a_unit_of_a_lost_node_comes_back", loses_a_node, ["--ft", "node"]),
        ("a_set_is_for_the_next_controller", next_controller, COORDINATED),
        ("a_unit_is_for_the_next_controller", next_controller, ["--ft", "node"]),
        ("saved_on_1", saved, asked, 0),
        ("saved_with_routers", saved, asked, 3, ["--ft", "routed", "--routers", "1"]),
        ("saved_as_all_nodes_end", saved, all_told, 3, ["--vault", "rs:2+1"]),
    ]
    return [(label, lambda f=f, rest=rest: f(*rest)) for label, f, *rest in cases]


def test_it_may_be_suspended_already():
    with on("farm", 0) as job:
        job.wait_running(4)
        job.eyrie("suspend", "last")
        stands(job)
        swapped(job)
        told(job, ["suspend", "last", "--swap"], 1, "suspended already")
        told(job, ["suspend", "last"], 1, "suspended already")
        assert "its memory is out" in job.eyrie("status", "last", "-v")[1]
        back(job)
        job.ends_as("farm")


def test_ranks_that_die_before_and_meanwhile_come_back_when_it_goes_on():
    for nodes in (0, 2):
        with on("farm", nodes, ckpt_every=0.3) as job:
            job.all_checkpointed()
            job.eyrie("suspend", "last")
            stands(job)
            # Nobody waits for its recovery.
            assert job.kill_pid(1)
            swapped(job)
            assert job.eyrie("inject", "last", "kill-rank", "2", check=False)[0] == 1
            goes_on(job)
            job.until(lambda job=job: len(ranks_of(job.status())) == 4, "processes")
            job.ends_as("farm")
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_resume_is_for_both():
    with on("farm", 2, ckpt_every=0.5) as job:
        job.all_checkpointed()
        swapped(job)
        kill_both(job)
        resume(job)
        job.wait_event("controller-back")
        is_out(job)
        back(job)
        job.ends_as("farm")


def test_hosts_give_their_memory_away():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        job.wait_running(4)
        swapped(job)
        back(job)
        job.ends_as("farm")


def test_what_cannot_be_is_told():
    with on("farm", 2) as job:
        job.wait_running(4)
        swapped(job)
        told(job, ["checkpoint", "last"], 1, "swapped out", "eyrie resume")
        refused(job, ["1"], "checkpoint --end")
        back(job)
        job.ends_as("farm")
    with on("farm", 0, ft="none") as job:
        job.wait_running(4)
        told(job, ["suspend", "last", "--swap"], 1, "checkpoints", "--ft none")
        assert job.status()["suspended"] is None
        job.ends_as("farm")


def test_it_ends_when_it_is_asked_to():
    for nodes in (0, 2):
        with on("farm", nodes, ckpt_every=0.5) as job:
            job.wait_running(4)
            swapped(job)
            job.eyrie("abort", "last")
            assert job.wait() != 0
            job.settle()
            assert not job.left_over(), job.left_over()
