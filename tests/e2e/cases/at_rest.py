"""`--encrypt-at-rest`: what nodes store is of use to nobody who has their disks."""

import contextlib
import mmap
import os
import shutil
import subprocess
import tempfile

from harness import NotRun
from nodes import Nodes, expected
from vault_nodes import ends_without_going_back

# The jobs' home is on a disk of its own, which is a file.
ON_DISK = [
    "unshare",
    "-m",
    "sh",
    "-c",
    'mkfs.ext4 -q -F $FEATURES "$DISK" && mount -o loop "$DISK" "$EYRIE_HOME" && exec "$@"',
    "sh",
]
SECRET = "a-word-that-all-ranks-have-in-their-memory-5d1f"


def can_mount(features):
    """Whether there can be such a disk here."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        raise NotRun("a disk of one's own takes root and mkfs.ext4 (package e2fsprogs)")
    with (
        tempfile.NamedTemporaryFile(prefix="eyrie-test-") as disk,
        tempfile.TemporaryDirectory(prefix="eyrie-test-") as home,
    ):
        disk.truncate(1 << 24)
        env = {**os.environ, "DISK": disk.name, "EYRIE_HOME": home, "FEATURES": features}
        probe = subprocess.run([*ON_DISK, "true"], env=env, capture_output=True)
    if probe.returncode != 0:
        raise NotRun("no file can be mounted as a disk here (loop devices)")
    # It is there once such a disk was mounted.
    if "encrypt" in features and not os.path.exists("/sys/fs/ext4/features/encryption"):
        raise NotRun("this kernel encrypts no files (CONFIG_FS_ENCRYPTION)")


@contextlib.contextmanager
def on_disk(name, nodes, options, features="-O encrypt"):
    can_mount(features)
    with tempfile.NamedTemporaryFile(prefix="eyrie-test-") as disk:
        disk.truncate(1 << 28)
        env = {"DISK": disk.name, "FEATURES": features, "EYRIE_TEST_SECRET": SECRET}
        with Nodes(name, nodes, options, env=env, wrap=ON_DISK, ckpt_every=0) as job:
            yield job, disk.name


def is_on(disk, job):
    """Whether the word is anywhere on that disk."""
    subprocess.run(["sync", "-f", job.job_home], check=True)
    with open(disk, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        return content.find(SECRET.encode()) >= 0


def test_nothing_of_what_ranks_have_is_on_a_disk_and_they_come_back_all_the_same():
    expected("heat")
    scheme = ["--vault", "rs:2+1"]
    with on_disk("heat", 3, scheme) as (job, disk):
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        assert is_on(disk, job), "it would not be found where it is, either"
        job.ends_as("heat")
    with on_disk("heat", 3, [*scheme, "--encrypt-at-rest"]) as (job, disk):
        record = job.wait_running(4)
        job.eyrie("checkpoint", "last")
        assert os.listdir(os.path.join(job.folder(), "node-1", "vault"))
        assert not is_on(disk, job)
        _, done, _ = job.eyrie("vault", "scrub", "last")
        assert " 0 damaged" in done, done
        code, _, told = job.eyrie("checkpoint", "last", "--end", check=False)
        assert code == 1 and "nowhere but on its nodes (--encrypt-at-rest)" in told, told
        victims = [r["rank"] for r in record["ranks"] if r["node"] == 0]
        job.kill_nodes(0)
        for rank in victims:
            job.wait_event("restored", rank=rank)
        job.kill_ranks([3])
        job.wait_event("restored", rank=3)
        ends_without_going_back(job, "heat", victims)


def test_a_disk_that_does_not_encrypt_is_refused():
    with on_disk("farm", 2, ["--encrypt-at-rest"], features="") as (job, _):
        assert job.wait() == 1, job.report()
        assert "cannot be encrypted" in job.stderr() and "tune2fs" in job.stderr(), job.stderr()


def test_it_is_refused_where_the_job_is_saved_outside_of_its_nodes():
    with Nodes("farm", 2, ["--encrypt-at-rest", "--save-every", "9"]) as job:
        assert job.wait() == 2 and "--save-every" in job.stderr(), job.stderr()
