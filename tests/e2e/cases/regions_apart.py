"""Checkpoints of regions on nodes that do not see each other's folders: each process is told its own
one only, and comes back on another node. Programs in C, Fortran and Python, and one with VeloC's
calls, are killed with SIGKILL, lose two of four folders, are started again, and print what an
undisturbed run prints. Under `eyrie run` and under MPICH."""

import glob
import json
import os
import re
import shutil
import subprocess

import harness
import regions
from regions import DIE, EVERY, World, eyrie, mpich

NODES = 4
# What a process is told: its folder, which is another one with each turn.
OWN = (
    f'export EYRIE_VAULT_FOLDERS="$1/$(((${{PMI_RANK:-$EYRIE_RANK}} + $2) % {NODES}))"; '
    'shift 2; exec "$@"'
)


class Apart(World):
    """Four nodes, each of which sees its own folder."""

    turn = 0

    def __init__(self, launch, program, more="vault=rs:2+2", veloc=False):
        super().__init__(launch, program, more, veloc)

    def nodes(self, world="n"):
        return [os.path.join(self.home, world, str(node)) for node in range(NODES)]

    def options(self, world):
        if not self.veloc:
            return self.more
        path = os.path.join(self.home, world + ".cfg")
        with open(path, "w") as f:
            f.write(self.more.replace(";", "\n") + "\n")
        return path

    def command(self, world="n", die=()):
        folders = os.path.join(self.home, world)
        words = super().command(world, die)
        return ["/bin/sh", "-c", OWN, "sh", folders, str(self.turn), *words]

    def moves(self, *lost):
        """These nodes are gone, and each process is on another one."""
        for node in lost:
            shutil.rmtree(self.nodes()[node])
        self.turn += 1

    def listed(self, *options):
        vaults = [os.path.join(node, "vault") for node in self.nodes()]
        command = [harness.EYRIE, "vault", "ls", *options, *vaults]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout


def killed(launch, program, again=False, veloc=False):
    with Apart(launch, program, veloc=veloc) as world:
        world.killed(1)
        world.moves(1, 2)
        if again:
            world.killed(0, DIE + EVERY)
            world.moves(0, 3)
        err = world.goes_on((DIE + EVERY * again) // EVERY * EVERY)
        assert f"is node {0 if again else 1} of the vault now" in err, err
        for left in ("parts", "files"):
            for node in world.nodes():
                found = glob.glob(os.path.join(node, left, "*"))
                assert found == [], found
        assert world.listed().count(" whole") >= 2, world.listed()
        # How it was made goes by how fast the processes were found to reach each other.
        told = [g["why"] for g in json.loads(world.listed("--json"))]
        measured = r"\(nothing was measured\)"
        if program == regions.large_program():
            measured = r"\(measured: [0-9.]+ MB/s, [0-9.]+ ms, coding [0-9.]+ MB/s\)"
        assert told and all(re.search(measured, why) for why in told), told
        pick = r"(^|; )(pipeline|fanin|broadcast): pipeline [0-9.]+ ms"
        assert all(re.search(pick, why) for why in told), told


def test_c_on_nodes_of_their_own():
    killed(eyrie, regions.c_program(), again=True)


def test_much_on_nodes_of_their_own():
    killed(eyrie, regions.large_program(), again=True)


def test_fortran_on_nodes_of_their_own():
    killed(eyrie, regions.fortran_program())


def test_numpy_on_nodes_of_their_own():
    killed(eyrie, regions.numpy_program())


def test_veloc_on_nodes_of_their_own():
    killed(eyrie, regions.veloc_program(), veloc=True)


def test_c_under_mpich_on_nodes_of_their_own():
    killed(mpich, regions.large_program())


def test_killed_while_parity_is_made_and_two_nodes_lost():
    with Apart(eyrie, regions.c_program()) as world:
        for rank, send in ((1, 3), (2, 30), (0, 75)):
            world.program = ["env", f"HEAT_DIES={rank}:{send}", *regions.c_program()]
            code, out, err = world.run()
            assert code != 0 and "steps" not in out, (code, out, err)
            world.program = regions.c_program()
            world.moves(rank, (rank + 1) % NODES)
        code, out, err = world.run()
        assert (code, out) == (0, world.expected), (out, err)


def test_more_lost_than_may_be_is_told_and_what_is_elsewhere_is_used():
    with Apart(eyrie, regions.c_program()) as world:
        world.more += f";every=2;persistent={world.home}/far"
        world.killed(3)
        world.moves(0, 1, 2)
        err = world.goes_on(since=20)
        line = "checkpoint heat 30 (generation 3 of the vault, rs:2+2) is lost: of its nodes"
        assert f"{line} 0, 1, 2, 3 the folders of 0, 1, 2 are gone, and 2 may be" in err, err
        assert "the newest that can be had is heat 20" in err, err


def test_where_single_ranks_are_restored_another_mpi_is_refused():
    """MPICH's library records nothing of what a process would have to find again."""
    with Apart(mpich, regions.c_program()) as world:
        command = ["env", "EYRIE_REPEATS=1", *world.command("other")]
        code, out, err = mpich(command)
        assert code != 0 and "steps" not in out, (code, out, err)
        assert "for which this MPI library records nothing" in err, err


def test_all_ranks_go_back_and_repeat_their_checkpoints():
    """Under `--ft coordinated` all repeat what they had stored: it is there already, and stays."""
    with Apart(eyrie, regions.c_program()) as world:
        command = world.command("n")
        at = command.index(str(regions.STEPS))
        command[at], command[at + 1] = "1200", "50"
        code, expected, err = eyrie(command)
        assert code == 0, err
        shutil.rmtree(os.path.join(world.home, "n"))
        gate = os.path.join(world.home, "gate")
        options = {"ft": "coordinated", "ckpt_every": 3600, "env": {"HEAT_GATE": gate}}
        with harness.Job(command, ranks=NODES, **options) as job:
            job.says("at step 300")
            job.eyrie("checkpoint", "last")
            job.wait_event("checkpointed", count=NODES)
            open(gate + ".300", "w").close()
            job.says("at step 900")
            job.kill_ranks([2])
            open(gate + ".900", "w").close()
            assert job.wait() == 0, job.report()
            assert job.stdout() == expected, job.report()
            restored = [e["generation"] for e in job.events() if e["event"] == "restored"]
            assert len(restored) == NODES and min(restored) > 0, job.report()
            assert "goes on" not in job.stderr(), job.report()
