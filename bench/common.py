"""What the scripts of this folder share: where things are, how a result says what made it, tables and progress."""

import contextlib
import datetime
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# The benchmarks' programs: in a checkout, or installed.
PROGRAMS = next((folder for folder in (BUILD / "bin", ROOT.parent.parent / "libexec" / "grus") if folder.is_dir()), BUILD / "bin")
DEFAULT_VENDORS = "/etc/OpenCL/vendors"


class Problem(Exception):
    """Ends a script with a message and exit status 2: it couldn't measure, which says nothing about what it measures."""


def main(function):
    try:
        sys.exit(function())
    except Problem as problem:
        print(f"{pathlib.Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def program(name, given=None):
    path = pathlib.Path(given) if given else PROGRAMS / name
    if not path.exists():
        raise Problem(f"{path} isn't there: run make first, or name it with --{name}")
    return path.resolve()


@contextlib.contextmanager
def vendors_folder(vendors):
    """A folder of ICD files, as every loader takes it; made for the time being if one file is given."""
    vendors = pathlib.Path(vendors)
    if not vendors.exists() and len(vendors.parts) == 1:  # as `grus run --vendors` takes it
        vendors = pathlib.Path(DEFAULT_VENDORS) / vendors.with_suffix(".icd")
    if vendors.is_dir():
        if any(name.startswith("libgrus") for name in vendor_libraries(vendors)):
            raise Problem(f"{vendors} holds Grus itself: natively the program would run through it too; see grus disable")
        yield vendors.resolve()
    elif vendors.is_file():
        with tempfile.TemporaryDirectory(prefix="vendors-") as folder:
            shutil.copy(vendors, folder)
            yield pathlib.Path(folder)
    else:
        raise Problem(f"{vendors} is neither an ICD file nor a folder of them")


def vendor_libraries(folder):
    return [pathlib.Path(icd.read_text().strip()).name for icd in sorted(folder.glob("*.icd"))]


def native_environment(folder):
    # OCL_ICD_FILENAMES would add drivers; some versions of the Khronos loader need the slash.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("GRUS_") and name != "OCL_ICD_FILENAMES"}
    return environment | {"OCL_ICD_VENDORS": f"{folder}/"}


def grus_command(grus, folder):
    return [str(grus), "run", "--vendors", str(folder), "--"]


def cpu_name():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def first_line(command):
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
        return output.splitlines()[0] if output else None
    return None


def about(device, versions):
    """What every row of a result carries, so that a table can say how it was made."""
    # A script that runs this one names itself: its command is the one to repeat.
    words = [os.path.relpath(pathlib.Path(sys.argv[0]).resolve(), ROOT), *sys.argv[1:]]
    relative = [os.path.relpath(word, ROOT) if word.startswith(f"{ROOT}/") else word for word in words]
    return {
        "device": device,
        "date": datetime.date.today().isoformat(),
        "host": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}",
        "versions": {name: version for name, version in versions.items() if version},
        # Where only what was built is, whoever brought it there says what it is made of.
        "code": os.environ.get("BENCH_CODE") or first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]),
        "command": os.environ.get("BENCH_COMMAND") or shlex.join(relative),
    }


def table(header, rows, left=1):
    """Aligned text: the first `left` columns to the left, numbers to the right."""
    cells = [list(map(str, row)) for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        parts = [cell.ljust(width) if column < left else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(parts).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def short(value):
    """Three or four digits that count."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{3 if abs(value) < 10 else 2 if abs(value) < 100 else 1}f}"


class Progress:
    """One line on a terminal, rewritten; elsewhere a line every half minute."""

    def __init__(self):
        self.start = time.monotonic()
        self.last = self.start
        self.terminal = sys.stderr.isatty()

    def show(self, text, left_s=None):
        now = time.monotonic()
        if now - self.last < (0.2 if self.terminal else 30):
            return
        self.last = now
        left = "" if left_s is None else f", about {clock(left_s)} left"
        line = f"{clock(now - self.start)}  {text}{left}"
        print(f"\r\033[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr, flush=True)

    def done(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def clock(seconds):
    seconds = max(0, round(seconds))
    return f"{seconds // 60}:{seconds % 60:02d}"
