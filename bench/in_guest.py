#!/usr/bin/python3 -B
"""virtio-CL's workloads on the host's device: on the host, and in a guest through `virtio-serial:` and `ivshmem:`.

What counts is the time in OpenCL calls, without the builds: all else is the guest's own, which is slow where it is emulated.
The same device, PoCL of this host, does the work every time, so all of them must come to the same results.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(SOURCE / "tests/vm"))

import common  # noqa: E402
import guests  # noqa: E402
from guests import BUILD, GRUS, Guest  # noqa: E402

VENDOR = "/etc/OpenCL/vendors/pocl.icd"
WORKLOADS = ["fast_walsh", "mersenne_twister", "mmul", "scan_large_array", "convolution_separable", "scalar_product",
             "black_scholes"]
OPTIONS = [1, 2, 4, 8]  # millions, of BlackScholes
MODES = ["host", "virtio-serial:", "ivshmem:"]


def seconds_in_calls(said):
    result, checksum = said.strip().splitlines()[-2:]
    seconds = json.loads(result)["seconds"]
    return seconds["calls"] - seconds["build"], checksum


class Bench:
    def __init__(self, folder, area_mib):
        self.folder, self.server = folder, f"unix:{folder}/serve.sock"
        environment = {**os.environ, "POCL_CACHE_DIR": str(guests.CACHE / "pocl-of-bench")}
        self.serve = subprocess.Popen([GRUS, "serve", "--listen", self.server, "--vendors", VENDOR], env=environment,
                                      stdout=subprocess.PIPE, text=True)
        self.serve.stdout.readline()
        guests.MEMORY_MIB, guests.AREA_MIB = 2048, area_mib
        programs = [BUILD / "bin/workloads" / name for name in WORKLOADS]
        guests.make_start(folder / "start", programs=programs)
        self.guest = Guest(folder, "guest", folder / "start", area="master=off")
        self.relay = subprocess.Popen([GRUS, "relay", "--port", f"unix:{folder}/guest/gpus.sock", "--to", self.server,
                                       "--area", self.guest.area, "--slice", str(area_mib)])
        self.guest.shell.wait_until_ready(60)
        self.guest.shell.run("grus relay --port /dev/virtio-ports/org.grus.gpu.0 > /run/relay.out 2>&1 < /dev/null & true")

    def run(self, mode, *words):
        if mode == "host":
            environment = {**os.environ, "OCL_ICD_VENDORS": f"{BUILD}/lib/grus-vendors", "GRUS_GPU": self.server}
            said = subprocess.run([BUILD / "bin/workloads" / words[0], "--no-verify", *words[1:]], text=True, check=True,
                                  env=environment, stdout=subprocess.PIPE).stdout
        else:
            command = f"{' '.join(words)} --no-verify"
            said = self.guest.shell.run(f"grus run --gpu {mode} -- /opt/grus/bin/{command} 2>&1", 600)
        if "no shared memory" in said:
            raise RuntimeError(said)
        return seconds_in_calls(said)

    def measure(self, rounds, *words):
        """By mode, medians of the rounds."""
        times, checksums = {mode: [] for mode in MODES}, set()
        for number in range(rounds + 1):  # the first builds the kernels
            for mode in MODES:
                seconds, checksum = self.run(mode, *words)
                checksums.add(checksum)
                if number != 0:
                    times[mode].append(seconds)
        if len(checksums) != 1:
            raise RuntimeError(f"{words}: results differ: {checksums}")
        return {mode: statistics.median(all_of) for mode, all_of in times.items()}

    def close(self):
        self.guest.close()
        for one in (self.relay, self.serve):
            one.terminate()
            one.wait()
        self.serve.stdout.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of each; 3 unless told")
    parser.add_argument("--quick", action="store_true", help="small problems, and fewer rounds of BlackScholes's work")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    parser.add_argument("--area", type=int, default=1024, metavar="MIB", help="that guest and host share; 1024 unless told")
    options = parser.parse_args()
    guests.prepare()
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="grus-bench-") as folder:
        bench = Bench(pathlib.Path(folder), options.area)
        try:
            print("| time in OpenCL calls, s | on the host | `virtio-serial:` | `ivshmem:` |\n| --- | ---: | ---: | ---: |", flush=True)
            cases = [(name, [name, *["--quick"] * options.quick]) for name in WORKLOADS[:-1]]
            iterations = ["--iterations", "4"] if options.quick else []
            cases += [(f"black_scholes, {millions} M options", [WORKLOADS[-1], "--size", f"{millions}000000", *iterations])
                      for millions in OPTIONS]
            for name, words in cases:
                times = bench.measure(options.rounds, *words)
                host = times["host"]
                cells = [f"{times[mode]:.3f} ({times[mode] / host:.2f}×)" for mode in MODES[1:]]
                print(f"| {name} | {host:.3f} | {' | '.join(cells)} |", flush=True)
                rows.append({"name": name, "host_s": host} | {f"{mode.strip(':')}_{what}": value for mode in MODES[1:]
                                                              for what, value in (("s", times[mode]), ("ratio", times[mode] / host))})
        finally:
            bench.close()
    if options.json:
        about = common.about("PoCL", {"grus": common.first_line([GRUS, "--version"]), "acceleration": guests.acceleration()})
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
