"""`eyrie image inspect|verify|extract`: what is told of an image is what was there, damage is named by
its part, and gdb opens the core file and finds threads, stacks, data and registers in it."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess

import harness
from image_cli import home, rest

DEBUGGEE = os.path.join(harness.BUILD, "tests", "debuggee")
SECTIONS = {1: "pages", 2: "frame", 3: "runs", 4: "state", 5: "caller's part", 6: "ancestors"}


def eyrie(place, *arguments):
    """Runs `eyrie`; returns (code, stdout, stderr)."""
    done = subprocess.run(
        [harness.EYRIE, *arguments],
        env=place.env,
        cwd=place.path,
        capture_output=True,
        text=True,
        timeout=harness.TIMEOUT_S,
    )
    return done.returncode, done.stdout, done.stderr


def good(place, *arguments):
    code, out, err = eyrie(place, *arguments)
    assert code == 0, (arguments, code, out, err)
    return out


def refused(place, *arguments, words=()):
    code, out, err = eyrie(place, *arguments)
    assert 0 < code < 128 and len(err.splitlines()) == 1, (arguments, code, out, err)
    for word in words:
        assert word in err, (arguments, word, err)


def take(place, *options):
    """An image of the debuggee, d.img; returns its process number and the pattern's address."""
    process = place.start("run", DEBUGGEE)
    pattern = int(process.stdout.readline(), 16)
    record = place.running()

    def asleep():
        # All threads wait in pause: then the image is the same whenever it is taken.
        folder = f"/proc/{record['pid']}/task"
        calls = []
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/syscall") as file:
                calls.append(file.read().split()[0])
        return calls == ["34"] * 3

    place.until(asleep, "threads that wait")
    place.good("checkpoint", "last", "-o", "d.img", *options)
    process.send_signal(signal.SIGTERM)
    assert rest(process)[0] == 128 + signal.SIGTERM
    return record["pid"], pattern


def test_inspect():
    with home() as place:
        pid, pattern = take(place)
        found = json.loads(good(place, "image", "inspect", "d.img", "--json"))
        assert found["pid"] == pid and found["exe"] == os.path.realpath(DEBUGGEE), found
        assert found["arguments"] == [DEBUGGEE] and found["ancestors"] == [], found
        assert [t["syscall"] for t in found["threads"]] == [34] * 3, found["threads"]
        assert found["threads"][0]["tid"] == pid, found["threads"]
        inside = [r for r in found["regions"] if int(r["start"], 16) <= pattern < int(r["end"], 16)]
        # Of sixteen pages eight were written; the others are zeros that nobody touched.
        assert len(inside) == 1 and inside[0]["mode"] == "rw-p", inside
        assert inside[0]["pages"] >= 8, inside
        assert sum(r["pages"] for r in found["regions"]) == found["pages"] == found["own_pages"]
        assert found["bytes"] == os.path.getsize(os.path.join(place.path, "d.img")), found
        assert [f["fd"] for f in found["files"]] == [0, 1, 2], found["files"]
        text = good(place, "image", "inspect", "d.img")
        for word in (DEBUGGEE, "[stack]", "[heap]", "standard output", f"{pattern >> 16:x}"):
            assert word in text, (word, text)


def sections(path):
    """kind -> (offset, length) as the section table of the file has it."""
    with open(path, "rb") as file:
        head = file.read(40)
        offset, entries = struct.unpack_from("<QI", head, 24)
        file.seek(offset)
        table = file.read(40 * entries)
    rows = [struct.unpack_from("<IIQQ", table, 40 * i) for i in range(entries)]
    return {kind: (at, size) for kind, _, at, size in rows}


def test_an_image_that_builds_on_another():
    """Which pages are where is told by region; the earlier file is verified too."""
    with home() as place:
        process = place.start("run", "--keep", "9", DEBUGGEE)
        process.stdout.readline()
        place.running()
        first, second = (
            json.loads(place.good("checkpoint", "last", "--json", "--twin"))["image"] for _ in "12"
        )
        found = json.loads(good(place, "image", "inspect", second, "--json"))
        assert [a["name"] for a in found["ancestors"]] == [os.path.basename(first)], found
        earlier = found["ancestors"][0]["pages"]
        assert 0 < found["own_pages"] < found["pages"] == found["own_pages"] + earlier, found
        homes = [h for r in found["regions"] for h in r["homes"]]
        assert sum(h["pages"] for h in homes if h["home"] == 1) == earlier, homes
        assert os.path.basename(first) in good(place, "image", "inspect", second)
        assert "DAMAGED" not in good(place, "image", "verify", second)
        core = os.path.join(place.path, "second.core")
        good(place, "image", "extract", second, "-o", core)
        assert "$1 = 4711" in gdb(place, core, "print answer"), core
        at, size = sections(first)[1]
        with open(first, "r+b") as file:
            file.seek(at)
            content = bytes(b ^ 1 for b in file.read(size))
            file.seek(at)
            file.write(content)
        refused(place, "image", "verify", second, words=["earlier pages"])
        refused(place, "image", "inspect", second, words=[os.path.basename(first)])
        process.send_signal(signal.SIGTERM)
        assert process.wait(harness.TIMEOUT_S) == 128 + signal.SIGTERM


def test_verify_names_what_is_damaged():
    with home() as place:
        take(place)
        path = os.path.join(place.path, "d.img")
        assert "DAMAGED" not in good(place, "image", "verify", "d.img")
        for kind, (at, size) in sections(path).items():
            if size == 0:
                continue
            bad = os.path.join(place.path, "bad.img")
            shutil.copy(path, bad)
            with open(bad, "r+b") as file:
                file.seek(at + size // 2)
                byte = file.read(1)[0]
                file.seek(at + size // 2)
                file.write(bytes([byte ^ 0x10]))
            code, out, err = eyrie(place, "image", "verify", "bad.img", "--json")
            record = json.loads(out)
            broken = [p["part"] for p in record["parts"] if not p["holds"]]
            assert code == 1 and not record["holds"] and broken == [SECTIONS[kind]], (kind, out)
            assert SECTIONS[kind] in err and len(err.splitlines()) == 1, err
            refused(place, "image", "inspect", "bad.img", words=["checksum"])
            refused(place, "image", "extract", "bad.img", words=["checksum"])
        os.truncate(bad, 9000)
        refused(place, "image", "verify", "bad.img", words=["frame"])
        os.truncate(bad, 3)
        refused(place, "image", "inspect", "bad.img", words=["not an image"])


def gdb(place, core, *commands):
    assert shutil.which("gdb"), "gdb is missing: scripts/setup installs it"
    words = ["gdb", "-batch", "-nx"]
    for command in commands:
        words += ["-ex", command]
    done = subprocess.run(
        [*words, DEBUGGEE, core],
        cwd=place.path,
        capture_output=True,
        text=True,
        timeout=harness.TIMEOUT_S,
    )
    return done.stdout


def test_gdb_opens_a_core_file():
    with home() as place:
        pid, pattern = take(place)
        assert "d.img.core" in good(place, "image", "extract", "d.img")
        said = gdb(place, "d.img.core", "print answer", "print list->next->value", "print message")
        for word in ("$1 = 4711", "$2 = 9", '"text in read-only data"'):
            assert word in said, (word, said)
        read = f"print (int)*(unsigned char*){pattern + 1000}"
        said = gdb(place, "d.img.core", "print zeros[777]", read, "print $xmm7.v2_double[0]")
        for word in ("$1 = 0 ", f"$2 = {1000 % 251}\n", "$3 = 3.5"):
            assert word in said, (word, said)
        said = gdb(place, "d.img.core", "thread apply all backtrace")
        assert said.count("Thread ") >= 3 and "Core was generated by" in said, said
        assert said.count("work (number=") == 2 and "main () at" in said, said
        for level in range(4):
            assert re.search(rf"deep \(level=(level@entry=)?{level}\)", said), said
        said = gdb(place, "d.img.core", "print mine", "thread 2", "print mine", "info threads")
        assert "$1 = 7" in said and ("$2 = 100" in said or "$2 = 200" in said), said
        assert f"LWP {pid}" in said, said
        said = gdb(place, "d.img.core", "info proc mappings", "info auxv")
        assert DEBUGGEE in said and "AT_ENTRY" in said, said
        core = os.path.join(place.path, "d.img.core")
        assert os.stat(core).st_blocks * 512 < os.path.getsize(core) / 4, "not sparse"


def test_extract_of_a_region():
    with home() as place:
        _, pattern = take(place)
        good(place, "image", "extract", "d.img", "--region", hex(pattern + 5), "-o", "out.bin")
        with open(os.path.join(place.path, "out.bin"), "rb") as file:
            got = file.read()
        expected = bytes(i % 251 for i in range(1 << 15))
        at = got.find(expected)
        assert at >= 0 and not any(got[at + len(expected) : at + (1 << 16)]), len(got)
        out = good(place, "image", "extract", "d.img", "--region", hex(pattern))
        assert f"d.img.{pattern:x}.bin" in out, out


def test_info():
    """What is told agrees with what there is; a lack shows in what is made of it."""
    with home() as place:
        record = json.loads(good(place, "info", "--json"))
        features = {f["name"]: f for f in record["features"]}
        assert record["kernel"] == os.uname().release and record["root"] == (os.geteuid() == 0)
        assert record["cores"] == len(os.sched_getaffinity(0)), record
        assert features["memfd"]["here"] and record["restorer"], record
        with open("/proc/cpuinfo") as file:
            flags = file.read()
        assert features["AVX-512"]["here"] == (" avx512f " in flags), features
        notes = features["write notes"]["here"] and features["pagemap scan"]["here"]
        assert record["decisions"]["tracking"].startswith(
            "write protection" if notes and features["descriptor fetch"]["here"] else "page hashes"
        ), record
        place.env["EYRIE_IMAGE_NO_PAGEMAP_SCAN"] = "1"
        record = json.loads(good(place, "info", "--json"))
        assert record["decisions"]["tracking"].startswith("page hashes"), record
        assert "/proc/PID/pagemap" in record["decisions"]["page_search"], record
        text = good(place, "info")
        assert "it takes longer, by size" in text and "changed pages: " in text, text


def test_wrong_use():
    with home() as place:
        take(place)
        refused(place, "image", "inspect", "none.img", words=["none.img"])
        refused(place, "image", "inspect", DEBUGGEE, words=["not an image"])
        refused(place, "image", "extract", "d.img", "-o", "/nowhere/x", words=["/nowhere/x"])
        refused(place, "image", "extract", "d.img", "--region", "10", words=["0x10"])
        refused(place, "image", "extract", "d.img", "--region", "here", words=["here"])
        refused(place, "image", "extract", "d.img", "-o", "d.img", words=["d.img"])
        assert sorted(os.listdir(place.path)) == ["d.img", "home"], os.listdir(place.path)
