"""Jobs whose connections are encrypted (`--tls`): what crosses the network, and who is turned away."""

import contextlib
import os
import secrets
import socket
import ssl
import threading

from controller import kill_controller, unharmed
from harness import ROOT, Job, NotRun, compile_program
from hosts import Hosted, shell
from nodes import Nodes, expected, killed
from restart import restart, save
from strangers import hello, ports, say

TLS = ["--tls"]
# Of the frames on the wire: enough for a burst that is not read at once.
BUFFER_BYTES = 64 << 20
SO_RCVBUFFORCE = 33
ETH_P_ALL = 3


class Capture(threading.Thread):
    """Looks for texts in all that crosses the loopback device. Root only."""

    def __init__(self, *texts):
        super().__init__(daemon=True)
        try:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        except PermissionError:
            raise NotRun("reading the network takes root") from None
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.1)
        self.texts, self.over = texts, threading.Event()
        self.count, self.seen = 0, set()

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                packet = self.socket.recv(1 << 17)
                self.count += 1
                self.seen |= {t for t in self.texts if t.encode() in packet}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.socket.close()


def crosses(options):
    """What of a program's text and of the job's name is read on the network, and its status."""
    program = compile_program(os.path.join(ROOT, "tests", "e2e", "programs", "marked.c"))
    text = secrets.token_hex(24)
    options = ["--nodes", "2", *options]
    with Capture(text) as capture:
        end = os.path.join("/tmp", f"eyrie-test-{text}")
        with Job([program, text, end], ranks=2, options=options, ckpt_every=0.3) as job:
            record = job.until(lambda: job.status(), "the job")
            # Early messages need a few rounds to begin, and images cross, too.
            for rank in range(2):
                job.wait_event("checkpointed", rank=rank, count=2)
            before = capture.count
            job.until(lambda: capture.count > before + 1000, "a thousand packets")
            record = job.status()
            open(end, "w").close()
            try:
                assert job.wait() == 0, job.report()
            finally:
                os.unlink(end)
            assert job.stdout() == f"{text}\n" * 2, job.stdout()
    return capture.seen, record


def test_nothing_of_a_message_is_read_on_the_network():
    seen, record = crosses(TLS)
    assert not seen, "a message was read"
    assert record["tls"] and not any(r["messages_early"] for r in record["ranks"]), record


def test_without_it_is():
    seen, record = crosses([])
    assert seen, "the test would not see a message"
    assert not record["tls"], record


def test_a_job_runs_and_loses_a_node():
    killed("farm", 3, [1], options=TLS)


def test_two_nodes_are_lost_and_there_is_a_spare():
    killed("heat", 4, [0, 2], options=["--spares", "1", *TLS])


def test_ranks_and_a_controller_die():
    expected("farm")
    with Nodes("farm", 2, TLS, ckpt_every=0.5) as job:
        job.all_checkpointed()
        job.kill_ranks([0, 3])
        job.wait_event("restored", rank=0)
        job.wait_event("restored", rank=3)
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "connections: encrypted" in text, text
        kill_controller(job)
        assert job.status()["tls"]
        job.ends_as("farm")


def test_a_controller_dies_and_no_rank_is_touched():
    expected("heat")
    with Nodes("heat", 3, env={"EYRIE_TLS": "1"}, ckpt_every=0.5) as job:
        job.all_checkpointed()
        assert job.status()["tls"]
        kill_controller(job)
        unharmed(job)
        job.ends_as("heat")


def test_a_job_over_hosts_is_saved_and_goes_on_encrypted():
    """Images cross in both directions."""
    expected("cg")
    with shell() as rsh, Hosted("cg", rsh, TLS, ckpt_every=0.5) as job:
        job.all_checkpointed()
        save(job)
        restart(job)
        job.wait_running(4)
        assert job.status()["tls"]
        job.ends_as("cg")


def test_strangers_are_closed_told_of_and_counted():
    """Who does not encrypt, who does with another key, or none."""
    expected("cg")
    with Nodes("cg", 2, TLS, ckpt_every=0.5) as job:
        record = job.wait_running(4)
        link = int(record["nodes"][1]["address"].rsplit(":", 1)[1])
        [store] = [p for p in ports(record["nodes"][1]["pid"]) if p != link]
        [controller] = ports(record["daemon_pid"])
        name, peer = record["job"], (1, record["nodes"][1]["epoch"])
        keyless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        keyless.check_hostname, keyless.verify_mode = False, ssl.CERT_NONE
        for port, role in ((link, 3), (store, 5), (controller, 2)):
            # An alert of TLS has seven bytes.
            assert len(say(port, b"GET / HTTP/1.0\r\n\r\n" + bytes(80))) <= 7
            assert len(say(port, hello(role, name, to=peer), bytes(32))) <= 7
            with socket.create_connection(("127.0.0.1", port)) as stream:
                stream.settimeout(60)
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    with keyless.wrap_socket(stream) as inside:
                        inside.sendall(hello(role, name, to=peer))
                        assert inside.recv(4096) == b""
        job.until(lambda: job.status()["nodes"][1]["strangers"] >= 6, "six strangers")
        job.until(lambda: job.status()["malformed_frames"] >= 3, "three at the controller")
        with open(os.path.join(job.folder(), "node.log")) as file:
            log = file.read()
        assert log.count("a caller is turned away: it does not speak TLS") == 2, log
        assert log.count("a caller is turned away: its TLS handshake failed") == 1, log
        job.ends_as("cg")
        assert not job.count("detected") and not job.count("node-lost"), job.report()
