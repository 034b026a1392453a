"""OpenCV's UMat pipeline, with its cache of program binaries empty and filled."""
from harness.case import Case, Failed, lines_as_facts


class OpenCv(Case):
    name = "opencv"
    cost = 8
    packages = ("libopencv-imgproc-dev", "ocl-icd-opencl-dev", "g++")
    sources = {"opencv_umat.cpp": ["-std=c++20", "-I/usr/include/opencv4", "-lopencv_imgproc", "-lopencv_core"]}
    targets = ("pocl", "rusticl")
    fast = ("pocl",)

    def run(self, place):
        size = (640, 480, 20) if place.is_long else (200, 120, 3)
        if place.vendor.name == "oclgrind":
            size = (48, 32, 1)
        # OpenCV looks for GPUs unless told otherwise
        command, environment = (place.program("opencv_umat.cpp"), *size), {"OPENCV_OPENCL_DEVICE": ":CPU:"}
        if place.timing:
            return lines_as_facts(place.run(*command, environment=environment).out)
        place.forget()
        cold = place.run(*command, environment=environment)
        if "FATAL" in cold.err:  # OpenCV falls back to its own code, silently
            raise Failed(next(line for line in cold.err.splitlines() if "Undefined" in line or "FATAL" in line))
        facts = lines_as_facts(cold.out)
        cached = {f"cached {file.stem}": "yes" for file in sorted((place.folder / "home").rglob("*.bin"))}
        if not cached:
            raise Failed("no program binary cached")
        facts |= cached
        warm = lines_as_facts(place.run(*command, environment=environment).out)
        return facts | {f"warm {name}": value for name, value in warm.items()}


CASES = (OpenCv(),)
