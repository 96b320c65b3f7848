"""Jobs of a user without privileges whose ranks have child processes and threads: they get back the
numbers that they had, in a PID namespace of the node's own; where there is none, they are not
checkpointed, with the reason."""

import os
import subprocess

import families
import nodes
from families import COMMAND, Family, expected
from ha import Etcd, Standby, lose_machine
from harness import NO_NAMESPACES, Gated, NotRun, alive
from hosts import Hosted, shell
from migrate import migrate
from suspend import goes_on, stands


class Ordinary(Family):
    ordinary = True


class Alone(Gated):
    """On one node, with a step for each line of input."""

    ordinary = True
    all_have_images, goes_on = Family.all_have_images, Family.goes_on

    def __init__(self, *options, **more):
        expected()
        command = [*COMMAND, "gates"]
        super().__init__(
            command, ranks=families.RANKS, ckpt_every=0.3, options=options, stdin="open", **more
        )


def test_ranks_with_children_are_killed():
    """By the number that is told outside of the namespace; the owner sees his own name inside."""
    with Alone() as job:
        for rank in (1, 0):
            record = job.wait_running(families.RANKS)
            pid = record["ranks"][rank]["pid"]
            status = open(f"/proc/{pid}/status").read()
            assert f"Uid:\t{os.stat(job.home).st_uid}\t" in status, status
            job.all_have_images()
            restored = job.count("restored", rank=rank)
            assert job.kill_pid(rank)
            job.wait_event("restored", rank=rank, count=restored + 1)
            job.goes_on()
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == expected(), job.report()
        restored = [e for e in job.events() if e["event"] == "restored"]
        assert restored and all(e["generation"] for e in restored), job.report()
        job.settle()
        assert not job.left_over(), job.left_over()


def test_a_daemon_is_killed_with_all_that_is_inside():
    with Alone() as job:
        record = job.wait_running(families.RANKS)
        os.kill(record["daemon_pid"], 9)
        assert job.wait() != 0
        job.settle()
        assert not job.pids.left(), job.pids.left()
        assert not any(alive(r["pid"]) for r in record["ranks"]), record


def test_nodes_are_lost_and_left():
    """Images go where the numbers of another namespace are free."""
    with Ordinary() as job:
        job.wait_running(families.RANKS)
        job.all_have_images()
        job.goes_on()
        job.kill_nodes(1)
        job.wait_event("restored", rank=1)
        job.all_have_images()
        migrate(job, "--from", "2", "--to", "0")
        job.goes_on()
        job.ends_well()


def test_without_numbers_there_is_no_checkpoint():
    """Neither switched off nor refused by the kernel; the job itself is as any other."""
    for options, wrap, words in (
        (["--own-pids", "no"], (), "--own-pids no"),
        ([], NO_NAMESPACES, "user.max_user_namespaces is 0"),
    ):
        if wrap and subprocess.run([*wrap, "true"], capture_output=True).returncode != 0:
            raise NotRun("user namespaces are not permitted here")
        with Alone(*options, wrap=wrap) as job:
            job.wait_running(families.RANKS)
            job.wait_event("checkpoint-failed", rank=0)
            job.goes_on()
            job.goes_on()
            job.let_end()
            assert job.wait() == 0 and job.stdout() == expected(), job.report()
            told = [e["text"] for e in job.events() if e["event"] == "checkpoint-failed"]
            assert all(words in text for text in told), told
            assert not job.count("checkpointed"), job.report()


class OrdinaryHosted(Hosted):
    """Over hosts, by a remote shell that this user may start, from a folder that he may be in."""

    ordinary = True

    def __init__(self, rsh, *options, **more):
        os.chmod(os.path.dirname(rsh), 0o755)
        more = {"ckpt_every": 0.5, "cwd": "/", **more}
        super().__init__("farm", rsh, options, **more)


def test_hosts_with_a_vault_and_tls_stand_still_and_are_lost():
    """Six hosts, of which two may be lost; their connections are encrypted."""
    nodes.expected("farm")
    with shell() as rsh:
        options = ["--tls", "--vault", "rs:4+2"]
        with OrdinaryHosted(rsh, *options, hosts="a:1,b:1,c:1,d:1,e:1,f:1") as job:
            job.wait_running(4)
            job.wait_event("vaulted")
            job.all_checkpointed()
            job.eyrie("suspend", "last")
            stands(job)
            goes_on(job)
            _, text, _ = job.eyrie("vault", "verify", "last")
            assert " chunks are sound, 0 damaged" in text, text
            job.kill_nodes(0, 2)
            for rank in (0, 2):
                job.wait_event("restored", rank=rank)
            job.ends_as("farm")
            restored = [e for e in job.events() if e["event"] == "restored"]
            assert restored and all(e["generation"] for e in restored), job.report()


def test_a_standby_goes_on():
    """The machine of `eyrie run` is lost; the job's state is in etcd."""
    nodes.expected("farm")
    with Etcd() as etcd, shell() as rsh:
        with OrdinaryHosted(rsh, "--ha", etcd.url) as job:
            job.says("eyrie standby")
            name = os.path.basename(job.until(job.folder, "folder"))
            job.all_checkpointed()
            with Standby(job, etcd, name) as standby:
                lose_machine(job)
                standby.goes_on()
                standby.ends_as("farm")
