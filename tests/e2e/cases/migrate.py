"""Ranks move to other nodes all at one time, and those that they came from stay (`eyrie migrate`);
all nodes of a cluster leave (`eyrie drain JOB cluster=NAME`)."""

import json
import os
import select
import signal

from clusters import Clusters, hosted
from drain import Asked, drain, is_gone, nothing_again, on_node, ready, refused
from harness import TIMEOUT_S, alive, example, run_to_end
from hosts import PLAIN, Hosted, shell
from nodes import SIZES, Nodes, Pointed, checkpointed_again, expected, kill_stopped


def migrate(job, *words, code=0):
    """Asks and waits; returns what each line of the answer says."""
    got, out, err = job.eyrie("migrate", "last", *words, "--json", check=False)
    assert got == code, (got, out, err, job.report())
    return [json.loads(line) for line in out.splitlines()]


class Asking(Asked):
    """`eyrie migrate` in the background."""

    command = "migrate"

    def heard(self):
        """It has been told something, so it knows what it waits for."""
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        assert ready, "eyrie migrate says nothing"


def homes(job):
    return [r["node"] for r in job.status()["ranks"]]


def is_spare(job, *nodes):
    """They are in the job, with the daemons that they had, and without ranks and images."""
    now = job.status()
    for node in nodes:
        assert now["nodes"][node]["state"] == "spare", now["nodes"]
        assert not on_node(now, node), now
        assert alive(now["nodes"][node]["pid"]), now


def whole(name, options=(), moved=(2, 2, 3, 3)):
    """All ranks, there and back."""
    expected(name)
    with Nodes(name, 2, ["--spares", "2", *options], ckpt_every=0.5) as job:
        record = ready(job)
        steps = migrate(job, "--to", "2-3")
        assert {s["node"] for s in steps if s["step"] == "spare"} == {0, 1}, steps
        assert homes(job) == list(moved), job.status()
        is_spare(job, 0, 1)
        now = job.status()
        pids = lambda status: [n["pid"] for n in status["nodes"]]
        assert pids(now) == pids(record), (now, record)
        nothing_again(job, [0, 1, 2, 3])
        migrate(job, "--from", "2,3", "--to", "0", "1")
        assert homes(job) == [node - 2 for node in moved], job.status()
        is_spare(job, 2, 3)
        now = job.status()
        assert (now["recoveries"], now["rollbacks"]) == (0, 0), now
        job.ends_as(name)
        nothing_again(job, [0, 1, 2, 3] * 2)


def generated():
    cases = [(f"all_of_{name}_there_and_back", whole, name) for name in SIZES]
    cases += [
        ("with_tls", whole, "farm", ["--tls"]),
        ("with_a_vault", whole, "farm", ["--vault", "rs:2+1"]),
        ("with_images_on_their_nodes_only", whole, "heat", ["--vault", "local"]),
        ("where_ranks_are_laid_out_in_turn", whole, "farm", ["--map", "cyclic"], (2, 3, 2, 3)),
    ]
    return [(label, lambda rest=rest: rest[0](*rest[1:])) for label, *rest in cases]


def test_a_part_moves():
    expected("farm")
    with Nodes("farm", 3, ["--spares", "1"], ckpt_every=0.5) as job:
        record = ready(job)
        moved = on_node(record, 1)
        migrate(job, "--from", "1", "--to", "3")
        assert all(homes(job)[rank] == 3 for rank in moved), job.status()
        is_spare(job, 1)
        # What the spare takes when the next node is lost is new to it.
        job.kill_nodes(3)
        for rank in moved:
            job.wait_event("restored", rank=rank, node=1)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_ranks_move_to_nodes_that_have_some():
    expected("heat")
    with Nodes("heat", 4, ckpt_every=0.5) as job:
        ready(job)
        migrate(job, "--to", "1,2")
        now = homes(job)
        assert sorted(now) == [1, 1, 2, 2] and now[1:3] == [1, 2], now
        is_spare(job, 0, 3)
        job.ends_as("heat")
        nothing_again(job, [0, 3])


def test_nodes_are_released():
    expected("farm")
    with Nodes("farm", 2, ["--spares", "2"], ckpt_every=0.5) as job:
        record = ready(job)
        migrate(job, "--from", "0-1", "--to", "2-3", "--release")
        for node in (0, 1):
            is_gone(job, node, record)
        job.ends_as("farm")
        nothing_again(job, [0, 1, 2, 3])


def test_hosts_are_named():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        record = ready(job)
        moved = on_node(record, 1)
        migrate(job, "--from", "beta", "--to", "gamma")
        assert all(homes(job)[rank] == 2 for rank in moved), job.status()
        is_spare(job, 1)
        job.ends_as("farm")
        nothing_again(job, moved)


def feature():
    """One of the processor that the C library uses where it is."""
    with open("/proc/cpuinfo") as file:
        flags = next(line for line in file if line.startswith("flags")).split()
    return next(name for name in ("avx2", "avx", "sse4_2", "ssse3") if name in flags)


def test_a_node_whose_processor_cannot_run_them_gets_none():
    """That is known before anything moves, and all go on."""
    expected("farm")
    lacks = feature()
    hide = f"if [ $1 = gamma ]; then EYRIE_IMAGE_HIDE_FEATURES={lacks}; fi\n"
    with shell(hide + "export EYRIE_IMAGE_HIDE_FEATURES\n" + PLAIN) as rsh:
        with Hosted("farm", rsh, ckpt_every=0.5) as job:
            record = ready(job)
            for end in ([], ["--release"]):
                words = ["--from", "beta", "--to", "gamma", *end]
                code, out, err = job.eyrie("migrate", "last", *words, check=False)
                assert code == 1 and lacks in out and "processor" in out, (code, out, err)
                assert homes(job) == [r["node"] for r in record["ranks"]], job.status()
            job.wait_event("node-stays", node=1, count=2)
            migrate(job, "--from", "beta", "--to", "alpha")
            job.ends_as("farm")
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()
            assert not job.count("detected") and not job.count("node-lost"), job.report()


def test_ranks_that_go_back_together_stay_where_they_can_run():
    """They have stood, with images that came there, and nothing of it counts: all go on."""
    expected("farm")
    lacks = feature()
    hide = f"if [ $1 = gamma ]; then EYRIE_IMAGE_HIDE_FEATURES={lacks}; fi\n"
    for ft in ("coordinated", "node"):
        with shell(hide + "export EYRIE_IMAGE_HIDE_FEATURES\n" + PLAIN) as rsh:
            with Hosted("farm", rsh, ["--spares", "1", "--ft", ft], ckpt_every=3600) as job:
                record = job.wait_running(4)
                words = ["--from", "beta", "--to", "gamma"]
                code, out, err = job.eyrie("migrate", "last", *words, check=False)
                assert code == 1 and lacks in out and "processor" in out, (ft, code, out, err)
                assert homes(job) == [r["node"] for r in record["ranks"]], job.status()
                job.wait_event("node-stays", node=1)
                job.ends_as("farm")
                for wrong in ("rolled-back", "diverged", "detected", "node-lost"):
                    assert not job.count(wrong), (ft, job.report())


def test_a_node_whose_processor_lacks_what_they_do_not_use():
    """Nor do Eyrie's libraries and the compiler's, although they ask for all that there is. What
    the C library chose by is named, and may be overruled."""
    expected("farm")
    unused = "avx512_bf16,avx512_vnni,amx_tile,amx_int8,avx512_fp16,clwb,rdpid,serialize,vaes"
    lacks = feature()
    hide = f"if [ $1 = gamma ]; then EYRIE_IMAGE_HIDE_FEATURES={unused}; fi\n"
    hide += f"if [ $1 = delta ]; then EYRIE_IMAGE_HIDE_FEATURES={unused},{lacks}; fi\n"
    hide += "export EYRIE_IMAGE_HIDE_FEATURES\n"
    for ignored in ([], ["--ignore-feature", lacks]):
        with shell(hide + PLAIN) as rsh:
            options = ["--spares", "2", *ignored]
            hosts = "alpha,beta,gamma,delta"
            with Hosted("farm", rsh, options, hosts, ckpt_every=0.5) as job:
                moved = on_node(ready(job), 1)
                migrate(job, "--from", "beta", "--to", "gamma")
                assert all(homes(job)[rank] == 2 for rank in moved), job.status()
                words = ["--from", "gamma", "--to", "delta"]
                code, out, err = job.eyrie("migrate", "last", *words, check=False)
                if ignored:
                    assert code == 0, (code, out, err)
                    assert all(homes(job)[rank] == 3 for rank in moved), job.status()
                else:
                    assert code == 1 and lacks in out, (code, out, err)
                    assert not any(name in out for name in unused.split(",")), (code, out, err)
                job.ends_as("farm")
                assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_node_without_memory_for_them_gets_none():
    """That is known before anything is copied; of several nodes they go where they have room."""
    sizes = ["--mib", "16", "--steps", "300", "--every", "10", "--progress"]
    code, want, err = run_to_end(example("heat") + sizes)
    assert code == 0, err
    # Two ranks have 33 MiB and more, until they end.
    env = {"EYRIE_NODE_MEMORY": "64"}
    with Nodes("heat", 2, ["--spares", "1"], env=env, sizes=sizes, ckpt_every=0.5) as job:
        job.wait_running(4)
        job.until(lambda: "step" in job.stdout(), "all memory is in use")
        # What counts is what a node said last, should it be slow to answer.
        for _ in range(3):
            job.status()
        steps = migrate(job, "--from", "0", "--to", "1", code=1)
        assert [s["step"] for s in steps] == ["stays"], steps
        assert "MiB of memory" in steps[0]["text"] and "node 1" in steps[0]["text"], steps
        assert homes(job) == [0, 0, 1, 1] and job.count("node-stays") == 1, job.report()
        migrate(job, "--from", "0", "--to", "1-2")
        assert homes(job) == [2, 2, 1, 1], job.status()
        job.let_end()
        assert job.wait() == 0 and job.stdout() == want, job.report()
        nothing_again(job, [0, 1])


def test_ranks_end_while_they_move():
    expected("farm")
    with Nodes("farm", 2, ["--spares", "2"], ckpt_every=0.5) as job:
        ready(job)
        with Asking(job, "--to", "2-3") as asked:
            job.wait_event("node-leaving", node=1)
            job.let_end()
            code, out, err = asked.over()
        # All of them may have ended first.
        assert code in (0, 1), (code, out, err)
        assert job.wait() == 0 and job.stdout() == expected("farm"), job.report()
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()
        job.settle()
        assert not job.left_over(), job.left_over()


def test_a_source_is_lost_on_the_way():
    """Its ranks go where they were to go, too."""
    expected("farm")
    with Pointed("farm", 2, ["--spares", "2"], ckpt_every=0.5) as job:
        record = ready(job)
        victim = record["nodes"][1]["pid"]
        job.arm("leave-1")
        with Asking(job, "--to", "2-3") as asked:
            # So it gets no further.
            job.stopped_at("leave-1", victim)
            job.wait_event("node-leaving", node=1)
            kill_stopped(victim)
            code, out, err = asked.over()
        assert code == 1 and "is lost" in out, (code, out, err)
        for rank in range(4):
            job.wait_event("restored", rank=rank)
        is_spare(job, 0)
        assert homes(job) == [2, 2, 3, 3], job.status()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_target_is_lost_before_it_has_anything():
    expected("heat")
    with Pointed("heat", 2, ["--spares", "2"], ckpt_every=0.5) as job:
        record = ready(job)
        target = record["nodes"][3]["pid"]
        job.arm("leave-1")
        with Asking(job, "--to", "2-3") as asked:
            job.stopped_at("leave-1", target)
            job.wait_event("node-leaving", node=1)
            kill_stopped(target)
            code, out, err = asked.over()
        assert code == 0 and "is a spare" in out, (code, out, err)
        assert homes(job) == [2, 2, 2, 2], job.status()
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_the_controller_dies_on_the_way():
    expected("farm")
    with Nodes("farm", 2, ["--spares", "2"], ckpt_every=0.5) as job:
        record = ready(job)
        with Asking(job, "--to", "2-3") as asked:
            job.wait_event("node-leaving", node=1)
            asked.heard()
            os.kill(record["daemon_pid"], signal.SIGKILL)
            job.wait_event("controller-back")
            for node in (0, 1):
                job.wait_event("node-vacated", node=node)
            code, out, err = asked.over()
        assert code == 0 and "is a spare" in out, (code, out, err)
        assert homes(job) == [2, 2, 3, 3], job.status()
        is_spare(job, 0, 1)
        job.ends_as("farm")
        nothing_again(job, [0, 1, 2, 3])


def test_ranks_that_die_on_the_way_do_no_harm():
    expected("farm")
    with Nodes("farm", 2, ["--spares", "2"], ckpt_every=0.5) as job:
        ready(job)
        with Asking(job, "--to", "2-3") as asked:
            job.wait_event("node-leaving", node=1)
            for rank in (0, 3):
                job.eyrie("inject", "last", "kill-rank", str(rank), check=False)
            code, out, err = asked.over()
        assert code == 0 and "is a spare" in out, (code, out, err)
        assert homes(job) == [2, 2, 3, 3], job.status()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_ranks_that_have_not_set_out_in_time_stay():
    """All of them, and the node that they are on is not given up as one that leaves is."""
    expected("farm")
    with Pointed("farm", 3, ["--spares", "1"], ckpt_every=0.5) as job:
        record = ready(job)
        job.arm("leave-3")
        with Asking(job, "--from", "0,1", "--to", "3", "--deadline", "1") as asked:
            job.held_at("leave-3")
            for node in (0, 1):
                job.wait_event("node-stays", node=node)
            job.let_go("leave-3")
            code, out, err = asked.over()
            assert code == 1 and "the 1.0 s that it was given are over" in out, (code, out, err)
        assert homes(job) == [r["node"] for r in record["ranks"]], job.status()
        migrate(job, "--from", "1", "--to", "3", "--deadline", "600")
        is_spare(job, 1)
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1))


def test_what_cannot_move_is_refused():
    expected("farm")
    with Nodes("farm", 2, ["--spares", "1"], ckpt_every=0.5) as job:
        ready(job)
        for words, told in (
            (["--from", "0", "--to", "0"], "of --from and of --to"),
            (["--to", "0-1"], "already"),
            (["--from", "2", "--to", "0"], "no ranks"),
            (["--to", "7"], "no node 7"),
            (["--to", "2-1"], "no range"),
            (["--to", "cluster=east"], "--clusters"),
        ):
            got, out, err = job.eyrie("migrate", "last", *words, check=False)
            assert got == 1 and told in err and len(err.splitlines()) == 1, (words, got, out, err)
        got, out, err = job.eyrie("migrate", "last", "--from", "0", check=False)
        assert got == 2 and "--to" in err, (got, out, err)
        job.ends_as("farm")


def is_ended(job, cluster, pid):
    """The cluster's gateway has ended, and in order."""
    job.until(lambda: job.gateways()[cluster]["state"] == "ended", "the end of a gateway")
    job.until(lambda: not alive(pid), "the end of its process")
    assert not job.count("gateway-lost"), job.report()


def test_a_cluster_leaves():
    expected("heat")
    with Clusters("heat", 4, ckpt_every=0.5) as job:
        record = ready(job)
        pid = job.gateways_live()[1]["pid"]
        steps = drain(job, "cluster=1")
        assert {s["node"] for s in steps if s["step"] == "left"} == {2, 3}, steps
        for node in (2, 3):
            is_gone(job, node, record)
        assert sorted(homes(job)) == [0, 0, 1, 1], job.status()
        is_ended(job, 1, pid)
        refused(job, ["cluster=1"], "no nodes any more")
        job.ends_as("heat")
        nothing_again(job, [2, 3])


def test_a_cluster_of_hosts_leaves_and_is_named():
    text = "alpha cluster=east\nbeta cluster=west\ngamma cluster=west\n"
    expected("farm")
    with shell() as rsh, hosted(rsh, text) as job:
        record = ready(job)
        refused(job, ["cluster=north"], "there are: east, west")
        moved = on_node(record, 1) + on_node(record, 2)
        drain(job, "cluster=west")
        job.wait_event("node-left", node=1)
        job.wait_event("node-left", node=2)
        assert homes(job) == [0] * 4, job.status()
        job.ends_as("farm")
        nothing_again(job, moved)


def test_a_node_leaves_and_its_ranks_stay_in_their_cluster():
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        record = ready(job)
        drain(job, "3")
        is_gone(job, 3, record)
        assert homes(job) == [0, 1, 2, 2], job.status()
        assert {g["state"] for g in job.gateways()} == {"live"}, job.gateways()
        job.ends_as("farm")
        nothing_again(job, [3])


def test_a_node_leaves_and_its_clusters_gateway_moves():
    """Before it is said that the node has left; the cluster's other node has the gateway then."""
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        record = ready(job)
        before = job.gateways_live()
        assert [g["node"] for g in before] == [0, 2], before
        drain(job, "2")
        assert not alive(before[1]["pid"]), job.gateways()
        is_gone(job, 2, record)
        assert homes(job) == [0, 1, 3, 3], job.status()
        assert [g["node"] for g in job.gateways_live()] == [0, 3], job.gateways()
        assert not job.count("gateway-lost"), job.report()
        checkpointed_again(job)
        job.ends_as("farm")
        nothing_again(job, [2])


def test_a_cluster_that_has_left_is_joined_again():
    """Its gateway comes back with its first node."""
    expected("farm")
    with Clusters("farm", 2, ckpt_every=0.5) as job:
        record = ready(job)
        pid = job.gateways_live()[0]["pid"]
        drain(job, "cluster=0")
        is_gone(job, 0, record)
        is_ended(job, 0, pid)
        job.eyrie("grow", "last")
        job.gateways_live()
        migrate(job, "--from", "cluster=1", "--to", "cluster=0")
        assert homes(job) == [2] * 4, job.status()
        is_spare(job, 1)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_gateway_dies_while_its_cluster_leaves():
    expected("farm")
    with Clusters("farm", 4, ckpt_every=0.5) as job:
        record = ready(job)
        gateways = job.gateways_live()
        with Asked(job, "cluster=1") as asked:
            job.wait_event("node-leaving", node=2)
            os.kill(gateways[1]["pid"], signal.SIGKILL)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out, (code, out, err)
        for node in (2, 3):
            is_gone(job, node, record)
        assert sorted(homes(job)) == [0, 0, 1, 1], job.status()
        job.ends_as("farm")
        nothing_again(job, [2, 3])


def test_the_controller_dies_after_a_cluster_has_left():
    """The next one starts no gateway for it."""
    expected("farm")
    with Clusters("farm", 2, ckpt_every=0.5) as job:
        record = ready(job)
        drain(job, "cluster=1")
        is_gone(job, 1, record)
        os.kill(job.status()["daemon_pid"], signal.SIGKILL)
        job.wait_event("controller-back")
        job.until(lambda: job.gateways()[0]["state"] == "live", "the gateway of the other")
        assert job.gateways()[1]["state"] == "ended", job.gateways()
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()
