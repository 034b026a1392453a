"""Plots with gnuplot: for each mode the ratios to native, with their 95% intervals."""

import pathlib
import shutil
import subprocess

import common
from harness.show import by_name, other_modes

SCRIPT = """set terminal {terminal}
set output "{output}"
set title "{title}"
set ylabel "time, native = 1"
set yrange [0:*]
set style data histograms
set style histogram errorbars gap 1 lw 1
set style fill solid 0.6 border -1
set xtics rotate by -45 scale 0
set grid ytics
set key top left
set bmargin 9
plot 1 with lines lc rgb "black" title "native", {series}
"""
TERMINALS = {"svg": "svg size 1200,600 background '#ffffff'", "png": "pngcairo size 1200,600"}


def write(rows, folder, title):
    """The files that were written."""
    if not shutil.which("gnuplot"):
        raise common.Problem("gnuplot isn't installed (package gnuplot-nox): no plots")
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for row in rows if "table" not in row]  # else a paper's own
    modes = other_modes(rows)
    data = folder / "ratios.dat"
    with open(data, "w", encoding="utf-8") as file:
        for name, by_mode in by_name(rows).items():
            cells = [by_mode.get(mode) for mode in modes]
            if not all(cell and cell["ratio"] is not None for cell in cells):
                continue
            numbers = " ".join(f"{cell['ratio']} {cell['ratio_low']} {cell['ratio_high']}" for cell in cells)
            file.write(f'"{name}" {numbers}\n')
    series = ", ".join(f'"{data}" using {2 + 3 * index}:{3 + 3 * index}:{4 + 3 * index}:xtic(1) title "{mode}"'
                       for index, mode in enumerate(modes))
    written = []
    for ending, terminal in TERMINALS.items():
        output = folder / f"ratios.{ending}"
        script = SCRIPT.format(terminal=terminal, output=output, title=title, series=series)
        done = subprocess.run(["gnuplot"], input=script, capture_output=True, text=True, check=False)
        if done.returncode:
            raise common.Problem(f"gnuplot: {done.stderr.strip()}")
        written.append(output)
    return written
