"""x264 --opencl: its output differs from run to run, so frames and PSNR are compared, and its log must say OpenCL."""
import re

from harness.case import Case, Failed


class X264(Case):
    name = "x264"
    cost = 25
    packages = ("x264", "ocl-icd-opencl-dev")  # it opens libOpenCL.so, which only the second has
    programs = ("x264",)
    targets = ("pocl", "rusticl")
    slow = {"oclgrind": "a simulator: more than five minutes"}
    fast = ("pocl",)
    present_as_gpu = True  # it looks only for GPUs
    launches_repeat = False
    tolerance = 0.05

    def run(self, place):
        width, height, frames = 320, 240, 250 if place.is_long else 50
        video = place.work / "in.y4m"
        if not video.exists():
            write_video(video, width, height, frames)
        facts = self.encode(place, video, "cold")
        if not place.timing:
            facts |= self.encode(place, video, "warm")  # from the program binary that it kept
        return facts

    def encode(self, place, video, label):
        log = place.run("x264", "--opencl", "--psnr", "--no-progress", "--threads", "1", "-o", "out.264", video).err
        if "OpenCL acceleration enabled" not in log:
            said = re.search(r"OpenCL.*", log)
            raise Failed(f"OpenCL not used: {said[0] if said else 'nothing said about it'}")
        encoded = re.search(r"encoded (\d+) frames, ([\d.]+) fps", log)
        psnr = re.search(r"PSNR Mean .*Global:([\d.]+)", log)
        if not encoded or not psnr:
            raise Failed("no statistics in the log")
        place.speed = float(encoded[2])
        return {f"{label} frames": encoded[1], f"{label} PSNR": float(psnr[1])}


def write_video(path, width, height, frames):
    """A square that moves over a gradient."""
    gradient = bytes(x * 2 // 3 & 255 for x in range(width + 256))
    with open(path, "wb") as file:
        file.write(b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (width, height))
        for frame in range(frames):
            left = 3 * frame % (width - 48)
            file.write(b"FRAME\n")
            for y in range(height):
                row = bytearray(gradient[y + frame & 255:][:width])
                if 90 <= y < 138:
                    row[left:left + 48] = bytes([235 - y]) * 48
                file.write(row)
            file.write(bytes([128 + frame % 16]) * (width * height // 4) + bytes([120]) * (width * height // 4))


CASES = (X264(),)
