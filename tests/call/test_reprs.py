"""What objects show of themselves: on a line, and as tables below a notebook's cell."""

import re
import threading
from html.parser import HTMLParser

import numpy as np
import pytest

import cupar
from cupar import _build, cache
from cupar._base import html

CC = 90


class Reader(HTMLParser):
    """Reads what a table shows, row by row, and fails at a tag that is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.title = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("th", "td"):
            self.rows[-1][-1] += data
        else:
            self.title += data

    @property
    def fields(self):
        return dict(self.rows)


def shown(value):
    return Reader(value._repr_html_())


def largest(a, b):
    return a if abs(a) > abs(b) else b


nameless = lambda a, b: a
broken = lambda a, b: a.nothing


@pytest.fixture
def reduction(empty_cache):
    return cupar.reduce_into("f4", "f4", largest, 0, cc="cpu")


def test_an_algorithm(reduction, monkeypatch):
    build = reduction.build
    assert repr(reduction) == (
        "<cupar reduce_into(d_in: Pointer(float32), d_out: Pointer(float32), op: largest) for the CPU, built>"
    )
    found = shown(reduction)
    assert found.title == "reduce_into for the CPU"
    assert list(found.fields) == ["d_in", "d_out", "op", "origin", "size", "key"]
    assert found.fields["d_in"] == "Pointer(float32)"
    assert found.fields["op"] == "largest"
    assert re.fullmatch(r"built \(compile [\d.]+ m?s\)", found.fields["origin"])
    assert found.fields["key"] == build.key[:12]


def test_what_is_shown_is_escaped(empty_cache):
    found = cupar.reduce_into("f4", "f4", nameless, 0, cc="cpu")
    assert "<lambda>" in repr(found)
    assert shown(found).fields["op"] == "<lambda>"
    assert "<lambda>" not in found._repr_html_()


def test_a_build(reduction, empty_cache):
    assert re.fullmatch(
        r"<cupar build of reduce_into for the CPU, built \(compile [\d.]+ m?s\), [\d.]+ KiB, "
        rf"key {reduction.build.key[:12]}>",
        repr(reduction.build),
    )
    assert shown(reduction.build).title == "build of reduce_into for the CPU"
    assert cache.info(reduction.build.key[:12]).key == reduction.build.key  # what is shown names it
    again = cupar.reduce_into("f4", "f4", largest, 0, cc="cpu").build
    assert ", memory, " in repr(again)
    cache.clear(disk=False)
    found = cupar.reduce_into("f4", "f4", largest, 0, cc="cpu").build
    assert f", disk in {found.source} (read " in repr(found)
    assert shown(found).fields["origin"].startswith(f"disk in {found.source} (read ")


def test_a_build_for_a_gpu_has_its_policy(session_cache):
    build = cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc=CC).build
    assert f", policy {build.policy}, " in repr(build)
    assert shown(build).fields["policy"] == str(build.policy)


def test_what_is_being_built_and_what_could_not_be(empty_cache, monkeypatch):
    go, operators = threading.Event(), _build.operators

    def slow(*arguments):
        go.wait(60)
        return operators(*arguments)

    monkeypatch.setattr(_build, "operators", slow)
    pending = cupar.reduce_into("i4", "i4", broken, 0, cc=CC, wait=False)
    name = "<cupar reduce_into(d_in: Pointer(int32), d_out: Pointer(int32), op: <lambda>) for sm_90, "
    try:
        assert repr(pending) == f"{name}is being built>"
        assert shown(pending).fields["origin"] == "is being built"
    finally:
        go.set()
    with pytest.raises(TypeError):
        pending.ready()
    text = repr(pending)
    assert text.startswith(f"{name}could not be built: op: numba.cuda cannot compile operator <lambda>")
    assert "\n" not in text
    assert shown(pending).fields["origin"].startswith("could not be built: op: numba.cuda cannot")


def test_a_kernel(empty_cache):
    @cupar.jit
    def scale(x, factor):
        x[0] *= factor

    assert repr(scale) == "<cupar kernel scale(x, factor)>"
    assert shown(scale).title == "kernel scale(x, factor), not compiled yet"
    made = scale.compile("void(float32[::1], float64)", cc=CC)
    types = "array(float32, 1d, C), float64"
    assert repr(scale) == f"<cupar kernel scale(x, factor), compiled for ({types})>"
    assert repr(made) == ("<cupar kernel scale(x: array(float32, 1d, C), factor: float64) for sm_90, built>")
    head, row = shown(scale).rows
    assert head == ["x", "factor", "for", "origin", "size", "key"]
    assert [row[0], row[1], row[2], row[5]] == [*types.rsplit(", ", 1), "sm_90", made.build.key[:12]]
    assert shown(made).fields["x"] == "array(float32, 1d, C)"
    for kind in ("int32", "int64"):
        scale.compile(f"void({kind}[::1], float64)", cc=CC)
    assert repr(scale) == "<cupar kernel scale(x, factor), compiled for 3 signatures>"
    assert len(shown(scale).rows) == 4


def test_the_cache(reduction):
    cache.reset_stats()
    again = cupar.reduce_into("f4", "f4", largest, 0, cc="cpu")
    assert again.build.origin == "memory"
    assert shown(cache.stats()).rows == [["memory", "disk", "linked", "built"], ["1", "0", "0", "0"]]
    assert repr(cache.stats()) == "Stats(memory=1, disk=0, linked=0, built=0)"
    usage = cache.usage()
    assert shown(usage).fields["entries"] == str(usage.entries) != "0"
    assert shown(usage).fields["limit"] == "2.0 GiB"
    info = shown(cache.info(reduction.build.key)).fields
    assert info["key"] == reduction.build.key
    assert info["algorithm"] == "reduce_into"
    assert {"entry", "size", "used"} <= set(info)


def test_an_explanation(reduction):
    alone = cache.explain(reduction)
    assert shown(alone).title == str(alone)
    other = cupar.reduce_into("f8", "f4", largest, 0, cc="cpu")
    why = cache.explain(other, reduction)
    found = shown(why)
    assert found.title == str(why).partition("\n")[0]
    assert found.rows[0] == ["part", "now", "before"]
    assert ["d_in", "float64", "float32"] in found.rows


def test_a_table_without_rows_is_its_title():
    assert html.table("a < b", ["c"], []) == "<div>a &lt; b</div>"


def test_iterators_of_a_number_show_it():
    assert repr(cupar.CountingIterator(5) + 3) == "<cupar CountingIterator(8) of int64>"
    assert repr(cupar.CountingIterator(np.uint8(250)) + 10) == "<cupar CountingIterator(4) of uint8>"
    assert repr(cupar.ConstantIterator(np.float32(2.5))) == "<cupar ConstantIterator(2.5) of float32>"
    assert repr(cupar.ZipIterator("i4", "f4")) == (
        "<cupar ZipIterator of {field_0: int32, field_1: float32}>"
    )
