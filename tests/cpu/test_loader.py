"""Object code that is loaded without LLVM."""

import ctypes
import struct

import pytest

from cupar._cpu import loader

llvm = pytest.importorskip("llvmlite.binding")
pytestmark = pytest.mark.skipif(not loader.is_possible(), reason="needs Linux on x86-64")

TEXT = """
@table = private unnamed_addr constant [4 x double] [double 1.5, double 2.5, double 3.0, double 4.0]
@count = internal global i64 5
@zeros = internal global [3 x i64] zeroinitializer
@shared = common global i64 0, align 64
declare double @sin(double)

define i64 @cupar_run(i64 %i) {
  %place = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %x = load double, ptr %place
  %sine = call double @sin(double %x)
  %scaled = fmul double %sine, 1000.0
  %whole = fptosi double %scaled to i64
  %before = load volatile i64, ptr @count
  %after = add i64 %before, 1
  store volatile i64 %after, ptr @count
  store volatile i64 %after, ptr @shared
  %again = load volatile i64, ptr @shared
  %zero = getelementptr [3 x i64], ptr @zeros, i64 0, i64 2
  %nothing = load volatile i64, ptr %zero
  %sum = add i64 %whole, %again
  %result = add i64 %sum, %nothing
  ret i64 %result
}
"""


def compiled(text, codemodel="large"):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        codemodel=codemodel, reloc="static", jit=True
    )
    return machine.emit_object(llvm.parse_assembly(text))


def test_it_runs():
    memory, address = loader.load(compiled(TEXT), "cupar_run")
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
    assert [function(0), function(1)] == [997 + 6, 598 + 7]
    assert memory is not None


@pytest.mark.parametrize(
    ("text", "codemodel", "why"),
    [
        (TEXT, "small", "a relocation of kind"),
        (TEXT.replace("@sin", "@none_has_this"), "large", "calls none_has_this"),
        (TEXT.replace("@cupar_run", "@another"), "large", "does not define cupar_run"),
        (TEXT.replace("internal global i64", "internal thread_local global i64"), "large", "section .t"),
    ],
)
def test_what_it_does_not_load_is_refused(text, codemodel, why):
    with pytest.raises(loader.UnsupportedError, match=why):
        loader.load(compiled(text, codemodel), "cupar_run")


def test_damage_is_refused():
    code = compiled(TEXT)
    for size in range(0, len(code), 40):
        with pytest.raises(loader.UnsupportedError):
            loader.load(code[:size], "cupar_run")
    for machine in (62, 183):
        other = code[:18] + struct.pack("<H", machine) + code[20:]
        if machine != 62:
            with pytest.raises(loader.UnsupportedError, match="x86-64"):
                loader.load(other, "cupar_run")
