"""What root sees and does of other users' jobs; and what those cannot have root do. (root)"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile

import harness
from harness import EYRIE, ORDINARY, ORDINARY_USER, Gated, NotRun, example, soon
from hosts import shell

HEAT = example("heat") + ["--size", "128", "--steps", "300"]


class Ordinary(Gated):
    """A job of a user without privileges."""

    ordinary = True


def only_root():
    if os.geteuid() != 0:
        raise NotRun("takes root")


@contextlib.contextmanager
def registry():
    """A folder as the package makes it."""
    folder = tempfile.mkdtemp(prefix="eyrie-test-registry-")
    os.chmod(folder, 0o1777)
    try:
        yield folder, {"EYRIE_REGISTRY": folder}
    finally:
        shutil.rmtree(folder)


def eyrie(*words, env, who=None, program=EYRIE):
    full = {**os.environ, "EYRIE_HOME": "/nonexistent/eyrie", **env}
    done = subprocess.run(
        [program, *words],
        env=full,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=harness.TIMEOUT_S,
        check=False,
        **(who or {}),
    )
    return done.returncode, done.stdout, done.stderr


def seen(env):
    code, out, err = eyrie("ps", "--all-users", "--json", env=env)
    assert code == 0, err
    return {(job["uid"], job["job"]) for job in json.loads(out)}, err


def test_root_sees_the_jobs_of_all():
    only_root()
    with registry() as (folder, env):
        with Ordinary(HEAT, ckpt_every=3600, env=env) as theirs, Gated(HEAT, ckpt_every=3600, env=env) as ours:
            names = {}
            for job, uid in ((theirs, ORDINARY_USER), (ours, 0)):
                job.wait_running(4)
                names[uid] = job.status()["job"]
            assert seen(env) == (set(names.items()), "")
            for name in os.listdir(folder):
                meta = os.stat(os.path.join(folder, name))
                assert meta.st_mode & 0o777 == 0o600 and name.split("-")[0] == names[meta.st_uid], name
            _, out, _ = eyrie("ps", "--all-users", env=env)
            users = {line.split()[1]: line.split()[0] for line in out.splitlines()[1:]}
            assert users == {names[0]: pwd.getpwuid(0).pw_name, names[ORDINARY_USER]: str(ORDINARY_USER)}
            program = theirs.program
            code, out, err = eyrie("ps", "--all-users", env=env, who=ORDINARY, program=program)
            assert code == 1 and not out and "is for root" in err and "sudo eyrie" in err, err
            code, _, err = eyrie("drain", "last", "1", "--all-users", env=env)
            assert code == 2 and "drain all HOST" in err, err
            planted(folder, env, names)
            # A job whose command is killed is forgotten.
            ours.process.send_signal(signal.SIGKILL)
            ours.process.wait()
            soon(lambda: seen(env)[0] == {(ORDINARY_USER, names[ORDINARY_USER])}, "one job that is left")
            soon(lambda: len(os.listdir(folder)) == 1, "one entry that is left")
            theirs.let_end()
            assert theirs.wait() == 0, theirs.report()
            assert os.listdir(folder) == [] and seen(env) == (set(), "")


PLANT = """
import fcntl, json, os, sys, time
folder, homes = sys.argv[1], sys.argv[2:]
held = []
for number, home in enumerate(homes):
    path = os.path.join(folder, f"planted-{number}")
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    os.write(file, json.dumps({"format": 1, "job": "evil", "home": home}).encode())
    held.append(file)
for name in os.listdir(folder):
    try:
        os.unlink(os.path.join(folder, name)) if not name.startswith("planted") and os.stat(os.path.join(folder, name)).st_uid == 0 else None
        if os.stat(os.path.join(folder, name)).st_uid == 0:
            print("opened", os.open(os.path.join(folder, name), os.O_RDONLY), flush=True)
    except OSError as error:
        print("refused", error.errno, flush=True)
print("planted", flush=True)
sys.stdin.read()
for number in range(len(homes)):
    os.unlink(os.path.join(folder, f"planted-{number}"))
"""


def planted(folder, env, names):
    """Homes of others, or such as others can write to, are no homes of that user: what is there is not
    followed, and no program there is run."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as place:
        os.chmod(place, 0o755)
        root_home = os.path.join(place, "root-home")
        link = os.path.join(place, "link")
        shared = os.path.join(place, "shared")
        os.makedirs(os.path.join(root_home, "jobs"))
        os.mkdir(shared)
        os.chown(shared, ORDINARY_USER, ORDINARY_USER)
        os.chmod(shared, 0o777)
        os.symlink(root_home, link)
        os.lchown(link, ORDINARY_USER, ORDINARY_USER)
        homes = [root_home, link, shared, os.path.join(place, "missing\x1b[2J")]
        with subprocess.Popen(
            ["python3", "-c", PLANT, folder, *homes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **ORDINARY,
        ) as plants:
            lines = []
            while not lines or lines[-1] != "planted\n":
                lines.append(plants.stdout.readline())
                assert lines[-1], lines
            assert "refused 1\n" in lines and not [l for l in lines if l.startswith("opened")], lines
            found, err = seen(env)
            assert found == set(names.items()), found
            for home in (root_home, link):
                assert f"{home} is not the folder of user {ORDINARY_USER}" in json_notes(err), err
            assert shared in json_notes(err) and "\x1b" not in err, err
            plants.stdin.close()
            assert plants.wait() == 0


def json_notes(err):
    return "\n".join(json.loads(line).get("note", "") for line in err.splitlines())


def test_root_drains_a_machine():
    """Of the jobs of two users, each with a node on it."""
    only_root()
    with registry() as (_, env), shell() as rsh:
        os.chmod(os.path.dirname(rsh), 0o755)
        options = ["--hosts", "alpha,beta,gamma", "--rsh", rsh, "--address", "127.0.0.1"]
        more = {"ckpt_every": 0.5, "env": env, "options": options}
        with Ordinary(HEAT, **more) as theirs, Gated(HEAT, **more) as ours:
            for job in (theirs, ours):
                job.wait_running(4)
                for rank in range(4):
                    job.wait_event("checkpointed", rank=rank)
            code, out, err = eyrie("drain", "all", "nowhere", "--all-users", env=env)
            assert code == 0 and "no user's job has a node" in out and not err, (code, out, err)
            assert eyrie("drain", "all", "1", "--all-users", env=env)[0] == 2
            code, out, err = eyrie("drain", "all", "beta", "--all-users", "--json", env=env)
            assert code == 0, (code, out, err)
            steps = [json.loads(line) for line in out.splitlines()]
            assert {s["uid"] for s in steps if s["step"] == "left"} == {0, ORDINARY_USER}, steps
            assert all(s["node"] == 1 for s in steps), steps
            code, out, err = eyrie("drain", "all", "gamma", "--all-users", env=env)
            assert code == 0 and out.count("left") == 2 and f"user {ORDINARY_USER}, job" in out, (code, out, err)
            for job in (theirs, ours):
                job.let_end()
                assert job.wait() == 0, job.report()
                assert not job.count("rolled-back") and not job.count("detected"), job.report()
