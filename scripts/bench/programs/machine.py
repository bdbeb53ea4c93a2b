"""What the numbers of a machine belong to."""

import pathlib
import platform


def processor():
    """What the numbers of a CPU belong to: its name, and the widest instructions that it has."""
    name, flags = platform.processor() or platform.machine(), set()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name":
            name = value
        elif key in ("flags", "Features"):
            flags = set(value.split())
            break
    kinds = (("amx_tile", "AMX"), ("avx512_bf16", "AVX512-BF16"), ("avx512f", "AVX-512"),
             ("avx2", "AVX2"), ("sve", "SVE"), ("asimd", "NEON"))  # fmt: skip
    has = [word for flag, word in kinds if flag in flags]
    return f"{name} ({', '.join(has) or platform.machine()})"
