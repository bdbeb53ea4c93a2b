"""Tests of scripts/gpu/kernel-code on made-up machine code: each rule finds what it is for, and only that."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("kernel_code", str(SCRIPTS / "kernel-code"))
kernel_code = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("kernel_code", LOADER)
)
LOADER.exec_module(kernel_code)

from built_kernels import kernels_in  # noqa: E402


def sass(*lines):
    """The listing of one kernel, an instruction each 0x10 bytes."""
    text = "arch = sm_90\n\t\tFunction : kernel\n"
    for i, line in enumerate(lines):
        text += f"        /*{16 * i:04x}*/                   {line} ;   /* 0x0000 */\n"
        text += "                                                  /* 0x0000 */\n"
    return text


def problems(*lines, name="kernel"):
    [(architecture, mangled, code)] = kernels_in(sass(*lines))
    assert architecture == "sm_90" and mangled == "kernel" and len(code) == len(lines)
    return kernel_code.problems_of(name, code)


class Rules(unittest.TestCase):
    def test_atomics(self):
        self.assertEqual(problems("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R4"), {"atomics"})
        self.assertEqual(problems("@P0 ATOMS.ADD.F64 R2, [R4], R6"), {"atomics"})
        self.assertEqual(problems("REDG.E.ADD.STRONG.GPU [R2.64], R4"), set())  # integers

    def test_local(self):
        self.assertEqual(problems("STL.64 [R1], R2", "LDL R3, [R1]"), {"local"})

    def test_division_only_in_a_loop(self):
        division = ("EXIT", "I2F.U64.RP R2, R4", "RET.REL.NODEC R8 0x0")
        loop = ("IADD3 R0, R0, 0x1, RZ", "CALL.REL.NOINC 0x40", "@P0 BRA 0x0")
        self.assertEqual(problems(*loop, *division), {"division"})
        once = ("CALL.REL.NOINC 0x40", "IADD3 R0, R0, 0x1, RZ", "@P0 BRA 0x10")
        self.assertEqual(problems(*once, *division), set())
        # The slow path of a square root is a call, too.
        root = ("EXIT", "FMUL R2, R2, R4", "RET.REL.NODEC R8 0x0")
        self.assertEqual(problems(*loop, *root), set())

    def test_reciprocal_before_a_load(self):
        waits = ("MUFU.RCP R2, R3", "LDG.E R4, desc[UR4][R6.64]", "FADD R5, R5, R4", "@P0 BRA 0x0")
        self.assertEqual(problems(*waits), {"reciprocal"})
        hoisted = ("LDG.E R4, desc[UR4][R6.64]", "MUFU.RCP R2, R3", "FADD R5, R5, R4", "@P0 BRA 0x0")
        self.assertEqual(problems(*hoisted), set())
        stores = (*waits[:3], "STG.E desc[UR4][R8.64], R5", "@P0 BRA 0x0")
        self.assertEqual(problems(*stores), set())

    def test_tensor_cores(self):
        name = "gemm::conv_gemm<gemm::Tf32Math, (ConvPass)0>"
        self.assertEqual(problems("FFMA R1, R2, R3, R4", name=name), {"tensor"})
        self.assertEqual(problems("HMMA.1688.F32.TF32 R1, R2, R3, R4", name=name), set())
        # A constant of zero is made by an instruction of a similar name.
        self.assertEqual(problems("HFMA2.MMA R1, -RZ, RZ, 0, 0", name=name), {"tensor"})
        self.assertEqual(problems("FFMA R1, R2, R3, R4", name="gemm::conv_gemm<gemm::F32Math, (ConvPass)0>"), set())

    def test_widest_load(self):
        [(_, _, code)] = kernels_in(
            sass("LDG.E.U16 R1, [R2.64]", "LDG.E.128.CONSTANT R4, [R2.64]", "LDG.E R8, [R2.64]")
        )
        self.assertEqual(kernel_code.widest_load(code), 128)
        self.assertEqual(kernel_code.widest_load(code[2:]), 32)

    def test_two_kernels_of_a_file(self):
        text = sass("EXIT") + sass("NOP", "EXIT")
        self.assertEqual([len(code) for _, _, code in kernels_in(text)], [1, 2])


if __name__ == "__main__":
    unittest.main()
