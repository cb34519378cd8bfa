"""What type checkers see of `cupar.compute` is what its table says."""

import ast
from pathlib import Path

from cupar.compute import _algorithms
from cupar.compute._table import TABLE, written

STUB = Path(_algorithms.__file__).with_suffix(".pyi")
HEAD = '''"""The functions of the algorithms, as they are written from `_table`."""

from typing import Any

from .._arguments.double_buffer import DoubleBuffer as DoubleBuffer
from ..sort import SortOrder as SortOrder
from ._made import Made
'''


class _Declared(ast.NodeTransformer):
    """Leaves of classes and functions what declares them."""

    def visit_ClassDef(self, node):
        node.body = [self.visit(each) for each in node.body if not isinstance(each, ast.Assign)]
        return node

    def visit_FunctionDef(self, node):
        del node.body[1:]  # behind the docstring
        return node


def stub():
    """Return what the file should have, but for its format."""
    trees = [ast.parse(written(name)) for name in TABLE]
    parts = [
        ast.unparse(_Declared().visit(each))
        for tree in trees
        for each in tree.body
        if isinstance(each, (ast.ClassDef, ast.FunctionDef))
    ]
    return "\n\n".join([HEAD, f"__all__ = {_algorithms.__all__}", *parts]) + "\n"


def test_the_stub_is_what_the_table_says():
    found = ast.unparse(ast.parse(STUB.read_text()))
    assert found == ast.unparse(ast.parse(stub())), "python tests/compute/test_stub.py writes it; format it"


if __name__ == "__main__":
    STUB.write_text(stub())
