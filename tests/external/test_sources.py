"""What C++ includes, by content."""

import pytest

from cupar._external import sources
from cupar._external.files import FileGuard
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
        FileGuard(),
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
        found.append(with_headers(b'#include "sub/x.h"\n', tmp_path / place, [], FileGuard()))
    assert found[0] == found[1]
    assert str(tmp_path).encode() not in repr(found).encode()


def test_files_that_include_each_other(tmp_path):
    write(tmp_path, a='#include "b.h"', b='#include "a.h"')
    _, headers = with_headers(b'#include "a.h"', tmp_path, [], FileGuard())
    assert len(headers) == 2


def test_has_include(tmp_path):
    write(tmp_path, a="")
    source, headers = with_headers(b'#if __has_include("a.h") && 1\n#endif', tmp_path, [], FileGuard())
    assert b"/cupar-nowhere/1/a.h" in source
    assert len(headers) == 1


def test_a_guard_sees_changes(tmp_path):
    write(tmp_path, a="1")
    guard = FileGuard()
    with_headers(b'#include "a.h"\n#include "b.h"', tmp_path, [], guard)
    assert guard.holds()
    write(tmp_path, b="2")
    assert not guard.holds()
    guard = FileGuard()
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
    source, headers = with_headers(given, None, [], FileGuard())
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


def collected(source, folder=None, folders=(), standard=17):
    """Return a source as it is changed, and the files that it includes by the names that they have then."""
    code, headers = with_headers(source.encode(), folder, folders, FileGuard(), standard)
    return code.decode(), {name.removeprefix(sources.NOWHERE): text.decode() for name, text in headers}


def test_absolute_paths_are_collected_and_not_told(tmp_path):
    write(tmp_path, a='#include "b.h"', b="b beside it")
    for name in (f'"{tmp_path}/a.h"', f"<{tmp_path}/a.h>"):
        code, headers = collected(f"#include {name}\n#if __has_include({name})\n#endif\n")
        expected = '"/cupar-nowhere/1/a.h"'
        assert code == f"#include {expected}\n#if __has_include({expected})\n#endif\n"
        assert headers == {"1/a.h": '#include "/cupar-nowhere/2/b.h"', "2/b.h": "b beside it"}


@pytest.mark.parametrize("name", ["{0}/gone.h", "../{0}/a.h", "x/../../{0}/a.h"])
def test_what_is_not_there_is_looked_for_nowhere(tmp_path, name):
    """NVRTC would read what is there by then, or what dots lead to from its own folders."""
    write(tmp_path, a="#define A")
    guard = FileGuard()
    given = f'#include "{name.format(tmp_path)}"\n'
    code, headers = with_headers(given.encode(), None, [], guard)
    assert code.startswith(b'#include "/cupar-nowhere/absent/')
    assert b".." not in code.replace(b"(..)", b"")
    assert headers == ()


def test_a_link_includes_what_is_beside_it(tmp_path):
    write(tmp_path / "real", a='#include "b.h"', b="beside the file")
    write(tmp_path / "links", b="beside the link")
    (tmp_path / "links" / "a.h").symlink_to(tmp_path / "real" / "a.h")
    _, headers = collected('#include "a.h"', tmp_path / "links")
    assert headers["2/b.h"] == "beside the link"
    _, headers = collected('#include "real/a.h"\n#include "links/a.h"', tmp_path)
    assert sorted(headers) == ["1/a.h", "2/b.h", "3/a.h", "4/b.h"]


def test_a_file_has_one_name_whatever_it_is_called(tmp_path):
    """For ``#pragma once``, which knows files by their names here."""
    write(tmp_path / "sub", a='#pragma once\n#include "../sub/a.h"\n#include "b.h"', b="#pragma once")
    (tmp_path / "other").symlink_to(tmp_path / "sub")
    (tmp_path / "b.h").symlink_to(tmp_path / "sub" / "b.h")
    names = ["sub/a.h", "sub/../sub/a.h", "other/a.h", f"{tmp_path}/other/a.h", "./sub//a.h"]
    code, headers = collected("".join(f'#include "{name}"\n' for name in names), tmp_path)
    assert code == '#include "/cupar-nowhere/1/a.h"\n' * len(names)
    assert sorted(headers) == ["1/a.h", "2/b.h"]
    code, headers = collected('#include "sub/b.h"\n#include "b.h"', tmp_path)
    assert len(headers) == 1


def test_a_folder_that_is_led_elsewhere_is_seen(tmp_path):
    write(tmp_path / "one", a="1")
    write(tmp_path / "two", a="2")
    (tmp_path / "now").symlink_to(tmp_path / "one")
    guard = FileGuard()
    with_headers(b'#include "now/a.h"', tmp_path, [], guard)
    assert guard.holds()
    (tmp_path / "now").unlink()
    (tmp_path / "now").symlink_to(tmp_path / "two")
    assert not guard.holds()


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "one" / "atomic").mkdir(parents=True)
    guard = FileGuard()
    code, headers = with_headers(b"#include <atomic>", None, [tmp_path / "one"], guard)
    assert (code, headers) == (b"#include <atomic>", ())
    assert guard.holds()


def test_include_next_goes_on_behind_the_folder_that_a_file_was_found_in(tmp_path):
    write(tmp_path / "one", a="# include_next <a.h>\n#if 1\n", cuda_fp16="#include_next <cuda_fp16.h>\n")
    write(tmp_path / "two", a="#include_next <a.h>", b="b")
    write(tmp_path / "three", a="last")
    folders = [tmp_path / each for each in ("one", "two", "three")]
    code, headers = collected('#include_next "a.h"\n#include <cuda_fp16.h>', None, folders)
    assert code == '#include "/cupar-nowhere/1/a.h"\n#include "/cupar-nowhere/4/cuda_fp16.h"'
    assert headers == {
        "1/a.h": '#include "/cupar-nowhere/2/a.h"\n#if 1\n',
        "2/a.h": '#include "/cupar-nowhere/3/a.h"',
        "3/a.h": "last",
        "4/cuda_fp16.h": "#include_next <cuda_fp16.h>\n",  # CUDA's
    }


def test_lines_keep_their_numbers(tmp_path):
    write(tmp_path, a="")
    code, _ = collected('#include \\\n "a\\\n.h"\n#include \\\n A\n', tmp_path)
    assert code.count("\n") == 5
    assert code.startswith('#include \\\n "/cupar-nowhere/1/a.h"\\\n\n#error cupar: #include A: ')


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    write(tmp_path, a="")

    def read(self, path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FileGuard, "read", read)
    with pytest.raises(ValueError, match=r"cannot read '.*/a\.h', which is included: Permission denied"):
        collected('#include "a.h"', tmp_path)
