"""Generated Python: what a template becomes, and how it is shown."""

import weakref

from cupar._base.generated import define, fill

TEMPLATE = """
def total({parameters}):
    if True:
        {lines}
    {others}
    return {result}
"""
LINES = ["x = a", "for i in range(2):\n    x += i"]


def test_lines_take_the_place_of_their_name_and_its_indentation():
    assert fill(TEMPLATE, parameters="a", lines=LINES, others=[], result="x").splitlines() == [
        "def total(a):",
        "    if True:",
        "        x = a",
        "        for i in range(2):",
        "            x += i",
        "    return x",
    ]


def test_what_is_defined_is_not_kept_alive_by_itself():
    names = {"start": 5}
    total = define(
        "sum", "total", TEMPLATE, names, parameters="a=1", lines=LINES, others=[], result="x + start"
    )
    assert total() == 7 and total(3) == 9
    assert "total" not in names
    there = weakref.ref(total)
    del total
    assert there() is None


def test_it_is_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPAR_DUMP", f"python:{tmp_path}")
    one, two = define("two of <lambda>", "one two", "def one(): return 1\ndef two(): return {n}", {}, n="2")
    assert (one(), two()) == (1, 2)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("two-of--lambda-.") and file.suffix == ".py"
    assert file.read_text().endswith("def two(): return 2")
