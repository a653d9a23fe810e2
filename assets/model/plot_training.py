# SPDX-License-Identifier: MIT
"""Draws training.svg from the CSV files in runs/.

    /usr/bin/python3 assets/model/plot_training.py [--runs DIR] [-o FILE]

Needs Debian's python3-matplotlib. One panel a column of the CSV, one line a run, one band a stage.
The same files give the same bytes: no date, fixed ids; letters stay text and nothing is embedded.
"""

import argparse
import csv
import glob
import io
import os
import re
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

# Column, title, logarithmic.
PANELS = [
    ("answer_accuracy", "answer tokens that are the arg max, %", False),
    ("answer_nll", "loss of answer tokens, nats per token", True),
    ("other_nll", "loss of all other tokens, nats per token", True),
    ("retrieve", "helper loss: retrieval, nats", True),
    ("gather", "helper loss: gathering, nats", True),
    ("sink", "helper loss: sink, nats", False),
]
# Okabe and Ito's colours that stand out on white: told apart with any colour vision.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000"]
# With it, for those who see no colours and for print.
STYLES = ["-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3))]


def read_run(path):
    """[(step, stage, {column: value})], without empty cells."""
    rows = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            values = {c: float(row[c]) for c, _, _ in PANELS if row.get(c)}
            rows.append((int(row["step"]), row["stage"], values))
    if not rows:
        sys.exit(f"plot_training.py: {path} has no rows; let the run go on for 25 steps")
    return rows


def label_of(path):
    name = os.path.splitext(os.path.basename(path))[0]
    found = re.fullmatch(r"kv(\d+)-seed(\d+)", name)
    if not found:
        return name
    heads = int(found[1])
    return f"{heads} KV head{'s' if heads > 1 else ''}, seed {found[2]}"


def stage_bands(rows):
    """[(name, first step, last step)]."""
    bands, begin = [], 0
    for at, (step, stage, _) in enumerate(rows):
        if at + 1 == len(rows) or rows[at + 1][1] != stage:
            bands.append((stage, begin, step))
            begin = step
    return bands


def draw(runs):
    """runs: {label: rows}. Returns the SVG as text."""
    settings = {
        "svg.hashsalt": "kvlab",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with plt.rc_context(settings):
        figure, axes = plt.subplots(3, 2, figsize=(10, 9), sharex=True, facecolor="white")
        # Reading order: down the left column, then the right one.
        panels = [axes[i % 3][i // 3] for i in range(len(PANELS))]
        longest = max(runs.values(), key=len)
        last_step = longest[-1][0]
        for axis, (column, title, logarithmic) in zip(panels, PANELS):
            for i, (stage, first, last) in enumerate(stage_bands(longest)):
                axis.axvspan(first, last, color="#eef1f5" if i % 2 == 0 else "white", lw=0)
                if axis in axes[0]:
                    where = ((first + last) / 2, 1.0)
                    transform = axis.get_xaxis_transform()
                    axis.text(*where, stage, transform=transform, ha="center", va="bottom")
            for i, (label, rows) in enumerate(runs.items()):
                points = [(step, v[column]) for step, _, v in rows if column in v]
                if not points:
                    continue
                steps, values = zip(*points)
                if column == "answer_accuracy":
                    values = [100 * v for v in values]
                colour, style = COLOURS[i % len(COLOURS)], STYLES[i % len(STYLES)]
                axis.plot(steps, values, linestyle=style, color=colour, lw=1.1, label=label)
            axis.set_title(title, loc="left", fontsize=10, pad=18 if axis in axes[0] else 6)
            if logarithmic:
                axis.set_yscale("log")
                axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.yaxis.set_major_formatter("{x:g}")
                axis.yaxis.set_minor_formatter(NullFormatter())
            axis.set_xlim(0, last_step)
            axis.grid(axis="y", color="#d0d5dc", lw=0.5)
        for axis in axes[-1]:
            axis.set_xlabel("step")
        handles, labels = panels[0].get_legend_handles_labels()
        columns = min(4, len(labels))
        figure.legend(handles, labels, loc="upper center", ncol=columns, frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.035 * -(-len(labels) // columns)))
        text = io.StringIO()
        metadata = {"Date": None, "Creator": "plot_training.py", "Title": "Training of Village 1M"}
        figure.savefig(text, format="svg", metadata=metadata)
        plt.close(figure)
    head, rest = text.getvalue().split("\n", 1)
    lines = [head, "<!-- SPDX-License-Identifier: MIT -->"]
    lines += [line.rstrip() for line in rest.splitlines()]
    return "\n".join(lines) + "\n"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", default=os.path.join(here, "runs"), help="folder of CSV files")
    parser.add_argument("-o", "--output", default=os.path.join(here, "training.svg"))
    args = parser.parse_args()
    paths = sorted(glob.glob(os.path.join(args.runs, "*.csv")))
    if not paths:
        sys.exit(f"plot_training.py: no CSV files in {args.runs}; train.py writes them")
    svg = draw({label_of(path): read_run(path) for path in paths})
    with open(args.output + ".partial", "w") as file:
        file.write(svg)
    os.replace(args.output + ".partial", args.output)


if __name__ == "__main__":
    main()
