"""What C++ includes, by content."""

import pytest

from cupar._external import sources
from cupar._external.files import Guard
from cupar._external.sources import with_headers


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.h").write_text(text)


def test_files_are_found_as_a_compiler_does(tmp_path):
    write(tmp_path / "own", a='#include "b.h"\n#include <c.h>\n', b="b beside it")
    write(tmp_path / "more", b="not this one", c='  #  include   "b.h"\n')
    source, headers = with_headers(
        b'#include "a.h"\n#include <cuda_fp16.h>\n// #include "gone.h"\n',
        tmp_path / "own",
        [tmp_path / "more"],
        Guard(),
    )
    names = dict(headers)
    assert sorted(text for text in names.values()) == sorted(
        [
            b'#include "/cupar-nowhere/2/b.h"\n#include "/cupar-nowhere/3/c.h"\n',
            b"b beside it",
            b'  #  include   "/cupar-nowhere/4/b.h"\n',
            b"not this one",
        ]
    )
    assert source == b'#include "/cupar-nowhere/1/a.h"\n#include <cuda_fp16.h>\n// #include "gone.h"\n'


def test_places_are_not_told(tmp_path):
    found = []
    for place in ("one", "another"):
        write(tmp_path / place / "sub", x="#define X 3")
        found.append(with_headers(b'#include "sub/x.h"\n', tmp_path / place, [], Guard()))
    assert found[0] == found[1]
    assert str(tmp_path).encode() not in repr(found).encode()


def test_files_that_include_each_other(tmp_path):
    write(tmp_path, a='#include "b.h"', b='#include "a.h"')
    _, headers = with_headers(b'#include "a.h"', tmp_path, [], Guard())
    assert len(headers) == 2


def test_has_include(tmp_path):
    write(tmp_path, a="")
    source, headers = with_headers(b'#if __has_include("a.h") && 1\n#endif', tmp_path, [], Guard())
    assert b"/cupar-nowhere/1/a.h" in source
    assert len(headers) == 1


def test_a_guard_sees_changes(tmp_path):
    write(tmp_path, a="1")
    guard = Guard()
    with_headers(b'#include "a.h"\n#include "b.h"', tmp_path, [], guard)
    assert guard.holds()
    write(tmp_path, b="2")
    assert not guard.holds()
    guard = Guard()
    with_headers(b'#include "a.h"', tmp_path, [], guard)
    write(tmp_path, a="12")
    assert not guard.holds()


def test_headers_of_libraries_are_found_and_collected_but_not_cudas_beside_them(tmp_path, monkeypatch):
    write(
        tmp_path / "cuda", curand_kernel='#include "curand.h"\n#include "cuda_fp16.h"\n', curand="#define X 3"
    )
    write(tmp_path / "cuda", cuda_fp16="CUDA's own")
    monkeypatch.setattr(sources, "library_folder", {"curand": tmp_path / "cuda"}.get)
    given = b"#include <curand_kernel.h>\n#include <cuda_fp16.h>\n"
    source, headers = with_headers(given, None, [], Guard())
    assert source == b'#include "/cupar-nowhere/1/curand_kernel.h"\n#include <cuda_fp16.h>\n'
    assert [text for _, text in headers] == [
        b'#include "/cupar-nowhere/2/curand.h"\n#include "cuda_fp16.h"\n',
        b"#define X 3",
    ]


def test_curand_is_found_where_it_is_installed():
    folder = sources.library_folder("curand")
    if folder is None:
        pytest.skip("cuRAND's headers are not installed")
    assert (folder / "curand_kernel.h").is_file()
