"""ffmpeg's OpenCL filters on a generated video: every frame's checksum."""
from harness.case import Case, Failed

FILTERS = {
    "avgblur": "avgblur_opencl=4",
    "unsharp": "unsharp_opencl=lx=5:ly=5:la=1.5",
    "nlmeans": "nlmeans_opencl=s=4:p=3:r=5",
}
FRAMES_WHEN_LONG = {"avgblur": 25, "unsharp": 60, "nlmeans": 16}


class Ffmpeg(Case):
    packages = ("ffmpeg", "ocl-icd-opencl-dev")
    programs = ("ffmpeg",)
    targets = ("pocl", "rusticl", "oclgrind")

    def __init__(self, kind, fast):
        self.kind, self.fast = kind, fast
        self.name = f"ffmpeg-{kind}"

    def frames(self, place, size, count, chain):
        source = f"testsrc=size={size}:rate={count}:duration=1"
        device = ("-init_hw_device", "opencl=device:0.0", "-filter_hw_device", "device")
        text = place.run("ffmpeg", "-v", "error", "-nostdin", *device, "-f", "lavfi", "-i", source, "-vf", chain,
                         "-f", "framemd5", "-").out
        return [line.split(",")[-1].strip() for line in text.splitlines() if not line.startswith("#")]

    def run(self, place):
        size, count = "320x240", 25
        if place.vendor.name == "oclgrind":
            size, count = "64x48", 3
        if place.is_long:
            size, count = "640x480", FRAMES_WHEN_LONG[self.kind]
        chain = f"format=yuv420p,hwupload,{FILTERS[self.kind]},hwdownload,format=yuv420p"
        frames = self.frames(place, size, count, chain)
        if len(frames) != count:
            raise Failed(f"{len(frames)} frames instead of {count}")
        if not place.timing and set(frames) & set(self.frames(place, size, count, "format=yuv420p")):
            raise Failed("the filter changed nothing")
        return {f"frame {index}": checksum for index, checksum in enumerate(frames)}


CASES = (
    Ffmpeg("avgblur", ("pocl", "rusticl", "oclgrind")),
    Ffmpeg("unsharp", ("pocl",)),
    Ffmpeg("nlmeans", ("pocl", "rusticl")),
)
