"""None of numba's settings changes builds."""

import os
import subprocess
import sys

from cupar._compile.numba_settings import OWN

# Settings of numba and numba-cuda that change no machine code of cupar's, with the reason.
OTHERS = {
    "prints what the compiler does, or colours it": """
        ANNOTATE CHROME_TRACE COLOR_SCHEME DEBUG DEBUG_ARRAY_OPT DEBUG_ARRAY_OPT_STATS DEBUG_CACHE
        DEBUG_FRONTEND DEBUG_INLINE_CLOSURE DEBUG_PRINT_AFTER DEBUG_PRINT_BEFORE DEBUG_PRINT_WRAP
        DEBUG_TYPEINFER DUMP_ASSEMBLY DUMP_BYTECODE DUMP_CFG DUMP_FUNC_OPT DUMP_IR DUMP_LLVM DUMP_OPTIMIZED
        DUMP_SSA HIGHLIGHT_DUMPS HTML JIT_COVERAGE LLVM_PASS_TIMINGS PARALLEL_DIAGNOSTICS TRACE
    """,
    "is about warnings and errors": """
        ALWAYS_WARN_UNINIT_VAR CUDA_LOW_OCCUPANCY_WARNINGS CUDA_WARN_ON_IMPLICIT_COPY DEVELOPER_MODE
        DISABLE_PERFORMANCE_WARNINGS SHOW_HELP
    """,
    "is about calls of numba's own dispatchers, its threads and its cache on disk": """
        CACHE_DIR CACHE_LOCATOR_CLASSES DISABLE_TYPEINFER_FAIL_CACHE ENABLE_SYS_MONITORING
        FUNCTION_CACHE_SIZE NUMBA_DEFAULT_NUM_THREADS NUMBA_NUM_THREADS RUNNING_UNDER_PROFILER
        THREADING_LAYER THREADING_LAYER_PRIORITY
    """,
    "is about the driver, which cupar calls itself": """
        CUDA_ARRAY_INTERFACE_SYNC CUDA_DEALLOCS_COUNT CUDA_DEALLOCS_RATIO CUDA_DRIVER
        CUDA_ENABLE_MINOR_VERSION_COMPATIBILITY CUDA_INCLUDE_PATH CUDA_LOG_API_ARGS CUDA_LOG_LEVEL
        CUDA_LOG_SIZE CUDA_MEMORY_MANAGER CUDA_PER_THREAD_DEFAULT_STREAM CUDA_USE_NVIDIA_BINDING
        CUDA_VERBOSE_JIT_LOG DISABLE_CUDA
    """,
    "a build names the compute capability": "CUDA_DEFAULT_PTX_CC",
    "is about debuggers, and what is built has nothing for them": """
        CUDA_DEBUG_POLY CUDA_DEBUG_POLY_USE_TYPED_CONST GDB_BINARY
    """,
    "is about numba's runtime, which is not there": "DEBUG_NRT_STACK_LIMIT NRT_STATS",
    "decides which features of the CPU numba uses; cupar uses those in the key": "ENABLE_AVX",
    "is refused": "ENABLE_CUDASIM",
    "calls to its library are refused": "DISABLE_INTEL_SVML USING_SVML",
    "is no setting": "IS_32BITS IS_OSX IS_WIN32 MACHINE_BITS PYVERSION _HAVE_YAML",
}


def test_each_setting_is_cupars_or_changes_nothing():
    import numba.core.config
    import numba.cuda

    names = {each for config in (numba.core.config, numba.cuda.config) for each in vars(config)}
    settings = {each for each in names if each.isupper() and not each.startswith("__")}
    others = {name for listed in OTHERS.values() for name in listed.split()}
    assert not others & OWN.keys()
    assert settings - others - OWN.keys() == set()


BUILD = """
import sys
import numba, numba.cuda, numpy as np, cupar
from cupar._kernels.elf import Elf

table = np.arange(4.0)

def op(a):
    b = abs(a) ** 2
    for i in range(3):
        b += table[i] / a
    return b

@cupar.jit
def kernel(x):
    x[0] = 2 * x[1]

host = cupar.unary_transform("f8", "f8", op, cc="cpu")
elf = Elf(host._built.code.blob.partition(b"\\n")[2])
text = [elf.data[each.at : each.at + each.size] for each in elf.sections if "text" in each.name]
print(b"".join(text).hex())
print(host.build.key)
x = np.array([1.0, 2.0])
host(x, x, 2)
print(x)
device = cupar.unary_transform("f8", "f8", op, cc=90)
print(device.build.llvm())
print(kernel.compile("void(float64[::1])", cc=90).build.key)
print(numba.config.BOUNDSCHECK, numba.config.OPT + 0, file=sys.stderr)
"""
SET = {
    **{"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "0", "NUMBA_DEBUGINFO": "1", "NUMBA_CUDA_DEBUGINFO": "1"},
    **{"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_LOOP_VECTORIZE": "0"},
    **{"NUMBA_DEBUG_JIT": "1", "NUMBA_FULL_TRACEBACKS": "1", "NUMBA_EXTEND_VARIABLE_LIFETIMES": "1"},
    **{"NUMBA_DISABLE_JIT": "1", "NUMBA_SLP_VECTORIZE": "1", "NUMBA_ENABLE_AVX": "0"},
}


def test_code_is_the_same_whatever_is_set(tmp_path):
    said = []
    for i, (more, seen) in enumerate((({}, "None 3"), (SET, "1 0"))):
        environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / str(i)), **more}
        done = subprocess.run(
            [sys.executable, "-c", BUILD], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stderr.strip().endswith(seen)  # they are as they were
        said.append(done.stdout)
    assert "\n[4.  5.5]\n" in said[0] and len(said[0].partition("\n")[0]) > 100
    assert said[0] == said[1]
