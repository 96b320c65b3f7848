"""`eyrie notice --watch`: the notices of EC2, GCE and Azure, whose metadata services a server plays."""

import contextlib
import http.server
import os
import subprocess
import tempfile
import threading
import urllib.parse

from drain import ready
from harness import EYRIE, ORDINARY_USER, TIMEOUT_S, NotRun, example, installed_for_all, reachable
from nodes import Nodes, expected
from notice import saved
from restart import restart


class Clouds(http.server.BaseHTTPRequestHandler):
    """What the three say; `doomed` is whether the machine is about to end."""

    protocol_version = "HTTP/1.1"

    def answer(self, code, body="", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_PUT(self):
        it = self.server.it
        known = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        if it.cloud != "ec2" or self.path != "/latest/api/token":
            return self.answer(404)
        it.tokens += 1
        self.answer(200 if known else 400, f"token-{it.tokens}")

    def do_GET(self):
        it = self.server.it
        it.asked.set()
        place, _, query = self.path.partition("?")
        getattr(self, it.cloud)(it, place, dict(urllib.parse.parse_qsl(query)))

    def ec2(self, it, place, _):
        # Tokens are good for three questions.
        it.questions += 1
        if self.headers.get("X-aws-ec2-metadata-token") != f"token-{it.tokens}" or it.questions % 4 == 0:
            return self.answer(401)
        if place == it.says and it.doomed.is_set():
            return self.answer(200, '{"action": "terminate", "time": "2026-11-29T08:22:00Z"}')
        self.answer(404)

    def gce(self, it, place, query):
        if self.headers.get("Metadata-Flavor") != "Google" or not place.startswith("/computeMetadata/v1/instance/"):
            return self.answer(403)
        if place.endswith("/id"):
            return self.answer(200, "7")
        if query.get("wait_for_change") and query["last_etag"] == f"e{int(it.doomed.is_set())}":
            it.doomed.wait(float(query["timeout_sec"]))
            it.waited = True
        doomed = it.doomed.is_set()
        etag = f"e{int(doomed)}"
        if place == it.says:
            return self.answer(200, it.word if doomed else "FALSE", ETag=etag)
        self.answer(200, "NONE" if place.endswith("/maintenance-event") else "FALSE", ETag=etag)

    def azure(self, it, place, query):
        if self.headers.get("Metadata") != "true" or "api-version" not in query:
            return self.answer(400)
        if place == "/metadata/instance/compute/name":
            return self.answer(200, "n1")
        if place != "/metadata/scheduledevents":
            return self.answer(404)
        kind = it.says if it.doomed.is_set() else "Freeze"
        event = '{"EventId": "1", "EventType": "%s", "Resources": ["%s"], "NotBefore": ""}'
        ours, others = event % (kind, "n1"), event % ("Preempt", "n2")
        self.answer(200, '{"DocumentIncarnation": 1, "Events": [%s, %s]}' % (others, ours))

    def log_message(self, *_):
        pass


class Cloud:
    """A server that plays one of them; what it says when the machine is doomed."""

    def __init__(self, cloud, says, word=""):
        self.cloud, self.says, self.word = cloud, says, word
        self.tokens, self.questions, self.waited = 0, 0, False
        self.doomed, self.asked = threading.Event(), threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Clouds)
        self.server.it = self
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.doomed.set()
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def watching(url, cloud, home, *options):
    command = [EYRIE, "notice", "--watch", cloud, "--url", url, "--every", "0.05", *options]
    env = {**os.environ, "EYRIE_HOME": home, "http_proxy": "http://127.0.0.1:9"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=env, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


CASES = [
    ("ec2", "/latest/meta-data/spot/instance-action", "", "EC2 is to terminate this instance at 2026-11-29T08:22:00Z"),
    ("ec2", "/latest/meta-data/events/recommendations/rebalance", "", "EC2 recommends to rebalance"),
    ("gce", "/computeMetadata/v1/instance/preempted", "TRUE", "GCE pre-empts this instance"),
    ("gce", "/computeMetadata/v1/instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", "GCE is to terminate"),
    ("azure", "Preempt", "", "Azure is to preempt this machine"),
]


def test_clouds_tell_that_a_machine_ends():
    """Nobody is here to be told, which the exit code says."""
    for number, (cloud, says, word, line) in enumerate(CASES):
        with Cloud(cloud, says, word) as it, tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
            with watching(it.url, "auto" if number % 2 == 0 else cloud, home) as process:
                assert it.asked.wait(TIMEOUT_S), line
                it.doomed.set()
                out, err = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 1 and out.startswith(line) and out.count("\n") == 1, (out, err)
            assert err.count("\n") == 1 and "no node of a job is on this host" in err, err
    refused = subprocess.run([EYRIE, "notice", "--watch", "ec2", "--url", "x"], capture_output=True, text=True)
    assert refused.returncode == 2 and "http://ADDRESS" in refused.stderr, refused


def test_a_cloud_that_does_not_answer_is_asked_again():
    with Cloud("azure", "Terminate") as it, tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        it.server.shutdown()
        it.server.server_close()
        with watching(it.url, "azure", home) as process:
            assert "no answer" in process.stderr.readline()
            again = http.server.ThreadingHTTPServer(it.server.server_address, Clouds)
            again.it = it
            threading.Thread(target=again.serve_forever, daemon=True).start()
            assert "Azure answers again" in process.stderr.readline()
            it.doomed.set()
            out, _ = process.communicate(timeout=TIMEOUT_S)
            again.shutdown()
            again.server_close()
        assert out.startswith("Azure is to terminate this machine"), out


def test_a_job_is_saved_when_its_machine_is_pre_empted():
    expected("farm")
    with Cloud("gce", "/computeMetadata/v1/instance/preempted", "TRUE") as it:
        with Nodes("farm", 2, ckpt_every=0.5) as job:
            ready(job)
            with watching(it.url, "gce", job.home) as process:
                assert it.asked.wait(TIMEOUT_S)
                it.doomed.set()
                out, _ = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0 and "it is saved" in out, out
            saved(job)
            restart(job, "--nodes", "2")
            job.wait_event("restarted")
            job.ends_as("farm")


# In a PID namespace, where no other jobs are: an ordinary user's job, and root, who tells all.
EVERYONE = """
as_user="setpriv --reuid=$1 --regid=$1 --clear-groups env EYRIE_HOME=$2 HOME=$2"
$as_user "$3" run -n 2 --nodes 2 --ckpt-every 0.5 --ckpt-first 0.3 -v -- "$4" --steps 1000000 2> "$2/said" > /dev/null &
job=$!
for rank in 0 1; do
    until grep -q "rank $rank checkpointed" "$2/said"; do kill -0 $job || exit 9; sleep 0.05; done
done
! $as_user "$3" notice --all-users 2>&1 || exit 8
"$3" notice --all-users || exit 7
wait $job
echo "ended with $?"
"""


def test_root_tells_the_nodes_of_all_users():
    if os.geteuid() != 0:
        raise NotRun("another user's nodes are told by root")
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        os.chown(home, ORDINARY_USER, ORDINARY_USER)
        words = [str(ORDINARY_USER), home, installed_for_all(), reachable(example("heat")[0])]
        command = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", EVERYONE, "sh", *words]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=TIMEOUT_S)
        with open(f"{home}/said") as file:
            said = file.read()
        assert done.returncode == 0, (done, said)
        assert "is for root" in done.stdout and "it is saved" in done.stdout, done
        assert done.stdout.endswith("ended with 85\n"), (done, said)
