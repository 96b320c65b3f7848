"""Grid jobs from one file: `eyrie run --config FILE` and `eyrie check FILE`.

Clusters are this machine under several loopback addresses, each reached by a remote shell of its own,
or hosts of a test network (tests/net; root)."""

import contextlib
import json
import os
import stat
import subprocess
import tempfile

from harness import EYRIE, TIMEOUT_S
from hosts import PLAIN, Hosted, shell
from netns import needs_root
from network import Network
from nodes import Nodes, checkpointed_again, expected
from wan_links import no_way

FAR = "[clusters.east]\nhosts = 2\n[clusters.west]\nhosts = 2\nfar = true\n[wan]\ndelay_ms = 3\nmbit = 50\n"
HERE = ["--address", "127.0.0.1"]
# An address for documentation: nobody has it.
NOWHERE = "192.0.2.1"


@contextlib.contextmanager
def written(text):
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        path = os.path.join(folder, "grid.toml")
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)
        yield path


class Grid(Hosted):
    """A job that a grid file describes."""

    def __init__(self, name, path, options=(), **more):
        self.before = self.daemons_of_hosts()
        Nodes.__init__(self, name, ["--config", path], options, **more)

    @staticmethod
    def daemons_of_hosts():
        from hosts import daemons

        return daemons()


def two(east, west, more=""):
    """Two clusters on this machine, each with a remote shell of its own."""
    return (
        f"{more}\n[clusters.east]\nhosts = ['127.0.0.2:1', '127.0.0.3:1']\nrsh = '{east}'\n"
        f"[clusters.west]\nhosts = ['127.0.0.4', '127.0.0.5']\nslots = 1\nrsh = '{west}'\n"
    )


def check(path, *more, wrap=(), env=None):
    """(code, stdout, stderr) of `eyrie check`."""
    command = [*wrap, EYRIE, "check", path, "--time", "0.1", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=env)
    return done.returncode, done.stdout, done.stderr


def levels(found, level):
    return [(f["host"], f["about"], f["text"]) for f in found["findings"] if f["level"] == level]


def test_a_job_over_two_clusters_from_one_file_and_a_rank_of_each_dies():
    """Each cluster is started in a way of its own, and programs see the file's environment."""
    expected("farm")
    said = 'echo "$0 $1" >> "$GRID_LOG"\n'
    with shell(said + PLAIN) as east, shell(said + PLAIN) as west, tempfile.NamedTemporaryFile() as log:
        text = two(east, west, f"ranks = 4\n[run]\nckpt-every = 0.5\nckpt-first = 0.5\n[environment]\nGRID_LOG = '{log.name}'")
        with written(text) as path, Grid("farm", path, HERE, ranks=None) as job:
            record = job.wait_running(4)
            assert [c["name"] for c in record["clusters"]] == ["east", "west"], record
            assert [n["host"] for n in record["nodes"]] == [f"127.0.0.{n}" for n in range(2, 6)], record
            assert [r["node"] for r in record["ranks"]] == [0, 1, 2, 3], record
            job.all_checkpointed()
            job.kill_ranks([1, 2])
            for rank in (1, 2):
                job.wait_event("restored", rank=rank)
            # Nothing of it is needed any more.
            os.unlink(path)
            job.kill_nodes(3)
            job.wait_event("node-lost", node=3)
            job.wait_event("restored", rank=3)
            job.ends_as("farm")
            assert not job.count("rolled-back") and not job.count("diverged"), job.report()
        with open(log.name) as file:
            lines = set(file.read().splitlines())
        for rsh, hosts in ((east, (2, 3)), (west, (4, 5))):
            for host in hosts:
                assert f"{rsh} 127.0.0.{host}" in lines, lines


def test_the_program_and_its_environment_are_in_the_file_and_what_is_typed_goes_before():
    with shell() as rsh, tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        env = {**os.environ, "EYRIE_HOME": home}

        def run(path, *words):
            command = [EYRIE, "run", "--config", path, *HERE, *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=env)
            # That the loss of a cluster costs all is told, too.
            errors = [line for line in done.stderr.splitlines() if "loss of a whole cluster" not in line]
            return done.returncode, sorted(done.stdout.split()), "\n".join(errors)

        program = "program = ['sh', '-c', 'echo $COLOUR']\nranks = 2\n"
        with written(two(rsh, rsh, f"{program}[environment]\nCOLOUR = 'green'")) as path:
            assert run(path) == (0, ["green", "green"], "")
            assert run(path, "-n", "1") == (0, ["green"], "")
            assert run(path, "--", "echo", "typed") == (0, ["typed", "typed"], "")
            code, out, err = run(path, "--nodes", "2")
            assert code == 2 and not out and "--config" in err and "--nodes" in err, err
        with written(two(rsh, rsh)) as path:
            code, out, err = run(path)
            assert code == 2 and not out and "PROGRAM" in err, err
        code, out, err = run("/no/such/grid.toml", "--", "true")
        assert code == 2 and "/no/such/grid.toml" in err and len(err.splitlines()) == 1, err


def test_a_wrong_file_is_refused_with_its_line_before_anything_starts():
    never = 'touch "$0.called"\nexit 255\n'
    with shell(never) as rsh:
        good = two(rsh, rsh)
        for text, told in (
            (good.replace("slots", "slot"), "line 7: [clusters.west] has no key slot; is it slots?"),
            (good.replace("west", "east"), "line 5: duplicate key"),
            (good.replace("127.0.0.5", "127.0.0.2"), "host 127.0.0.2 is named twice"),
            (good + "[[link]]\nbetween = ['east', 'wes']", "there is no cluster wes; is it west?"),
            (good + "[run]\nckpt-evry = 3", "line 10: [run] has no option ckpt-evry; is it ckpt-every?"),
            (good + "[run]\nft = 'loged'", "line 10: ft: invalid value 'loged'"),
            (good + "launcher = 'pmix'", "eyrie join"),
            (good + "gateway = '127.0.0.9'", "gateway = \"127.0.0.9\" is no host of cluster west"),
            (good + "key = '/no/such'", "/no/such"),
            (good.replace("hosts = ['127.0.0.4', '127.0.0.5']\n", ""), "[clusters.west] has no hosts"),
        ):
            with written(text) as path:
                run = subprocess.run([EYRIE, "run", "--config", path, "true"], capture_output=True, text=True)
                for code, out, err in (check(path), (run.returncode, run.stdout, run.stderr)):
                    assert (code, out) == (2, "") and told in err, (text, code, out, err)
        with written(good) as path:
            os.chmod(path, 0o666)
            code, _, err = check(path)
            assert code == 2 and "chmod go-w" in err, err
        assert not os.path.exists(rsh + ".called")


def test_hosts_that_are_missing_or_of_another_version_are_told_with_what_to_do():
    lost = 'case $1 in 127.0.0.5) echo "Permission denied (publickey)." >&2; exit 255;; esac\n'
    with shell() as east, shell(lost + PLAIN) as west, written(two(east, west)) as path:
        code, out, err = check(path, *HERE, "--json")
        assert code == 2 and not err, err
        found = json.loads(out)
        ((host, about, text),) = levels(found, "stops")
        assert (host, about) == ("127.0.0.5", "remote shell") and "Permission denied" in text, found
        (remedy,) = [f["remedy"] for f in found["findings"] if f["level"] == "stops"]
        assert "key = " in remedy and "[clusters.west]" in remedy, remedy
        table = check(path, *HERE)[1]
        assert "127.0.0.5" in table and "the job cannot start" in table, table
    # Another release, and another build of the same one.
    for field, level, code in (("version", "stops", 2), ("build", "costs", 1)):
        with shell() as rsh, tempfile.TemporaryDirectory(prefix="eyrie-test-") as prefix:
            other = os.path.join(prefix, "bin", "eyrie")
            os.mkdir(os.path.dirname(other))
            with open(other, "w") as file:
                file.write(f"#!/bin/sh\n{EYRIE} \"$@\" | sed -u 's/\"{field}\":\"/&other /'\n")
            os.chmod(other, stat.S_IRWXU)
            with written(two(rsh, rsh) + f"prefix = '{prefix}'\n") as path:
                got, out, err = check(path, *HERE, "--json")
                wrong = levels(json.loads(out), level)
                assert [h for h, about, _ in wrong if about == field] == ["127.0.0.4", "127.0.0.5"], (out, err)
                assert all("other " in text for _, about, text in wrong if about == field), out
                assert got == code, out


def networked(network, rsh, more="", east="", west=""):
    hosts = list(network.hosts)
    return (
        f"ranks = 4\n{more}\n[clusters.east]\nhosts = {hosts[:2]}\nrsh = '{rsh}'\n{east}\n"
        f"[clusters.west]\nhosts = {hosts[2:]}\nrsh = '{rsh}'\n{west}\n"
    )


LINK = "[[link]]\nbetween = ['east', 'west']\nlatency = '3ms'\nrate = {}\n"


def test_every_link_is_measured_and_compared_with_the_file():
    needs_root()
    with Network(FAR) as network, shell(network.remote_shell()) as rsh:
        wrap = network.hub.enter
        port = "[run]\ngateway-port = '7400-7409'\n"
        with written(networked(network, rsh, port) + LINK.format(20)) as path:
            code, out, err = check(path, "--json", wrap=wrap)
            found = json.loads(out)
            (link,) = found["links"]
            assert (code, link["between"], link["caller"]) == (0, ["east", "west"], "east"), (out, err)
            assert link["at"] == "10.81.0.2:7400", link
            # A machine that is busy is slower than the link, never faster.
            assert 3 <= link["latency_ms"] and all(mbit < 1.2 * 50 for mbit in link["mbit"]), link
            table = check(path, wrap=wrap)[1]
            assert "from east (10.80.0.2) to west (10.81.0.2): TCP, port 7400-7409" in table, table
            assert "the job can start: eyrie run --config" in table, table
        # Far less than the file says is no reason not to start.
        with written(networked(network, rsh) + LINK.format(1000)) as path:
            code, out, _ = check(path, "--json", wrap=wrap)
            ((_, about, text),) = levels(json.loads(out), "costs")
            assert code == 1 and about == "link east - west" and "1000 in the file" in text, out
        network.set_link(0, 1, "down")
        with written(networked(network, rsh)) as path:
            code, out, _ = check(path, "--json", "--limit", "8", wrap=wrap)
            assert code == 2 and "neither gateway reaches the other" in levels(json.loads(out), "stops")[0][2], out


def one_way(network, rsh, more=""):
    """Nobody can call the gateway of the west: its hosts have private addresses behind a NAT. It calls that
    of the east, which is the only way between the two."""
    return networked(network, rsh, more, west=f"gateway = '10.81.0.2'\ngateway-address = '{NOWHERE}'")


def test_only_gateways_reach_each_other_in_one_direction_whichever_it_is():
    needs_root()
    expected("farm")
    with Network(FAR) as network, shell(network.remote_shell()) as rsh:
        wrap = network.hub.enter
        with written(one_way(network, rsh, "[run]\nckpt-every = 0.5\nckpt-first = 0.5\n")) as path:
            code, out, err = check(path, "--json", wrap=wrap)
            (link,) = json.loads(out)["links"]
            assert (code, link["caller"]) == (0, "west"), (out, err)
            assert "from west (10.81.0.2) to east (10.80.0.2): TCP" in check(path, wrap=wrap)[1]
            with Grid("farm", path, ranks=None, wrap=wrap) as job:
                job.all_checkpointed()
                assert no_way(network, "10.81.0.3", "10.80.0.1") and no_way(network, "10.81.0.3", "10.80.0.2")
                job.kill_ranks([0, 3])
                for rank in (0, 3):
                    job.wait_event("restored", rank=rank)
                job.eyrie("inject", "last", "kill-gateway", "0")
                job.wait_event("gateway-back")
                checkpointed_again(job)
                job.ends_as("farm")
                assert not job.count("node-lost") and not job.count("diverged"), job.report()
