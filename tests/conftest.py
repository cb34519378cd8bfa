"""Every test run has a cache of its own, shared by its workers, and never touches the user's."""

import contextlib
import gc
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis.internal.conjecture import providers
from support import fewer

# Compilers leave much to collect, and each full collection looks at all that PyTorch, JAX and numba have.
gc.set_threshold(20_000, 10, 20)

# Hypothesis would read each file of cupar's for constants, 10 s in each worker; and which it has read decides
# what it draws, so that a test would see other values after others than alone.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda none=providers._local_constants: none


def pytest_configure():
    """Have no property test fail as its machine is slow, whatever else its settings say."""
    from hypothesis import HealthCheck, settings

    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="give tests marked `every` all parameters")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what `support.fewer` says, and order the others by what a run of several workers takes.

    Those of the store come first: they fork a thousand times, which a process pays for by its size. Then come
    those that take the longest each, so that no worker waits at the end for one of another.
    """
    first = "store", "docs", "test_types.py", "tune", "test_races.py", "test_policies.py"

    def place(item):
        names = item.path.parent.name, item.path.name
        return min((first.index(name) for name in names if name in first), default=len(first))

    fewer.deselect(config, items)
    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each worker tests that stand together, which share builds, and at the end others' last ones."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getvalue("dist") == "load" else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    """Give back what CuPy keeps of a GPU's memory, which all workers of a run share."""
    pool = getattr(sys.modules.get("cupy"), "get_default_memory_pool", None)
    with contextlib.suppress(Exception):  # CuPy's, where it finds no GPU
        if pool is not None and pool().free_bytes() > _KEPT_BYTES:
            pool().free_all_blocks()


_KEPT_BYTES = 256 << 20  # of a GPU's memory, by a worker between two tests


@pytest.fixture(scope="session", autouse=True)
def session_cache(tmp_path_factory):
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    directory = root / "cupar-cache"
    directory.mkdir(mode=0o700, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUPAR_CACHE_DIR", str(directory))
        patch.delenv("CUPAR_CACHE", raising=False)
        patch.delenv("CUPAR_CACHE_SIZE", raising=False)
        yield directory


@pytest.fixture(scope="session", autouse=True)
def never_cleared(session_cache):
    """Fail a test that clears the cache which all share: others have builds there."""
    from cupar._store.disk import Disk

    def cleared(disk, clear=Disk.clear):
        assert disk.path != session_cache, "other tests use this cache: have one with `empty_cache`"
        return clear(disk)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "clear", cleared)
        yield


@pytest.fixture(scope="session", autouse=True)
def compilers(session_cache):
    """The compilers, which compile the same once for all tests of a run; see `support.compilers`."""
    from support import compilers

    with pytest.MonkeyPatch.context() as patch:
        compilers.once(session_cache.with_name("compiled"), patch)
        compilers.optimise_for_gpu(patch)
        yield compilers


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture
def summed():
    from support import operators

    return operators.summed()


@pytest.fixture
def real_compilers(compilers, monkeypatch):
    """The compilers as they are, for tests of what they do."""
    for (module, name), function in compilers.real.items():
        monkeypatch.setattr(module, name, function)


@pytest.fixture
def optimised(compilers, session_cache, monkeypatch):
    """What is built is what users have, in a cache of its own; see `support.compilers`."""
    import cupar

    directory = session_cache.with_name("optimised-cache")
    directory.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(directory))
    cupar.cache.clear(disk=False)
    compilers.optimise(monkeypatch)
    yield
    cupar.cache.clear(disk=False)


@pytest.fixture
def ctrl_c():
    """Ctrl-C raises, also where the tests were started in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def older_are_frozen():
    """Have the collector look at what the test makes alone: at all that others left it looks for a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """A cache in which nothing is, on disk or in memory."""
    import cupar

    directory = tmp_path / "cache"
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(directory))
    cupar.cache.clear(disk=False)
    yield directory
    cupar.cache.clear(disk=False)


@pytest.fixture
def constants():
    """Numbers that operators read stay constants of the code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUPAR_NUMBERS", "constant")
        yield


@pytest.fixture
def only(empty_cache, compilers, monkeypatch):
    """Return a function that has these kernels built as users have them, and others with nothing in them."""
    from support import templates

    def only(*kernels):
        templates.empty_others(monkeypatch, kernels)
        if kernels:
            compilers.optimise(monkeypatch)

    return only


@pytest.fixture
def specified(monkeypatch):
    """Return a function that calls a factory for a specialisation, and builds nothing."""

    import cupar
    from cupar._obtain import obtain

    class Asked(Exception):
        pass

    def ask(spec, answer):
        raise Asked(spec)

    def call(factory, *arguments, cc=90, **named):
        with pytest.raises(Asked) as asked:
            factory(*arguments, cc=cc, **named)
        return asked.value.args[0]

    cupar.cache.clear(disk=False)  # what call sites have memoised is not asked for
    monkeypatch.setattr(obtain, "observer", SimpleNamespace(cc=None, is_ahead=False, observe=ask))
    return call
