"""Tables below a notebook's cell: what ``_repr_html_`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Notebooks align cells to the right, and pages of docs leave no space between them.
_STYLE = ' style="text-align: left; vertical-align: top; padding: 2px 12px 2px 0"'


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows under the names of their columns; where there are no rows, the title."""
    cells = [f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows]
    if not cells:
        return f"<div>{escape(title)}</div>"
    head = f"<thead><tr>{''.join(map(_head, columns))}</tr></thead>" if columns else ""
    return f"<div>{escape(title)}<table>{head}<tbody>{''.join(cells)}</tbody></table></div>"


def fields(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return names with their values, one below the other."""
    rows = "".join(f"<tr>{_head(name)}{_cell(value)}</tr>" for name, value in pairs)
    return f"<div>{escape(title)}<table><tbody>{rows}</tbody></table></div>"


def _head(text: str) -> str:
    return f"<th{_STYLE}>{escape(text)}</th>"


def _cell(text: str) -> str:
    return f"<td{_STYLE}>{escape(text)}</td>"
