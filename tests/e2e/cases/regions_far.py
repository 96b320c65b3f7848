"""Checkpoints of regions in an object store, encrypted and not: programs in C and Python, and one
with VeloC's calls, go on from there when all folders are gone, on another number of nodes. Under
`eyrie run`, under MPICH, and without MPI."""

import os
import shutil
import struct

import regions
import regions_repeated
import stores
from harness import Job, run_to_end
from regions import PATHS, World

PLACE = "s3://states/heat"
# A bit of an object is changed.
FLIPPED = """
data = bytearray(s3.get_object(Bucket='states', Key=a[0])['Body'].read())
data[len(data) // 2] ^= 1
s3.put_object(Bucket='states', Key=a[0], Body=bytes(data))
"""
SEALED, PLAIN = b"EYRIERGS", b"EYRIEREG"


def beginnings(it, keys, count=8):
    """The first bytes of objects."""
    script = f"for k in a: print(s3.get_object(Bucket='states', Key=k)['Body'].read({count}).hex())"
    return {bytes.fromhex(line) for line in it.client(script, *keys).split()}


class Apart:
    """What the undisturbed run brings is not where the others look."""

    def __enter__(self):
        self.more = self.more.replace(PLACE, PLACE + "-undisturbed")
        super().__enter__()
        self.more = self.more.replace(PLACE + "-undisturbed", PLACE)
        return self


class Far(Apart, World):
    """Three nodes, and the store."""

    def __init__(self, it, launch, program, more="vault=rs:2+1", veloc=False):
        self.it, self.env = it, dict(it.env)
        options = f"{more};every=2;persistent={PLACE}"
        super().__init__(self.launched(launch), program, options, veloc)
        # World looks at what it was given.
        self.alone = launch is regions.alone

    def launched(self, launch):
        def by_env(command):
            before = dict(os.environ)
            os.environ.update(self.env)
            try:
                return launch(command)
            finally:
                os.environ.clear()
                os.environ.update(before)

        def by_job(command):
            return run_to_end(command, ranks=4, ft="none", env={**PATHS, **self.env})

        return by_job if launch is regions.eyrie else by_env

    def command(self, world="n", die=()):
        more = ["--alone"] if self.alone and self.program[-1].endswith(".py") else []
        return [*super().command(world, die), *more]

    def key(self, byte=1):
        path = os.path.join(self.home, f"key.{byte}")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
            f.write(bytes([byte]) * 32)
        return path

    def there(self):
        return sorted(o for o in self.it.objects() if o.startswith("heat/"))

    def begins(self):
        """How the objects begin."""
        return beginnings(self.it, self.there())

    def all_nodes_are_gone(self):
        for node in self.nodes():
            shutil.rmtree(node, ignore_errors=True)

    def refused(self, why):
        code, out, err = self.run()
        assert code != 0 and "steps" not in out, (code, out, err)
        assert why in err, err


def gone(launch, program, veloc=False, ranks=4):
    """Killed; all nodes are lost; it goes on from the store, on two nodes."""
    with stores.server() as it, Far(it, launch, program, veloc=veloc) as world:
        world.killed(0)
        assert len(world.there()) == ranks and world.begins() == {PLAIN}, world.there()
        world.all_nodes_are_gone()
        world.nodes = lambda name="n": [os.path.join(world.home, "other", n) for n in "01"]
        world.more = world.more.replace("rs:2+1", "partner")
        world.goes_on(since=20)
        # Of what was brought before nothing is left; VeloC's programs keep all.
        left = {"20", "40", "60"} if veloc else {"60"}
        assert {key.split(".")[1] for key in world.there()} == left, world.there()
        assert len(world.there()) == len(left) * ranks, world.there()


def test_c_goes_on_from_a_store():
    gone(regions.eyrie, regions.c_program())


def test_numpy_goes_on_from_a_store():
    gone(regions.eyrie, regions.numpy_program())


def test_veloc_goes_on_from_a_store():
    gone(regions.eyrie, regions.veloc_program(), veloc=True)


def test_c_under_mpich_goes_on_from_a_store():
    gone(regions.mpich, regions.c_program())


def test_c_without_mpi_goes_on_from_a_store():
    gone(regions.alone, regions.alone_program(), ranks=1)


def test_left_to_a_thread_it_goes_on_from_a_store():
    with stores.server() as it, Far(it, regions.eyrie, regions.c_program()) as world:
        world.more += ";mode=async"
        world.killed(2)
        world.all_nodes_are_gone()
        world.goes_on(since=20)


def test_encrypted_it_goes_on_with_its_key_only():
    with stores.server() as it, Far(it, regions.eyrie, regions.c_program()) as world:
        own, other, plain = world.key(1), world.key(2), world.more
        world.more = f"{plain};key={own}"
        world.killed(1)
        assert len(world.there()) == 4 and world.begins() == {SEALED}, world.there()
        # By what is on the nodes, and by what is in the store.
        for _ in range(2):
            world.more = f"{plain};key={other}"
            world.refused("it was encrypted with another key, or was changed by somebody")
            world.more = plain
            world.refused("it is encrypted, and no key was given (EYRIE_REGIONS_KEY)")
            world.all_nodes_are_gone()
        # As a variable it goes before what the program says.
        world.more = f"{plain};key={other}"
        world.env["EYRIE_REGIONS_KEY"] = own
        world.goes_on(since=20)


def test_an_object_that_is_damaged_is_answered_by_the_one_before():
    with stores.server() as it, Far(it, regions.eyrie, regions.c_program()) as world:
        for key in ("", f";key={world.key()}"):
            world.more = f"vault=local;keep=3;every=1;persistent={PLACE}{key}"
            world.killed(3)
            [damaged] = [o for o in world.there() if o.startswith("heat/2/heat.30.")]
            it.client(FLIPPED, damaged)
            world.all_nodes_are_gone()
            world.goes_on(since=20)
            it.client("for k in a: s3.delete_object(Bucket='states', Key=k)", *world.there())
            world.all_nodes_are_gone()


def test_a_store_that_is_away_or_does_not_know_the_keys_is_told():
    with stores.server() as it, Far(it, regions.alone, regions.alone_program()) as world:
        del world.env["AWS_SECRET_ACCESS_KEY"]
        world.refused("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        world.env = dict(it.env)
        world.more = world.more.replace("s3://states", "s3://none")
        world.refused("s3://none/heat/0: there is no bucket 'none'")
        world.more = world.more.replace("s3://none", "s3://states")
        it.stop()
        world.refused("cannot be reached")


def test_a_store_that_goes_leaves_the_checkpoint_on_its_nodes():
    with stores.server() as it, Far(it, regions.eyrie, regions.c_program()) as world:
        world.killed(0)
        gate = os.path.join(world.home, "gate")
        command = [*world.command()]
        command[2], command[3] = "600", "100"
        env = {**PATHS, **world.env, "HEAT_GATE": gate}
        with Job(command, ranks=4, ft="none", env=env) as job:
            job.says("at step 300")
            it.stop()
            open(gate + ".300", "w").close()
            assert job.wait() != 0, job.report()
            job.says("heat 400 is stored, but on its nodes only")
            job.says("cannot be reached")
        # A store that forgot all, and the nodes have it.
        it.start()
        command[2] = "401"
        code, _, err = world.launch(command)
        assert code == 0 and "goes on from step 400\n" in err, err


class Repeated(Apart, regions_repeated.Repeated):
    """Under `--ft logged`, on nodes that do not see each other's folders."""

    def __init__(self, it, *more):
        self.it = it
        super().__init__(regions.eyrie, regions.c_program(), *more)

    def job(self, env=None, **more):
        return super().job({**self.it.env, **(env or {})}, **more)

    def run(self, world="n", die=()):
        return run_to_end(
            self.command(world, die), ranks=4, ft="none", env={**PATHS, **self.it.env}
        )


def test_a_rank_that_eyrie_restores_goes_on_with_the_store():
    """It makes parity of what it had encrypted, and brings that, once more, to the byte."""
    with stores.server() as it:
        with Repeated(it, f"vault=rs:2+2;persistent={PLACE}") as world:
            path = os.path.join(world.home, "key")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
                f.write(b"k" * 32)
            world.more += f";key={path}"
            with world.job(ckpt_every=0.2) as job:
                for generation, rank in ((2, 2), (4, 0)):
                    job.until(lambda: world.stored(generation), f"generation {generation}")
                    job.kill_ranks([rank])
                world.ended_well(job, 1)
            last = regions_repeated.STEPS
            for rank in range(4):
                mine = [o for o in it.objects() if o.startswith(f"heat/{rank}/heat.{last}.")]
                assert len(mine) == 1, it.objects()
                assert beginnings(it, mine, 16) == {SEALED + struct.pack("<II", 1, 0)}, mine
            shutil.rmtree(os.path.join(world.home, "n"))
            code, out, err = world.run()
            assert (code, out) == (0, world.expected), err
            assert f"goes on from step {last}\n" in err, err
