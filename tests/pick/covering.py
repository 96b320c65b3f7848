"""Of many cases that differ in a row of a table only, a part that meets every row and column."""

import collections
import re
import zlib


def covering(names, part, table):
    """One of `part` of each table's cases, as a set, the same each time; table(name) says of which
    table a case is. Those come first that have a word which none before them has, of the words that
    several names have, so more are chosen where a table has many rows or columns."""
    tables = collections.defaultdict(list)
    for name in names:
        tables[table(name)].append(name)
    chosen = set()
    for own in tables.values():
        # In an order that has nothing to do with that of the table, or one column would be taken.
        own.sort(key=lambda name: zlib.crc32(name.encode()))
        of = {name: set(re.split(r"[._-]", name)) for name in own}
        counts = collections.Counter(word for words in of.values() for word in words)
        met, some = set(), []
        for name in own:
            words = {word for word in of[name] if counts[word] > 1}
            if not words <= met:
                met |= words
                some.append(name)
        rest = [name for name in own if name not in some]
        chosen.update(some + rest[: max(0, -(-len(own) // part) - len(some))])
    return chosen
