"""Numba's own CUDA tests of kernels, from numba-cuda's wheel, with `cupar.jit` in place of `cuda.jit`.

    python tests/gpu/numba_suite.py [MODULE …] [--jobs 8] [--verbose]

Modules are those of ``numba.cuda.tests.cudapy``, by default all that launch kernels; each runs in a process
of its own. Whatever a test makes with ``cuda.jit``, kernels and device functions, `cupar.jit` makes. Numba
copies host arrays to the GPU for a launch and back after it, which cupar refuses: here they are copied around
it. `numba_suite.txt` lists tests that are known not to pass, with reasons. Exits with 1 if another one fails,
or one of these passes.

With --dry, no GPU is needed: kernels are compiled and not launched, and what fails because cupar raised
something is shown.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
import traceback
import types
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KNOWN = HERE / "numba_suite.txt"
TESTS, OWN = "numba.cuda.tests.cudapy", "tests_of_numba"
SECONDS = 600  # of a module at most
# What has nothing to do with kernels that are launched, or tests numba's own insides.
NOT_RUN = {
    "test_analysis": "numba's IR",
    "test_bfloat16_bindings": "kernels of bindings, launched by numba",
    "test_byteflow": "numba's bytecode",
    "test_caching": "numba's own cache",
    "test_compiler": "cuda.compile, which makes no kernels",
    "test_copy_propagate": "numba's IR",
    "test_cuda_array_interface": "arrays, not kernels",
    "test_debug": "numba's dumps",
    "test_debuginfo": "debug=True",
    "test_debuginfo_types": "debug=True",
    "test_extending": "extensions are refused, as a key cannot hold them",
    "test_extending_types": "extensions are refused, as a key cannot hold them",
    "test_fp8_bindings": "kernels of bindings, launched by numba",
    "test_gufunc": "ufuncs, not kernels",
    "test_gufunc_scalar": "ufuncs, not kernels",
    "test_gufunc_scheduling": "ufuncs, not kernels",
    "test_ipc": "memory, not kernels",
    "test_ir": "numba's IR",
    "test_ir_utils": "numba's IR",
    "test_launch_config_sensitive": "numba's compiler at work",
    "test_make_function_to_jit_function": "numba's IR",
    "test_multiprocessing": "numba in processes that are forked",
    "test_serialize": "pickles of numba's own objects",
    "test_ssa": "numba's IR",
    "test_stream_api": "streams, not kernels",
    "test_tracing": "numba's log",
    "test_typeconv": "numba's types",
    "test_typeinfer": "numba's types",
    "test_vectorize": "ufuncs, not kernels",
    "test_vectorize_complex": "ufuncs, not kernels",
    "test_vectorize_decor": "ufuncs, not kernels",
    "test_vectorize_device": "ufuncs, not kernels",
    "test_vectorize_scalar_arg": "ufuncs, not kernels",
}


def modules() -> list[str]:
    """Return the test modules that are run by default."""
    import numba_cuda

    folder = Path(numba_cuda.__file__).parent / "numba/cuda/tests/cudapy"
    return [path.stem for path in sorted(folder.glob("test_*.py")) if path.stem not in NOT_RUN]


# --- In the process of one module ------------------------------------------------------------------------


def launched(launch: Any, arguments: Any, named: Any) -> None:
    """Launch with copies of host arrays and records on the GPU, and copy them back."""
    import numpy as np
    from numba import cuda
    from numba.cuda.args import ArgHint

    back: list[tuple[Any, Any]] = []
    made: dict[int, Any] = {}

    def moved(value: Any) -> Any:
        if isinstance(value, ArgHint):
            value = value.value
        if type(value) is tuple:
            return tuple(map(moved, value))
        if isinstance(value, (np.ndarray, np.void)):
            if id(value) not in made:
                whole = value if isinstance(value, np.void) else np.asarray(value, order="A")
                if not isinstance(whole, np.void) and not whole.flags.forc:
                    whole = np.ascontiguousarray(whole)
                made[id(value)] = cuda.to_device(whole)
                if isinstance(value, np.void) or value.flags.writeable:
                    back.append((value, made[id(value)]))
            return made[id(value)]
        return value

    given = [moved(each) for each in arguments], {name: moved(each) for name, each in named.items()}
    launch(*given[0], **given[1])
    for host, device in back:
        if isinstance(host, np.void):
            whole = np.zeros(1, host.dtype)
            device.copy_to_host(whole[0])
            for name in host.dtype.names:
                host[name] = whole[0][name]
        else:
            host[...] = device.copy_to_host()


class Refused:
    """What tests get in place of a kernel that cupar refuses: it fails where it is used."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error

    def __getitem__(self, configuration: Any) -> Any:
        raise self._error


def replace_jit(dry: bool) -> None:
    """Let tests that say `cuda.jit` have `cupar.jit`."""
    import numpy as np
    from numba import cuda

    import cupar
    from cupar.kernel import Kernel

    numbas = cuda.jit

    def moving(launch: Any) -> Any:
        return lambda *arguments, **named: launched(launch, arguments, named)

    def getitem(kernel: Any, configuration: Any) -> Any:
        return moving(own["__getitem__"](kernel, configuration))

    def configure(kernel: Any, *configuration: Any, **named: Any) -> Any:
        return moving(own["configure"](kernel, *configuration, **named))

    def forall(kernel: Any, ntasks: int, *configuration: Any, **named: Any) -> Any:
        made = own["forall"](kernel, ntasks, *configuration, **named)  # which launches by what is below
        return lambda *arguments, **names: launched(made, arguments, names)

    def specialize(kernel: Any, *arguments: Any) -> Any:
        given = [cuda.to_device(each) if isinstance(each, np.ndarray) else each for each in arguments]
        return own["specialize"](kernel, *given)

    own = {each.__name__: each for each in (Kernel.configure, Kernel.forall, Kernel.specialize)}
    own["__getitem__"] = Kernel.__getitem__
    for name, method in (("__getitem__", getitem), ("configure", configure), ("forall", forall)):
        setattr(Kernel, name, method)
    Kernel.specialize = specialize  # type: ignore[method-assign]

    def jit(*arguments: Any, **options: Any) -> Any:
        if not sys._getframe(1).f_globals["__name__"].startswith(OWN):
            return numbas(*arguments, **options)
        if "func_or_sig" in options:
            arguments = (options.pop("func_or_sig"), *arguments)
        if dry:
            options.setdefault("cc", 90)
        if options.get("debug"):
            return refused
        return cupar.jit(*arguments, **options)

    def refused(function: Any) -> Any:
        try:
            return cupar.jit(debug=True)(function)
        except TypeError as error:
            return Refused(error)

    cuda.jit = jit


def rename(package: Any, module: str) -> None:
    """Let modules of tests have another name than numba's own, whose functions are fingerprinted by name."""
    own = sys.modules[OWN] = types.ModuleType(OWN)
    own.__path__ = list(package.__path__)
    folder = Path(own.__path__[0])
    text = (folder / f"{module}.py").read_text()
    for path in folder.glob("*_usecases.py"):
        if path.stem in text:
            sys.modules[f"{TESTS}.{path.stem}"] = importlib.import_module(f"{OWN}.{path.stem}")


class Result(unittest.TestResult):
    """Keeps how each test ended: by name, the outcome and the last line of what was raised."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[str, str]] = {}

    def _put(self, test: Any, outcome: str, detail: str = "") -> None:
        name = ".".join(test.id().split(".")[-2:])
        if self.found.get(name, ("passed",))[0] == "passed":
            self.found[name] = outcome, detail

    def addSuccess(self, test: Any) -> None:
        self._put(test, "passed")

    def _failed(self, test: Any, error: Any) -> None:
        kind, value, trace = error
        last = (str(value).strip() or kind.__name__).splitlines()
        places = [each for each in traceback.extract_tb(trace) if "numba_cuda" in each.filename]
        where = f"{Path(places[-1].filename).name}:{places[-1].lineno}" if places else ""
        own = any("/cupar/" in each.filename for each in traceback.extract_tb(trace))
        text = " | ".join(last[:3])[:600]
        self._put(test, "failed", f"{'cupar: ' if own else ''}{kind.__name__}: {text} ({where})")

    addError = addFailure = _failed  # type: ignore[assignment]

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
        if error is not None:
            self._failed(test, error)

    def addSkip(self, test: Any, reason: str) -> None:
        self._put(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        self._put(test, "passed")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._put(test, "failed", "numba expects it to fail")


def stand_in_for_tools() -> None:
    """Let numba's tests be imported where what some of them need is not installed."""
    tools = {
        "filecheck": {
            "matcher": ("Matcher",),
            "options": ("Options",),
            "parser": ("Parser", "pattern_for_opts"),
            "finput": ("FInput",),
        },
        "psutil": {},
    }
    for tool, parts in tools.items():
        if importlib.util.find_spec(tool) is None:
            sys.modules[tool] = types.ModuleType(tool)
            for part, names in parts.items():
                module = sys.modules[f"{tool}.{part}"] = types.ModuleType(f"{tool}.{part}")
                vars(module).update(dict.fromkeys(names, _missing))


def stand_in_for_cffi() -> None:
    """Do the same for cffi, once numba has seen that it is not installed."""
    for name in ("numba.core.typing.cffi_utils", "numba.cuda.typing.cffi_utils"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if importlib.util.find_spec("cffi") is None:
        sys.modules["cffi"] = types.ModuleType("cffi")
        vars(sys.modules["cffi"])["FFI"] = MissingTool


class MissingTool:
    """Skips the test that uses it."""

    def __getattr__(self, name: str) -> Any:
        _missing()


def _missing(*arguments: Any, **named: Any) -> Any:
    raise unittest.SkipTest("a tool that numba's tests need is not installed")


def run_one(module: str, dry: bool) -> dict[str, tuple[str, str]]:
    """Run the tests of one module here; return how each ended."""
    stand_in_for_tools()
    import numba.cuda.testing  # noqa: F401 - all of it before its jit is replaced

    stand_in_for_cffi()
    if dry:
        sys.path.insert(0, str(HERE))
        import numba_suite_dry

        numba_suite_dry.stand_in_for_gpu()
    replace_jit(dry)
    rename(importlib.import_module(TESTS), module)
    result = Result()
    with contextlib.redirect_stdout(io.StringIO()):
        tests = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"{OWN}.{module}"))
        tests.run(result)
    return result.found


# --- All of them -------------------------------------------------------------------------------------------


def run_apart(module: str, dry: bool) -> dict[str, tuple[str, str]]:
    """Run the tests of one module in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "found.json")
        command = [sys.executable, __file__, module, "--to", str(target), *["--dry"] * dry]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            said = done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            said = f"took more than {SECONDS} s"
        if target.exists():
            return {name: (how, why) for name, (how, why) in json.loads(target.read_text()).items()}
        return {"the module": ("failed", said.strip().replace("\n", " | ")[-600:])}


def known() -> dict[str, str]:
    """Return why tests are known not to pass, by ``module.Class.test``."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    reason, found = "", {}
    for line in lines:
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line.strip():
            found[line.strip()] = reason
    return found


def main() -> int:
    """Run modules, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--verbose", action="store_true", help="show the failures that are known, too")
    parser.add_argument("--dry", action="store_true", help="compile and do not launch")
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.to:
        options.to.write_text(json.dumps(run_one(options.modules[0], options.dry)))
        return 0
    names, expected = options.modules or modules(), known()
    with ThreadPoolExecutor(options.jobs) as pool:
        every = dict(zip(names, pool.map(lambda name: run_apart(name, options.dry), names), strict=True))
    wrong = 0
    total = {"passed": 0, "failed": 0, "skipped": 0}
    print(f"{'':34}passed  failed (known)  skipped")
    for module, found in every.items():
        counts = {how: sum(each[0] == how for each in found.values()) for how in total}
        is_known = sum(each[0] == "failed" and f"{module}.{test}" in expected for test, each in found.items())
        for how, count in counts.items():
            total[how] += count
        print(f"{module:34}{counts['passed']:6}  {counts['failed']:6} ({is_known:5})  {counts['skipped']:7}")
        for test, (how, why) in found.items():
            name = f"{module}.{test}"
            if options.dry and (how == "passed" or "AssertionError" in why[:15]):
                continue  # what is wrong with results says nothing here
            if (how == "failed") != (name in expected) and how != "skipped":
                wrong += 1
                print(f"  {test}: {why or 'passes, and is listed as one that does not'}")
            elif how == "failed" and options.verbose:
                print(f"  {test}: {why}\n    known: {expected[name]}")
    print(f"in all {total}, {wrong} not as listed")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
