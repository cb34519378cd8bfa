"""Views in numba: their type, boxing and unboxing, and attributes in compiled code."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .._base.generated import define, fill
from .._numba_cpu import (
    AttributeTemplate,
    NativeValue,
    box,
    cgutils,
    cpu_target,
    errors,
    from_dtype,
    infer_getattr,
    intrinsic,
    lower_constant,
    lower_getattr,
    make_attribute_wrapper,
    models,
    overload,
    overload_attribute,
    register_model,
    types,
    unbox,
)
from .native import constant_address
from .portable import own_code

__all__ = ["ViewType", "view_type"]


class ViewType(types.Type):  # type: ignore[misc]
    """A view: its class, the dtype, number and order of its dimensions, and whether it may be written."""

    def __init__(self, cls: type, dtype: np.dtype[Any], ndim: int, layout: str, writable: bool) -> None:
        self.cls, self.numpy_dtype, self.ndim, self.layout, self.writable = cls, dtype, ndim, layout, writable
        self.own_code = own_code()  # an attribute, which numba's cache keeps
        access = "" if writable else ", read-only"
        super().__init__(f"cupar.view({dtype.descr if dtype.names else dtype}, {ndim}d, {layout}{access})")

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the type, which includes the version of cupar's code."""
        return self.name, self.own_code

    def with_layout(self, ndim: int, layout: str) -> ViewType:
        """Return the type of a part of such a view."""
        return ViewType(self.cls, self.numpy_dtype, ndim, layout, self.writable)

    @property
    def is_contiguous(self) -> bool:
        """Whether the type says that items lie one after the other."""
        return self.layout in "CF"


_types: dict[Any, ViewType] = {}


def view_type(cls: type, dtype: np.dtype[Any], ndim: int, layout: str, writable: bool) -> ViewType:
    """Return the type of a view."""
    key = cls, dtype, ndim, layout, writable
    found = _types.get(key)
    if found is None:
        found = _types.setdefault(key, ViewType(*key))
    return found


@register_model(ViewType)
class _Model(models.StructModel):  # type: ignore[misc]
    """The words of a `View`, in their order."""

    def __init__(self, manager: Any, view: ViewType) -> None:
        extents = types.UniTuple(types.intp, view.ndim)
        super().__init__(manager, view, [("address", types.uintp), ("shape", extents), ("strides", extents)])


for _name in ("address", "shape", "strides"):
    make_attribute_wrapper(ViewType, _name, _name)


@unbox(ViewType)
def _unbox(typ: ViewType, obj: Any, c: Any) -> NativeValue:
    words = c.pyapi.object_getattr_string(obj, "_words")
    address = c.pyapi.long_as_voidptr(words)
    c.pyapi.decref(words)
    kind = c.context.get_value_type(typ)
    return NativeValue(c.builder.load(c.builder.bitcast(address, kind.as_pointer())))


@lower_constant(ViewType)
def _constant(context: Any, builder: Any, typ: ViewType, view: Any) -> Any:
    address = constant_address(context, builder, typ, view._words, view)
    return builder.load(builder.bitcast(address, context.get_value_type(typ).as_pointer()))


@box(ViewType)
def _box(typ: ViewType, value: Any, c: Any) -> Any:
    view = cgutils.create_struct_proxy(typ)(c.context, c.builder, value)
    extents = [*cgutils.unpack_tuple(c.builder, view.shape), *cgutils.unpack_tuple(c.builder, view.strides)]
    numbers = [c.pyapi.from_native_value(types.uintp, view.address)]
    numbers += [c.pyapi.from_native_value(types.intp, each) for each in extents]
    given = [c.pyapi.unserialize(c.pyapi.serialize_object(each)) for each in (typ.numpy_dtype, typ.writable)]
    cls = c.pyapi.unserialize(c.pyapi.serialize_object(typ.cls))
    make = c.pyapi.object_getattr_string(cls, "_of_words")
    made = c.pyapi.call_function_objargs(make, [*given, *numbers])
    for each in (make, cls, *given, *numbers):
        c.pyapi.decref(each)
    return made


# --- What compiled code may ask ----------------------------------------------------------------------------

# numba compares the signatures of an overload and of its implementation, annotations included: so these are
# lambdas, or text.
_ATTRIBUTES: dict[str, Callable[[ViewType], Any]] = {
    "dtype": lambda view: from_dtype(view.numpy_dtype),
    "writable": lambda view: view.writable,
}


def _overload_constant(name: str, find: Callable[[ViewType], Any]) -> None:
    def constant(typ: ViewType) -> Any:
        value = find(typ)
        return lambda view: value

    overload_attribute(ViewType, name)(lambda view: constant(view))  # noqa: PLW0108


for _name, _find in _ATTRIBUTES.items():
    _overload_constant(_name, _find)


def _items(context: Any, builder: Any, typ: ViewType, value: Any) -> Any:
    shape = cgutils.create_struct_proxy(typ)(context, builder, value).shape
    return functools.reduce(builder.mul, cgutils.unpack_tuple(builder, shape), _number(context, 1))


def _number(context: Any, number: int) -> Any:
    return context.get_constant(types.intp, number)


# Numbers, as lowered attributes: an overload of each would be a function more to compile for each type.
_NUMBERS: dict[str, Callable[..., Any]] = {
    "size": _items,
    "nbytes": lambda context, builder, typ, value: builder.mul(
        _items(context, builder, typ, value), _number(context, typ.numpy_dtype.itemsize)
    ),
    "ndim": lambda context, builder, typ, value: _number(context, typ.ndim),
    "itemsize": lambda context, builder, typ, value: _number(context, typ.numpy_dtype.itemsize),
}


@infer_getattr
class _Numbers(AttributeTemplate):  # type: ignore[misc]
    key = ViewType

    def generic_resolve(self, view: ViewType, name: str) -> Any:
        """Return the type of a number."""
        return types.intp if name in _NUMBERS else None


for _name, _lowered in _NUMBERS.items():
    lower_getattr(ViewType, _name)(_lowered)


def _len(view: Any) -> Any:
    if not isinstance(view, ViewType):
        return None
    if not view.ndim:
        raise errors.TypingError("a view without dimensions has no length")
    return lambda view: view.shape[0]


overload(len)(lambda view: _len(view))  # noqa: PLW0108


# --- Parts -------------------------------------------------------------------------------------------------

_GETITEM = """
def getitem(view, index):
    address = view.address
    {lines}
    return make(view, address, ({shape}), ({strides}))
"""

_INTEGER = """
extent = view.shape[{k}]
at = {each} + extent if {each} < 0 else {each}
if at < 0 or at >= extent:
    raise IndexError("view: index is out of bounds")
address += at * view.strides[{k}]
"""

_SLICE = """
begin, end, step = {each}.indices(view.shape[{k}])
address += begin * view.strides[{k}]
shape_{k} = max(0, (end - begin + step - (1 if step > 0 else -1)) // step)
stride_{k} = view.strides[{k}] * step
"""


def _getitem(view: Any, index: Any) -> Any:
    if not isinstance(view, ViewType):
        return None
    given = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    if len(given) > view.ndim:
        raise errors.TypingError(f"a view of {view.ndim} dimensions was given {len(given)} indices")
    lines, shape, strides = [], [], []
    for k, kind in enumerate(given):
        each = f"index[{k}]" if isinstance(index, types.BaseTuple) else "index"
        if isinstance(kind, types.Integer):
            lines.append(fill(_INTEGER, k=k, each=each))
        elif isinstance(kind, types.SliceType):
            lines.append(fill(_SLICE, k=k, each=each))
            shape.append(f"shape_{k}, ")
            strides.append(f"stride_{k}, ")
        else:
            raise errors.TypingError(f"views take integers and slices, got {kind}")
    for k in range(len(given), view.ndim):
        shape.append(f"view.shape[{k}], ")
        strides.append(f"view.strides[{k}], ")
    slices = [kind for kind in given if isinstance(kind, types.SliceType)]
    stay = given[len(given) - 1 :] == tuple(slices) or not slices
    stays = view.layout == "C" and stay and not any(kind.has_step for kind in slices)
    part = view.with_layout(len(shape), "C" if stays else "A")
    texts: dict[str, Any] = {"lines": lines, "shape": "".join(shape), "strides": "".join(strides)}
    return define("part of a view", "getitem", _GETITEM, {"make": _maker(part)}, **texts)


overload(operator.getitem)(lambda view, index: _getitem(view, index))  # noqa: PLW0108


def _maker(part: ViewType) -> Any:
    """Return an intrinsic that makes a view of a type from address, shape and strides."""

    @intrinsic
    def make(typing: Any, view: Any, address: Any, shape: Any, strides: Any) -> Any:
        extents = types.UniTuple(types.intp, part.ndim)

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            made = cgutils.create_struct_proxy(part)(context, builder)
            _, made.address, made.shape, made.strides = values
            return made._getvalue()

        return part(view, types.uintp, extents, extents), code

    return make


def refresh() -> None:
    """Have numba load new registrations even while it is compiling."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


refresh()
