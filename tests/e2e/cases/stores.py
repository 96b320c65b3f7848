"""States of jobs in an object store (`--save-to s3://...`): jobs go on from there when all else is gone.
The store is a local S3 server (moto), installed by its package name into the cache."""

import contextlib
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import xml.etree.ElementTree

from harness import CACHE, EYRIE, NotRun, example, soon
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


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """An S3 server with one bucket. It forgets all when it ends."""

    def __init__(self):
        self.port, self.process = free_port(), None
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

    def put(self, key, text):
        script = "import boto3, sys; b, k, t = sys.argv[1:]; boto3.client('s3').put_object("
        script += "Bucket=b, Key=k, Body=t.encode())"
        python = os.path.join(CACHE, "moto", "bin", "python")
        env = {**os.environ, **self.env}
        subprocess.run([python, "-c", script, "states", key, text], env=env, check=True)

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


def from_the_store(job, it, name, *options):
    """All that was here is gone; the job goes on."""
    identity = the_id(job)
    shutil.rmtree(job.folder())
    job._events_file, job._events, job._events_rest = None, [], ""
    with open(job.out_path, "wb"):
        pass
    with open(job.out_path, "ab") as out, open(job.err_path, "ab") as err:
        words = [EYRIE, "restart", *options, f"{PLACE}/{identity}"]
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
        end_of(job, it, "farm")


def test_the_job_goes_on_while_the_store_is_away():
    expected("farm")
    with server() as it, stored("farm", it) as job:
        job.wait_event("stored")
        it.stop()
        lacks = "does not get a newer state of the job"
        job.until(lambda: lacks in job.stderr(), "news of the store")
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
    words = ["--log2", "23", "--iterations", "12", "--progress"]
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
