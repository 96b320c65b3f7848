"""Of many cases that differ in a row of a table only, those whose turn it is at this commit."""

import collections
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def have_their_turn(names, turns, table):
    """Every so many-th of each table's, from another one on at each commit, as a set; table(name)
    says of which table a case is. Where nothing tells which commit it is, from the same one on."""
    words = ["git", "-C", ROOT, "rev-parse", "HEAD"]
    try:
        commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except OSError:
        commit = ""
    first = int(commit[:8] or "0", 16)
    numbers, chosen = collections.Counter(), set()
    for name in names:
        numbers[table(name)] += 1
        if (first + numbers[table(name)]) % turns == 0:
            chosen.add(name)
    return chosen
