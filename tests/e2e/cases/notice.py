"""Nodes that are told that their machine is about to end: some leave their jobs, and a job all of whose
nodes are told is saved (hosts by a script, Slurm where it is installed)."""

import http.server
import os
import signal
import subprocess
import threading

from controller import kill_controller
from drain import Asked, is_gone, nothing_again, on_node, ready
from harness import EYRIE, ROOT, TIMEOUT_S, alive, soon
from hosts import Hosted, daemons, parent, shell
from migrate import Asking
from nodes import Nodes, Pointed, expected
from restart import SAVED, restart
from slurm import allocated, slurm


def keeper(record, node):
    return parent(record["nodes"][node]["pid"])


def leaves(job, name, record, node):
    """The node has left in order, and the job ends as it would."""
    job.wait_event("node-left", node=node)
    job.ends_as(name)
    nothing_again(job, on_node(record, node))


def told_to_leave(number, after=None):
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        record = ready(job)
        if after:
            after(job)
        pids = [keeper(record, 1), record["nodes"][1]["pid"]]
        os.kill(pids[0], number)
        leaves(job, "farm", record, 1)
        soon(lambda: not any(alive(pid) for pid in pids), "end of the keeper")
        job.says("has 25 s for it")


def generated():
    return [
        ("sigterm_to_a_keeper_has_its_node_leave", lambda: told_to_leave(signal.SIGTERM)),
        ("sigusr1_to_a_keeper_has_its_node_leave", lambda: told_to_leave(signal.SIGUSR1)),
        (
            "the_next_controller_hears_of_it_as_well",
            lambda: told_to_leave(signal.SIGTERM, kill_controller),
        ),
    ]


def test_a_daemon_is_told_itself():
    """So it is with nodes of one machine, which have no keeper."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        expected("farm")
        with Nodes("farm", 3, ckpt_every=0.5) as job:
            record = ready(job)
            os.kill(record["nodes"][1]["pid"], number)
            is_gone(job, 1, record)
            leaves(job, "farm", record, 1)


def test_without_time_it_ends_at_once():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ["--grace", "0"], ckpt_every=0.5) as job:
        record = ready(job)
        os.kill(keeper(record, 1), signal.SIGTERM)
        job.wait_event("node-lost", node=1)
        for rank in on_node(record, 1):
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")


def test_with_ranks_that_go_back_together_a_node_leaves():
    expected("farm")
    options = ["--ft", "coordinated", "--grace", "100"]
    with shell() as rsh, Hosted("farm", rsh, options, ckpt_every=3600) as job:
        record = job.wait_running(4)
        os.kill(keeper(record, 1), signal.SIGTERM)
        job.wait_event("node-left", node=1)
        job.ends_as("farm")
        assert not job.count("node-lost"), job.report()


def test_what_is_not_protected_is_told():
    expected("farm")
    # Its keeper ends the node when the time is over, and the job dies with it.
    with shell() as rsh, Hosted("farm", rsh, ["--ft", "none", "--grace", "600"]) as job:
        record = job.wait_running(4)
        os.kill(keeper(record, 1), signal.SIGTERM)
        text = "is to end, and the job with it: it runs with --ft none"
        job.says(text)
        job.ends_as("farm")


def test_a_job_whose_controller_is_on_the_machine_is_saved():
    """Also one on one machine, of which nobody has been told that states of it are to be saved."""
    expected("farm")
    with Nodes("farm", 2, ckpt_every=0.5) as job:
        ready(job)
        told = subprocess.run([EYRIE, "notice"], env=job.env, capture_output=True, text=True)
        assert told.returncode == 0 and "it is saved" in told.stdout, told
        saved(job)
        restart(job, "--nodes", "2")
        job.wait_event("restarted")
        job.ends_as("farm")


def saved(job):
    assert job.wait() == SAVED, job.report()
    assert "the job is saved" in job.stderr() and "eyrie restart" in job.stderr(), job.stderr()
    assert not job.count("node-lost"), job.report()


def test_a_job_all_of_whose_nodes_end_is_saved():
    for grace in ([], ["--grace", "20"]):
        expected("farm")
        with shell() as rsh, Hosted("farm", rsh, grace, ckpt_every=0.5) as job:
            record = ready(job)
            for node in (2, 0, 1):
                os.kill(keeper(record, node), signal.SIGTERM)
            saved(job)
            restart(job, "--nodes", "2")
            job.wait_event("restarted")
            job.ends_as("farm")


def test_nodes_that_are_told_one_after_the_other_save_the_job_in_the_end():
    """The first begins to leave, then there is nobody left who stays."""
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        record = ready(job)
        os.kill(keeper(record, 1), signal.SIGTERM)
        job.wait_event("node-leaving", node=1)
        os.kill(keeper(record, 0), signal.SIGTERM)
        os.kill(keeper(record, 2), signal.SIGTERM)
        saved(job)
        restart(job, "--nodes", "2")
        job.ends_as("farm")


def told_while(job, asked, at, node, record):
    """A node is told to end while somebody waits, who hears no more of a step that is held."""
    job.arm("leave-3")
    with asked() as asking:
        job.held_at("leave-3")
        os.kill(record["nodes"][node]["pid"], signal.SIGTERM)
        at()
        job.let_go("leave-3")
        return asking.over()


def test_a_node_that_leaves_already_has_no_more_time_than_its_machine():
    """However long its ranks are copied: what is over then is its time, and not its machine's."""
    expected("farm")
    with Pointed("farm", 3, ["--grace", "4"], ckpt_every=0.5) as job:
        record = ready(job)
        lost = lambda: job.wait_event("node-lost", node=1)
        code, out, err = told_while(job, lambda: Asked(job, "1"), lost, 1, record)
        assert code == 1 and "given up as lost" in out, (code, out, err)
        job.says("leaves the job already, and is to within")
        for rank in on_node(record, 1):
            job.wait_event("restored", rank=rank)
        job.ends_as("farm")
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()


def test_a_node_whose_ranks_move_leaves_when_it_is_told_to_end():
    """It does not become a spare of a machine that is about to end."""
    expected("farm")
    with Pointed("farm", 3, ckpt_every=0.5) as job:
        record = ready(job)
        asking = lambda: Asking(job, "--from", "1", "--to", "2")
        hears = lambda: job.says("in place of being a spare")
        code, out, err = told_while(job, asking, hears, 1, record)
        assert code == 0 and "has left" in out, (code, out, err)
        is_gone(job, 1, record)
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1))


def test_ranks_do_not_move_to_a_node_that_is_told_to_end():
    """They stay where they are, and take in those of that node: nobody need be saved."""
    expected("farm")
    with Pointed("farm", 2, ckpt_every=0.5) as job:
        record = ready(job)
        asking = lambda: Asking(job, "--from", "0", "--to", "1")
        stays = lambda: job.wait_event("node-stays", node=0)
        code, out, err = told_while(job, asking, stays, 1, record)
        assert code == 1 and "is about to end" in out, (code, out, err)
        is_gone(job, 1, record)
        assert {r["node"] for r in job.status()["ranks"]} == {0}, job.status()
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1))


class Instance(http.server.BaseHTTPRequestHandler):
    """The metadata of a spot instance."""

    doomed = False

    def answer(self, code, body=b""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        self.answer(200, b"token")

    def do_GET(self):
        good = self.path.endswith("/spot/instance-action") and Instance.doomed
        known = self.headers.get("X-aws-ec2-metadata-token") == "token"
        self.answer(401 if not known else 200 if good else 404, b'{"action": "terminate"}')

    def log_message(self, *_):
        pass


def test_the_notice_of_a_spot_instance_is_heeded():
    """The script of the documents. All hosts of the test are this machine, so all nodes are told."""
    expected("farm")
    server = http.server.HTTPServer(("127.0.0.1", 0), Instance)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with shell() as rsh, Hosted("farm", rsh, ckpt_every=0.5) as job:
        env = {
            **os.environ,
            "EYRIE": EYRIE,
            "EYRIE_HOME": job.home,
            "SPOT_METADATA": f"http://127.0.0.1:{server.server_port}/latest",
            "SPOT_EVERY": "0.1",
        }
        ready(job)
        elsewhere = {**env, "EYRIE_HOME": os.path.join(job.home, "elsewhere")}
        none = subprocess.run([EYRIE, "notice"], env=elsewhere)
        assert none.returncode == 1
        script = os.path.join(ROOT, "examples", "hooks", "spot-notice")
        hook = subprocess.Popen([script], env=env, stdout=subprocess.PIPE, text=True)
        try:
            Instance.doomed = True
            out, _ = hook.communicate(timeout=TIMEOUT_S)
        finally:
            hook.kill()
            server.shutdown()
        assert hook.returncode == 0 and out.count("told ") == 4, out
        saved(job)
        restart(job, "--nodes", "2")
        job.ends_as("farm")


# ---- a real Slurm ----


def slurm_tool(it, *command):
    env = {**os.environ, **it.environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout.split()


def the_job(it):
    (number,) = slurm_tool(it, "squeue", "-h", "-o", "%A")
    return number


def goes_on_in_another(it, job):
    soon(it.idle, "end of the allocation")
    # No longer through the eyes of `salloc`.
    job.job_home = job.env["EYRIE_HOME"] = job.home
    restart(job, "--nodes", "2")
    job.wait_event("restarted")
    job.ends_as("farm")


def test_real_a_node_of_slurm_leaves():
    expected("farm")
    with slurm() as it:
        before = daemons()
        with allocated("farm", it) as job:
            record = ready(job)
            os.kill(keeper(record, 1), signal.SIGUSR1)
            job.wait_event("node-left", node=1)
            job.ends_as("farm")
            assert not job.count("rolled-back") and not job.count("node-lost"), job.report()
            assert on_node(record, 1)
        soon(lambda: not daemons() - before, "end of all daemons")


def test_real_slurm_signals_all_steps():
    expected("farm")
    with slurm() as it:
        before = daemons()
        with allocated("farm", it) as job:
            ready(job)
            slurm_tool(it, "scancel", "--signal=TERM", the_job(it))
            assert job.wait() == SAVED, job.report()
            soon(lambda: not daemons() - before, "end of all daemons")
            goes_on_in_another(it, job)


def test_real_slurm_cancels_the_job():
    expected("farm")
    with slurm() as it:
        before = daemons()
        with allocated("farm", it) as job:
            ready(job)
            slurm_tool(it, "scancel", the_job(it))
            job.wait()
            soon(lambda: not daemons() - before, "end of all daemons")
            job.says("is saved and ends")
            goes_on_in_another(it, job)
