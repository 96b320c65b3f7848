"""`--encrypt-at-rest`: what nodes store is of use to nobody who has their disks."""

import contextlib
import glob
import mmap
import os
import shutil
import subprocess
import tempfile

from bad_input import program
from controller import kill_controller
from harness import NotRun
from images_scrub import rots_and_is_repaired
from nodes import Nodes, expected
from restart import restart, save
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


def is_not_saved_and_comes_back(job, record):
    """Nothing of it can be saved outside of its nodes; one of them is lost with its storage, then a
    rank. Returns the ranks of that node."""
    code, _, told = job.eyrie("checkpoint", "last", "--end", check=False)
    assert code == 1 and "nowhere but on its nodes (--encrypt-at-rest)" in told, told
    victims = [r["rank"] for r in record["ranks"] if r["node"] == 0]
    job.kill_nodes(0)
    for rank in victims:
        job.wait_event("restored", rank=rank)
    job.kill_ranks([3])
    job.wait_event("restored", rank=3)
    return victims


def test_nothing_of_what_ranks_have_is_on_a_disk_and_they_come_back_all_the_same():
    expected("heat")
    scheme = ["--vault", "rs:2+1"]
    with on_disk("heat", 3, scheme) as (job, disk):
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        assert is_on(disk, job), "it would not be found where it is, either"
        job.ends_as("heat")
    with on_disk("heat", 3, [*scheme, "--encrypt-at-rest=kernel"]) as (job, disk):
        record = job.wait_running(4)
        job.eyrie("checkpoint", "last")
        assert os.listdir(os.path.join(job.folder(), "node-1", "vault"))
        assert not is_on(disk, job)
        _, done, _ = job.eyrie("vault", "scrub", "last")
        assert " 0 damaged" in done, done
        victims = is_not_saved_and_comes_back(job, record)
        ends_without_going_back(job, "heat", victims)


def test_a_disk_that_does_not_encrypt_is_refused():
    with on_disk("farm", 2, ["--encrypt-at-rest=kernel"], features="") as (job, _):
        assert job.wait() == 1, job.report()
        assert "cannot be encrypted" in job.stderr() and "tune2fs" in job.stderr(), job.stderr()


def test_it_is_refused_where_the_job_is_saved_outside_of_its_nodes():
    for option in ("--encrypt-at-rest", "--encrypt-at-rest=kernel"):
        with Nodes("farm", 2, [option, "--save-every", "9"]) as job:
            assert job.wait() == 2 and "--save-every" in job.stderr(), job.stderr()


# What is stored is stored as it is, so that the word can be found where it is not encrypted.
ENV = {"EYRIE_TEST_SECRET": SECRET, "EYRIE_IMAGE_CODEC": "none"}
IMAGE, LOG, SEALED_IMAGE, SEALED = b"EYRIEIMG\6", b"EYRIELOG", b"EYRIEIMG\7", b"EYRIESLD"


def stored(job, *below):
    """All that nodes (or what else is `below` the job's folder) have in files, by path."""
    files = {}
    for place in below or ["node-*"]:
        for top in glob.glob(os.path.join(job.folder(), place)):
            for folder, _, names in os.walk(top):
                # A file may go while it is looked for.
                for path in (os.path.join(folder, name) for name in names):
                    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                        files[path] = file.read()
    return files


def tells(files, word):
    return [path for path, bytes in files.items() if word.encode() in bytes]


def begins_with(files, *kinds):
    return [path for path, bytes in files.items() if bytes.startswith(kinds)]


def is_sealed(files, word):
    """Nothing of them can be read, and there are images, logs, and what the vault has of them."""
    assert begins_with(files, SEALED_IMAGE) and begins_with(files, SEALED), list(files)
    assert not begins_with(files, IMAGE, LOG), begins_with(files, IMAGE, LOG)
    assert not tells(files, word), tells(files, word)


def survives(vault, parts):
    """A node is lost with its storage, then a rank; nodes have nothing that can be read."""
    expected("heat")
    scheme = ["--vault", vault]
    with Nodes("heat", 4, scheme, env=ENV, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        found = stored(job)
        for part in parts:
            assert [path for path in tells(found, SECRET) if part in path], (part, list(found))
        assert begins_with(found, IMAGE) and begins_with(found, LOG), list(found)
        job.ends_as("heat")
    with Nodes("heat", 4, [*scheme, "--encrypt-at-rest"], env=ENV, ckpt_every=0) as job:
        record = job.wait_running(4)
        # The second one builds on the first.
        for _ in range(2):
            job.eyrie("checkpoint", "last")
        found = stored(job)
        for part in parts:
            assert [path for path in found if part in path], (part, list(found))
        is_sealed(found, SECRET)
        _, done, _ = job.eyrie("vault", "scrub", "last")
        assert "0 damaged" in done, done
        is_not_saved_and_comes_back(job, record)
        job.eyrie("checkpoint", "last")
        is_sealed(stored(job), SECRET)
        job.ends_as("heat")
        assert not job.count("rolled-back") and not job.count("image-refused"), job.report()


def generated():
    for vault, parts in (
        ("partner", ["/images/"]),
        ("rs:2+1", ["/images/", "/vault/gen-", ".data"]),
    ):
        name = vault.split(":")[0]
        yield f"sealed_by_the_nodes_with_{name}", lambda v=vault, p=parts: survives(v, p)


def test_what_ranks_have_sent_is_sealed_too():
    """A word in messages that are logged, and in the program's data."""
    command = [*program("marked"), SECRET]
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as over:
        command.append(os.path.join(over, "over"))
        for options in ([], ["--encrypt-at-rest"]):
            with Nodes(command, 2, options, env=ENV, ckpt_every=0, ranks=2) as job:
                job.wait_running(2)
                job.until(lambda: job.stdout().count(SECRET) == 2, "both ranks' words")
                job.eyrie("checkpoint", "last")
                found = stored(job)
                if options:
                    is_sealed(found, SECRET)
                else:
                    assert tells({p: f for p, f in found.items() if p.endswith(".log")}, SECRET)
                job.kill_ranks([1])
                job.wait_event("restored", rank=1)


def test_what_was_changed_on_a_disk_is_not_used():
    """A bit of an image, and its copy for another: it is found, and made anew from the copy."""
    rots_and_is_repaired(["--encrypt-at-rest"])


def test_an_image_of_another_job_is_refused_and_another_one_used():
    expected("heat")
    options = ["--vault", "local", "--encrypt-at-rest"]
    with Nodes("heat", 2, options, ckpt_every=0) as other:
        other.wait_running(4)
        other.eyrie("checkpoint", "last")
        foreign = stored(other, "node-*/images")
        with Nodes("heat", 2, options, ckpt_every=0) as job:
            job.wait_running(4)
            job.eyrie("checkpoint", "last")
            [path] = [p for p in stored(job, "node-*/images") if p.endswith("/rank-1.gen-1")]
            [theirs] = [b for p, b in foreign.items() if p.endswith("/rank-1.gen-1")]
            with open(path, "wb") as file:
                file.write(theirs)
            job.kill_ranks([1])
            job.wait_event("image-refused", rank=1)
            job.says("was encrypted with another key")
            job.ends_as("heat")


def test_a_new_controller_learns_the_key_from_the_nodes():
    """It is in no journal; nodes that join later have it all the same."""
    expected("heat")
    options = ["--vault", "partner", "--encrypt-at-rest"]
    with Nodes("heat", 2, options, env=ENV, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        kill_controller(job)
        job.eyrie("grow", "last")
        job.wait_event("node-joined", node=2)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        job.wait_event("restored", rank=2)
        job.wait_event("restored", rank=3)
        job.eyrie("checkpoint", "last")
        found = stored(job)
        assert [path for path in found if "/node-2/images/" in path], list(found)
        is_sealed(found, SECRET)
        job.ends_as("heat")
        assert not job.count("rolled-back"), job.report()


def test_with_a_key_of_ones_own_the_job_is_saved():
    expected("heat")
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as keys:
        mine, other = (os.path.join(keys, name) for name in ("mine", "other"))
        for path, key in ((mine, b"m" * 32), (other, b"o" * 32)):
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
                file.write(key)
        options = [f"--encrypt-at-rest={mine}", "--save-every", "1g"]
        with Nodes("heat", 3, options, env=ENV, ckpt_every=0) as job:
            job.wait_running(4)
            job.eyrie("checkpoint", "last")
            job.wait_event("flushed")
            is_sealed(stored(job, "node-*", "images"), SECRET)
            save(job)
            images = stored(job, "images")
            is_sealed(images, SECRET)
            with open(mine, "rb") as file:
                key = file.read()
            assert not tells(stored(job, ""), key.decode()), "the key is in no file"
            code, _, told = job.eyrie(
                "restart", "last", f"--encrypt-at-rest={other}", check=False
            )
            assert code == 2 and "saved with another key" in told, told
            os.rename(mine, mine + ".moved")
            code, _, told = job.eyrie("restart", "last", check=False)
            assert code == 2 and "--encrypt-at-rest" in told, told
            restart(job, "--nodes", "2", f"--encrypt-at-rest={mine}.moved")
            job.wait_event("restored", count=4)
            job.eyrie("checkpoint", "last")
            is_sealed(stored(job), SECRET)
            job.ends_as("heat")
            assert not job.count("rolled-back"), job.report()


def test_a_key_that_others_may_read_is_refused():
    with tempfile.NamedTemporaryFile(prefix="eyrie-test-") as key:
        key.write(b"k" * 32)
        key.flush()
        os.chmod(key.name, 0o644)
        with Nodes("farm", 2, [f"--encrypt-at-rest={key.name}"]) as job:
            assert job.wait() == 2 and "chmod 600" in job.stderr(), job.stderr()
