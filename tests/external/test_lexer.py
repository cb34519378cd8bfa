"""What a source includes, as compilers read it: compared with g++'s preprocessor and with NVRTC."""

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cupar._compile import nvrtc
from cupar._external.files import FileGuard
from cupar._external.lexer import Source, included_head
from cupar._external.sources import with_headers

ASKED = ("asked by macro", "__has_include")
FOLLOWED = ("include", "include_next", "has_include")


def included(text, standard=17):
    return [(each.word, each.name.decode()) for each in Source(text.encode(), standard).names]


@pytest.mark.parametrize(
    "text",
    [
        '#include "a.h"',
        "#include <a.h>",
        '  \t\f\v# \f include"a.h"// x',
        '/**/#/* "no.h" */include/**/"a.h"/* \n */',
        '%:include "a.h"',
        '#inc\\\nlude \\\r\n"a\\\n.h"\n',
        '#include "a.h"\r\n',
        '\r#include "a.h"\r',
        'int x; /* \n */ #include "a.h"',
        '#if 0\ndon\'t /*\n#include "a.h"\n#endif\n// */',
        '#error isn"t /*\n#include "a.h"\n',
        'auto x = 1\'0; /* \n#include "no.h"\n */\n#include "a.h" // \'',
        "auto x = 0xA'B + u8'\"' + a1'\"';\n#include \"a.h\" // \"",
        'auto s = R"(\n#include "no.h"\n)";\n#include "a.h"',
        'auto s = u8R"x(\\\n)" #)xx"\n#include "no.h"\n)x";\n#include "a.h"',
        'auto s = R"(a)\\\n" )";\n#include "a.h" // )"',
        'auto s = FOR"(";\n#include "a.h" // )"',
        'auto s = "a"R"(";\n#include "a.h" // )"',
        'auto s = "\\"//";\n#include "a.h"',
        'auto s = "\\\\\\\n"; // \\\n#include "no.h"\n#include "a.h"',
        '#define S "/*"\n#include "a.h"\n// */',
        '#define S R"(\n#include "no.h"\n)"\n#include "a.h"',
        '#define X /* \n */ #include "no.h"\n#include "a.h"',
        '#define X # include "no.h"\n#include "a.h"',
        'a %: b\nx # include "no.h"\n#\n# 3 "no.h"\n#pragma include "no.h"\n#include "a.h"',
        '??=include "no.h"\n// ??/\n#include "a.h"',
        "// #include <no.h>\n/* \n#include <no.h>\n*/ #include <a.h>",
        '#include "a.h" "no.h"',
    ],
)
def test_one_file_is_included(text):
    assert included(text) == [("include", "a.h")]


def test_older_standards():
    assert included('??=include "a.h"\n#inc??/\nlude "b.h"\n// ??/\n#include "no.h"', 14) == [
        ("include", "a.h"),
        ("include", "b.h"),
    ]
    assert included("auto x = 1'0; /*\n#include <a.h>\n// ' */", 11) == [("include", "a.h")]
    assert included("auto x = 1'0; /*\n#include <a.h>\n// ' */", 14) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#if __has_include(A) || __has_include(<b>)", [ASKED, ("has_include", "b")]),
        ('#elif !__has_inc\\\nlude/**/( "a.h" /**/ )', [("has_include", "a.h")]),
        ('int x = __has_include("a.h");', [("has_include", "a.h")]),
        ("#define HAS __has_include(<a.h>)", [("has_include", "a.h")]),
        ('#define HAS __has_include("a.h")', [ASKED]),
        ("#define HAS(x) __has_include(x)", [ASKED]),
        ("#define HAS __has_include", [ASKED]),
        ("#if 1 && __has_include(A)", [ASKED]),
        ("#if __has_include_next(<a.h>)", [("asked by macro", "__has_include_next")]),
        ("#if __has_embed(<a.h>)", [("asked by macro", "__has_embed")]),
        ("#if defined(__has_include) && defined __has_include", []),
        ("#ifdef __has_include\n#elifdef __has_include", []),
        ("#ifndef __has_include\n#define __has_include(x) 0", []),
        ('// __has_include("a.h")\n"__has_include(A)"\nmy__has_include(A)\n#pragma __has_include(A)', []),
        ("#include A", [("computed", "#include A")]),
        ('#include A("a.h") // x', [("computed", '#include A("a.h") // x')]),
        ('#include __has_include("a.h")\n', [("computed", '#include __has_include("a.h")')]),
        ("#include_next <a.h>", [("include_next", "a.h")]),
        ('#embed "a.h"\n#import <b.h>', [("computed", '#embed "a.h"'), ("computed", "#import <b.h>")]),
    ],
)
def test_questions_and_macros(text, names):
    assert included(text) == names


@pytest.mark.parametrize(
    ("head", "rest"),
    [
        ('#include "a.h"\n', "int x;"),
        ('#inc\\\nlude \\\n"a.h" /* \n */\n', "int x;"),
        ('// x\n/* */ #if 1\n#include "a.h"\n#else\n#endif\n', 'R"(\n#include "no.h"\n)"'),
        ("", '// #include "a.h"\nint x;'),
        ('#include "a.h"', ""),
    ],
)
def test_the_head_ends_after_the_last_include(head, rest):
    assert included_head((head + rest).encode()) == len(head)


# --- Against compilers -------------------------------------------------------------------------------------

BLANKS = st.sampled_from(
    ["", "", " ", "\t", "/**/", '/* #include "no.h" */', "/*'*/", '/*"*/', "\\\n", " \\\n ", "/\\\n**\\\n/"]
)
ENDS = st.sampled_from(
    ["", " ", " // x", " // '", " // \\\n'", " /* \n*/", '/*\n#include "no.h"\n*/', "\\\n"]
)
PLAIN = [
    '// "\n',
    "// '\n",
    "/* ' \n# */",
    '/* " */ ',
    "constexpr int @ = 1'000'0;\n",
    "constexpr char @ = '\\'';\n",
    "constexpr char @ = '\"'; // '\n",
    "constexpr int @ = 0x1'a + u8'/';\n",
    '// \\\n#include "no.h"\n',
    'static_assert(sizeof("\\"/*") == 4, "//");\n',
    'static_assert(sizeof("a\\\n#include \\"no.h\\"") == 17, "");\n',
    'static_assert(sizeof(R"(\n#include "h7.h"\n)") < 24, "");\n',
    'static_assert(sizeof(u8R"x(//)" \\\n/* ")x") < 20, "");\n',
    'static_assert(sizeof(LR"y()x\\\n)" #)y") / sizeof(wchar_t) < 20, "");\n',
    '#define @ "/*"\n',
    "#define @ '\"' // \\\n#include <no.h>\n",
    "#define @(x) # x\n",
    "#pragma unroll\n",
    "#\n",
    "  %:\n",
    '#if 0\ndon\'t /*\n#include "skipped.h"\n#endif\n',
    "#if 0\n\"/*\n# include <skipped.h>\n#error isn't\n#endif\n",
]


@st.composite
def sources(draw):
    """Return C++, and which files it includes where it is compiled."""
    pieces, names = [], []
    for number in range(draw(st.integers(1, 8))):
        if draw(st.booleans()):
            pieces.append(draw(st.sampled_from(PLAIN)).replace("@", f"x{number}"))
            continue
        name = f"h{number}.h"
        words = [draw(st.sampled_from(["#", "%:"])), "include", draw(st.sampled_from(['"@"', "<@>"]))]
        spaced = "".join(draw(BLANKS) + word for word in words).replace("@", name)
        end = draw(ENDS) + "\n"
        place = draw(st.integers(0, len(spaced)))  # of a splice, which may be anywhere but in another
        if not spaced[:place].endswith("\\"):
            spaced = spaced[:place] + "\\\n" + spaced[place:]
        pieces.append(spaced + end)
        names.append(name)
    text = "".join(pieces)
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text), names


FEW = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _found(text):
    return [name for word, name in included(text) if name != "skipped.h" and word in FOLLOWED]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@FEW
@given(sources())
def test_as_gcc_reads_it(tmp_path, source):
    text, names = source
    assert _found(text) == names
    file = tmp_path / "source.cpp"
    file.write_bytes(text.encode())
    command = ["g++", "-std=c++17", "-M", "-MG", "-MT", "it", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _, _, *found = done.stdout.replace("\\\n", " ").split()
    assert [name for name in found if not name.endswith("/stdc-predef.h")] == names


@FEW
@given(sources())
@example(('#if !__has_include("gone.h") && __has_include(<h2.h>)\n#include <h3.h>\n#endif\n', ["h3.h"]))
@example(('#define X R"(\n#include "h7.h"\n)"\n#include "h3.h"\n', ["h3.h"]))  # which g++ refuses
def test_as_nvrtc_reads_it(tmp_path, source):
    """NVRTC finds all in what it is given: nothing was overlooked, and no literal was changed."""
    text, names = source
    for number in range(8):
        (tmp_path / f"h{number}.h").write_text(f"#define FOUND_{number} 1\n")
    (tmp_path / "h0.h").write_text('#include "h1.h"\n#define FOUND_0 1\n')
    checks = "".join(f'static_assert(FOUND_{name[1]}, "");\n' for name in names)
    code, headers = with_headers(f"{text}\n{checks}".encode(), None, [tmp_path], FileGuard())
    assert nvrtc.compile_source(code, 90, headers, ["-default-device"])
