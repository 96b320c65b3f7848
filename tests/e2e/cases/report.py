"""`eyrie report`: the page's structure, the trace, what a program is called; `eyrie top` through a
pseudo-terminal."""

import fcntl
import html.parser
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import harness
from drain import is_gone, nothing_again, on_node, ready
from harness import Gated, example
from nodes import Nodes, expected
from seen import killed_once, refused

# A program's name is what somebody else made up.
BAD = "<script>alert(1)<b>\"'&"
VOID = ("meta", "br", "img", "link", "input")


class Page(html.parser.HTMLParser):
    """The elements of a page, all of which are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.texts, self.headings = [], [], {}, []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("src", "href", "srcset"), (tag, name)
        self.seen.append((tag, attributes))
        if tag not in VOID:
            self.open.append((tag, attributes.get("id")))

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, (tag, self.open)

    def handle_data(self, data):
        if self.open:
            tag, name = self.open[-1]
            self.texts[name or tag] = self.texts.get(name or tag, "") + data
            if tag == "h2":
                self.headings.append(data)

    def count(self, tag, css=None):
        return sum(t == tag and (css is None or a.get("class") == css) for t, a in self.seen)


def page_is_whole(text, verdict):
    page = Page(text)
    assert page.texts["verdict"] == verdict, page.texts["verdict"]
    assert BAD in page.texts["program"] and page.count("script") == 1 and page.count("b") == 0
    policy = [a["content"] for t, a in page.seen if a.get("http-equiv") == "Content-Security-Policy"]
    (nonce,) = [a["nonce"] for t, a in page.seen if t == "script"]
    assert policy[0].startswith("default-src 'none'") and f"'nonce-{nonce}'" in policy[0], policy
    assert len(nonce) == 32 and nonce not in page.texts["script"], nonce
    return page


def trace_is_whole(text, identity):
    trace = json.loads(text)
    events = trace["traceEvents"]
    assert all({"ph", "name", "pid"} <= set(e) for e in events), events
    named = {e["args"]["name"] for e in events if e["ph"] == "M" and "name" in e["args"]}
    assert {f"job {identity}", "this machine", *(f"rank {r}" for r in range(4))} <= named, named
    spans = [e for e in events if e["ph"] == "X"]
    assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in spans), spans
    of = lambda rank: sorted((e["ts"], e["dur"], e["name"]) for e in spans if e["tid"] == rank + 1)
    for rank in range(4):
        for (begun, took, _), (then, _, _) in zip(of(rank), of(rank)[1:]):
            assert begun + took <= then, of(rank)
    assert "down" in [name for _, _, name in of(2)], of(2)
    assert "down" not in [name for _, _, name in of(1)], of(1)
    begun, ended = ([e["id"] for e in events if e["ph"] == ph] for ph in "be")
    assert begun and sorted(begun) == sorted(ended), (begun, ended)


def test_a_report_of_a_job_that_runs_and_of_one_that_has_ended():
    with Gated(heat_called(BAD), ckpt_every=3600) as job:
        killed_once(job)
        job.says("nothing was lost")
        running = page_is_whole(job.eyrie("report", "last", "-o", "-")[1], "nothing was lost so far")
        assert "traffic" not in [a.get("id") for _, a in running.seen]
        harness.soon(lambda: len(samples(job)) > 1, "samples")
        identity = os.path.basename(job.folder())
        job.let_end()
        assert job.wait() == 0, job.report()
        place = os.path.join(job.home, "page.html")
        out, err = job.eyrie("report", identity, "-o", place, "--trace", "-")[1:]
        trace_is_whole(out, identity)
        assert err == f"eyrie: written: {place}\n", err
        with open(place, encoding="utf-8") as file:
            page = page_is_whole(file.read(), "nothing was lost")
        want = ["Timeline", "Recoveries", "Checkpoints", "Log", "Communication", "What is not here"]
        assert page.headings == want, page.headings
        # Each rank has checkpoints, one died; a row of the table and its heading.
        assert page.count("rect", "checkpoint") >= 4 and page.count("rect", "computing") >= 5
        assert page.count("rect", "down") == 1 and page.count("tr") == 2, page.seen
        # Of heat's ranks each speaks with the next ones.
        assert page.count("rect", "cell") >= 6, page.seen
        told = json.loads(job.eyrie("report", "last", "--json")[1])
        assert (told["format"], told["exit_code"], told["phase"]) == (1, 0, "ended"), told
        (recovery,) = told["timeline"]["recoveries"]
        assert recovery["ranks"] == [2] and recovery["back_ms"] >= recovery["restored_ms"] > 0
        sent = sum(map(sum, told["traffic"]["messages"]))
        assert sent == told["messages"] > 0 and told["traffic"]["ranks_a_group"] == 1, told
        text = job.eyrie("report", "last")[1]
        assert all(len(line) <= 80 for line in text.splitlines()) and "rank 2: died of" in text, text
        assert "No such file" in refused(job, "report", "last", "-o", "/nowhere/x")
        assert "no job" in refused(job, "report", "zzzz")


def heat_called(name):
    """The example under another name."""
    folder = os.path.join(harness.BUILD, "tests", "report")
    os.makedirs(folder, exist_ok=True)
    link, (program, *words) = os.path.join(folder, name), example("heat")
    if not os.path.lexists(link):
        os.symlink(program, link)
    return [link, *words, "--size", "128", "--steps", "300"]


def samples(job):
    try:
        with open(os.path.join(job.folder(), "samples.jsonl"), encoding="utf-8") as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


class Top:
    """`eyrie top` on a terminal of its own, of 80 columns and 24 lines."""

    def __init__(self, job, *words):
        self.ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before, self.text = termios.tcgetattr(self.theirs), b""

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [job.program, "top", *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**job.env, "TERM": "xterm-256color"},
            preexec_fn=own_terminal,
        )

    def seen(self):
        """What is on the screen now."""
        if select.select([self.ours], [], [], 0)[0]:
            self.text += os.read(self.ours, 65536)
        # A sequence may come in two parts: all of it anew.
        screen, row, column = [[" "] * 80 for _ in range(24)], 0, 0
        text = self.text.decode(errors="replace")
        for part in re.finditer(r"\x1b\[([0-9;?]*)([A-Za-z])|([^\x1b])", text):
            numbers, kind, plain = part.groups()
            if kind == "H":
                row, column = (int(n) - 1 for n in (numbers or "1;1").split(";"))
            elif kind == "J" or (numbers, kind) == ("?1049", "h"):
                screen = [[" "] * 80 for _ in range(24)]
            elif plain and plain.isprintable() and row < 24 and column < 80:
                screen[row][column] = plain
                column += 1
        return "\n".join("".join(line) for line in screen)

    def until(self, words):
        try:
            harness.soon(lambda: words in self.seen(), f"{words!r} on the screen")
        except harness.Hung as hung:
            raise harness.Hung(f"{hung}, but\n{self.seen()}") from None

    def types(self, keys, words):
        os.write(self.ours, keys.encode())
        self.until(words)

    def given_back(self):
        """The terminal is as it was, and shows what it did."""
        left = lambda: self.seen() and re.search(rb"\x1b\[\?1049l.*\x1b\[\?25h", self.text, re.S)
        harness.soon(left, "return of the screen")
        harness.soon(lambda: termios.tcgetattr(self.theirs) == self.before, "return of the terminal")
        self.text = b""

    def ends(self, code):
        assert self.process.wait(harness.TIMEOUT_S) == code, (self.process.returncode, self.text)
        self.given_back()
        os.close(self.ours)
        os.close(self.theirs)

    def state(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0]


def test_top_shows_jobs_and_kills_a_rank_and_gives_the_terminal_back():
    with Gated(example("heat") + ["--size", "128", "--steps", "300"], ckpt_every=3600) as job:
        job.wait_running(4)
        assert "eyrie status" in refused(job, "top") and "terminal" in refused(job, "top", "last")
        identity = os.path.basename(job.folder())
        top = Top(job)
        top.until(f"{identity}  ")
        top.types("\r", "protected: logged")
        top.types("c", "4 checkpoints are taken")
        top.types("d", "no nodes of its own")
        top.types("K\x7f2", "kill rank: 2_")
        assert job.count("injected") == 0
        os.write(top.ours, b"\r")
        job.wait_event("restored", rank=2)
        top.until("restored")
        top.types("?", "kill a rank, to try out")
        top.types("?", "EVENTS")
        # Ctrl-Z, and on again.
        os.write(top.ours, b"\x1a")
        harness.soon(lambda: top.state() == "T", "stop")
        top.given_back()
        top.process.send_signal(signal.SIGCONT)
        top.until("protected: logged")
        os.write(top.ours, b"q")
        top.ends(0)
        for number in signal.SIGTERM, signal.SIGHUP:
            top = Top(job, "last")
            top.until("protected: logged")
            top.process.send_signal(number)
            top.ends(-number)
        top = Top(job, identity)
        top.until("protected: logged")
        job.let_end()
        assert job.wait() == 0, job.report()
        top.until("ended (0)")
        os.write(top.ours, b"\x03")
        top.ends(130)
        late = Top(job, identity)
        late.until(f"job {identity} has ended: eyrie report {identity}")
        assert late.process.wait(harness.TIMEOUT_S) == 1
        os.close(late.ours)
        os.close(late.theirs)


def test_top_has_a_node_leave():
    """Asked for the node's number; the ranks go elsewhere, nothing is computed again."""
    expected("farm")
    with Nodes("farm", 3, ckpt_every=0.3) as job:
        record = ready(job)
        top = Top(job, "last")
        top.until("protected: logged")
        top.types("d\x7f1", "drain node: 1_")
        os.write(top.ours, b"\x1b")
        top.until("nothing was done")
        assert not job.count("node-leaving"), job.report()
        top.types("d\x7f7\r", "there is no node '7'")
        top.types("d\x7f1", "drain node: 1_")
        os.write(top.ours, b"\r")
        is_gone(job, 1, record)
        top.until(f"job {os.path.basename(job.folder())}: node 1, ")
        os.write(top.ours, b"q")
        top.ends(0)
        job.ends_as("farm")
        nothing_again(job, on_node(record, 1))
