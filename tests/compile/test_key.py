"""Keys: what must miss, what must hit, and what a template leaves out."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cupar
from cupar import _numba
from cupar._base import versions as _versions
from cupar._compile import key as _key
from cupar._compile import toolchain, wrapper
from cupar._ir import cpp, nodes
from cupar._kernels import headers

NUMBERS = [np.dtype(code) for code in "?bBhHiIqQefdFD"]
SEGMENTS = ("i4", "i4", None, None, "i8", "i8", cupar.SortOrder.ASCENDING)


@pytest.fixture
def specialise(specified):
    """Return a function that gives the specialisation which a factory asks for, and builds nothing."""

    def call(factory=cupar.reduce_into, d_in="i4", d_out="i4", op=lambda a, b: a + b, h_init=0, cc=90):
        return specified(factory, d_in, d_out, op, h_init, cc=cc)

    return call


def key(spec):
    return _key.digest(_key.build_parts(spec))


def template(spec):
    return _key.digest(_key.template_parts(spec))


CHANGES = {
    "algorithm": dict(factory=cupar.exclusive_scan),
    "inclusive": dict(factory=cupar.inclusive_scan),
    "compute capability": dict(cc=80),
    "input type": dict(d_in="i2", h_init=np.zeros(1, "i4")),
    "input sign": dict(d_in="u4", h_init=np.zeros(1, "i4")),
    "output type": dict(d_out="i8"),
    "initial value's type": dict(h_init=np.zeros(1, "i8"), d_out="i8"),
    "no initial value": dict(h_init=None),
}


HALF, COUNT = 0.5, 2
INTEGERS = {  # operators, their types, and whether numba may have sums of signed integers in them
    "sum": ("i8", "i8", lambda a: a + 1, True),
    "helper": ("i8", "i8", lambda a: abs(scaled(a)), True),
    "count": ("f4", "f4", lambda a: a * COUNT, True),
    "range": ("f4", "f4", lambda a: a * len((a, a)), True),
    "floor": ("f8", "?", lambda a: math.floor(a) + math.floor(a) > a, True),
    "comparison": ("i8", "?", lambda a: a > 5, False),
    "floats": ("f4", "f4", lambda a: a * HALF + math.sqrt(a), False),
    "helper of floats": ("f4", "f4", lambda a: scaled(a) * HALF, False),
    "kind": ("i8", "i8", cupar.OpKind.NEGATE, False),
}


def scaled(a):
    return a * HALF


@pytest.mark.parametrize("name", INTEGERS)
def test_arithmetic_of_integers_is_a_part(name, specified):
    """Builds of before, whose signed integers were promised to stay in range, are not found again."""
    *given, is_part = INTEGERS[name]
    for cc in (90, "cpu"):
        parts = _key.build_parts(specified(cupar.unary_transform, *given, cc=cc))
        # On the CPU, numba compiles kinds, too.
        assert ("integers out of range" in parts["versions"]) == (is_part or (name, cc) == ("kind", "cpu"))


@pytest.mark.parametrize("change", CHANGES)
def test_types_and_options_miss(change, specialise):
    one, two = specialise(), specialise(**CHANGES[change])
    assert key(one) != key(two)
    assert template(one) != template(two)


def test_operators_miss_but_share_the_template(specialise):
    one, two = specialise(), specialise(op=lambda a, b: a - b)
    assert key(one) != key(two)
    assert template(one) == template(two)


def test_a_known_kind_shares_no_template_with_functions(specialise):
    kinds = [specialise(op=op) for op in (cupar.OpKind.PLUS, cupar.OpKind.MULTIPLIES, lambda a, b: a + b)]
    assert len({template(spec) for spec in kinds}) == 3


def test_same_things_hit(specialise):
    one = specialise()

    def another_name(p, q):
        return p + q

    for same in (
        dict(op=lambda a, b: a + b),
        dict(op=another_name),
        dict(h_init=7),
        dict(h_init=np.int32(3)),
        dict(h_init=np.ones(1, "i4")),
        dict(d_in=np.int32, d_out=np.dtype("int32")),
        dict(cc="sm_90"),
        dict(cc=(9, 0)),
    ):
        assert key(specialise(**same)) == key(one), same


@pytest.mark.parametrize("name", ["cuda-cccl", "nvrtc", "nvjitlink", "cuda-headers", "cuda-major"])
def test_versions_of_what_compiles_the_kernels(name, specialise, monkeypatch):
    spec = specialise()
    before = key(spec), template(spec)
    versions = toolchain.template_versions()
    monkeypatch.setattr(toolchain, "template_versions", lambda: {**versions, name: "another"})
    assert key(spec) != before[0]
    assert template(spec) != before[1]


@pytest.mark.parametrize("name", ["python", "numba-cuda", "numba", "llvmlite", "numpy", "nvvm"])
def test_versions_of_what_compiles_operators(name, specialise, monkeypatch):
    spec, known = specialise(), specialise(op=cupar.OpKind.PLUS)
    before = key(spec), template(spec), key(known)
    versions = toolchain.operator_versions()
    assert name in versions
    monkeypatch.setattr(toolchain, "operator_versions", lambda: {**versions, name: "another"})
    assert key(spec) != before[0]
    assert template(spec) == before[1]
    assert key(known) == before[2], "no operator is compiled for a known kind"


def test_link_options_are_in_the_key_of_what_is_linked(specialise, monkeypatch):
    spec, known = specialise(), specialise(op=cupar.OpKind.PLUS)
    before = key(spec), key(known), template(spec)
    monkeypatch.setattr(toolchain, "LINK_OPTIONS", ("-another",))
    after = key(spec), key(known), template(spec)
    assert [one != other for one, other in zip(before, after, strict=True)] == [True, True, False]


def test_the_code_of_wrappers_is_in_the_key(specialise, monkeypatch):
    spec = specialise()
    before = key(spec), template(spec)
    monkeypatch.setattr(wrapper, "written", lambda op: ("another", []))
    assert key(spec) != before[0]
    assert template(spec) == before[1]


def test_all_that_is_compiled_is_in_the_key(specialise, monkeypatch):
    spec = specialise()
    before = template(spec)
    with monkeypatch.context() as patch:
        patch.setattr(cpp, "_PREAMBLE", "// another")  # what all sources begin with
        assert template(spec) != before
    with monkeypatch.context() as patch:  # such as another policy
        patch.setattr(
            spec.algorithm_class,
            "_family",
            replace(spec.family, traits=lambda spec: "// another"),
        )
        assert template(spec) != before
    with monkeypatch.context() as patch:
        patch.setattr(headers, "digest", lambda family: "another")  # the family's own file
        assert template(spec) != before
    assert template(spec) == before


def test_options_of_the_compilers_are_in_the_key(specialise, monkeypatch):
    spec, before = specialise(), []
    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(_numba, "OPTIONS", {"opt": False}),
        lambda: monkeypatch.setattr(toolchain, "KERNEL_OPTIONS", ("-another",)),
    ):
        change()
        before.append((key(spec), template(spec)))
    assert len({build for build, _ in before}) == 3
    assert [kernels == before[0][1] for _, kernels in before] == [True, True, False]


def test_format_is_part_of_the_key(specialise, monkeypatch):
    spec = specialise()
    before = key(spec)
    monkeypatch.setattr(_key, "FORMAT", _key.FORMAT + 1)
    assert key(spec) != before


def test_build_and_template_never_share_a_key(specialise):
    spec = specialise(op=cupar.OpKind.PLUS)
    assert key(spec) != template(spec)


def test_determinism_is_part_of_the_key(specialise):
    spec = specialise(op=cupar.OpKind.PLUS)
    assert dict(spec.options)["determinism"] == "RUN_TO_RUN"
    options = tuple(
        (name, "NOT_GUARANTEED" if name == "determinism" else value) for name, value in spec.options
    )
    assert key(replace(spec, options=options)) != key(spec)


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.sampled_from(NUMBERS)] * 2, st.booleans()), min_size=1, max_size=4))
def test_arguments_are_told_apart(fields):
    parts = []
    for name, (dtype, value, output) in zip("abcd", fields, strict=False):
        array = nodes.Pointer(dtype)
        parts.append(nodes.Argument(name, array, array, output).converted(value).part())
    assert len({json.dumps(part) for part in parts}) == len(parts)
    back = []
    for _, direction, node in parts:
        assert node[0] == ("Convert" if len(node) > 2 else "Pointer")
        array = node[-1] if len(node) > 2 else node
        back.append((np.dtype(array[1][0]), np.dtype(node[1][0]), direction == "out"))
    assert back == [tuple(field) for field in fields]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4), st.randoms())
def test_order_of_parts_does_not_matter(parts, random):
    items = list(parts.items())
    random.shuffle(items)
    assert _key.digest(dict(items)) == _key.digest(parts)


@given(
    st.dictionaries(st.text(), json_values, max_size=4), st.dictionaries(st.text(), json_values, max_size=4)
)
def test_other_parts_have_another_key(one, two):
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (_key.digest(one) == _key.digest(two)) == same


def test_keys_are_the_same_under_every_hash_seed(tmp_path):
    code = """if True:
        import cupar
        from types import SimpleNamespace
        from cupar._obtain import obtain
        from cupar._compile.key import build_parts, digest
        built = SimpleNamespace(is_built=False)
        ask = lambda spec, answer: print(digest(build_parts(spec))) or built
        obtain.observer = SimpleNamespace(cc=None, observe=ask)
        SCALE = {1.5, 2.5}
        cupar.reduce_into("f4", "f4", lambda a, b: a + b if a in (1, 2.0, 3) else b, 0.0, cc=90)
    """
    outputs = set()
    for seed in "012":
        file = tmp_path / f"program{seed}.py"
        file.write_text("\n" * int(seed) + code)
        done = subprocess.run(
            [sys.executable, str(file)],
            capture_output=True,
            text=True,
            check=True,
            env={**__import__("os").environ, "PYTHONHASHSEED": seed},
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_versions_are_found():
    found = {**toolchain.template_versions(), **toolchain.operator_versions()}
    assert not [name for name, version in found.items() if version in ("absent", "")]


def test_package_version_is_that_of_importlib(monkeypatch):
    from importlib import metadata

    for name in ("cuda-cccl", "numba-cuda", "numba", "llvmlite", "cuda-bindings"):
        assert _versions.package_version(name) == metadata.version(name)
