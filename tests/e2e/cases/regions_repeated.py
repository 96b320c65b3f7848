"""Checkpoints of regions on nodes that do not see each other's folders, under `--ft logged`: a rank
that dies is restored alone, makes parity again with what it had, and damages nothing that was
stored since. Programs in C, Fortran and Python, and one with VeloC's calls."""

import glob
import os
import random
import re
import shutil
import subprocess

import harness
import regions
from harness import Gated
from regions import PATHS, eyrie
from regions_apart import NODES, Apart

STEPS, EVERY = 600, 50
KEPT = 2


class Repeated(Apart):
    """Long enough to be killed in, and, however fast it is, there until a test lets it end."""

    def command(self, world="n", die=(), steps=STEPS, every=EVERY):
        words = super().command(world, die)
        at = words.index(str(regions.STEPS))
        words[at : at + 2] = [str(steps), str(every)]
        return words

    def job(self, env=None, **more):
        shutil.rmtree(os.path.join(self.home, "n"), ignore_errors=True)
        return Gated(self.command(), ranks=NODES, env={**PATHS, **(env or {})}, **more)

    def ended_well(self, job, restored):
        """The job printed what an undisturbed one prints, nobody but the dead were disturbed, and
        what was stored last is whole on all nodes."""
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == self.expected, job.report()
        assert job.count("restored") + job.count("restarted") >= restored, job.report()
        assert not job.count("rolled-back") and not job.count("diverged"), job.report()
        assert "goes on" not in job.stderr(), job.report()
        self.whole()

    def whole(self):
        vaults = [os.path.join(node, "vault") for node in self.nodes()]
        listed = self.vault("ls", *vaults)
        assert listed.stdout.count(" whole") == KEPT, listed
        assert self.vault("verify", *vaults).returncode == 0
        for left in ("parts", "files"):
            for node in self.nodes():
                assert glob.glob(os.path.join(node, left, "*")) == [], (node, left)

    def vault(self, *words):
        done = subprocess.run(
            [harness.EYRIE, "vault", *words], capture_output=True, text=True, timeout=harness.TIMEOUT_S
        )
        assert done.returncode == 0, done
        return done

    def restores(self):
        """Another job finds what the one before had stored last."""
        code, out, err = eyrie(self.command())
        assert (code, out) == (0, self.expected), err
        assert f"goes on from step {STEPS}\n" in err, err

    def stored(self, generation=2):
        """Whether this generation or a later one is."""
        found = glob.glob(os.path.join(self.home, "n", "*", "vault", "gen-*.commit"))
        return any(int(re.search(r"gen-(\d+)\.", path)[1]) >= generation for path in found)


def test_killed_while_parity_is_made():
    """At a number of messages from the beginning of the program on: without an image, and with one
    that was taken at any instant, also in the middle of a checkpoint."""
    with Repeated(eyrie, regions.c_program()) as world:
        for rank, sends, every in ((1, 3, 3600), (2, 31, 3600), (0, 95, 0.1), (3, 211, 0.1)):
            mark = os.path.join(world.home, f"killed.{rank}")
            env = {"HEAT_DIES": f"{rank}:{sends}:{mark}"}
            with world.job(env, ckpt_every=every) as job:
                world.ended_well(job, 1)
                assert os.path.exists(mark), job.report()
        world.restores()


def killed_when_stored(program, veloc=False):
    with Repeated(eyrie, program, f"vault=rs:2+2;keep={KEPT}", veloc) as world:
        with world.job(ckpt_every=0.2) as job:
            for generation, rank in ((2, 2), (4, 0)):
                job.until(lambda: world.stored(generation), f"generation {generation}")
                job.kill_ranks([rank])
            world.ended_well(job, 1)
        world.restores()


def test_c_killed_between_checkpoints():
    killed_when_stored(regions.c_program())


def test_fortran_killed_between_checkpoints():
    killed_when_stored(regions.fortran_program())


def test_numpy_killed_between_checkpoints():
    killed_when_stored(regions.numpy_program())


def test_veloc_killed_between_checkpoints():
    killed_when_stored(regions.veloc_program(), veloc=True)


def test_killed_at_random_instants():
    with Repeated(eyrie, regions.c_program()) as world:
        with world.job(ckpt_every=0.3) as job:
            for number in range(5):
                count = job.count("restored") + job.count("restarted")
                generation = 1 + 2 * number
                job.until(lambda: world.stored(generation), f"generation {generation}")
                job.kill_ranks(random.sample(range(NODES), 1 + number % 2))
            world.ended_well(job, count)


def test_a_node_is_lost_with_its_folder_while_parity_is_made():
    """The rank is restored on another node, where its folder is empty, and fills it again."""
    with Repeated(eyrie, regions.c_program()) as world:
        # Half of the checkpoints are still to come, which fill the folder.
        gate = os.path.join(world.home, "gate")
        options = {"options": ["--nodes", str(NODES)], "env": {"HEAT_GATE": gate}}
        with world.job(ckpt_every=0.3, **options) as job:
            job.until(lambda: world.stored(3), "generation 3")
            job.eyrie("inject", "last", "kill-node", "2")
            shutil.rmtree(world.nodes()[2], ignore_errors=True)
            open(gate + ".300", "w").close()
            job.let_end()
            assert job.wait() == 0, job.report()
            assert job.stdout() == world.expected, job.report()
            assert not job.count("diverged"), job.report()
        world.whole()
        world.restores()


def test_units_of_two_ranks_go_back_together():
    """Under `--ft node` those of a node are restored at once, and repeat what they did."""
    with Repeated(eyrie, regions.c_program()) as world:
        with world.job(options=["--nodes", "2"], ft="node", ckpt_every=0.3) as job:
            for generation, rank in ((2, 2), (5, 0)):
                job.until(lambda: world.stored(generation), f"generation {generation}")
                job.kill_ranks([rank])
            world.ended_well(job, 2)
        world.restores()
