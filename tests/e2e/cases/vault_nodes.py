"""Jobs over nodes whose images are in a vault: any nodes may be lost, as many as the scheme bears."""

import glob
import json
import os
import re
import signal
import tempfile

from hosts import Hosted, shell
from nodes import Nodes, checkpointed_again, expected

RS = ["--vault", "rs:4+2"]


def ends_without_going_back(job, name, unvaulted=()):
    job.ends_as(name)
    assert not job.count("rolled-back") and not job.count("diverged"), job.report()
    for rank in unvaulted:
        assert job.count("copied", rank=rank, text="read out of the vault"), job.report()


def lost_at_once(name, nodes, scheme, lost, options=()):
    """Nodes vanish together with all that is on them; which ranks those were is seen in `status`."""
    expected(name)
    with Nodes(name, nodes, ["--vault", scheme, *options], ckpt_every=0.5) as job:
        record = job.wait_running(4)
        job.all_checkpointed(2)
        victims = [r["rank"] for r in record["ranks"] if r["node"] in lost]
        folder = job.folder()
        job.kill_nodes(*lost)
        for rank in victims:
            job.wait_event("restored", rank=rank)
        for node in lost:
            assert not os.path.exists(os.path.join(folder, f"node-{node}")), os.listdir(folder)
        ends_without_going_back(job, name, victims)


def generated():
    cases = [
        ("two_of_six", "farm", 6, "rs:4+2", [0, 1]),
        ("two_of_six_and_heat", "heat", 6, "rs:4+2", [1, 4]),
        ("two_of_three", "farm", 3, "rs:1+2", [0, 2]),
        ("two_of_five_in_one_group", "farm", 5, "rs:2+2", [0, 3]),
        ("one_of_xor", "heat", 4, "xor:3", [1]),
        ("one_of_each_group", "farm", 6, "xor:2", [0, 3]),
        ("two_and_spares", "farm", 4, "rs:3+2", [0, 3], ["--spares", "2"]),
    ]
    return [
        (f"lost_{label}", lambda rest=rest: lost_at_once(*rest)) for label, *rest in cases
    ]


def test_one_node_after_the_other_down_to_two():
    """After each loss what is left is stored anew, until there are too few nodes for the vault."""
    expected("farm")
    with Nodes("farm", 6, RS, ckpt_every=0.3) as job:
        job.all_checkpointed()
        for lost in [(0, 1), (3,), (4,)]:
            checkpointed_again(job)
            job.kill_nodes(*lost)
            for node in lost:
                job.wait_event("node-lost", node=node)
        job.all_checkpointed(5)
        ends_without_going_back(job, "farm")


def test_nodes_are_lost_while_their_images_are_encoded():
    expected("heat")
    with Nodes("heat", 6, RS, ckpt_every=0.2) as job:
        checkpointed_again(job)
        # Images are being written or encoded from here on.
        seen = job.count("checkpointing", rank=0)
        job.wait_event("checkpointing", rank=0, count=seen + 1)
        job.kill_nodes(0, 3)
        for rank in (0, 2):
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "heat")


def test_a_second_node_is_lost_while_ranks_of_the_first_are_read_out():
    expected("farm")
    with Nodes("farm", 6, RS, ckpt_every=0.5) as job:
        job.all_checkpointed(2)
        job.kill_nodes(0)
        job.wait_event("node-lost", node=0)
        job.kill_nodes(1)
        job.wait_event("node-lost", node=1)
        for rank in (0, 1):
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "farm", [0, 1])


def test_more_than_it_bears_is_said_and_begins_again():
    expected("farm")
    with Nodes("farm", 6, RS, ckpt_every=0.5) as job:
        job.all_checkpointed(2)
        job.kill_nodes(0, 1, 3)
        job.wait_event("rolled-back")
        job.ends_as("farm")
        told = job.stderr()
        assert re.search(r"nodes lost so far: 0, 1 and 3; gone: checkpoint \d+ of rank 0, ", told), told
        assert "on 6 nodes, of which 0, 1 and 3 are lost and 2 may be" in told, told
        assert "can be had: only their beginning (`--save-every` keeps one" in told, told


def test_without_protection_of_nodes_a_loss_begins_again():
    expected("farm")
    with Nodes("farm", 3, ["--vault", "local"], ckpt_every=0.5) as job:
        job.all_checkpointed(2)
        assert [r["image_nodes"] for r in job.status()["ranks"]] == [[0], [0], [1], [2]]
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        job.kill_nodes(0)
        job.wait_event("rolled-back")
        job.ends_as("farm")


def test_a_damaged_image_comes_out_of_the_vault():
    expected("farm")
    with Nodes("farm", 4, ["--vault", "rs:2+2"], ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        for path in glob.glob(os.path.join(job.folder(), "node-*", "images", "rank-*")):
            with open(path, "r+b") as file:
                file.write(b"no longer an image")
        job.kill_ranks([1, 2])
        for rank in (1, 2):
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "farm", [1, 2])


def rot(path):
    """Damages pages of an image: they come first, tables last."""
    with open(path, "r+b") as file:
        for at in range(4200, max(os.path.getsize(path) * 3 // 4, 4201), 1 << 14):
            file.seek(at)
            file.write(b"rot")


def test_a_round_reads_nothing_that_the_vault_has_already():
    """What an image builds on is in the vault, and costs the next round nothing: that it has rotted
    on its node since is found by whoever looks into that, and is right in the vault."""
    expected("heat")
    options = ["--vault", "rs:2+1", "--scrub-every", "0"]
    with Nodes("heat", 3, options, ckpt_every=0) as job:
        record = job.wait_running(4)
        # Images of memory that stays as it is.
        job.until(lambda: "step 100 " in job.stdout(), "the first steps")
        job.eyrie("checkpoint", "last")
        first = glob.glob(os.path.join(job.folder(), "node-*", "images", "rank-?.gen-*"))
        first = [path for path in first if not path.endswith(".log")]
        assert len(first) == 4, first
        for path in first:
            rot(path)
        job.eyrie("checkpoint", "last")
        newest = [r["checkpoint"] for r in job.status()["ranks"]]
        assert all(c["unchanged_bytes"] > 0 for c in newest), newest
        assert not job.count("image-refused"), job.report()
        victims = [r["rank"] for r in record["ranks"] if r["node"] == 0]
        job.kill_nodes(0)
        for rank in victims:
            job.wait_event("restored", rank=rank, generation=newest[rank]["generation"])
        ends_without_going_back(job, "heat", victims)


def test_flipped_bits_in_the_vault_are_passed_by():
    expected("farm")
    with Nodes("farm", 4, ["--vault", "rs:2+2"], ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        # Nothing is mended, or taken away, under a running job.
        folders = sorted(glob.glob(os.path.join(job.folder(), "node-*", "vault")))
        for action in ("scrub", "repair"):
            code, _, told = job.eyrie("vault", action, *folders, check=False)
            name = os.path.basename(job.folder())
            assert code == 1 and f"in use by job {name}, which runs: its node 0" in told, told
        job.eyrie("vault", "verify", *folders)
        # One member is lost, of another all is damaged: that is as much as is borne.
        for path in glob.glob(os.path.join(job.folder(), "node-3", "vault", "gen-*")):
            with open(path, "r+b") as file:
                for at in range(0, os.path.getsize(path), 4096):
                    file.seek(at)
                    file.write(b"flipped")
        job.kill_nodes(0)
        job.wait_event("restored", rank=0)
        ends_without_going_back(job, "farm", [0])


def test_the_controller_dies_and_then_two_nodes():
    expected("farm")
    with Nodes("farm", 6, RS, ckpt_every=0.3) as job:
        job.all_checkpointed(2)
        os.kill(job.status()["daemon_pid"], signal.SIGKILL)
        job.wait_event("controller-back")
        checkpointed_again(job)
        job.kill_nodes(1, 3)
        for rank in (1, 2):
            job.wait_event("restored", rank=rank)
        ends_without_going_back(job, "farm")


def test_status_and_events_name_what_protects():
    with Nodes("farm", 6, RS, ckpt_every=0.3) as job:
        job.all_checkpointed(4)
        record = job.status()
        assert record["vault"] == "rs:4+2", record
        assert all(r["vault_generation"] for r in record["ranks"]), record
        assert [r["image_nodes"] for r in record["ranks"]] == [[0], [1], [3], [4]], record
        _, text, _ = job.eyrie("status", "last", "-v")
        assert "vault: rs:4+2; generation " in text, text
        _, text, _ = job.eyrie("events", "last", "--json")
        events = [json.loads(line) for line in text.splitlines()]
        vaulted = [e for e in events if e["event"] == "vaulted"]
        assert vaulted and all(e["count"] and "rs:4+2 over 6 nodes" in e["text"] for e in vaulted)
        # What no image needs any more is not kept: however many rounds there are, it does not grow.
        made = lambda: {e["count"] for e in job.events() if e["event"] == "vaulted"}
        names = os.path.join(job.folder(), "node-0", "vault", "gen-*.commit")
        kept = lambda: len(glob.glob(names))
        job.until(lambda: 0 < 2 * kept() <= len(made()), "the end of half of the generations")
        job.ends_as("farm")


def test_an_encoder_is_the_one_that_was_named_or_what_was_measured_speaks_for():
    for encoder in ("pipeline", "fanin", "broadcast", "auto"):
        options = ["--vault", "rs:2+2", "--encoder", encoder]
        with Nodes("farm", 4, options, ckpt_every=0) as job:
            job.wait_running(4)
            job.eyrie("checkpoint", "last")
            why = job.status()["vault_encoder"]
            # The first round does not wait for what is measured.
            for _ in range(200):
                if "measured:" in why:
                    break
                job.eyrie("checkpoint", "last")
                why = job.status()["vault_encoder"]
            _, text, _ = job.eyrie("status", "last", "-v")
            assert f"; encoder {why}" in text, text
            told = [e["text"] for e in job.events() if e["event"] == "vaulted"]
            assert re.search(r"measured: [\d.]+ MB/s, [\d.]+ ms, coding", why), why
            if encoder == "auto":
                encoder = why.split(":")[0]
            else:
                assert why.startswith(f"{encoder} by --encoder; auto would be "), why
            assert told and f" by {encoder} in " in told[-1], (told, why)
            job.ends_as("farm")


def test_a_round_sends_no_faster_than_it_may():
    """4 Mbit/s: whatever the machine, what was sent took so long at least, less a burst."""
    options = ["--vault", "rs:2+1", "--vault-rate", "4"]
    with Nodes("farm", 3, options, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last", timeout=300)
        told = [e["text"] for e in job.events() if e["event"] == "vaulted"]
        ms, mib = re.search(r"parity ([\d.]+) ms \(([\d.]+) MiB sent", told[0]).groups()
        least = (float(mib) * (1 << 20) / 3 - (256 << 10)) / 500_000
        assert least > 0 and float(ms) / 1000 >= least, told
        assert "at most 0.5 MB/s" in job.status()["vault_encoder"], job.status()
        job.ends_as("farm")


def test_what_a_loss_left_thin_comes_back_at_its_rate_and_then_as_many_may_die():
    options = [*RS, "--rebuild-rate", "4"]
    expected("farm")
    with Nodes("farm", 6, options, ckpt_every=0) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last", timeout=300)
        job.kill_nodes(0, 1)

        def brought_back():
            return [e for e in job.events() if "after a loss" in e["text"]]

        job.until(lambda: {e["rank"] for e in brought_back()} == set(range(4)), "the images' return")
        assert job.status()["vault_round"] is None, job.status()
        for event in brought_back():
            ms, mib = re.search(r"parity ([\d.]+) ms \(([\d.]+) MiB sent", event["text"]).groups()
            # Less a burst, as of any limit.
            least = (float(mib) * (1 << 20) / 4 - (256 << 10)) / 500_000
            assert "at most 0.5 MB/s a node" in event["text"] and float(ms) / 1000 >= least, event
        job.kill_nodes(2, 3)
        ends_without_going_back(job, "farm")


def test_a_domain_is_lost_as_a_whole():
    """Two nodes of a switch at once, though a group bears but one: no group has both."""
    expected("farm")
    racks = {"a": (0, 2), "b": (1, 4), "c": (3, 5)}
    domain = {node: rack for rack, nodes in racks.items() for node in nodes}
    with shell() as rsh, tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write("".join(f"host{n} domain={domain[n]}\n" for n in range(6)))
        file.flush()
        options = ["--vault", "rs:2+1", "--log-replicas", "2"]
        with Hosted("farm", rsh, options, hosts=file.name, ckpt_every=0.5) as job:
            record = job.wait_running(4)
            job.all_checkpointed(2)
            victims = [r["rank"] for r in record["ranks"] if r["node"] in racks["a"]]
            assert victims, record
            job.kill_nodes(*racks["a"])
            for rank in victims:
                job.wait_event("restored", rank=rank)
            ends_without_going_back(job, "farm", victims)


def test_a_domain_is_lost_as_a_whole_with_copies_on_partners():
    """Both nodes of a switch at once: their copies, and outcomes, are behind the other one."""
    expected("farm")
    with shell() as rsh, tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
        file.write("".join(f"host{n} domain={'aabb'[n]}\n" for n in range(4)))
        file.flush()
        # A snapshot has a third copy.
        options = ["--fallback-every", "off"]
        with Hosted("farm", rsh, options, hosts=file.name, ckpt_every=0.5) as job:
            job.wait_running(4)
            job.all_checkpointed(2)
            images = [sorted(r["image_nodes"]) for r in job.status()["ranks"]]
            assert images == [[0, 2], [1, 3], [0, 2], [1, 3]], images
            job.kill_nodes(0, 1)
            for rank in (0, 1):
                job.wait_event("restored", rank=rank)
            ends_without_going_back(job, "farm")


def refused(options, says):
    with Nodes("farm", 2, options) as job:
        assert job.wait() == 2, job.report()
        job.says(says)


def test_what_cannot_be_is_refused():
    refused(RS, "rs:4+2 needs 3 nodes at least, and there are 2")
    refused(["--vault", "rs:4"], "give both numbers")
    refused(["--vault", "partner", "--ft", "none"], "leave one out")
    refused(["--vault", "xor:1", "--encoder", "star"], "there are auto, pipeline, fanin, broadcast")
    refused(["--encoder", "fanin"], "--encoder is for a vault with parity")
    refused(["--vault", "partner", "--vault-rate", "9"], "--vault-rate is for a vault with parity")
    refused(["--rebuild-rate", "9"], "--rebuild-rate is for a vault with parity")
