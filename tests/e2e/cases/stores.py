"""States of jobs in an object store (`--save-to s3://...`): jobs go on from there when all else is gone.
The store is a local S3 server (moto), installed by its package name into the cache."""

import contextlib
import http.server
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
import xml.etree.ElementTree

from harness import CACHE, EYRIE, NotRun, example, free_ports, soon
from nodes import SIZES, Nodes, _expected, expected
from restart import SAVED, restart

PART_BYTES = 16 << 20
PLACE = "s3://states/runs"
SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"


def moto():
    """The server's program."""
    folder = os.path.join(CACHE, "moto")
    program = os.path.join(folder, "bin", "moto_server")
    if not os.path.exists(program):
        pip = [os.path.join(folder, "bin", "pip"), "install", "--quiet", "moto[server,s3]"]
        for command in ([sys.executable, "-m", "venv", folder], pip):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                shutil.rmtree(folder, ignore_errors=True)
                raise NotRun(f"no S3 server: {' '.join(command)}: {done.stderr.strip()[-300:]}")
    return program


class Server:
    """An S3 server with one bucket. It forgets all when it ends."""

    def __init__(self):
        [self.port], self.process = free_ports(1), None
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_REGION": "us-east-1",
        }
        self.start()

    def start(self):
        command = [moto(), "-H", "127.0.0.1", "-p", str(self.port)]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **quiet)
        soon(self.makes_bucket, "S3 server")

    def makes_bucket(self):
        try:
            self.ask("PUT", "")
            return True
        except OSError:
            return False

    def ask(self, method, key, body=None, query=""):
        url = f"{self.url}/states{'/' if key else ''}{key}{query}"
        request = urllib.request.Request(url, data=body, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def client(self, script, *words):
        """What a script of boto3's client `s3` prints; its words are in `a`."""
        script = "import boto3, sys; a = sys.argv[1:]; s3 = boto3.client('s3')\n" + script
        python = os.path.join(CACHE, "moto", "bin", "python")
        env = {**os.environ, **self.env}
        words = [python, "-c", script, *words]
        return subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout

    def put(self, key, text):
        self.client("s3.put_object(Bucket='states', Key=a[0], Body=a[1].encode())", key, text)

    def sealed(self, keys):
        """Those that are encrypted."""
        script = "for k in a: print(s3.get_object(Bucket='states', Key=k)['Body'].read(8) == b'EYRIESLD')"
        told = self.client(script, *keys).split()
        return {key for key, it in zip(keys, told) if it == "True"}

    def objects(self):
        tree = xml.etree.ElementTree.fromstring(self.ask("GET", "", query="?list-type=2"))
        return {e.find(f"{SPACE}Key").text for e in tree.iter(f"{SPACE}Contents")}

    def stop(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def server():
    it = Server()
    try:
        yield it
    finally:
        it.stop()


def stored(name, it, options=(), **more):
    options = ["--save-every", "0.2", "--save-to", PLACE, *options]
    return Nodes(name, 3, options, env=it.env, ckpt_every=0.3, **more)


def the_id(job):
    return os.path.basename(job.folder())


def from_the_store(job, it, name, *options, place=PLACE):
    """All that was here is gone; the job goes on."""
    identity = the_id(job)
    shutil.rmtree(job.folder())
    job._events_file, job._events, job._events_rest = None, [], ""
    with open(job.out_path, "wb"):
        pass
    with open(job.out_path, "ab") as out, open(job.err_path, "ab") as err:
        words = [EYRIE, "restart", *options, f"{place}/{identity}"]
        quiet = {"stdin": subprocess.DEVNULL, "start_new_session": True}
        job.process = subprocess.Popen(words, stdout=out, stderr=err, env=job.env, **quiet)
    job.wait_event("restarted")


def end_of(job, it, name):
    """As an undisturbed run ends; what was printed before the loss is not printed again."""
    want = expected(name)
    job.let_end()
    assert job.wait() == 0, job.report()
    assert want.endswith(job.stdout()) and "checksum" in job.stdout(), job.report()
    job.settle()
    assert not job.left_over(), job.left_over()
    assert not it.objects(), it.objects()


def test_a_job_goes_on_from_the_store_when_all_else_is_gone():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.all_checkpointed()
        job.wait_event("stored", count=3)
        place = job.status()["saved_to"]
        assert place["place"] == f"{PLACE}/{the_id(job)}" and place["unix_ms"], place
        lists = [o for o in it.objects() if "/state-" in o]
        assert 1 <= len(lists) <= 3, it.objects()
        job.kill_nodes(0, 1, 2)
        assert job.wait() == 1, job.report()
        from_the_store(job, it, "farm", "--nodes", "2")
        end_of(job, it, "farm")


def test_a_job_that_is_saved_is_in_the_store_when_it_has_ended():
    expected("farm")
    with server() as it, stored("farm", it, ["--save-rate", "50M"]) as job:
        job.all_checkpointed()
        job.interrupt(signal.SIGQUIT)
        assert job.wait() == SAVED, job.report()
        with open(os.path.join(job.folder(), "saved"), "rb") as file:
            assert b"secret-of-the-test" not in file.read()
        from_the_store(job, it, "farm", "--nodes", "4")
        end_of(job, it, "farm")


@contextlib.contextmanager
def keys():
    """Files with two keys, in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("key", "other")]
        for number, path in enumerate(paths):
            with open(path, "w") as file:
                file.write(f"{number + 1:02x}" * 32 + "\n")
        yield folder, *paths


def refused(words, env):
    done = subprocess.run([EYRIE, *words], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_a_job_goes_on_from_a_store_in_which_all_is_encrypted():
    expected("farm")
    with keys() as (folder, key, other), server() as it:
        with stored("farm", it, ["--save-key", key]) as job:
            job.all_checkpointed()
            job.wait_event("stored", count=3)
            job.interrupt(signal.SIGQUIT)
            assert job.wait() == SAVED, job.report()
            objects = it.objects()
            assert any("/state-" in o for o in objects), objects
            assert it.sealed(sorted(objects)) == objects, objects
            assert not any("rank-" in o or "saved" in o for o in objects), objects
            elsewhere = {**job.env, "EYRIE_HOME": os.path.join(folder, "home")}
            place = f"{PLACE}/{the_id(job)}"
            why = refused(["restart", place], elsewhere)
            assert "is encrypted: give its key with --save-key" in why, why
            why = refused(["restart", "--save-key", other, place], elsewhere)
            assert "was encrypted with another key" in why, why
            from_the_store(job, it, "farm", "--save-key", key, "--nodes", "2")
            end_of(job, it, "farm")


def test_a_key_that_cannot_be_used_is_refused():
    with keys() as (folder, key, _), server() as it:
        words = ["run", "-n", "1", "--nodes", "2", "--save-every", "1", "--save-to", PLACE, "--save-key"]
        env = {**os.environ, **it.env, "EYRIE_HOME": os.path.join(folder, "home")}
        why = refused([*words, key + ".not", "true"], env)
        assert "cannot use" in why and "key.not" in why, why
        assert not it.objects(), it.objects()


def vault(env, folder, *words):
    members = [os.path.join(folder, name) for name in ("n0", "n1", "n2")]
    words = [EYRIE, "vault", *words, *(m for m in members if os.path.isdir(m) or "--vault" in words)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_vault_is_exported_to_a_store_and_imported_from_there():
    contents = {f"node-{n}/{name}": os.urandom(n * 200_000 + 7) + b"to be seen" for n in range(3)
                for name in ("a.img", "b.log")}
    with keys() as (folder, key, other), server() as it:
        env = {**os.environ, **it.env}
        for name, content in contents.items():
            path = os.path.join(folder, "from", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        first = os.path.join(folder, "first")
        vault(env, first, "import", "--vault", "rs:2+1", "--from", os.path.join(folder, "from"))
        shutil.rmtree(os.path.join(first, "n1"))
        for seal, place in (([], "s3://states/plain"), (["--seal", key], "s3://states/sealed")):
            vault(env, first, "export", "--to", place, *seal)
            prefix = place.removeprefix("s3://states/")
            brought = {o for o in it.objects() if o.startswith(prefix)}
            assert brought == {f"{prefix}/{name}" for name in [*contents, "export.json"]}, brought
            assert it.sealed(sorted(brought)) == (brought if seal else set()), brought
            why = refused(["vault", "export", "--to", place, *seal, os.path.join(first, "n0"),
                           os.path.join(first, "n2")], env)
            assert "has" in why and "already" in why, why
            second = os.path.join(folder, prefix)
            made = ["import", "--vault", "rs:2+1"]
            members = [os.path.join(folder, "third", f"{prefix}-{n}") for n in range(3)]
            if seal:
                why = refused(["vault", *made, "--from", place, *members], env)
                assert "give its key with --seal" in why, why
                members = [m + "-other" for m in members]
                why = refused(["vault", *made, "--from", place, "--seal", other, *members], env)
                assert "another key" in why, why
            vault(env, second, *made, "--from", place, *seal)
            vault(env, second, "export", "--to", os.path.join(second, "out"))
            for name, content in contents.items():
                with open(os.path.join(second, "out", name), "rb") as file:
                    assert file.read() == content, name
        it.client("s3.delete_object(Bucket='states', Key='plain/export.json')")
        why = refused(["vault", "import", "--vault", "rs:2+1", "--from", "s3://states/plain",
                       *(os.path.join(folder, "last", f"n{n}") for n in range(3))], env)
        assert "no whole export" in why, why


def test_a_damaged_state_is_answered_by_the_one_before():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.all_checkpointed()
        job.wait_event("stored", count=3)
        job.interrupt(signal.SIGQUIT)
        assert job.wait() == SAVED, job.report()
        newest = max(o for o in it.objects() if "/state-" in o)
        it.put(newest, '{"format": 1, "files": [{"name": "../x", "object": "y"')
        from_the_store(job, it, "farm")
        job.says("a newer state of the job is not whole")
        end_of(job, it, "farm")


def test_the_job_goes_on_while_the_store_is_away():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.wait_event("stored")
        it.stop()
        job.says("does not get a newer state of the job")
        assert "cannot be reached" in job.status()["saved_to"]["error"]
        done = job.count("stored")
        it.start()
        job.wait_event("stored", count=done + 1)
        job.until(lambda: job.status()["saved_to"]["error"] is None, "store that is back")
        job.ends_as("farm")
        assert not it.objects(), it.objects()


@contextlib.contextmanager
def larger(name, words):
    """A program with images of more than one part."""
    small, SIZES[name] = SIZES[name], words
    _expected.pop(name, None)
    try:
        yield
    finally:
        SIZES[name] = small
        _expected.pop(name, None)


def test_long_images_are_brought_in_parts():
    words = ["--log2", "24", "--iterations", "8", "--progress"]
    with larger("sort", words), server() as it:
        expected("sort")
        with stored("sort", it) as job:
            # While it computes: at its end it has given its memory back.
            job.wait_event("checkpointed")
            images = os.path.join(job.folder(), "images")
            job.interrupt(signal.SIGQUIT)
            assert job.wait() == SAVED, job.report()
            assert max(e.stat().st_size for e in os.scandir(images)) > PART_BYTES
            from_the_store(job, it, "sort")
            end_of(job, it, "sort")


class Refusing(http.server.BaseHTTPRequestHandler):
    """A store that does not know the key."""

    def do_PUT(self):
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>no</Message></Error>"
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def told(env, code, *texts, options=("--save-every", "1", "--save-to", PLACE)):
    command = [EYRIE, "run", "-n", "2", "--nodes", "2", *options, *example("heat")]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == code and all(t in done.stderr for t in texts), done


def test_a_store_that_cannot_be_used_is_told_before_the_job_begins():
    with server() as it:
        wrong = ["--save-every", "1", "--save-to", "s3://elsewhere/x"]
        told(it.env, 1, "no bucket 'elsewhere'", options=wrong)
        told({**it.env, "AWS_ACCESS_KEY_ID": ""}, 1, "AWS_ACCESS_KEY_ID")
        nowhere = ["--save-every", "1", "--save-to", "/tmp/x"]
        told(it.env, 2, "s3://BUCKET", options=nowhere)
        told(it.env, 2, "--save-every", options=["--save-to", PLACE])
        env = {**os.environ, **it.env, "EYRIE_HOME": os.path.join(CACHE, "no-jobs-here")}
        none = [EYRIE, "restart", f"{PLACE}/abcd"]
        done = subprocess.run(none, env=env, capture_output=True, text=True)
        assert done.returncode == 1 and "has no state of a job" in done.stderr, done
        shutil.rmtree(env["EYRIE_HOME"], ignore_errors=True)
    told(it.env, 1, "cannot be reached")
    refusing = http.server.HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=refusing.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{refusing.server_port}"
        told({**it.env, "AWS_ENDPOINT_URL": url}, 1, "does not accept the keys")
    finally:
        refusing.shutdown()
