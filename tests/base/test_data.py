"""Data classes behave as the standard library's, and no method of theirs is compiled."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import ClassVar

import pytest

from cupar._base import data


def declared(module):
    """Return data classes that a module's `dataclass` made, by what they are there to show."""
    dataclass, field = module.dataclass, module.field

    @dataclass(frozen=True)
    class Plain:
        x: "int"
        y: "tuple[int, ...]" = (1,)
        KINDS: "ClassVar[int]" = 3
        size = 8  # which is no field

        def __post_init__(self):
            if self.x == "bad":
                raise ValueError("x")

    @dataclass(frozen=True)
    class Derived(Plain):
        z: "str" = "z"
        y: "int" = 5

    @dataclass(frozen=True)
    class Fields:
        a: "int" = field(repr=False)
        b: "list[int]" = field(default_factory=list, hash=False)
        c: "int" = field(default=7, compare=False)
        d: "int" = field(default=0, kw_only=True)

    @dataclass
    class Changeable:
        x: "int"

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True, eq=False, repr=False)
    class Bare:
        x: "int" = 1

    @dataclass
    class Own:  # noqa: PLW1641 - the lack of a hash is compared, too
        x: "int"

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return True

    return {cls.__name__: cls for cls in (Plain, Derived, Fields, Changeable, Empty, Bare, Own)}


OURS, THEIRS = declared(data), declared(dataclasses)


def outcome(call, *args, **kwargs):
    """Return what a call returns or raises, as text without addresses."""
    try:
        return repr(call(*args, **kwargs)).split(" at 0x")[0]
    except Exception as error:
        return type(error).__name__


CALLS = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4), {}),
    ((), {"x": 1}),
    ((1,), {"x": 1}),
    ((1,), {"y": 2}),
    ((1,), {"unknown": 2}),
    (("bad",), {}),
    ((), {"a": 1, "d": 2}),
    ((1,), {"d": 3, "b": [1]}),
]


@pytest.mark.parametrize("name", OURS)
def test_objects_are_made_compared_and_shown_as_the_standard_librarys(name):
    ours, theirs = OURS[name], THEIRS[name]
    for args, kwargs in CALLS:
        assert outcome(ours, *args, **kwargs) == outcome(theirs, *args, **kwargs)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__match_args__ == theirs.__match_args__
    made = []
    for cls in (ours, theirs):
        known = {field.name: 1 for field in dataclasses.fields(cls)}
        made.append([cls(**known), cls(**known)] + [cls(**{**known, changed: 2}) for changed in known])
    pairs = [[[a == b for a in each] for b in each] for each in made]
    assert pairs[0] == pairs[1]
    hashes = [[outcome(lambda a=a, b=b: hash(a) == hash(b)) for a in each for b in each] for each in made]
    assert hashes[0] == hashes[1]
    assert made[0][0] != made[1][0] or name == "Own"


@pytest.mark.parametrize("name", ["Plain", "Fields", "Changeable"])
def test_the_standard_librarys_functions_take_them(name):
    ours, theirs = OURS[name](1), THEIRS[name](1)
    assert dataclasses.is_dataclass(ours)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    first = dataclasses.fields(theirs)[0].name
    for replace in (data.replace, dataclasses.replace):
        assert replace(ours, **{first: 5}) == OURS[name](5)
    assert [field.name for field in data.fields(ours)] == [field.name for field in dataclasses.fields(theirs)]
    assert copy.copy(ours) == ours


def test_a_frozen_object_stays_as_it_is():
    one = OURS["Plain"](1)
    for change in (lambda: setattr(one, "x", 2), lambda: delattr(one, "x"), lambda: setattr(one, "w", 2)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    free = OURS["Changeable"](1)
    free.x = 2
    assert free == OURS["Changeable"](2)


def test_wrong_arguments_are_named():
    with pytest.raises(TypeError, match="Plain: missing a required argument: 'x'"):
        OURS["Plain"]()
    with pytest.raises(TypeError, match="Plain: got an unexpected keyword argument 'w'"):
        OURS["Plain"](1, w=1)


@data.dataclass(frozen=True)
class Pickled:
    """One that pickle finds."""

    x: "int"


def test_pickled():
    assert pickle.loads(pickle.dumps(Pickled(3))) == Pickled(3)


def test_the_standard_librarys_is_not_imported():
    code = "import sys, numpy\nsys.modules.pop('dataclasses', 0)\n"
    code += "from cupar._base.data import dataclass, replace\n"
    code += "@dataclass\nclass A:\n  x: 'int'\nassert repr(replace(A(1), x=2)) == 'A(x=2)'\n"
    code += "assert 'dataclasses' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
