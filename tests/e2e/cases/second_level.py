"""States of jobs (`--save-every`) come past the controller: nodes send what they have to an object store, or
write it into the job's folder where they see that."""

import os
import signal
import subprocess

from controller import kill_controller
from harness import NotRun
from hosts import Hosted, shell
from nodes import Nodes, Points, expected
from restart import restart
from saved_sets import take_a_set
from stores import PLACE, end_of, from_the_store, refused, server, the_id


class Pointed(Points, Nodes):
    """Of which every daemon waits at the points that are armed."""


def stored(name, it, options=(), nodes=3, **more):
    options = ["--save-every", "0.2", "--save-to", PLACE, *options]
    return Nodes(name, nodes, options, env=it.env, ckpt_every=0.3, **more)


def ways(job):
    return {w["way"] for w in job.status()["saved_ways"]}


def images_here(job):
    """Files of images in the job's own folder."""
    folder = os.path.join(job.folder(), "images")
    return [n for n in os.listdir(folder) if n.startswith("rank-")]


def no_node_is_left(job):
    live = [n["node"] for n in job.status()["nodes"] if n["state"] in ("live", "spare")]
    job.kill_nodes(*live)
    assert job.wait() == 1, job.report()


def ends_from_the_folder(job, it, name, *options):
    """Of what was saved the folder has the names: the job goes on."""
    restart(job, *options)
    job.wait_event("restarted")
    job.wait_event("restored", count=4)
    job.ends_as(name)
    assert not it.objects(), it.objects()


def test_nodes_send_to_the_store_by_themselves():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.wait_event("stored", count=2)
        job.until(lambda: job.status()["saved_to"]["has_images"], "images in the store")
        assert ways(job) == {"store"}, job.status()
        told = job.eyrie("status", "last", "-v")[1]
        assert f"lies in {PLACE}/{the_id(job)}" in told, told
        assert "sent to the object store by nodes 0, 1, 2" in told, told
        no_node_is_left(job)
        assert not images_here(job), images_here(job)
        with open(os.path.join(job.folder(), "saved"), "rb") as file:
            assert it.env["AWS_SECRET_ACCESS_KEY"].encode() not in file.read()
        ends_from_the_folder(job, it, "farm", "--nodes", "2")


def test_a_job_does_not_begin_again_without_what_the_store_has():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.wait_event("stored", count=2)
        job.until(lambda: job.status()["saved_to"]["has_images"], "images in the store")
        no_node_is_left(job)
        assert not images_here(job), images_here(job)
        words = ["restart", "--nodes", "2", the_id(job)]
        no_keys = {k: v for k, v in job.env.items() if not k.startswith("AWS_")}
        why = refused(words, no_keys)
        assert "has images of the job" in why and "keys are not known" in why, why
        it.stop()
        why = refused(words, job.env)
        assert "cannot be reached" in why, why
        # It has forgotten all.
        it.start()
        why = refused(words, job.env)
        assert "there is no object" in why, why
        assert "restarted" not in [e["event"] for e in job.events()], job.events()


def test_all_go_back_to_what_the_store_has():
    """Two nodes with all copies of an image are lost: no node has them, the store does."""
    expected("farm")
    options = ["--save-every", "3600", "--save-to", PLACE]
    with server() as it, Nodes("farm", 4, options, env=it.env, ckpt_every=3600) as job:
        job.wait_running(4)
        take_a_set(job)
        assert ways(job) == {"store"} and not images_here(job), job.status()
        job.kill_nodes(0, 1)
        job.wait_event("rolled-back")
        job.wait_event("restored", count=4)
        back = {e["rank"]: e["generation"] for e in job.events() if e["event"] == "restored"}
        assert 0 not in back.values(), back
        job.ends_as("farm")
        assert not it.objects(), it.objects()


def test_sets_are_sent_by_nodes_and_found_by_name():
    expected("heat")
    with server() as it, stored("heat", it, ["--ft", "coordinated"]) as job:
        job.wait_event("stored", count=3)
        assert ways(job) == {"store"}, job.status()
        no_node_is_left(job)
        from_the_store(job, it, "heat", "--nodes", "4")
        end_of(job, it, "heat")


def dies_in_a_flush(point, who):
    """What was there before is there, whole; the next state follows, and what was begun goes."""
    expected("farm")
    options = ["--save-every", "0.2", "--save-to", PLACE]
    with server() as it, Pointed("farm", 3, options, env=it.env, ckpt_every=0.3) as job:
        job.wait_event("stored", count=2)
        job.arm(point)
        pid = job.held_at(point)
        record = job.status()
        daemons = {n["pid"]: n["node"] for n in record["nodes"]}
        before = job.count("stored")
        if who == "node":
            assert pid in daemons, (pid, daemons)
            os.kill(pid, signal.SIGKILL)
            job.let_go(point)
            job.wait_event("node-lost", node=daemons[pid])
        else:
            assert pid == record["daemon_pid"], (pid, record["daemon_pid"])
            kill_controller(job)
            job.let_go(point)
        job.wait_event("stored", count=before + 2)
        lists = [o for o in it.objects() if "/state-" in o]
        assert 1 <= len(lists) <= 3, lists
        no_node_is_left(job)
        ends_from_the_folder(job, it, "farm", "--nodes", "2")


def generated():
    points = {"store-0": "node", "store-1": "controller", "store-2": "controller"}
    for point, who in points.items():
        yield f"{who}_dies_at_{point}", lambda p=point, w=who: dies_in_a_flush(p, w)


def test_what_was_begun_in_parts_is_given_up():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.wait_event("stored")
        key = f"runs/{the_id(job)}/data/x"
        script = "s3.create_multipart_upload(Bucket='states', Key=a[0])"
        it.client(script, key)
        count = "print(len(s3.list_multipart_uploads(Bucket='states').get('Uploads', [])))"
        it.client("s3.create_multipart_upload(Bucket='states', Key='other/x')")
        job.until(lambda: it.client(count).strip() == "1", "the end of what was begun")
        job.let_end()
        assert job.wait() == 0, job.report()
        assert not it.objects(), it.objects()


# A host that cannot be reached through its proxy but for the job's own addresses, and one that has
# another folder under the same name.
APART = """name=$1
shift
if [ $name = beta ]; then
    export http_proxy=http://127.0.0.1:1 HTTP_PROXY=http://127.0.0.1:1 ALL_PROXY=http://127.0.0.1:1
    exec unshare -m sh -c 'mount -t tmpfs -o mode=700 none "$0/jobs" && exec sh -c "$*"' "$EYRIE_HOME" "$@"
fi
exec sh -c "$*"
"""


def apart():
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode != 0:
        raise NotRun("mount namespaces take root")


def told_of(job, node):
    return next(w for w in job.status()["saved_ways"] if w["node"] == node)


def test_a_node_that_does_not_see_the_folder_goes_through_the_controller():
    apart()
    expected("farm")
    with shell(APART) as rsh, Hosted("farm", rsh, ["--save-every", "0.2"], ckpt_every=0.3) as job:
        job.wait_event("flushed", count=2)
        told = {n: told_of(job, n) for n in (0, 1, 2)}
        assert [told[n]["way"] for n in (0, 1, 2)] == ["folder", "controller", "folder"], told
        assert "does not see the job's folder" in told[1]["why"], told
        job.kill_nodes(0, 1, 2)
        assert job.wait() == 1, job.report()
        restart(job, "--nodes", "2")
        job.wait_event("restored", count=4)
        job.let_end()
        assert job.wait() == 0, job.report()


def test_a_node_that_does_not_reach_the_store_goes_through_the_controller():
    """And fetches through it."""
    apart()
    expected("farm")
    options = ["--save-every", "0.2", "--save-to", PLACE]
    with server() as it, shell(APART) as rsh:
        with Hosted("farm", rsh, options, ckpt_every=0.3, env=it.env) as job:
            job.wait_event("stored", count=2)
            told = {n: told_of(job, n) for n in (0, 1, 2)}
            assert [told[n]["way"] for n in (0, 1, 2)] == ["store", "controller", "store"], told
            assert "cannot be reached" in told[1]["why"], told
            job.kill_nodes(0, 1, 2)
            assert job.wait() == 1, job.report()
            restart(job, "--hosts", "beta", "--rsh", rsh, "--address", "127.0.0.1")
            job.wait_event("restored", count=4)
            job.let_end()
            assert job.wait() == 0, job.report()
            assert not it.objects(), it.objects()
