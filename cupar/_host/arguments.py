"""Checks of arguments that calls and launches in compiled host code share."""

from __future__ import annotations

from typing import Any

from .._numba_cpu import errors, typeof, types

CALLED = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True}  # options of what compiled code alone calls
NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


def plain(given: Any) -> Any:
    """Return a type without the wrappers that numba has for defaults and constants."""
    if isinstance(given, types.Omitted):
        given = given.value
    if given is None:
        return types.none
    return types.unliteral(given if isinstance(given, types.Type) else typeof(given))


def integer(name: str, given: Any, expression: str, expected: str = "expected an integer,") -> str:
    """Return the expression of an integer."""
    if not isinstance(plain(given), types.Integer):
        raise errors.TypingError(f"{name}: {expected} got {given}")
    return f"_int({expression})"


def stream(given: Any, expression: str) -> str:
    """Return the expression of a stream's handle."""
    if plain(given) is types.none:
        return "_int(0)"
    return integer("stream", given, expression, "compiled host code takes a handle, an integer, or None;")


def refusal(condition: str, message: str) -> str:
    """Return the line that raises ValueError if a condition holds."""
    return f"if {condition}: raise ValueError({message!r})"


def aligned(name: str, value: str, alignment: int) -> list[str]:
    """Return the lines that check the address of a view."""
    wrong = refusal(
        f"{value}.address & {alignment - 1}", f"{name}: expected an array aligned to {alignment} bytes"
    )
    return [wrong] * (alignment > 1)


class CheckedCallable(types.Callable):  # type: ignore[misc]
    """A type of values that are called, and whose arguments are checked before numba compiles the call.

    Otherwise numba reports an error twice, among its list of candidates.
    """

    def get_call_signatures(self) -> tuple[tuple[()], bool]:
        """Return no signatures, and that there is one for each tuple of argument types."""
        return (), True

    def get_impl_key(self, signature: Any) -> Any:
        """Return the key under which numba finds the lowering of a call."""
        return type(self)


def call_compiled(context: Any, builder: Any, function: Any, args: Any, values: Any) -> Any:
    """Call a function that numba compiles.

    It is one of its own, since numba cannot hand over an exception with values from `compile_internal`.
    """
    called = typeof(function).get_call_type(context.typing_context, args, {})
    return context.get_function(typeof(function), called)(builder, values)
