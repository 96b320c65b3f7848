"""The page of `eyrie report` in a real browser: what it makes of it, what it complains of, how it
looks."""

import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
EYRIE = os.path.join(BUILD, "bin", "eyrie")
WIDTH, HEIGHT = 1024, 2400
# As in page.css, of light and of dark.
PAPER = {"light": (255, 255, 255), "dark": (20, 24, 30)}
COMPUTING = {"light": (157, 191, 227), "dark": (47, 84, 121)}
DOWN = {"light": (210, 64, 47), "dark": (239, 91, 72)}
# A rank is killed once it has a checkpoint.
JOB = """set -e
"$0" run -n 4 --ckpt-every 1 -v --name '<b>heat' -- "$1" --steps 20000 > /dev/null 2> $EYRIE_HOME.err &
job=$!
until grep -q 'rank 2 checkpointed' $EYRIE_HOME.err; do kill -0 $job; sleep 0.05; done
"$0" inject last kill-rank 2
wait $job
"""


def browser():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "chromium is missing: apt-get install chromium (or ALL=1 scripts/setup --test)"
    return found


def browse(folder, page, *options):
    """What the browser prints, and says."""
    profile = tempfile.mkdtemp(dir=folder)
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={profile}", "--enable-logging=stderr", "--disable-dev-shm-usage"]
    command += [f"--window-size={WIDTH},{HEIGHT}", *options, f"file://{page}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    return done.stdout, re.findall(r"CONSOLE.*", done.stderr)


def unfiltered(kind, line, above, step):
    """A line of a PNG (its chapter on filtering)."""
    if kind == 0:
        return line
    if kind == 2:
        return bytes((a + b) & 255 for a, b in zip(line, above))
    out = bytearray(line)
    for at, byte in enumerate(line):
        left, up = out[at - step] if at >= step else 0, above[at]
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) // 2
        else:
            corner = above[at - step] if at >= step else 0
            whole = left + up - corner
            off = abs(whole - left), abs(whole - up), abs(whole - corner)
            guess = (left, up, corner)[off.index(min(off))]
        out[at] = (byte + guess) & 255
    return bytes(out)


def pixels(path):
    """How many of each colour a picture has."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", data[:8]
    at, packed = 8, b""
    while at < len(data):
        (length,), kind = struct.unpack(">I", data[at : at + 4]), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    step = {2: 3, 6: 4}[colours]
    assert depth == 8, depth
    lines, size, above, counts = zlib.decompress(packed), width * step + 1, bytes(width * step), {}
    for row in range(height):
        line = lines[row * size : (row + 1) * size]
        above = unfiltered(line[0], line[1:], above, step)
        for x in range(0, len(above), step):
            colour = tuple(above[x : x + 3])
            counts[colour] = counts.get(colour, 0) + 1
    return (width, height), counts


def made(folder):
    """The page of a job in which a rank died."""
    env = {**os.environ, "EYRIE_HOME": os.path.join(folder, "home")}
    heat = os.path.join(BUILD, "examples", "heat")
    for command in (["sh", "-c", JOB, EYRIE, heat], [EYRIE, "report", "last", "-o", f"{folder}/page.html"]):
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=300)
    return f"{folder}/page.html"


def test_a_report_in_a_browser(folder):
    page = made(folder)
    dom, complaints = browse(folder, page, "--dump-dom")
    assert not complaints, complaints
    for part in "timeline", "recoveries", "checkpoints", "log", "traffic", "missing":
        assert f'<section id="{part}">' in dom, dom[:4000]
    assert '<p class="verdict good" id="verdict">nothing was lost</p>' in dom and "&lt;b&gt;heat" in dom
    assert dom.count('class="down"') == 1 and dom.count('class="cell"') >= 6, dom
    # A script that is not the page's own is not run, and that is said: so complaints are heard.
    bad = os.path.join(folder, "bad.html")
    with open(page, encoding="utf-8") as file, open(bad, "w", encoding="utf-8") as out:
        out.write(file.read().replace("</main>", "<script>document.title = 'run'</script></main>"))
    dom, complaints = browse(folder, bad, "--dump-dom")
    assert "Content Security Policy" in " ".join(complaints) and "<title>run" not in dom, complaints
    for theme, options in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
        picture = os.path.join(folder, f"{theme}.png")
        browse(folder, page, f"--screenshot={picture}", *options)
        size, counts = pixels(picture)
        assert size == (WIDTH, HEIGHT), size
        of = lambda colour: counts.get(colour[theme], 0)
        assert of(PAPER) > WIDTH * HEIGHT / 4, (theme, sorted(counts.items(), key=lambda c: -c[1])[:9])
        # Four rows of 12 pixels, as wide as a screen has room for; of a rank that was dead some.
        assert of(COMPUTING) > 4 * 6 * 400 and of(DOWN) > 4, (theme, of(COMPUTING), of(DOWN))
