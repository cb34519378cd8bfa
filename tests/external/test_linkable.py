"""Linkable code, by content."""

import numpy as np
import pytest

from cupar._external.files import FileGuard
from cupar._external.linkable import collect


def digests(given):
    return [each.digest for each in collect(given, "link", FileGuard())]


def test_files_are_equal_by_content(tmp_path):
    for name in ("a.ptx", "b.ptx", "c.cubin", "d.ptx"):
        (tmp_path / name).write_bytes(b"other" if name == "d.ptx" else b"same")
    a, b, c, d = ([tmp_path / f"{name}"] for name in ("a.ptx", "b.ptx", "c.cubin", "d.ptx"))
    assert digests(a) == digests(b) == digests([*a, *b])
    assert len({*digests(a), *digests(c), *digests(d)}) == 3
    assert digests([*a, *d]) == digests([*d, str(*a)])


def test_numbas_and_cuda_cores_objects(tmp_path):
    from cuda.core import ObjectCode
    from numba import cuda

    (tmp_path / "a.ptx").write_text("text")
    same = [cuda.PTXSource("text"), cuda.PTXSource(b"text"), ObjectCode.from_ptx(b"text"), tmp_path / "a.ptx"]
    assert len(digests(same)) == 1
    kinds = [cuda.LTOIR, cuda.CUSource, cuda.Cubin, cuda.Fatbin, cuda.Object, cuda.Archive, cuda.PTXSource]
    assert len(digests([kind(b"text") for kind in kinds])) == len(kinds)


def test_cpp_by_what_it_includes(tmp_path):
    for place, value in (("one", 1), ("two", 2), ("three", 1)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "f.cu").write_text('#include "value.h"\n')
        (tmp_path / place / "value.h").write_text(f"#define VALUE {value}")
    one, two, three = (digests(tmp_path / place / "f.cu") for place in ("one", "two", "three"))
    assert one == three != two


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("gone.o", ValueError, "link: cannot read 'gone.o': No such file or directory"),
        ("text.txt", ValueError, "link: expected a file that ends with .ltoir, .ptx"),
        (b"code", TypeError, "got bytes: say what they are, as in cuda.LTOIR(…)"),
        ([[3]], TypeError, "got 3"),
        (np.float32, TypeError, "got <class 'numpy.float32'>"),
    ],
)
def test_what_is_none(given, error, message):
    with pytest.raises(error) as caught:
        collect(given, "link", FileGuard())
    assert message in str(caught.value)


def test_what_cupar_does_not_serve():
    from numba import cuda

    for more in ({"setup_callback": print}, {"teardown_callback": print}, {"nrt": True}):
        with pytest.raises(ValueError, match=f"link: code has a {next(iter(more))}"):
            collect(cuda.LTOIR(b"code", name="code", **more), "link", FileGuard())
    with pytest.raises(ValueError, match="link: <unnamed-ptx> is empty, expected PTX"):
        collect(cuda.PTXSource(" "), "link", FileGuard())


def test_an_empty_file(tmp_path):
    (tmp_path / "a.o").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a.o' is empty, expected an object file"):
        collect(tmp_path / "a.o", "link", FileGuard())
