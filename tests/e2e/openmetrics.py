"""Reads metrics as a scraper does, and refuses what the formats do not permit."""

import http.client
import re
import socket

SAMPLE = re.compile(r'^([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\["\\n])*)"(?:,|$)')
ENDS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


class Unix(http.client.HTTPConnection):
    """Over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


def ask(connection, method="GET", target="/metrics", accept=None):
    """(status, type, text) of an answer."""
    connection.request(method, target, headers={"Accept": accept} if accept else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("Content-Type"), text


def parse(text, open_metrics):
    """{name: kind}, {(name, labels): value}. With open_metrics by its rules, else by those of the older
    format, where a family has the names of its samples."""
    families, values, helped, units = {}, {}, set(), {}
    lines = text.split("\n")
    assert lines.pop() == "" and (lines[-1] == "# EOF") == open_metrics, text[-200:]
    for line in lines[:-1] if open_metrics else lines:
        if line.startswith("# HELP "):
            helped.add(line.split(" ")[2])
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in families and name in helped and kind in ENDS, line
            families[name] = kind
        elif line.startswith("# UNIT "):
            assert open_metrics, line
            _, _, name, unit = line.split(" ")
            assert name.endswith("_" + unit), line
            units[name] = unit
        else:
            match = SAMPLE.match(line)
            assert match, line
            name, labels, value = match.groups()
            found = LABEL.findall(labels or "")
            assert LABEL.sub("", labels or "") == "" and found, line
            family, kind = list(families.items())[-1]
            ends = ENDS[kind] if open_metrics or kind != "counter" else ("",)
            assert any(name == family + end for end in ends), (line, family)
            key = (name, tuple(sorted(found)))
            assert key not in values, line
            values[key] = float(value)
    for name, unit in units.items():
        assert unit in ("seconds", "bytes", "ratio"), (name, unit)
    histograms(families, values)
    return families, values


def histograms(families, values):
    """Buckets grow, and the last one has all."""
    for family in (name for name, kind in families.items() if kind == "histogram"):
        buckets = [
            (float(dict(labels)["le"]), value)
            for (name, labels), value in values.items()
            if name == family + "_bucket"
        ]
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), buckets
        assert [n for _, n in buckets] == sorted(n for _, n in buckets), buckets
        assert buckets[-1][1] == one(values, family + "_count"), buckets


def one(values, metric, **labels):
    """The value of the one series with these labels, and perhaps others."""
    wanted = labels.items()
    [value] = [v for (of, has), v in values.items() if of == metric and wanted <= dict(has).items()]
    return value
