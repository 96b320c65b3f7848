"""Pages that are made from the code are what the code says now (scripts/reference)."""

import os
import subprocess

from pages import ROOT


def faults(_book):
    script = os.path.join(ROOT, "scripts", "reference")
    done = subprocess.run([script, "--check"], text=True, capture_output=True, cwd=ROOT)
    if done.returncode == 0:
        return
    told = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()[-1:]
    for line in told or ["nothing was told"]:
        page = line.split(" ")[0] if line.startswith("docs/") else "scripts/reference"
        yield page, f"{line} (make reference)"
