"""Operators as numba compiles them for GPUs, executed on the CPU: for arithmetic, LLVM's code is any's."""

import ctypes
import re

import llvmlite.binding as llvm
import numpy as np

from cupar._compile import python_to_ltoir
from cupar._ir.resolve import resolve

_OF_LIBDEVICE = re.compile(r'@"?__nv_(\w+)"?\(')  # most of which C's library has, too
_OTHERS = {"isnand": "isnan", "isinfd": "isinf", "finitef": "finitef", "isfinited": "finite"}


def for_gpus(function, inputs, output):
    """Return a function of columns that does what an operator for these dtypes does on a GPU."""
    inputs, output = [*map(np.dtype, inputs)], np.dtype(output)
    text = python_to_ltoir.operator_llvm(resolve(function, inputs, output), "f", 90)
    text = re.sub(r"(?m)^target .*\n", "", text)
    first, *others = (each for each in re.split(r"(?m)^; ModuleID.*$", text) if "define" in each)
    module = llvm.parse_assembly(first)
    for each in others:
        module.link_in(llvm.parse_assembly(each))
    process = ctypes.CDLL(None)
    for name in {*_OF_LIBDEVICE.findall(text)}:
        function = getattr(process, _OTHERS.get(name, name))
        llvm.add_symbol(f"__nv_{name}", ctypes.cast(function, ctypes.c_void_p).value)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    types = [ctypes.c_void_p] * (len(inputs) + 1)
    call = ctypes.CFUNCTYPE(None, *types)(engine.get_function_address("f"))

    def run(*columns):
        columns = [np.array(each, dtype) for each, dtype in zip(columns, inputs, strict=True)]
        out = np.zeros(len(columns[0]), output)
        for i in range(len(out)):
            call(*(each[i:].ctypes.data for each in (*columns, out)))
        return out

    run.engine = engine  # whose code it is
    return run
