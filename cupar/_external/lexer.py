"""Includes of a source in C++, found before a compiler reads it: directives, literals and comments.

It follows the phases of translation as NVRTC does them: trigraphs (before C++17) and line splices go first;
comments are space; and nothing within a literal is a directive. No condition is evaluated, and no macro is
expanded. Findings are byte ranges of the source, to be replaced there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

_TRIGRAPHS: Final = dict(zip(b"=/'()!<>-", b"#\\^[]|{}~", strict=True))
_SPLICES: Final = re.compile(rb"\\\r?\n")
_SPLICES_AND_TRIGRAPHS: Final = re.compile(rb"(?:\\|\?\?/)\r?\n|\?\?([=/'()!<>-])")

# What begins something that is no code, or ends a directive.
_MARKS: Final = re.compile(rb"""["'\#]|//|/\*|%:|__has_""")
_MARKS_IN_DIRECTIVES: Final = re.compile(rb"""["'\n]|//|/\*|__has_""")
# It ends with its line at the latest, as an apostrophe in text that is skipped does.
_LITERAL: Final = re.compile(
    rb""""(?:[^"\\\n]+|\\[^\n])*(?:"(?:[A-Za-z_]\w*)?)?|'(?:[^'\\\n]+|\\[^\n])*(?:'(?:[A-Za-z_]\w*)?)?"""
)
_RAW: Final = re.compile(rb"""(?<![\w.])(?:u8|[uUL])?R\Z""")
_DELIMITER: Final = re.compile(rb"""([^()\\\s]{0,16})\(""")
_NUMBER: Final = re.compile(rb"(?<![\w.])\.?\d(?:[\w.]|(?<=[eEpP])[+-]|'(?=\w))*\Z")  # before a separator
_LONGEST_NUMBER: Final = 200
_HAS: Final = re.compile(rb"(?<!\w)__has_(?:include|include_next|embed)(?!\w)")

_BLANK: Final = rb"(?:[ \t\f\v\r]|/\*.*?\*/)*"
_FILE: Final = rb"""(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>)"""
_WORD: Final = re.compile(_BLANK + rb"(\w*)", re.DOTALL)
_INCLUDED: Final = re.compile(_BLANK + rb"(?P<file>" + _FILE + rb")", re.DOTALL)
_CALL: Final = re.compile(_BLANK + rb"\(", re.DOTALL)
_ASKED: Final = re.compile(
    _CALL.pattern + _BLANK + rb"(?P<file>" + _FILE + rb")" + _BLANK + rb"\)", re.DOTALL
)
_IS_DEFINED: Final = re.compile(rb"\bdefined\s*\(?\s*\Z")

_INCLUDES: Final = (b"include", b"include_next")
_NO_OTHERS: Final = (b"import", b"embed")  # which read files, too, in other compilers
_OF_NAMES: Final = (b"ifdef", b"ifndef", b"elifdef", b"elifndef", b"undef", b"error", b"warning", b"pragma")


class Directive(NamedTuple):
    """A directive, and where it ends: after its line."""

    word: str
    end: int


class WrittenName(NamedTuple):
    """A file that a source names, or would name if a macro were expanded."""

    word: str  # "include", "include_next", "has_include"; by a macro: "computed", "asked by macro"
    start: int  # of the replaced text: the name with its quotes, or the directive that cannot be followed
    end: int
    name: bytes  # or the text that cannot be resolved
    is_quoted: bool = False
    whole: int = 0  # where its directive starts


class Source:
    """A source in C++."""

    def __init__(self, data: bytes, standard: int = 17) -> None:
        self.data = data
        self.directives: list[Directive] = []
        self.names: list[WrittenName] = []
        self._gaps: list[tuple[int, int]] = []  # comments, literals and directives
        self._places, self._originals = [0], [0]  # of pieces of the text: where they begin, and did in `data`
        self._text = self._spliced(_SPLICES if standard >= 17 else _SPLICES_AND_TRIGRAPHS)
        self._read(has_separators=standard >= 14)

    @property
    def code(self) -> bytes:
        """The source without comments, literals and directives."""
        pieces, at = [], 0
        for start, end in self._gaps:
            pieces.append(self._text[at:start])
            at = max(at, end)
        return b" ".join([*pieces, self._text[at:]])

    def _spliced(self, pattern: re.Pattern[bytes]) -> bytes:
        pieces, place, at = [], 0, 0
        for match in pattern.finditer(self.data):
            pieces.append(self.data[at : match.start()])
            place += len(pieces[-1])
            at = match.end()
            if match.lastindex:  # a trigraph
                pieces.append(bytes([_TRIGRAPHS[match[1][0]]]))
                self._note(place, match.start())
                place += 1
            self._note(place, at)
        return b"".join([*pieces, self.data[at:]]) if pieces else self.data

    def _note(self, place: int, original: int) -> None:
        self._places.append(place)
        self._originals.append(original)

    def _original(self, place: int) -> int:
        """Return where something is in the source as it was given."""
        piece = bisect_right(self._places, place) - 1
        return self._originals[piece] + place - self._places[piece]

    def _span(self, start: int, end: int) -> tuple[int, int]:
        return self._original(start), self._original(end - 1) + 1

    def _read(self, has_separators: bool) -> None:
        text = self._text
        at = 0
        line = 0  # from where on the line is blank, but for comments
        word: bytes | None = None  # of the directive that this is in
        mark = 0  # where that begins
        is_computed = False  # it names its file by a macro
        while match := (_MARKS if word is None else _MARKS_IN_DIRECTIVES).search(text, at):
            start, before, at, kind = match.start(), at, match.end(), match[0]
            if kind == b"\n":
                self._end(word or b"", mark, start, at, is_computed)
                word, is_computed, line = None, False, at
            elif kind in (b"#", b"%:"):
                line = max(line, text.rfind(b"\n", line, start) + 1)
                if not text[line:start].strip(b" \t\f\v\r"):
                    found = _WORD.match(text, at)
                    assert found is not None
                    word, mark, at = found[1], start, found.end()
                    if word in _INCLUDES and (file := _INCLUDED.match(text, at)):
                        self._add(word.decode(), file, mark)
                        at = file.end()
                    else:
                        is_computed = word in _INCLUDES or word in _NO_OTHERS
            elif kind == b"__has_":
                if found := _HAS.match(text, start):
                    at = self._asked(found, word, mark)
            elif kind in (b"//", b"/*"):
                end = text.find(b"\n" if kind == b"//" else b"*/", at)
                at = len(text) if end < 0 else end + 2 * (kind == b"/*")
                if word is None:
                    line = max(line, text.rfind(b"\n", line, start) + 1)
                    # NVRTC accepts a directive on a comment's last line, with anything before the comment.
                    if b"\n" in text[start:at] or not text[line:start].strip(b" \t\f\v\r"):
                        line = at
                    self._gaps.append((start, at))
            elif kind == b"'" and has_separators and _is_separator(text, start):
                pass
            else:
                at = self._end_of_literal(start, before)
                if word is None:
                    self._gaps.append((start, at))
        if word is not None:
            self._end(word, mark, len(text), len(text), is_computed)

    def _end_of_literal(self, start: int, before: int) -> int:
        """Return where a literal ends, which a prefix after `before` may make raw: without splices."""
        text = self._text
        is_raw = text[start : start + 1] == b'"' and _RAW.search(text, max(start - 4, before), start)
        if not is_raw or not (delimiter := _DELIMITER.match(text, start + 1)):
            found = _LITERAL.match(text, start)
            assert found is not None
            return found.end()
        end = b")" + delimiter[1] + b'"'
        original = self.data.find(end, self._original(delimiter.end() - 1) + 1)
        if original < 0:
            return len(text)
        original += len(end)
        piece = bisect_right(self._originals, original) - 1
        return self._places[piece] + original - self._originals[piece]

    def _end(self, word: bytes, mark: int, end: int, after: int, is_computed: bool) -> None:
        if is_computed:
            start, stop = self._span(mark, end)
            while self.names and self.names[-1].start > start:
                self.names.pop()
            self.names.append(WrittenName("computed", start, stop, self._text[mark:end]))
        self._gaps.append((mark, end))
        self.directives.append(Directive(word.decode(errors="replace"), self._original(after)))

    def _add(self, word: str, match: re.Match[bytes], mark: int = 0) -> None:
        name = match["quoted"] or match["angled"]
        is_quoted = match["quoted"] is not None
        self.names.append(
            WrittenName(word, *self._span(*match.span("file")), name, is_quoted, self._original(mark))
        )

    def _asked(self, match: re.Match[bytes], word: bytes | None, mark: int) -> int:
        """Note that a file is asked for; return where to go on."""
        text, start, at = self._text, match.start(), match.end()
        before = text[mark:start] if word is not None else b""
        if word in _OF_NAMES or _IS_DEFINED.search(before):
            return at
        if word == b"define" and re.fullmatch(rb"(?:#|%:)" + _BLANK + rb"define" + _BLANK, before, re.DOTALL):
            return at  # the macro's own name
        asked = _ASKED.match(text, at) if match[0] == b"__has_include" else None
        # In a macro, quotes would mean a file beside the one that uses it.
        if asked is not None and not (word == b"define" and asked["quoted"]):
            self._add("has_include", asked)
            return asked.end()
        if word == b"define" or _CALL.match(text, at):
            self.names.append(WrittenName("asked by macro", *self._span(start, at), match[0]))
        return at


def _is_separator(text: bytes, place: int) -> bool:
    """Whether an apostrophe is within a number."""
    return text[place + 1 : place + 2].isalnum() and bool(
        _NUMBER.search(text, max(place - _LONGEST_NUMBER, 0), place)
    )


def included_head(data: bytes, standard: int = 17) -> int:
    """Return where the head of a source ends that stays outside of a namespace: after its last include."""
    depth, end, includes = 0, 0, False
    for word, after in Source(data, standard).directives:
        depth += word.startswith("if")
        depth -= word == "endif"
        includes |= word.startswith("include")
        if includes and depth <= 0:
            end, includes = after, False
    return end
