"""hashcat: real cracks, with its cache of program binaries empty and filled."""
import hashlib

from harness.case import Case, Failed

SECRET = "g9s"
MASK = "?l?d?l"
KINDS = {"md5": "0", "sha256": "1400"}
WORDS, BY_MASK = "0", "3"  # hashcat's numbers for attacks
QUIETLY = ("--quiet", "--potfile-disable", "--restore-disable", "--logfile-disable", "--outfile-format", "2")


class Hashcat(Case):
    cost = 40
    packages = ("hashcat",)
    programs = ("hashcat",)
    targets = ("pocl", "rusticl")
    launches_repeat = False  # it tunes itself by the clock
    slow = {"oclgrind": "a simulator with 128 MB of memory, less than hashcat needs"}

    def __init__(self, kind, fast):
        self.kind, self.fast = kind, fast
        self.name = f"hashcat-{kind}"

    def crack(self, place, attack, candidates, secret=SECRET):
        digest = hashlib.new(self.kind, secret.encode()).hexdigest()
        # a CPU's driver is used only when asked (-D), and with a warning (--force)
        found = place.run("hashcat", "--force", "-D", "1,2", *QUIETLY, "-m", KINDS[self.kind], "-a", attack, digest,
                          candidates).out
        if secret not in found.split():
            raise Failed(f"nothing cracked: {found.strip()[:80]}")
        return found.strip()

    def cached_kernels(self, place):
        return len(list((place.folder / "home").rglob("*.kernel")))

    def crack_for_seconds(self, place):
        mask, secret = ("?l?l?l?l?l?d", "zzxwq9") if place.timing else ("?l?l?l?l?l?l?d", "xqzxwq9")
        return {"long mask": self.crack(place, BY_MASK, mask, secret)}

    def run(self, place):
        if place.timing:
            return self.crack_for_seconds(place)
        facts = {}
        place.forget()
        facts["mask, cold"] = self.crack(place, BY_MASK, MASK)
        facts["cached kernels"] = self.cached_kernels(place)
        facts["mask, warm"] = self.crack(place, BY_MASK, MASK)
        if not place.fast:
            words = place.work / "words"
            words.write_text("".join(f"word{i}\n" for i in range(500)) + SECRET + "\n")
            facts["words"] = self.crack(place, WORDS, words)
        return facts | (self.crack_for_seconds(place) if place.is_long else {})


class HashcatHandover(Hashcat):
    """Binaries that hashcat cached natively still load once it runs through Grus."""

    timed = False

    def __init__(self):
        super().__init__("md5", ())
        self.name = "hashcat-handover"

    def run(self, place):
        if place.native:
            place.adopt_caches(place.native, ["home"])
        return {"mask": self.crack(place, BY_MASK, MASK)} | (self.crack_for_seconds(place) if place.is_long else {})


CASES = (Hashcat("md5", ("pocl",)), Hashcat("sha256", ("rusticl",)), HashcatHandover())
