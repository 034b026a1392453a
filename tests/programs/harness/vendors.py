"""The vendors' drivers that programs are run on."""
import glob
import pathlib
from dataclasses import dataclass, field

from .case import Missing


@dataclass(frozen=True)
class Vendor:
    name: str
    package: str
    driver: str  # what its ICD file names, or a pattern of paths
    environment: dict = field(default_factory=dict)

    def icd_file(self, folder: pathlib.Path) -> pathlib.Path:
        """An ICD file in folder that names this vendor alone."""
        driver = self.driver
        if "/" in driver:
            paths = sorted(glob.glob(driver))
            if not paths:
                raise Missing(f"no {driver}: install {self.package}")
            driver = paths[-1]
        else:
            driver = self._from_installed_file()
        file = folder / f"{self.name}.icd"
        file.write_text(driver + "\n")
        return file

    def _from_installed_file(self) -> str:
        for file in sorted(glob.glob("/etc/OpenCL/vendors/*.icd*")):
            named = pathlib.Path(file).read_text().strip()
            if self.driver in named:
                return named
        raise Missing(f"no ICD file names {self.driver}: install {self.package}")

    def private_environment(self, caches: pathlib.Path) -> dict:
        return {key: value.format(caches=caches) for key, value in self.environment.items()}


VENDORS = (
    Vendor("pocl", "pocl-opencl-icd", "libpocl.so", {"POCL_CACHE_DIR": "{caches}/pocl"}),
    Vendor("rusticl", "mesa-opencl-icd", "libRusticlOpenCL.so",
           {"RUSTICL_ENABLE": "llvmpipe", "MESA_SHADER_CACHE_DIR": "{caches}/mesa"}),
    Vendor("oclgrind", "oclgrind", "/usr/lib/oclgrind/liboclgrind-rt-icd.so"),
)
