"""The model of distributed.py: more ranks are never better, and a scan is bound by what it reads."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOUND = {
    "reduce of a shard": 0.47e-3,
    "scan of a shard": 1.15e-3,
    "sort of a shard of u4": 6.3e-3,
    "merge of a shard of u4": 0.6e-3,
    "small reduce, of 100: cupar": 25e-6,
    "link, bytes a second": 370e9,
}


@pytest.fixture
def distributed(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))  # where it finds what benchmarks share
    # Under another name, as Dask's package has this one.
    spec = importlib.util.spec_from_file_location("_distributed", ROOT / "benchmarks" / "distributed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_model_by_what_was_measured(distributed, capsys):
    rows = distributed.modelled(FOUND, 2**29)
    assert [row["ranks"] for row in rows] == [2, 8, 64, 1000]
    for name in ("reduce", "scan", "scan, carry returned", "sort"):
        parts = [row[name] for row in rows]
        assert parts == sorted(parts, reverse=True) and 0 < parts[-1] < parts[0] < 1
    bound = FOUND["scan of a shard"] / (FOUND["scan of a shard"] + FOUND["reduce of a shard"])
    assert rows[0]["scan"] == pytest.approx(bound, rel=0.02) and rows[0]["scan"] < bound
    distributed.print_model(rows)
    assert "A model, not measured" in capsys.readouterr().out
