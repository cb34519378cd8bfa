"""Functions that take kernels, algorithms and iterators are kept in numba's cache."""

from pathlib import Path

import pytest
from support.host import run

pytest.importorskip("numba")
PROCESS = Path(__file__).parent / "processes" / "cached.py"


@pytest.mark.slow
def test_another_process_finds_them(tmp_path, session_cache):
    def lines(factor, *arguments):
        own = {"NUMBA_CACHE_DIR": str(tmp_path / "numba")}
        done = run(tmp_path, PROCESS, session_cache, factor, *(arguments or ("",)), **own)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split(maxsplit=2) for line in done.stdout.splitlines()]

    first, second = lines("1"), lines("1", "launched before")  # where what they launch is elsewhere
    assert len(first) == 5 and [launched for *_, launched in first] == [launched for *_, launched in second]
    assert {hits for _, hits, _ in first} == {"0"}
    assert {hits for _, hits, _ in second} == {"1"}
    # What a function reads from outside is another kernel, and the same algorithm with another block.
    changed = {name: hits for name, hits, _ in lines("2")}
    assert changed == {name: "0" if "launches" in name else "1" for name in changed}


def test_what_is_kept_depends_on_all_code_that_compiles():
    import cupar
    from cupar import _host, _kernels
    from cupar._host import plans, portable  # noqa: F401 - which imports all that it compiles
    from cupar._kernels import family

    files = {path.stem for path in Path(_host.__file__).parent.glob("*.py")}
    assert files - {*portable._HOST.split()} == {"__init__", "dump"}  # which decide nothing
    files = {path for path in Path(_kernels.__file__).parent.glob("*.py") if "emit: Emit" in path.read_text()}
    called = {function.__module__.removeprefix("cupar.") for function in (*family.helpers, *family.twins)}
    of_kernels = {each.removeprefix("_kernels.") for each in called if each.startswith("_kernels.")}
    assert {path.stem for path in files} | of_kernels == {*portable._KERNELS.split()}
    assert "_device.kernels" in portable._ORDER  # `_host.launches` has the layout of `LaunchConfig`
    users = {
        path for path in Path(cupar.__file__).parent.glob("*.py") if "_problem_maker" in path.read_text()
    }
    assert {path.stem for path in users} <= {*portable._PROBLEMS.split()}
    assert {each for each in called if not each.startswith("_kernels.")} <= {*portable._PROBLEMS.split()}
