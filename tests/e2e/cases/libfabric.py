"""Jobs whose messages between nodes go over libfabric (its `tcp` provider): `--transport libfabric`."""

import contextlib
import ctypes
import os
import subprocess
import tempfile

from controller import kill_controller, unharmed
from harness import EYRIE, NotRun, example
from netns import Spaces, cut_off
from nodes import SIZES, Nodes, expected, killed
from restart import restart, save
from routed import Routed

OVER = ["--transport", "libfabric"]
NAMED = ["--transport", "libfabric:tcp"]


def needed():
    try:
        ctypes.CDLL("libfabric.so.1")
    except OSError:
        raise NotRun("libfabric is not installed (libfabric1)") from None


def carried(job, nodes):
    """All these nodes have connections over libfabric."""

    def all_have():
        record = job.status()
        live = [n for n in record["nodes"] if n["node"] in nodes]
        return all(n["libfabric_connections"] > 0 for n in live) and live

    for node in job.until(all_have, "connections over libfabric"):
        assert node["transport"] == "libfabric:tcp", node


def undisturbed(name, options=()):
    needed()
    expected(name)
    with Nodes(name, 3, [*OVER, *options], ckpt_every=0.5) as job:
        job.all_checkpointed()
        carried(job, [0, 1, 2])
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "connections: libfabric:tcp" in text, text
        job.ends_as(name)
        assert not job.count("detected") and not job.count("rolled-back"), job.report()


def loses_nodes(name, nodes, lost, options=()):
    needed()
    killed(name, nodes, lost, options=[*OVER, *options])


def loses_ranks_and_goes_on(name, options=(), env=None):
    """Ranks die, twice, and their checkpoints are restored where connections stand."""
    needed()
    expected(name)
    with Nodes(name, 3, [*NAMED, *options], env=env, ckpt_every=0.4) as job:
        job.all_checkpointed()
        carried(job, [0, 1, 2])
        for count in (1, 2):
            job.kill_ranks([0, 3])
            for rank in (0, 3):
                job.wait_event("restored", rank=rank, count=count)
            job.all_checkpointed(count + 2)
        job.ends_as(name)
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def generated():
    # Without what goes ahead as datagrams all messages take the links.
    late = {"EYRIE_EARLY": "off"}
    cases = [
        *((f"{name}_over_three_nodes", undisturbed, name) for name in SIZES),
        ("heat_with_ft_none", undisturbed_without, "heat"),
        ("farm_loses_a_node", loses_nodes, "farm", 3, [1]),
        ("heat_loses_a_node", loses_nodes, "heat", 3, [0]),
        ("cg_loses_two_and_has_a_spare", loses_nodes, "cg", 4, [0, 2], ["--spares", "1"]),
        ("farm_loses_ranks_twice", loses_ranks_and_goes_on, "farm"),
        ("heat_loses_ranks_twice_with_nothing_early", loses_ranks_and_goes_on, "heat", (), late),
        ("sort_loses_ranks_twice_with_nothing_early", loses_ranks_and_goes_on, "sort", (), late),
        ("farm_over_routers", undisturbed_routed, "farm"),
    ]
    return [(label, lambda f=f, rest=rest: f(*rest)) for label, f, *rest in cases]


def test_a_node_in_a_namespace_is_killed():
    needed()
    killed("heat", 3, [1], options=OVER, make=Spaces)


def test_a_node_in_a_namespace_is_cut_off():
    needed()
    cut_off(OVER)


def undisturbed_routed(name):
    needed()
    expected(name)
    with Routed(name, options=OVER) as job:
        job.all_checkpointed()
        carried(job, range(6))
        job.ends_well(name)


def undisturbed_without(name):
    needed()
    expected(name)
    with Nodes(name, 3, [*OVER, "--ft", "none"]) as job:
        job.wait_running(4)
        carried(job, [0, 1, 2])
        job.ends_as(name)


def descriptors(pid):
    """What the descriptors of a process lead to. It may close some meanwhile."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def test_ranks_have_nothing_of_it():
    """Neither the library nor a descriptor of it is in a rank's process."""
    needed()
    expected("farm")
    with Nodes("farm", 3, OVER, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        carried(job, [0, 1, 2])
        for rank in record["ranks"]:
            with open(f"/proc/{rank['pid']}/maps") as file:
                assert "libfabric" not in file.read()
            names = descriptors(rank["pid"])
            assert names and not [n for n in names if "eventpoll" in n or "eventfd" in n], names
        with open(f"/proc/{record['nodes'][0]['pid']}/maps") as file:
            assert "libfabric" in file.read()
        job.ends_as("farm")


def test_a_controller_dies_and_no_rank_is_touched():
    needed()
    expected("heat")
    with Nodes("heat", 3, OVER, ckpt_every=0.5) as job:
        job.all_checkpointed()
        kill_controller(job)
        unharmed(job)
        carried(job, [0, 1, 2])
        job.ends_as("heat")


def test_a_job_is_saved_and_goes_on_over_it():
    needed()
    expected("cg")
    with Nodes("cg", 3, OVER, ckpt_every=0.5) as job:
        job.all_checkpointed()
        save(job)
        restart(job)
        job.wait_running(4)
        carried(job, [0, 1, 2])
        job.ends_as("cg")


def test_two_clusters_and_only_what_stays_in_one_goes_over_it():
    needed()
    expected("heat")
    with Nodes("heat", 4, [*OVER, "--clusters", "2"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        carried(job, [0, 1, 2, 3])
        streams = lambda: [c["gateway"]["carried"]["streams"] for c in job.status()["clusters"]]
        job.until(lambda: all(streams()), "streams through the gateways")
        job.ends_as("heat")


def refused(*options, env=None):
    """What `eyrie run` says of these options, and its exit code."""
    command = [EYRIE, "run", "-n", "2", "--nodes", "2", *options, "--", *example("farm")]
    everything = dict(os.environ, **(env or {}))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=everything)
    return done.returncode, done.stderr


def test_a_provider_that_is_not_there_is_said():
    needed()
    for options, env in (
        (["--transport", "libfabric:pigeon"], {}),
        (["--transport", "libfabric"], {"EYRIE_PROVIDER": "pigeon"}),
        ([], {"EYRIE_TRANSPORT": "libfabric:pigeon"}),
    ):
        code, said = refused(*options, env=env)
        assert code not in (0, 2) and "no provider 'pigeon'" in said and "tcp" in said, (code, said)


def test_what_is_no_transport_and_what_does_not_go_together_is_said():
    code, said = refused("--transport", "udp")
    assert code == 2 and "libfabric:PROVIDER" in said, (code, said)
    code, said = refused("--transport", "libfabric", "--tls")
    assert code == 2 and "not encrypted" in said, (code, said)


def test_auto_goes_over_tcp_where_nothing_is_better():
    """With or without libfabric: the loopback device has no faster provider."""
    expected("farm")
    with Nodes("farm", 2, ["--transport", "auto"], ckpt_every=0.5) as job:
        job.all_checkpointed()
        # Of a node that was slow to answer it is not known yet.
        told = lambda: all(n["transport"] for n in job.status()["nodes"])
        job.until(told, "what connections go over")
        nodes = job.status()["nodes"]
        assert {n["transport"] for n in nodes} == {"tcp"} and len(nodes) == 2, nodes
        assert not any(n["libfabric_connections"] for n in nodes), nodes
        job.ends_as("farm")


def test_without_the_library_it_is_said():
    """A library that cannot be opened stands before the real one."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "libfabric.so.1"), "w") as file:
            file.write("no library")
        code, said = refused(*OVER, env={"LD_LIBRARY_PATH": folder})
    assert code not in (0, 2) and "libfabric is not installed" in said, (code, said)
