"""Syntax trees of functions."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from types import FunctionType
from typing import Any


class UntranslatableError(TypeError):
    """A plan has something that compiled code cannot have."""


def named_call(name: str, given: list[ast.expr]) -> ast.Call:
    """Return a call of a function by name."""
    return ast.Call(ast.Name(name, ast.Load()), given, [])


def root(node: ast.AST) -> str:
    """Return the name that an expression begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def copied(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements that can be changed without these."""
    return ast.parse("\n".join(map(ast.unparse, body))).body


def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the tree of a function's source."""
    (tree,) = ast.parse(_source(function.__code__)).body
    assert isinstance(tree, ast.FunctionDef)
    return tree


@functools.cache
def _source(code: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(code))
    except OSError:
        raise UntranslatableError(
            f"compiled host code is made of the source of {code.co_name}: cupar is installed without sources"
        ) from None


def checked(launch: ast.expr) -> list[ast.stmt]:
    """Return a launch, after which an error ends the function."""
    status = ast.Name("_status", ast.Load())
    return [
        ast.Assign([ast.Name("_status", ast.Store())], launch),
        ast.If(status, [ast.Return(status)], []),
    ]
