"""Configuration files, storage of nodes that is not in EYRIE_HOME, and `eyrie doctor`."""

import contextlib
import json
import os
import subprocess
import tempfile
import time

from harness import BUILD, EYRIE, Gated, Job, example
from hosts import Hosted, shell
from nodes import Nodes, expected
from programs import SIZES
from programs import expected as of_one
from restart import ended_well, restart, save

MPIEXEC = os.path.join(BUILD, "bin", "mpiexec")
IMAGE = os.path.join(BUILD, "bin", "eyrie-image")


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as path:
        yield path


def written(path, text, mode=0o600):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def eyrie(env, *words, program=EYRIE):
    """(code, stdout, stderr) of a command with these variables."""
    done = subprocess.run([program, *words], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def by_rank(ended):
    """What a job came to, with its lines in the order of ranks: they come as they come."""
    code, out, err = ended
    return code, "".join(sorted(out.splitlines(keepends=True))), err


def test_files_set_defaults_of_options():
    with folder() as home:
        file = written(
            f"{home}/one.toml",
            f"home = '{home}/jobs'\nlocal = '{home}'\n\n[run]\nnp = 2\nlabel = true\nvault = 'rs:4+2'\nckpt-every = 30\n",
        )
        env = {k: v for k, v in os.environ.items() if k not in ("EYRIE_HOME", "XDG_CONFIG_HOME")}
        env = {**env, "EYRIE_CONFIG": file, "HOME": home}
        # A vault has no use on one node; nothing of the file is in the ranks' environment.
        words = ["sh", "-c", "env | grep -E 'EYRIE__|one/jobs' || echo hi"]
        assert by_rank(eyrie(env, "run", "--", *words)) == (0, "[0] hi\n[1] hi\n", "")
        assert by_rank(eyrie(env, *words, program=MPIEXEC)) == (0, "[0] hi\n[1] hi\n", "")
        assert eyrie(env, "run", "-n", "1", "--label=false", *words) == (0, "hi\n", "")
        # A variable is switched off, too: these two do not go together.
        both = {**env, "EYRIE_TLS": "1"}, "run", "-n", "1", "--label=false", "--transport", "libfabric"
        assert eyrie(*both, *words)[0] == 2
        assert eyrie(*both, "--tls=false", *words) == (0, "hi\n", "")
        assert os.path.isdir(f"{home}/jobs/jobs") and not os.path.exists(f"{home}/.eyrie")
        code, out, err = eyrie({**env, "EYRIE_CONFIG": "/dev/null", "EYRIE_HOME": home}, "run", *words)
        assert (code, out) == (0, "hi\n"), err
        code, out, _ = eyrie(env, "run", "-h")
        assert code == 0 and "[default: 30]" in out and f"--ckpt-every: 30 ({file}, line 8)" in out, out
        # What holds, and from where.
        assert eyrie(env, "config", "run.np") == (0, "2\n", "")
        table = eyrie(env, "config")[1]
        assert f"{file}, line 5" in table and "EYRIE_CONFIG" in table, table
        env["EYRIE_GRACE"] = "9"
        values = json.loads(eyrie(env, "config", "--json")[1])["values"]
        by_key = {v["key"]: (v["value"], v["source"], v["line"]) for v in values}
        assert by_key["home"] == (f"{home}/jobs", "file", 1), by_key
        assert by_key["local"] == (home, "file", 2), by_key
        assert by_key["run.vault"] == ("rs:4+2", "file", 7), by_key
        assert by_key["run.grace"] == ("9", "environment", None), by_key
        code, _, err = eyrie(env, "config", "run.npp")
        assert code == 2 and "is it run.np?" in err, err


def test_the_users_file_is_read_and_what_is_wrong_in_it_is_told():
    with folder() as home:
        env = {k: v for k, v in os.environ.items() if k != "EYRIE_CONFIG"}
        env = {**env, "EYRIE_HOME": f"{home}/jobs", "XDG_CONFIG_HOME": f"{home}/xdg"}
        path = f"{home}/xdg/eyrie/config.toml"
        for text, told in (
            ("[run]\nckpt-evry = 3\n", "line 2: [run] has no option ckpt-evry; is it ckpt-every?"),
            ("[run]\nckpt-every = 'soon'\n", "line 2: ckpt-every: invalid value 'soon'"),
            ("[run]\nnodes = 2\n\nhosts = 'a'\n", "does not go with"),
            ("[run]\nft = 'none'\nsave-every = 5\nnodes = 2\n", "save-every does not go with ft (line 2)"),
        ):
            written(path, text)
            code, out, err = eyrie(env, "run", "true")
            assert code == 2 and not out and told in err and path in err and len(err.splitlines()) == 1, (text, err)
        # The one that is typed goes before the other; what others can read then is told.
        written(path, "[run]\ntls = true\n")
        code, _, err = eyrie(env, "run", "--transport", "libfabric", "true")
        assert code == 0 and f"tls = true does not hold ({path}, line 2)" in err, err
        written(path, "[run]\nft = 'none'\nsave-every = 5\nspares = 1\nquiet = true\n")
        code, _, err = eyrie(env, "run", "--nodes", "2", "-v", "--ft", "logged", "true")
        assert code == 0 and "does not" not in err, err
        os.chmod(path, 0o666)
        code, _, err = eyrie(env, "run", "true")
        assert code == 2 and f"chmod go-w '{path}'" in err, err
        # These are for looking at it.
        code, out, _ = eyrie(env, "doctor")
        assert code == 2 and f"chmod go-w '{path}'" in out, out


def test_durations_are_those_of_a_file_and_nonsense_is_refused():
    with folder() as home:
        env = {**os.environ, "EYRIE_CONFIG": f"{home}/c.toml", "EYRIE_HOME": f"{home}/jobs"}
        for line, told in (
            ("end = 0", "line 2: end = 0: it takes 0.1 to 3600 seconds"),
            ("heartbeat = 1", "set heartbeat to 0.2 or less, or silence-least to 10 or more"),
            ("heartbeats = 1", "[timing] has no heartbeats; is it heartbeat?"),
            ("stand-after = 60", "set stand-after to 27 or less, or rejoin to 53 or more"),
        ):
            path = written(f"{home}/c.toml", f"[timing]\n{line}\n")
            code, out, err = eyrie(env, "run", "true")
            assert code == 2 and not out and told in err and f"{path}, line 2" in err, (line, err)
            assert eyrie(env, "info")[0] == 2
        written(f"{home}/c.toml", "[timing]\nend = '700ms'\nsilence-most = 8\n")
        shown = json.loads(eyrie(env, "info", "--json")[1])["timing_ms"]
        assert (shown["end"], shown["silence-most"], shown["heartbeat"]) == (700, 8000, 100), shown
        rows = [line.split()[:3] for line in eyrie(env, "info")[1].splitlines()]
        assert ["end", "0.7", "10"] in rows and ["rejoin", "20", "20"] in rows, rows
        assert eyrie(env, "config", "timing.end") == (0, "700ms\n", "")
        table = eyrie(env, "config")[1]
        assert "timing.silence-most" in table and "timing.heartbeat" not in table, table
        assert "timing.heartbeat" in eyrie(env, "config", "timing")[1]
    # The job has them: ranks that hear no signal are killed when that time is over.
    deaf = ["sh", "-c", "trap '' TERM INT; echo here; while :; do sleep 0.1; done"]
    with folder() as home:
        path = written(f"{home}/c.toml", "[timing]\nend = 0.7\n")
        for options in ([], ["--nodes", "2"]):
            with Job(deaf, 2, options=options, env={"EYRIE_CONFIG": path}) as job:
                job.until(lambda: job.stdout().count("here") == 2, "ranks")
                begun = time.monotonic()
                job.interrupt()
                job.wait()
                # It is 10 s by default.
                assert time.monotonic() - begun < 8, job.report()


# In a mount namespace whose /etc is a copy of the machine's, with a site's file in it.
SITE = [
    "unshare",
    "-rm",
    "sh",
    "-c",
    'etc=$1; site=$2; shift 2; mount -t tmpfs -o mode=755 none "$etc" || exit 99\n'
    'cp -a /etc/. "$etc" 2>/dev/null; mkdir -p "$etc/eyrie" && cp "$site" "$etc/eyrie/config.toml" || exit 99\n'
    'chmod 755 "$etc/eyrie" && chmod 644 "$etc/eyrie/config.toml" && mount --bind "$etc" /etc || exit 99\n'
    'exec "$@"',
    "sh",
]


def test_the_sites_file_in_etc_is_read_after_the_users():
    with folder() as home:
        os.mkdir(f"{home}/etc")
        site = written(f"{home}/site.toml", "[run]\nnp = 3\nlabel = true\n\n[eyrie-image.run]\nkeep = 7\n")
        env = {k: v for k, v in os.environ.items() if k not in ("EYRIE_CONFIG", "XDG_CONFIG_HOME")}
        env = {**env, "HOME": home, "EYRIE_HOME": f"{home}/jobs"}
        wrap = [*SITE, f"{home}/etc", site]
        before = os.path.exists("/etc/eyrie/config.toml")

        def there(*words):
            return eyrie(env, *wrap[1:], *words, program=wrap[0])

        assert by_rank(there(EYRIE, "run", "echo", "hi")) == (0, "[0] hi\n[1] hi\n[2] hi\n", "")
        assert there(EYRIE, "config", "run.np") == (0, "3\n", "")
        values = json.loads(there(EYRIE, "config", "--json")[1])["values"]
        assert ["/etc/eyrie/config.toml"] == list({v["file"] for v in values if v["source"] == "file"}), values
        code, out, err = there(IMAGE, "run", "-h")
        assert code == 0 and "--keep: 7 (/etc/eyrie/config.toml, line 6)" in out, (code, out, err)
        # The user's goes before it, key by key; what is typed before both.
        written(f"{home}/.config/eyrie/config.toml", "[run]\nnp = 2\n")
        assert by_rank(there(EYRIE, "run", "echo", "hi")) == (0, "[0] hi\n[1] hi\n", "")
        assert there(EYRIE, "run", "-n", "1", "echo", "hi") == (0, "[0] hi\n", "")
        written(site, "[run]\nnpp = 3\n")
        code, out, err = there(EYRIE, "run", "echo", "hi")
        assert code == 2 and "/etc/eyrie/config.toml, line 2" in err and "is it np?" in err, (code, out, err)
        assert os.path.exists("/etc/eyrie/config.toml") == before


def test_eyrie_image_takes_defaults_from_files():
    with folder() as home:
        file = written(
            f"{home}/one.toml",
            f"home = '{home}/state'\n\n[run]\nnp = 2\n\n[eyrie-image.run]\nevery = 0.2\nverbose = true\nsync = true\n",
        )
        env = {k: v for k, v in os.environ.items() if k not in ("EYRIE_HOME", "XDG_CONFIG_HOME")}
        env = {**env, "EYRIE_CONFIG": file, "HOME": home}
        image = lambda *words: eyrie(env, *words, program=IMAGE)
        # It is told of checkpoints that nobody asked for; nothing of the file is in its environment.
        code, out, err = image("run", "sh", "-c", "sleep 1; env | grep -c =$HOME/state; ls -d $HOME/state/images $HOME/.eyrie")
        assert code == 2 and out == f"0\n{home}/state/images\n", (code, out, err)
        assert err.startswith("eyrie-image: ") and ".1.img: " in err, err
        # What is typed goes before it, and what does not go with that is left out.
        code, out, err = image("run", "--verbose=false", "--copy", "sh", "-c", "sleep 0.5")
        assert (code, out, err) == (0, "", ""), (code, out, err)
        code, out, _ = image("run", "-h")
        assert code == 0 and f"--every: 0.2 ({file}, line 7)" in out, out
        # Mistakes, each with its line; what is eyrie's is for that to check, and the reverse.
        for text, told in (
            ("[eyrie-image.run]\nevry = 1\n", "line 2: [eyrie-image.run] has no option evry; is it every?"),
            ("[eyrie-image.run]\nevery = 'soon'\n", "line 2: every: invalid value 'soon'"),
            ("[eyrie-image.run]\nsync = true\ncopy = true\n", "does not go with"),
        ):
            written(file, text)
            code, out, err = image("run", "true")
            assert code == 2 and not out and told in err and file in err and len(err.splitlines()) == 1, (text, err)
            assert eyrie(env, "run", "true") == (0, "", "")
        written(file, "[run]\nno-such = 1\n")
        assert image("run", "true") == (0, "", "")
        assert eyrie(env, "run", "true")[0] == 2


def test_an_allocation_says_where_nodes_store():
    """What a batch system gives to jobs on a node is used without being asked for, unless it takes memory."""
    expected("farm")
    of_batch = ({"SLURM_TMPDIR": None}, {"TMPDIR": None, "PBS_JOBID": "7.test"})
    for given in of_batch:
        with tempfile.TemporaryDirectory(prefix="local-", dir=BUILD) as local:
            env = {name: value or local for name, value in given.items()}
            source = next(iter(given))
            told = eyrie({**os.environ, **env}, "config", "--json")[1]
            [row] = [v for v in json.loads(told)["values"] if v["key"] == "local"]
            assert (row["value"], row["variable"]) == (local, source), row
            with Nodes("farm", 2, env=env, ckpt_every=0.3) as job:
                job.wait_running(4)
                job.all_checkpointed()
                links = [os.readlink(os.path.join(job.folder(), f"node-{node}")) for node in range(2)]
                assert all(l.startswith(f"{local}/eyrie-") and os.listdir(f"{l}/images") for l in links), links
                job.ends_as("farm")
                assert own(local) == [], own(local)
    # Outside of an allocation TMPDIR says nothing, nor does a folder in memory.
    with tempfile.TemporaryDirectory(prefix="local-", dir=BUILD) as local, tempfile.TemporaryDirectory(
        prefix="eyrie-test-", dir="/dev/shm"
    ) as memory:
        for env in {"TMPDIR": local}, {"TMPDIR": memory, "PBS_JOBID": "7.test"}:
            told = eyrie({**os.environ, **env}, "config", "local")
            assert told == (0, "in home\n", ""), (env, told)


def own(local):
    """What is in the user's folder there."""
    return os.listdir(os.path.join(local, f"eyrie-{os.geteuid()}"))


def test_nodes_store_in_a_folder_of_their_machine():
    expected("farm")
    with folder() as local, Nodes("farm", 3, ["--local", local], ckpt_every=0.3) as job:
        job.wait_running(4)
        job.all_checkpointed()
        links = [os.readlink(os.path.join(job.folder(), f"node-{node}")) for node in range(3)]
        assert all(link.startswith(f"{local}/eyrie-") and os.listdir(f"{link}/images") for link in links), links
        assert len(own(local)) == 3, own(local)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        job.until(lambda: not os.path.exists(links[1]), "end of a lost node's storage")
        job.ends_as("farm")
        assert own(local) == [], own(local)


def test_each_host_has_a_folder_of_its_own():
    """The hosts' files say where, as long as nothing else is said."""
    expected("cg")
    with folder() as local:
        body = f'mkdir -p {local}/$1\nexport EYRIE_LOCAL={local}/$1\nshift\nexec sh -c "$*"\n'
        with shell(body) as rsh, Hosted("cg", rsh, ckpt_every=0.3) as job:
            job.wait_running(4)
            job.all_checkpointed()
            assert [len(own(f"{local}/{host}")) for host in ("alpha", "beta", "gamma")] == [1, 1, 1]
            job.ends_as("cg")
            assert not own(f"{local}/alpha") and not own(f"{local}/beta")


def test_a_saved_job_goes_on_with_another_local_folder():
    with folder() as first, folder() as second:
        command = example("farm") + SIZES["farm"]
        with Gated(command, ckpt_every=0.2, options=["--local", first]) as job:
            for rank in range(4):
                job.wait_event("checkpointed", rank=rank)
            job.status()
            images = os.path.join(job.folder(), "images")
            assert os.readlink(images).startswith(first), images
            save(job)
            assert not os.path.islink(images) and os.listdir(images) and not own(first)
            restart(job, "--local", second)
            job.wait_event("restarted")
            job.wait_event("restored", count=4)
            job.status()
            assert os.readlink(images).startswith(second) and len(own(second)) == 1
            job.kill_ranks([1])
            job.wait_event("restored", count=5)
            ended_well(job, of_one("farm"))
            assert not own(second), own(second)
        code, _, err = eyrie({**os.environ, "EYRIE_HOME": first}, "run", "--local", "/no/such/folder", "true")
        assert code == 1 and "/no/such/folder" in err and "--local" in err, err


def found(text, **by):
    all_of = [f for f in json.loads(text)["findings"] if all(f[k] == v for k, v in by.items())]
    assert all(f["remedy"] for f in all_of if f["level"] != "fine"), all_of
    return all_of


def test_the_doctor_says_what_is_lacking_and_what_to_type():
    with folder() as home:
        env = {**os.environ, "EYRIE_HOME": home}
        code, out, err = eyrie(env, "doctor", "--json")
        levels = {f["level"] for f in found(out)}
        assert code == (2 if "stops" in levels else 1 if "costs" in levels else 0) and not err, (code, out, err)
        [traced] = found(out, about="tracing")
        assert traced["level"] == "fine", traced
        assert not os.listdir(home), os.listdir(home)
        code, out, _ = eyrie({**env, "EYRIE_HOME": "/proc/nowhere"}, "doctor", "--json")
        [stops] = found(out, about="EYRIE_HOME")
        assert code == 2 and stops["level"] == "stops", out
        told = eyrie({**env, "EYRIE_LOCAL": "/no/such/folder"}, "doctor")[1]
        assert "stops  EYRIE_LOCAL" in told and "       -> " in told, told
        # Another MPI's launcher.
        other = written(f"{home}/bin/mpiexec", "#!/bin/sh\n# hydra\n", 0o755)
        code, out, _ = eyrie({**env, "PATH": f"{home}/bin:{env['PATH']}"}, "doctor", "--json")
        [costs] = found(out, about="mpiexec")
        assert costs["level"] == "costs" and other in costs["text"] and "export PATH" in costs["remedy"], costs


def test_the_doctor_looks_at_hosts():
    # One has no Eyrie, one no variables, one asks for a password, one has another release.
    body = """host=$1; shift
case $host in
beta) echo 'sh: eyrie: not found' >&2; exit 127 ;;
gamma) export HOME=/nowhere; unset EYRIE_HOME ;;
delta) echo 'Permission denied (publickey)' >&2; exit 255 ;;
epsilon) echo welcome; echo '{"version": "0"}'; read order; read others; echo '{"unreached": []}'; exit ;;
esac
exec sh -c "$*"
"""
    with folder() as home, shell(body) as rsh:
        env = {**os.environ, "EYRIE_HOME": home}
        where = ["--rsh", rsh, "--address", "127.0.0.1"]
        code, out, err = eyrie(env, "doctor", "--hosts", "alpha,gamma", *where, "--json")
        for host in ("alpha", "gamma"):
            for about in ("remote shell", "version", "clock", "way to others"):
                [fine] = found(out, host=host, about=about)
                assert fine["level"] == "fine", (fine, err)
        assert not os.listdir(home), os.listdir(home)
        hosts = "alpha,beta,delta,epsilon"
        code, out, _ = eyrie(env, "doctor", "--hosts", hosts, *where, "--json", "--limit", "10")
        assert code == 2, out
        [beta] = found(out, host="beta")
        assert "not found" in beta["text"] and "--prefix" in beta["remedy"], beta
        [delta] = found(out, host="delta")
        assert "Permission denied" in delta["text"] and "ssh-copy-id delta" in delta["remedy"], delta
        [version] = found(out, host="epsilon", about="version")
        assert version["level"] == "stops", version
        assert found(out, host="alpha", about="way to others")[0]["level"] == "fine", out
        told = eyrie(env, "doctor", "--hosts", "alpha,beta", *where)[1]
        assert "stops  beta: remote shell: eyrie was not found there" in told, told
