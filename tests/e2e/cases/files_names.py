"""Names in folders that ranks make, move and remove: a rank that repeats itself does it once."""

import os
import tempfile

import files_begin
from bad_input import program
from harness import Job

STEPS = "24"


def holds(killed, checkpoint=False, options=()):
    """Ranks are killed one after the other; all that is there in the end is what it is without that."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        alone, work, gates = (os.path.join(folder, name) for name in ("alone", "work", "gates"))
        for place in (alone, work, gates):
            os.mkdir(place)
        command = [*program("entries"), STEPS, gates]
        for rank in range(3):
            open(f"{gates}/{rank}", "w").close()
        with Job(command, ranks=3, ft="none", cwd=alone) as job:
            assert job.wait() == 0, job.report()
            expected = job.stdout()
        assert expected.startswith("all "), expected
        for name in os.listdir(gates):
            os.remove(f"{gates}/{name}")
        more = {"ranks": 3, "ckpt_every": 3600, "cwd": work, "options": ["--fallback-every", "off", *options]}
        with Job(command, **more) as job:
            at = lambda rank: os.path.exists(f"{gates}/at.{rank}")
            for rank in killed:
                job.until(lambda: all(map(at, range(3))), "the gates")
                if checkpoint:
                    job.eyrie("checkpoint", "last")
                os.remove(f"{gates}/at.{rank}")
                job.kill_ranks([rank])
                if not checkpoint:
                    job.until(lambda: at(rank), f"rank {rank} at the gate again")
                else:
                    job.wait_event("restored", rank=rank)
                    open(f"{gates}/at.{rank}", "w").close()
            for rank in range(3):
                open(f"{gates}/{rank}", "w").close()
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected, (job.stdout(), expected, job.stderr())
            differ, _ = files_begin.differing(alone, work)
            assert not differ, (differ, job.stderr())


def test_a_rank_that_begins_anew():
    for rank in range(3):
        holds([rank])


def test_each_rank_in_turn():
    holds([2, 0, 1])


def test_each_rank_after_a_checkpoint():
    holds([1, 0, 2], checkpoint=True)


def test_ranks_on_virtual_nodes():
    holds([1, 0], options=["--nodes", "3"])


def test_a_file_that_one_makes_and_reads_and_all_write_to():
    """What others have written stays, though the rank that repeats itself makes the file anew."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "go")
        command = [*program("slices"), gate]
        with Job(command, ranks=3, ckpt_every=3600, cwd=folder, options=["--fallback-every", "off"]) as job:
            job.until(lambda: os.path.exists(f"{gate}.at"), "all parts")
            os.remove(f"{gate}.at")
            job.kill_ranks([0])
            job.wait_event("started", rank=0, count=2)
            open(gate, "w").close()
            assert job.wait() == 0, job.report()
            assert job.stdout() == "103 203 \n", job.report()


def test_a_file_that_a_rank_reads_and_writes_in_place():
    """From its beginning on: it finds nothing there that it has yet to write."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "go")
        expected = None
        for killed in (False, True):
            options = ["--fallback-every", "off"]
            command = [*program("inplace"), "400", gate]
            with Job(command, ranks=2, ckpt_every=3600, cwd=folder, options=options) as job:
                if killed:
                    job.wait_running(2)
                    for rank in (1, 0):
                        job.until(lambda: job.status()["ranks"][0]["messages_sent"] >= 200, "half of the rounds")
                        job.kill_ranks([rank])
                        job.wait_event("started", rank=rank, count=2)
                open(gate, "w").close()
                assert job.wait() == 0, job.report()
                assert not job.count("rolled-back"), job.report()
                expected = expected or job.stdout()
                assert job.stdout() == expected, job.report()
            os.remove(gate)
