#!/usr/bin/env python3
"""Draws what `benches/eagle` wrote to FOLDER/eagle.csv into FOLDER/eagle.png: a panel for each
experiment that is in it, with the paper's figures where it has some.

    python3 benches/eagle_plot.py FOLDER        # wants matplotlib

What it keeps true: it knows nothing but the file, so figures of another day can be drawn again.
"""

import csv
import os
import statistics
import sys

# Overheads in % that the paper tells for its kernels, by routers.
PAPER = {"IS-like": 63.4, "BT-like": 20, "SP-like": 30}


def read(path):
    """experiment -> (system, case) -> median of the rounds"""
    values = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            cases = values.setdefault(row["experiment"], {})
            cases.setdefault((row["system"], row["case"]), []).append(float(row["value"]))
    return {e: {k: statistics.median(v) for k, v in cases.items()} for e, cases in values.items()}


def messages(axes, name, cases):
    for system in dict.fromkeys(s for s, _ in cases):
        line = sorted((int(c), v) for (s, c), v in cases.items() if s == system)
        axes.plot([x for x, _ in line], [y for _, y in line], marker="o", label=system)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="microseconds", title=name)
    axes.legend(fontsize=6)


def kernels(axes, name, cases):
    bars = {"logged": [], "routed": [], "paper, routed": []}
    for kernel, paper in PAPER.items():
        share = lambda other, base, k=kernel: (cases[other, k] / cases[base, k] - 1) * 100  # noqa: E731
        bars["logged"].append(share("logged", "none"))
        bars["routed"].append(share("routed, 4", "none, 4"))
        bars["paper, routed"].append(paper)
    for number, (label, heights) in enumerate(bars.items()):
        axes.bar([i + number * 0.27 for i in range(len(PAPER))], heights, 0.25, label=label)
    axes.set_xticks([i + 0.27 for i in range(len(PAPER))], list(PAPER))
    axes.set(ylabel="overhead in %", title=name)
    axes.legend(fontsize=6)


def methods(axes, name, cases):
    lines = {}
    for (method, case), share in cases.items():
        # "4 wanted, 5.0 taken"; the run without checkpoints has another unit, and no such case.
        words = case.split()
        if len(words) == 4:
            lines.setdefault(method, []).append((float(words[2]), share))
    for method, line in lines.items():
        line.sort()
        style = "--" if method.startswith("SC") else "-"
        xs, ys = zip(*line)
        axes.plot(xs, ys, linestyle=style, marker="o", label=method)
    axes.set(xlabel="checkpoints of a rank", ylabel="overhead in %", title=name)
    axes.legend(fontsize=6)


PANELS = {"pingpong": messages, "alltoall": messages, "kernels": kernels, "methods": methods}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder = sys.argv[1]
    values = read(os.path.join(folder, "eagle.csv"))
    there = [name for name in PANELS if name in values]
    figure, axes = pyplot.subplots(1, len(there), figsize=(5 * len(there), 4), squeeze=False)
    for place, name in zip(axes[0], there):
        PANELS[name](place, name, values[name])
    figure.tight_layout()
    figure.savefig(os.path.join(folder, "eagle.png"), dpi=120)


if __name__ == "__main__":
    main()
