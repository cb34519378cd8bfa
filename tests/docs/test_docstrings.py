"""The examples in docstrings run, and every public function and class has a docstring."""

import doctest
import importlib
import inspect
import pydoc
import re
from pathlib import Path

import pytest

import cupar

ROOT = Path(cupar.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if path.stem not in ("__init__", "__main__", "sitecustomize")  # which begin something
)

# Rooms that are for a library, which may not be there.
FOR = {"jax": "jax", "_jax": "jax", "dask": "dask", "_dask": "dask", "torch": "torch", "_torch": "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    if (library := FOR.get(name.partition(".")[0])) is not None:
        pytest.importorskip(library)
    failed, _ = doctest.testmod(importlib.import_module(f"cupar.{name}"))
    assert failed == 0


FACTORIES = [name for name in cupar.__all__ if inspect.isfunction(getattr(cupar, name))]


@pytest.mark.parametrize("name", FACTORIES)
def test_factories_have_an_example_and_say_what_they_raise(name):
    text = inspect.getdoc(getattr(cupar, name))
    assert "Parameters\n---" in text or not inspect.signature(getattr(cupar, name)).parameters
    assert re.search(r"Raises\n---|see\s+`Algorithm`, which also\s+lists exceptions|As for `", text)
    assert ">>> " in text


@pytest.mark.parametrize("name", [name for name in FACTORIES if re.search("scan|reduce", name)])
def test_scans_and_reductions_say_which_operand_comes_earlier(name):
    assert re.search(r"that\s+of earlier items", inspect.getdoc(getattr(cupar, name)))


def test_everything_public_is_documented():
    for name in cupar.__all__:
        assert inspect.getdoc(getattr(cupar, name)), name


ALGORITHMS = {
    name
    for name in cupar.__all__
    if inspect.isclass(each := getattr(cupar, name)) and issubclass(each, cupar.Algorithm)
}


def _returned(name):
    return inspect.signature(getattr(cupar, name)).return_annotation


@pytest.mark.parametrize("name", [name for name in FACTORIES if _returned(name) in ALGORITHMS])
def test_help_is_whole_and_fits_a_terminal(name):
    """Of each algorithm: 80 columns, an example that runs on the CPU and prints its result, no other page."""
    text = pydoc.plain(pydoc.render_doc(getattr(cupar, name))).splitlines()
    assert [line for line in text[3:] if len(line) > 80] == []
    whole = "\n".join(text)
    assert ".run(" in whole
    assert 'cc="cpu"' in whole
    assert ">>> print(" in whole
    assert not re.search(r"As for `", whole)


def test_no_docstring_sends_readers_to_another_function():
    for module in (cupar, cupar.graph, cupar.cache):
        for name in module.__all__:
            assert "As for `" not in (inspect.getdoc(getattr(module, name)) or ""), name
