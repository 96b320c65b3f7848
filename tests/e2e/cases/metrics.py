"""Metrics: what a scraper is told of a job in which something dies, and what node_exporter finds."""

import contextlib
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import tempfile
import time

import harness
import openmetrics
from harness import EYRIE, ROOT, TIMEOUT_S, Gated, example
from openmetrics import Unix, ask, one, parse

HEAT = example("heat") + ["--size", "128", "--steps", "300"]
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
MONITORING = ("grafana/eyrie.json", "prometheus/eyrie.rules.yml")


def port_of(job):
    job.says("metrics: http://127.0.0.1:")
    return int(re.search(r"metrics: http://127\.0\.0\.1:(\d+)/metrics", job.stderr()).group(1))


def scrape(port):
    """The series, of both formats, which tell the same."""
    texts = {}
    for accept in (ACCEPT, None):
        status, kind, text = ask(http.client.HTTPConnection("127.0.0.1", port, timeout=harness.TIMEOUT_S), accept=accept)
        assert status == 200 and kind.startswith("application/openmetrics-text" if accept else "text/plain"), kind
        texts[accept] = parse(text, open_metrics=bool(accept))
    assert {name for name, _ in texts[ACCEPT][1]} == {name for name, _ in texts[None][1]}
    return texts[ACCEPT]


def named():
    """All metrics that the dashboard and the alerts ask for."""
    names = set()
    for path in MONITORING:
        with open(os.path.join(ROOT, "packaging", path)) as file:
            names |= set(re.findall(r"\beyrie_[a-z_]+", file.read()))
    return names


def test_a_job_that_is_scraped_under_a_kill():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        file = os.path.join(folder, "job.prom")
        options = ["--nodes", "3", "--name", "heat-1", "--metrics", "0", "--metrics-file", file]
        with Gated(HEAT, ckpt_every=3600, options=options) as job:
            job.wait_running(4)
            port = port_of(job)
            job.eyrie("checkpoint", "last")
            told = lambda name, value: one(scrape(port)[1], f"eyrie_{name}") == value
            # What was found a moment ago is told once more.
            harness.soon(lambda: told("checkpoints_total", 4), "metrics of four checkpoints")
            families, before = scrape(port)
            own = {"job_id": job.status()["job"], "name": "heat-1"}
            count = lambda metric, **labels: one(before, f"eyrie_{metric}", **own, **labels)
            assert count("deaths_total") == 0
            assert count("nodes", state="live") == 3 and count("nodes", state="lost") == 0
            assert count("checkpoint_pause_seconds_count") == 4 and count("protected") == 1
            assert count("checkpoint_written_bytes_total") > 0 and count("log_fill_ratio", node="0") >= 0
            assert sum(v for (name, _), v in before.items() if name == "eyrie_ranks") == 4
            assert count("job_info", program="heat", ft="logged") == 1
            job.kill_ranks([2])
            job.wait_event("restored", rank=2)
            job.eyrie("inject", "last", "kill-controller")
            job.wait_event("controller-back")
            harness.soon(lambda: told("controllers_replaced_total", 1), "metrics of the next controller")
            _, after = scrape(port)
            assert one(after, "eyrie_deaths_total") == 1 and one(after, "eyrie_recoveries_total") == 1
            assert one(after, "eyrie_recovery_seconds_total") > 0, after
            fallen = [
                key
                for key, value in before.items()
                if key[0].endswith("_total") and after.get(key, value) < value
            ]
            assert not fallen, fallen
            there = {name for name, _ in after} | set(families)
            missing = named() - there - {"eyrie_router_log_bytes"}
            assert {m for m in missing if not re.match("eyrie_(vault_(damaged|repaired)|messages|gateway)_", m)} == set(), missing
            wrong_requests(port)
            job.let_end()
            assert job.wait() == 0, job.report()
            with open(file) as text:
                _, last = parse(text.read(), open_metrics=False)
            assert one(last, "eyrie_job_ended") == 1 and one(last, "eyrie_exit_code") == 0, last
            assert one(last, "eyrie_ranks", state="exited") == 4 and one(last, "eyrie_deaths_total") == 1
            assert os.listdir(folder) == ["job.prom"] and os.stat(file).st_mode & 0o777 == 0o644
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5)
                raise AssertionError("somebody listens after the job's end")


def wrong_requests(port):
    connection = lambda: http.client.HTTPConnection("127.0.0.1", port, timeout=harness.TIMEOUT_S)
    assert ask(connection(), target="/other")[0] == 404
    assert ask(connection(), method="POST")[0] == 405
    assert ask(connection(), method="HEAD")[2] == ""
    for garbage in (b"\x00\xff\r\n\r\n", b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20000, b""):
        with socket.create_connection(("127.0.0.1", port), 30) as raw, contextlib.suppress(OSError):
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            answer = raw.recv(100)
            assert not answer or answer.startswith(b"HTTP/1.1 400 "), answer
    # Those who say nothing keep nobody else waiting.
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
        begun = time.monotonic()
        assert ask(connection())[0] == 200 and time.monotonic() - begun < 5


def test_a_socket_for_one_user_and_places_that_are_taken():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        path = os.path.join(folder, "metrics.sock")
        with Gated(HEAT, ckpt_every=3600, options=["-q", "--metrics", f"unix:{path}"]) as job:
            job.wait_running(4)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            status, _, text = ask(Unix(path), accept=ACCEPT)
            _, values = parse(text, open_metrics=True)
            assert status == 200 and one(values, "eyrie_nodes", state="live") == 1, text
            with socket.create_server(("127.0.0.1", 0)) as server:
                taken = str(server.getsockname()[1])
                for option, value, words in (
                    ("--metrics", taken, "--metrics 0 takes a free port"),
                    ("--metrics", f"unix:{path}", "another job listens there"),
                    ("--metrics", f"unix:{folder}/no/x", "No such file"),
                    ("--metrics-file", f"{folder}/no/x.prom", "No such file"),
                    ("--metrics-file", folder, "irectory"),
                ):
                    command = [EYRIE, "run", option, value, "--", "true"]
                    home = {**os.environ, "EYRIE_HOME": os.path.join(folder, "home")}
                    done = subprocess.run(command, capture_output=True, text=True, env=home, check=False)
                    assert done.returncode == 1 and words in done.stderr and not done.stdout, (value, done)
            job.let_end()
            assert job.wait() == 0 and job.stderr() == "", job.report()
        assert not os.path.exists(path)


def test_the_dashboard_is_whole():
    with open(os.path.join(ROOT, "packaging", MONITORING[0])) as file:
        board = json.load(file)
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers) and len(numbers) > 20
    for panel in board["panels"]:
        assert panel["targets"] and all(t["expr"] for t in panel["targets"]), panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
