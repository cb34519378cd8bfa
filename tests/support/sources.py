"""The C++ of iterators by itself."""

from cupar._ir import cpp
from cupar._ir.source import node_structs


def iterators_source(arguments):
    """Return the structs of arguments' iterators, whose sizes it asserts."""
    iterators = [each for each in arguments if not each.is_pointer]
    headers = [header for each in iterators for node in each.node.walk() for header in node.headers]
    return cpp.unit("".join(node_structs(each)[0] for each in iterators), headers)
