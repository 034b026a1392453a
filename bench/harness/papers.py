"""The tables of the papers, with their published figures beside ours. The figures are from the papers' texts; where a
text gives only a plot, the figure is "not given"."""

import math
import statistics
from dataclasses import dataclass

import common
from harness.modes import NATIVE, NOT_YET, SERVED
from harness.show import by_name, ratio_text
from harness.workloads import LOGV, OPTION_COUNTS, SHOC, VIRTIO_CL


@dataclass
class Table:
    header: list
    lines: list
    left: int = 1  # columns of text, before those of numbers


TITLES = {"crane": "Crane", "logv": "LoGV", "virtio-cl": "virtio-CL", "gmig": "gMig"}
NOT_GIVEN = "not given"
MOVES_ELSEWHERE = "Moves: in a file of their own, or not measured."

LOGV_OVERHEAD = {"mmul": -0.06, "lud": -0.56, "nn": -0.33, "backprop": 3.55}
# Seconds natively and in the guest, and MB to and from the host.
VIRTIO_CL_SECONDS = {
    "fast_walsh": (1.175, 1.256, 3.02, 0.05), "black_scholes": (2.330, 2.424, 46.75, 30.52),
    "mersenne_twister": (8.078, 11.603, 0.75, 183.13), "mmul": (0.969, 1.082, 32.75, 16.01),
    "scan_large_array": (0.939, 0.976, 0.50, 0.01), "convolution_separable": (3.937, 4.154, 36.75, 36.00),
    "scalar_product": (0.581, 0.631, 0.79, 0.22),
}
MOST_MEAN_OVERHEAD = {"unix": 1.03}  # ours, of the seven
BLACK_SCHOLES_IN_CALLS = {2: 6.7, 4: 15.4, 8: 74.9, 16: 667.8}
# Times as fast as SHA-1; ns for a page with and without a sample, the stop's pages, how much longer stops are at 5 Gbit/s.
GMIG_TIMES_SHA1 = {"xor256": "141", "xxh3": "28", "MD5": "1.76", "SHA-1": "1"}
GMIG_PAGE_NS = {0: "468.6", 1: "353.5"}
GMIG_CLASSES = ("18.9%", "38.4%", "37.8%", "4.8%")
GMIG_LONGER = {5.0: "+42 to +90%"}
GMIG_OVERLAP_NS = ("1218.9", "1054.3", "772.8")  # one after the other, overlapped, ideal
CRANE = {"x264": 12.5, "SHOC level 1, mean": 5.25}
# Stops before and after a migration: to remoting, and back to the device. MB moved in each.
CRANE_MOVES = {"encoder": ("x264", "0.1 + 0.83", "16 + 16"), "cnn": ("DeepCL", "1.57 + 4.90", "256 + 256"),
               "water": ("OpenMM in FAHBench", "0.073 + 0.52", "1 + 0")}
# ms: what it costs the program, downtime, the whole migration.
LOGV_MOVES = {"mmul": ("962.9", "149.2", "3051.3"), "lud": ("1903.9", "196.0", "2293.0")}


def percent(ratio):
    return "-" if ratio is None else f"{100 * (ratio - 1):+.2f}%"


def overhead(row, key=""):
    if not row or row.get(f"{key}ratio") is None:
        return "-"
    low, high = percent(row[f"{key}ratio_low"]), percent(row[f"{key}ratio_high"])
    return f"{percent(row[f'{key}ratio'])} [{low}, {high}]"


def published(value):
    return NOT_GIVEN if value is None else f"{value:+.2f}%"


def mean_overhead(rows):
    ratios = [row["ratio"] for row in rows if row and row.get("ratio")]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def missing(*modes):
    return [f"Missing here: {mode} ({NOT_YET[mode]})." for mode in modes if mode in NOT_YET]


def split(names, workloads):
    """Where there is a server: what it costs on the way there, on the way back, and otherwise."""
    lines = []
    for name in workloads:
        modes = names.get(name, {})
        for mode in SERVED:
            if mode not in modes or NATIVE not in modes:
                continue
            row, native = modes[mode], modes[NATIVE]
            ways = [row["phases"][way] - native["phases"][way] for way in ("to_device", "from_device")]
            whole = row["median"] - native["median"]
            lines.append([name, mode, overhead(row), *(f"{1000 * part:+.1f}" for part in (whole, *ways, whole - sum(ways)))])
    if not lines:
        return []
    return ["Overhead of a server in ms: to it, from it, other",
            Table(["workload", "mode", "overhead [95%]", "ms", "to", "from", "other"], lines, left=2)]


def both_ways(row, key, scale=1.0):
    return " + ".join(common.short(scale * row[way][key]) for way in ("there", "back"))


def memory_by_type(row):
    """Of what has memory; the rest is made again of what the program gave, which is a few KiB."""
    if "image_MiB" not in row:
        return common.short(row["MiB"])
    return f"{common.short(row['MiB'] - row['image_MiB'])} + {common.short(row['image_MiB'])}"


def crane_moves(rows):
    lines = []
    for row in rows:
        theirs, stops, megabytes = CRANE_MOVES[row["workload"]]
        ours = ["FAILED", *[""] * 7] if "broken" in row else [
            ", ".join(f"{count} {kind}" for kind, count in row["objects"].items() if count), memory_by_type(row), row["moves"],
            *(both_ways(row, key) for key in ("running_MiB", "stopped_MiB", "stop_s", "drain_s", "move_s"))]
        lines.append([f"{row['workload']} (theirs: {theirs})", *ours, stops, megabytes])
    for name, (theirs, stops, megabytes) in CRANE_MOVES.items():
        if not any(row["workload"] == name for row in rows):
            lines.append([f"{name} (theirs: {theirs})", "not measured", *[""] * 7, stops, megabytes])
    return ["Crane: moves to a server of this host and back while the program runs, there + back. Theirs: before + after a migration, to "
            "a proxy and back to the device. All results were those of native runs",
            Table(["workload", "objects", "MiB of buffers + images", "moves", "MiB sent running", "MiB sent in the stop", "stop s", "of it for the device",
                   "whole move s", "published stop s", "published MB"], lines, left=2)]


def crane(names, own=()):
    moves = crane_moves(own) if own else [MOVES_ELSEWHERE]
    if own and not names:
        return moves
    lines = [[name, common.short(names[name][NATIVE]["median"]), common.short(names[name]["grus"]["median"]),
              overhead(names[name]["grus"]), NOT_GIVEN]
             for name in SHOC if "grus" in names.get(name, {})]
    ours = mean_overhead([names.get(name, {}).get("grus") for name in SHOC])
    lines.append(["SHOC level 1, mean", "", "", percent(ours), published(CRANE["SHOC level 1, mean"])])
    for name, theirs, figure in (("encoder", "x264", CRANE["x264"]), ("cnn", "DeepCL", 0.0)):
        modes = names.get(name, {})
        if "grus" in modes:
            lines.append([f"{name} (theirs: {theirs})", common.short(modes[NATIVE]["median"]),
                          common.short(modes["grus"]["median"]), overhead(modes["grus"]), published(figure)])
    text = ["Crane: what tracking costs", Table(["workload", "native s", "grus s", "overhead [95%]", "published"], lines)]
    encoder = names.get("encoder", {})
    if "grus" in encoder:
        rates = [[mode, common.short(row.get("frames_per_second"))] for mode, row in encoder.items()]
        text.append(Table(["encoder", "frames/s"], rates))
    return text + split(names, (*SHOC, "encoder", "cnn")) + moves


def logv_moves(rows):
    def milliseconds(seconds):
        return common.short(seconds and 1e3 * seconds)

    lines = []
    for row in rows:
        ours = ["FAILED", *[""] * 10] if "broken" in row else [
            row["copying"], row["shaped_by"], common.short(row["MiB"]), common.short(row["kernel_s"]), common.short(row["unmoved_s"]),
            f"{row['moves']} of {row['turns']}", f"{row['delay_ms']:.0f} ({row['delay_low_ms']:.0f} to {row['delay_high_ms']:.0f})",
            milliseconds(row["stop_s"]), milliseconds(row["drain_s"]),
            " + ".join(common.short(row[key]) for key in ("running_MiB", "stopped_MiB")), milliseconds(row["move_s"])]
        lines.append([row["workload"], *ours, *LOGV_MOVES[row["workload"]]])
    return ["LoGV: moves to a server at 100 MB/s that begin while a round of kernels runs. Delay: how much longer the program takes than "
            "unmoved, the middle (half) of all turns, with reading its results from there; also where it ended before it was moved. "
            "Theirs: a VM with its RAM. All results were those of native runs",
            Table(["workload", "copying", "shaped by", "MiB", "round s", "unmoved s", "moved", "delay ms", "stop ms",
                   "of it for the device", "MiB sent running + in the stop", "whole move ms", "published delay", "published stop",
                   "published move"], lines, left=3)]


def logv(names, own=()):
    moves = logv_moves(own) if own else [MOVES_ELSEWHERE]
    if own and not names:
        return moves
    phases = ("init", "allocate", "to_device", "kernels", "from_device", "close")
    lines = []
    for name in LOGV:
        for mode, row in names.get(name, {}).items():
            if mode not in (NATIVE, "grus"):
                continue
            times = [f"{1000 * row['phases'][phase]:.1f}" for phase in phases]
            lines.append([name, mode, f"{1000 * row['median']:.1f}", *times, row["runs"],
                          overhead(row) if mode == "grus" else "", published(LOGV_OVERHEAD[name]) if mode == "grus" else ""])
    header = ["workload", "mode", "total ms", *(phase.replace("_", " ") for phase in phases), "runs", "overhead [95%]", "published"]
    return ["LoGV: phases from the first to the last API call", Table(header, lines, left=2),
            *split(names, LOGV), *missing("vm"), *moves]


def modes_of(names, workloads):
    return [mode for mode in ("grus", *SERVED) if any(mode in names.get(name, {}) for name in workloads)]


def virtio_cl_mean(names, mode):
    rows = [names.get(name, {}).get(mode) for name in VIRTIO_CL]
    mean = mean_overhead(rows)
    limit = MOST_MEAN_OVERHEAD.get(mode)
    kept = "" if limit is None or not all(rows) else "ok" if mean <= limit else "MISSED"
    return ["mean", mode, "", "", percent(mean), "", "", "", "+12.00%", "" if limit is None else f"<= {percent(limit)}", kept]


def by_options(names, mode):
    """With more options there is more to move; that must not cost more than its share."""
    rows = {millions: names.get(f"black_scholes_{millions}m", {}).get(mode) for millions in OPTION_COUNTS}
    lines = [[f"{millions} M", mode, row["size"], overhead(row, "calls_"), published(BLACK_SCHOLES_IN_CALLS[millions]), "", ""]
             for millions, row in rows.items() if row]
    few, many = (rows[millions] for millions in (min(OPTION_COUNTS), max(OPTION_COUNTS)))
    if few and many and mode in MOST_MEAN_OVERHEAD:
        higher = many["calls_ratio"] > few["calls_ratio"]
        apart = many["calls_ratio_low"] > few["calls_ratio_high"] and min(few["runs"], many["runs"]) > 1  # of one it isn't known
        lines[-1][-2:] = [f"<= {min(OPTION_COUNTS)} M's", "MISSED" if apart else "unclear" if higher else "ok"]
    return lines


def virtio_cl(names):
    lines, options = [], []
    for mode in modes_of(names, (*VIRTIO_CL, *(f"black_scholes_{millions}m" for millions in OPTION_COUNTS))):
        for name in VIRTIO_CL:
            modes = names.get(name, {})
            native_s, guest_s, _, _ = VIRTIO_CL_SECONDS[name]
            if mode in modes:
                lines.append([name, mode, common.short(modes[NATIVE]["median"]), common.short(modes[mode]["median"]),
                              overhead(modes[mode]), ratio_text(modes[mode], "calls_"), native_s, guest_s,
                              percent(guest_s / native_s), "", ""])
        lines.append(virtio_cl_mean(names, mode))
        options += by_options(names, mode)
    return ["virtio-CL: natively and through Grus, in this process or behind a server of this host; theirs natively and in a guest",
            Table(["workload", "mode", "native s", "s", "overhead [95%]", "ratio in OpenCL calls [95%]", "their native s",
                   "their guest s", "published", "limit", "verdict"], lines, left=2),
            "BlackScholes by options: overhead of the time in OpenCL calls",
            Table(["options", "mode", "size here", "overhead [95%]", "published", "limit", "verdict"], options, left=2),
            *split(names, (*VIRTIO_CL, *(f"black_scholes_{millions}m" for millions in OPTION_COUNTS))), *missing("vm")]


def share(value):
    return f"{value:.1%}"


def gmig_fingerprints(rows):
    sha1 = {row["MiB"]: row["GB_per_s"] for row in rows if row["kind"] == "SHA-1"}
    lines = []
    for row in rows:
        beside = sha1.get(row["MiB"]) if row["by"] == "host" else sha1[max(sha1)]
        found = ([f"{row[key]} of {row['changed']}" for key in ("found_flipped", "found_swapped")] if "changed" in row
                 else [f"{row['pages_changed']} changed", ""])
        lines.append([row["kind"], row["by"], row["MiB"], common.short(row["GB_per_s"]), common.short(row["ns_per_page"]),
                      common.short(row["GB_per_s"] / beside), GMIG_TIMES_SHA1.get(row["kind"], NOT_GIVEN), *found])
    return ["gMig: fingerprints of pages of 4 KiB, by one thread of the host (1 MiB stays in its cache), and by the device in its memory (its own times). Found: of "
            "pages with one bit flipped, and with two blocks of 32 bytes swapped; by the device: pages that it said had changed",
            Table(["fingerprint", "by", "MiB", "GB/s", "ns/page", "x SHA-1", "published x SHA-1", "flips found",
                   "swaps found"], lines, left=2)]


def gmig_sampling(rows):
    plain = {row["kind"]: row["ns_per_page"] for row in rows if row["bytes"] == 0}
    lines = []
    for row in rows:
        is_theirs = row["at"] in ("", "head") and row["kind"] == "xor256"
        lines.append([row["kind"], row["bytes"] or "none", row["at"], common.short(row["ns_per_page"]),
                      percent(row["ns_per_page"] / plain[row["kind"]]) if row["bytes"] else "",
                      *(share(row[key]) for key in ("never_sent", "unchanged", "sampled", "fingerprinted")),
                      GMIG_PAGE_NS.get(row["bytes"], NOT_GIVEN) if is_theirs else NOT_GIVEN])
    lines.append(["published", 1, "head", "353.5", "-24.56%", *GMIG_CLASSES, ""])
    return ["gMig: looking at a page in the stop, by the host, of pages made up in the shares that gMig saw: new; unchanged; changed "
            "where one byte at the head tells; changed elsewhere. Bytes that are the same decide nothing: such pages are fingerprinted",
            Table(["fingerprint", "bytes", "at", "ns/page", "against none", "new", "unchanged", "by sample", "by fingerprint",
                   "published ns/page"], lines, left=3)]


def gmig_classes(rows):
    lines = [[row["workload"], row["moves"], row["pages"],
              *(share(row[key]) for key in ("never_sent", "unchanged", "sampled", "fingerprinted", "zero", "zero_first")),
              common.short(row["ns_per_page"]), common.short(row["ns_per_page_sampled"])] for row in rows]
    lines.append(["published (Tropics)", "", "", *GMIG_CLASSES, NOT_GIVEN, NOT_GIVEN, GMIG_PAGE_NS[0], GMIG_PAGE_NS[1]])
    return ["gMig: pages that stops looked at, after one round of copying, with one byte at the head sampled. False dirty: of an object "
            "that commands had touched, but the same as sent. Times are of the whole copy in the stop, without a sample and with it",
            Table(["workload", "moves", "pages in a stop", "new", "false dirty", "dirty by sample", "dirty by fingerprint", "to zeroes",
                   "zeroes in the first copy", "ns/page", "ns/page sampled"], lines)]


def gmig_links(rows):
    fastest = {row["rounds"]: row["stop_ms"] for row in rows if row["Gbit_per_s"] == 10}
    lines = [[common.short(row["Gbit_per_s"]), row["shaped_by"], "one round before" if row["rounds"] else "all in the stop", row["moves"],
              common.short(row["sent_MiB"]), common.short(row["stop_ms"]), common.short(row["drain_ms"]),
              common.short(row["ideal_ms"]), common.short(row["stop_ms"] / row["ideal_ms"]) if row["ideal_ms"] else "-",
              percent(row["stop_ms"] / fastest[row["rounds"]]) if row["rounds"] in fastest else "-",
              GMIG_LONGER.get(row["Gbit_per_s"], NOT_GIVEN) if row["rounds"] else NOT_GIVEN] for row in rows]
    return ["gMig: stops of a program with 256 MiB that works on 32 MiB of them all the time. Ideal: what was sent in the stop, at the "
            "link's speed", Table(["Gbit/s", "shaped by", "copying", "moves", "MiB sent in the stop", "stop ms", "of it for the device",
                                   "ideal ms", "stop / ideal", "against 10 Gbit/s", "published"], lines, left=3)]


def gmig_overlap(rows):
    lines = [["here", row["moves"], row["pages"], common.short(row["in_turn_ns"]), common.short(row["overlapped_ns"]),
              percent(row["overlapped_ns"] / row["in_turn_ns"]), common.short(row["fingerprinted_ns"]), common.short(row["sent_only_ns"]),
              common.short(row["ideal_ns"]), common.short(row["overlapped_ns"] / row["ideal_ns"])] for row in rows]
    in_turn, overlapped, ideal = GMIG_OVERLAP_NS
    lines.append(["published", "", "", in_turn, overlapped, "-13.50%", NOT_GIVEN, NOT_GIVEN, ideal, "1.364"])
    return ["gMig: fingerprinting and sending in a stop, one after the other and overlapped, where every page has changed: ns per page. "
            "Ideal: the longer of both. Fingerprints alone are of one thread, in memory; sending alone is a stop "
            "without them, where a sample told that a page had changed",
            Table(["", "moves", "pages in a stop", "in turn", "overlapped", "against in turn", "fingerprints alone", "sending alone",
                   "ideal", "overlapped / ideal"], lines)]


def gmig(names, own=()):
    text = []
    for table, shown in (("fingerprints", gmig_fingerprints), ("sampling", gmig_sampling), ("classes", gmig_classes),
                         ("overlap", gmig_overlap), ("links", gmig_links)):
        rows = [row for row in own if row["table"] == table]
        text += shown(rows) if rows else []
    lines = []
    for name, modes in names.items():
        study = modes.get(NATIVE, {}).get("study")
        if not study:
            continue
        shares = study["dirtied_in_interval"]
        lines.append([name, study["pages"], f"{study['ever_dirtied']:.1%}",
                      f"{statistics.fmean(shares):.1%}" if shares else "-", f"{study['dirtied_again']:.1%}", NOT_GIVEN])
    if not lines and text:
        return text
    return [*text, "gMig: pages of 4 KiB that each workload dirties, in eight intervals of its run",
            Table(["workload", "pages", "ever dirtied", "in an interval, mean", "dirtied again in the next", "published"],
                  lines)]


def parts(paper, rows):
    """Lines of text and tables. A table without a line is for what was not measured."""
    own = [row for row in rows if "table" in row]
    rows = [row for row in rows if "table" not in row]
    tables = {"crane": lambda names: crane(names, own), "logv": lambda names: logv(names, own), "virtio-cl": virtio_cl,
              "gmig": lambda names: gmig(names, own)}
    return [part if isinstance(part, str) or part.lines else "Not measured in this run."
            for part in tables[paper](by_name(rows))]


def text(paper, rows):
    return "\n\n".join(part if isinstance(part, str) else common.table(part.header, part.lines, left=part.left)
                       for part in parts(paper, rows))
