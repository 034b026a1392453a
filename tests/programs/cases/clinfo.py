"""clinfo: every fact about platforms and devices, apart from features that Grus does not offer."""
import re

from harness.case import Case

# Features that can't be moved are not offered; these facts may then say so.
NOT_OFFERED = {
    "CL_DEVICE_SVM_CAPABILITIES": "",
    "CL_DEVICE_PIPE_SUPPORT": "CL_FALSE",
    "CL_DEVICE_MAX_PIPE_ARGS": "0",
    "CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS": "0",
    "CL_DEVICE_PIPE_MAX_PACKET_SIZE": "0",
    "CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES": "",
    "CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES": "",
    "CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE": "0",
    "CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE": "0",
    "CL_DEVICE_MAX_ON_DEVICE_QUEUES": "0",
    "CL_DEVICE_MAX_ON_DEVICE_EVENTS": "0",
    "CL_DEVICE_MAX_GLOBAL_VARIABLE_SIZE": "0",
    "CL_DEVICE_GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE": "0",
}
# Extensions and OpenCL C features that are off the allow-list, and the facts that only exist with them.
MAY_VANISH = {
    "cl_khr_command_buffer", "cl_khr_spir", "cl_pocl_content_size",
    "__opencl_c_pipes", "__opencl_c_device_enqueue", "__opencl_c_program_scope_global_variables",
}
FACTS_OF_EXTENSIONS = re.compile(r"CL_DEVICE_COMMAND_BUFFER_\w+|CL_DEVICE_SPIR_VERSIONS")
LISTS = re.compile(r"CL_(PLATFORM|DEVICE)_(EXTENSIONS|EXTENSIONS_WITH_VERSION|OPENCL_C_FEATURES)$")
BEHIND_SERVER = "behind a server"  # where native kernels, code of the program's own process, are not offered
OWN_TO_GRUS = {"CL_PLATFORM_ICD_SUFFIX_KHR"}
# rusticl lists a default device, but makes no context from the type "default"; Grus does.
MENDED = {"clCreateContextFromType(NULL, CL_DEVICE_TYPE_DEFAULT)": "No devices found in platform"}


class Clinfo(Case):
    name = "clinfo"
    packages = ("clinfo",)
    programs = ("clinfo",)
    targets = ("pocl", "rusticl", "oclgrind")
    fast = targets
    least_moves = 0  # nothing that it makes lasts

    def run(self, place):
        facts = {}
        section = ""
        for line in place.run("clinfo", "--raw").out.splitlines():
            # [SUFFIX/device]  NAME  value: the suffix is the platform's, which may differ
            match = re.match(r"(?:\[[^/\]]*/(\S+)\])?\s*([#A-Z]\S*)\s*(.*)", line)
            if match:
                section = f"device {match[1]} " if match[1] else ""
                facts[section + match[2]] = match[3].strip()
        if place.is_behind_server:
            facts[BEHIND_SERVER] = "yes"
        return facts | self._null_platform(place.run("clinfo").out)

    @staticmethod
    def _null_platform(text):
        """What clinfo finds when it passes no platform, and makes contexts by type."""
        part = text.partition("NULL platform behavior")[2].partition("ICD loader")[0]
        part = re.sub(r" \[\w+\]$", "", part, flags=re.MULTILINE)  # the platform's suffix
        pairs = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in part.splitlines() if line.strip())
        return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}

    def compare(self, native, grus):
        return [line for line in super().compare(native, grus) if not self._allowed(line.split(":")[0], native, grus)]

    @staticmethod
    def _allowed(name, native, grus):
        plain = name.split()[-1]
        if BEHIND_SERVER in grus and (name == BEHIND_SERVER or plain == "CL_DEVICE_EXECUTION_CAPABILITIES"):
            return name == BEHIND_SERVER or grus[name] == "CL_EXEC_KERNEL"
        if plain in OWN_TO_GRUS or MENDED.get(name) == native.get(name) is not None:
            return True
        if plain in NOT_OFFERED and name in grus:
            return grus[name] == NOT_OFFERED[plain]
        if FACTS_OF_EXTENSIONS.fullmatch(plain):
            return name not in grus
        if LISTS.fullmatch(plain):
            gone = set(native.get(name, "").split()) - set(grus.get(name, "").split())
            added = set(grus.get(name, "").split()) - set(native.get(name, "").split())
            return not added and all(item.split(":")[0] in MAY_VANISH for item in gone)
        return False


CASES = (Clinfo(),)
