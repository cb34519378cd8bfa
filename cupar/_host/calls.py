"""`run` of an algorithm as compiled code has it, written out for the types of its arguments.

It does what `Algorithm._run` does, but without a `LaunchState`: arguments are checked, and the plan runs
twice. The first time it emits nothing, and returns the bytes of temporary storage, which come from the pool.
The second time it launches each shape that it emits, without graphs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import structs
from .._arguments import initial
from .._arguments.order import parameters_of
from .._base.generated import fill
from .._call.algorithm import Algorithm
from .._device.storage import ALIGNMENT
from .._ir import nodes
from .._ir.iterator import same_structure
from .._ir.specialisation import Specialisation
from .._numba_cpu import as_dtype, errors, from_dtype, register_jitable, types
from . import iterators
from .arguments import aligned, integer, refusal, stream
from .iterators import IteratorType
from .problems import number
from .view_types import ViewType

_HEAD = """
def call(self, {parameters}):
    _table = _table_of(self)
    _stream = {stream}
    {checks}
    _needed = _needed_by(_table, _problem)
    if _needed < 0 or _needed > {most}:
        raise MemoryError("{subject}: needs temporary storage of 2**63 bytes or more")
"""

_RUN = """
    _status = _executed(_table, _problem, _stream, _needed, ({values}))
    if _status:
        raise _LaunchError({subject!r}, {calls!r}, _status)
"""

# The two phases of a call, as in `Algorithm._execute`.
_QUERY = """
    return _needed + {slack} if _needed else 1
"""

_GIVEN = """
    _size, _address = temp_storage.nbytes, _int(temp_storage.address) + {slack} & ~{slack}
    if _size < (_needed + {slack} if _needed else 1):
        raise ValueError("temp_storage: needs more bytes for this call: give None to ask how many")
    _status = _launched(_table, _problem, _stream, _address, ({values}))
    if _status:
        raise _LaunchError({subject!r}, {calls!r}, _status)
    return _size
"""


def shown_parameters(method: Any) -> list[str]:
    """Return the parameters of a method, with their defaults, as text."""
    given = list(inspect.signature(method).parameters.values())[1:]
    return [each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in given]


# Parameters that are a number or None.
_OPTIONAL = ("begin_bit", "end_bit", "max_items", "max_segment_size", "n")


def problem_of(cls: type[Algorithm], spec: Specialisation) -> Any:
    """Return the function that makes problems, for compiled code; None: the first count is the problem."""
    return cls._problem_maker and register_jitable(error_model="numpy")(cls._problem_maker(spec))


_ORDER = (
    "{}: got an array in Fortran's order, and the result depends on the order of items: give one in C's order"
)
_ALIKE = (
    "{}: got an array in Fortran's order, and others that are not of the same shape and order, or not all "
    "items are used: give them in C's order"
)


class CompiledCall:
    """A call of an algorithm with arguments of some types: `run`, or a phase of it.

    Attributes
    ----------
    text : str
        The function ``call``.
    names : dict
        Its globals, beside those that all calls have.
    """

    def __init__(
        self,
        cls: type[Algorithm],
        spec: Specialisation,
        given: Mapping[str, Any],
        prepared: Any,
        problem: Any,
        states: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._cls, self._spec, self._given = cls, spec, given
        self._built = {argument.name: argument for argument in spec.arguments}
        self.names: dict[str, Any] = {"_in_order": _in_order}
        self._checks: list[str] = []
        self._values = {name: f"_on_stack({words})" for name, words in states.items()}
        self._numbers()
        self._problem(problem)
        for name, count in cls._uses.items():
            items = count if isinstance(count, int) else f"{'_n_' if count in given else '_problem.'}{count}"
            self._array(name, str(items), count)
        self._order()
        self._init()
        method, phase = self._phase()
        launches = (f"cuLaunchKernelEx of {each}" for each in prepared.kernels)
        texts: dict[str, Any] = {
            "parameters": ", ".join(shown_parameters(method)),
            "stream": stream(given["stream"], "stream"),
            "checks": self._checks,
            "values": "".join(f"{self._values[name]}, " for name in prepared.values),
            "subject": spec.algorithm,
            "calls": ", ".join([*launches, "cuMemAllocFromPoolAsync", "cuMemFreeAsync"]),
            "slack": ALIGNMENT - 1,
            "most": 2**63 - ALIGNMENT,
        }
        self.text = "\n".join(fill(text, **texts) for text in (_HEAD, phase))

    def _phase(self) -> tuple[Any, str]:
        """Return the method that is called, and the template of what follows the plan."""
        if "temp_storage" not in self._given:
            return self._cls.run, _RUN
        storage = self._given["temp_storage"]
        if storage is types.none:
            return self._cls.__call__, _QUERY
        if not isinstance(storage, ViewType) or not storage.writable:
            raise errors.TypingError(
                f"temp_storage: expected None, or cupar.view(array) of one that can be written, got {storage}"
            )
        if not storage.is_contiguous:
            self._contiguous("temp_storage")
        return self._cls.__call__, _GIVEN

    def _numbers(self) -> None:
        """Check the numbers among the arguments, whose variables are ``_n_`` and their names."""
        others = {*self._cls._uses, "h_init", "stream", "temp_storage"}
        levels = self._spec.option("levels")
        has_rows = self._cls._rows and "end_offsets_in" not in self._built
        for name, kind in self._given.items():
            if name in others or (
                kind is types.none and (name in _OPTIONAL or name == "segment_size" or has_rows)
            ):
                continue
            if name == "segment_size" and not has_rows:
                wrong = f"{name}: this {self._cls.__name__} was built for offsets; expected None, got {kind}"
                raise errors.TypingError(wrong)
            if name.startswith("h_"):
                dtype = np.dtype(np.int64 if name == "h_num_output_levels" else levels)
                self.names[f"_{dtype.name}"] = getattr(types, dtype.name)
                self._checks.append(f"_n_{name} = {number(name, self._given, dtype, self._checks)}")
                continue
            self._checks.append(f"_n_{name} = {integer(name, kind, name)}")
            self._refuse(f"_n_{name} < 0", f"{name}: expected 0 or more")
        if has_rows:
            self._rows()

    def _rows(self) -> None:
        """Find the length of rows, and the numbers of segments and items that follow from it."""
        name, size = self._cls._rows, self._given["segment_size"]
        rows = self._given[name]
        if size is not types.none:
            self._refuse("_n_segment_size == 0", "segment_size: expected 1 or more, got 0")
        elif isinstance(rows, ViewType) and rows.ndim > 1:
            self._checks.append(f"_n_segment_size = _int({name}.shape[{rows.ndim - 1}])")
        else:
            raise errors.TypingError(
                "segment_size: expected an integer, as there are neither offsets nor rows, got none"
            )
        items = self._given.get("num_items")
        if self._given["num_segments"] is types.none:
            if items in (None, types.none) and not isinstance(rows, ViewType):
                integer("num_segments", types.none, "")  # raises
            found = f"_int({name}.size)" if items in (None, types.none) else "_n_num_items"
            self._checks.append(f"_items, _row = {found}, max(_n_segment_size, 1)")
            wrong = "num_segments: expected an integer, as the items are no whole number of rows"
            self._refuse("_items % _row", wrong)
            self._checks.append("_n_num_segments = _items // _row")
        if items is types.none:
            self._checks.append("_n_num_items = _n_num_segments * _n_segment_size")

    def _refuse(self, condition: str, message: str) -> None:
        self._checks.append(refusal(condition, message))

    def _problem(self, function: Any) -> None:
        """Make the problem as calls from Python do: by the algorithm's own function."""
        if function is None:
            first = next(count for count in self._cls._uses.values() if count in self._given)
            self._checks.append(f"_problem = _n_{first}")
            return
        self.names["_problem_of"] = function
        given = []
        for name in parameters_of(function):
            is_none = self._given[name] is types.none and name in _OPTIONAL
            given.append("None" if is_none else name if name in self._cls._uses else f"_n_{name}")
        self._checks.append(f"_problem = _problem_of({', '.join(given)})")

    def _array(self, name: str, items: str, what: Any) -> None:
        """Check an array or iterator, and name its value."""
        given, argument = self._given[name], self._built.get(name)
        if argument is None:
            if given is not types.none:
                raise errors.TypingError(
                    f"{name}: this {self._cls.__name__} was built without it; expected None, got {given}"
                )
            return
        if isinstance(given, IteratorType) or type(argument.given) is not nodes.Pointer:
            self._iterator(name, items, argument)
            return
        if not isinstance(given, ViewType):
            raise errors.TypingError(f"{name}: compiled host code takes cupar.view(array), got {given}")
        dtype = argument.given.value
        if given.numpy_dtype != dtype and structs.layout(given.numpy_dtype) != structs.layout(dtype):
            raise errors.TypingError(
                f"{name}: this algorithm was built for {dtype}, got a view of {given.numpy_dtype}"
            )
        if argument.output and not given.writable:
            raise errors.TypingError(f"{name}: expected a view to write to, got one of a read-only array")
        self._refuse(f"{name}.size < {items}", f"{name}: has fewer items than {what}")
        if not given.is_contiguous:
            self._contiguous(name)
        if given.layout != "C" and name not in self._cls._any_order and what != 1:
            self._refuse(f"not {self._in_c_order(name)}", _ORDER.format(name))
        self._checks += aligned(name, name, dtype.alignment)
        address = f"_int({name}.address)"
        self._values[name] = address if argument.is_pointer else f"_on_stack({address})"

    def _iterator(self, name: str, items: str, argument: nodes.Argument) -> None:
        """Check an iterator, and name its value."""
        given = self._given[name]
        if not isinstance(given, IteratorType) or not same_structure(given.node, argument.given):
            got = nodes.description(given.node) if isinstance(given, IteratorType) else given
            built = nodes.description(argument.given)
            raise errors.TypingError(f"{name}: this algorithm was built for {built}, got {got}")
        if argument.output and not given.writable:
            raise errors.TypingError(f"{name}: expected arrays to write to, got a read-only one")
        self.names.update(_words=iterators.words, _does_not_fit=iterators.does_not_fit)
        self._checks += iterators.checks_of(given, name, items)
        self._values[name] = f"_on_stack({iterators.state_of(given, name)})"

    def _order(self) -> None:
        """Check that arrays in another order than C's have equal layouts, if items are taken one by one."""
        names = [each for each in self._cls._any_order if each in self._built]
        views = [each for each in names if isinstance(self._given[each], ViewType)]
        other = [each for each in views if self._given[each].layout != "C"]
        if not other:
            return
        first, ndim = views[0], self._given[views[0]].ndim
        alike = len(views) == len(names) and all(self._given[each].ndim == ndim for each in views)
        # Of one shape, and none of them in C's order: then all are in Fortran's.
        conditions = [f"{first}.size == _n_{self._cls._uses[first]}"] if alike else ["False"]
        conditions += [f"{each}.shape == {first}.shape" for each in views[1:] if alike]
        conditions += [f"not {self._in_c_order(each)}" for each in views]
        all_in_c_order = " and ".join(map(self._in_c_order, other))
        self._refuse(f"not ({all_in_c_order} or {' and '.join(conditions)})", _ALIKE.format(other[0]))

    def _in_c_order(self, name: str, c_order: bool = True) -> str:
        """Return the expression of whether a view's items lie in C's order, or in Fortran's."""
        return f"_in_order({c_order}, {name}.shape, {name}.strides, {name}.itemsize)"

    def _contiguous(self, name: str) -> None:
        either = " or ".join([self._in_c_order(name), self._in_c_order(name, c_order=False)])
        self._refuse(f"not ({either})", f"{name}: got a strided array; copy it first")

    def _init(self) -> None:
        """Check the initial value, and name it."""
        if "h_init" not in self._given:
            return
        given, kind = self._given["h_init"], self._spec.option("init")
        if kind is None:
            if given is not types.none:
                raise errors.TypingError(
                    f"h_init: this algorithm was built without an initial value (h_init=None), got {given}"
                )
            return
        dtype = self._spec.operators[0][1].output
        if kind == "device":
            self._device_init(given, dtype)
        elif isinstance(given, types.Array):
            self._array_init(given, dtype)
        elif isinstance(given, (types.Number, types.Boolean)) and structs.kind_of(dtype) in "biufc":
            self._number_init(given, dtype)
        else:
            raise errors.TypingError(
                f"h_init: expected a number or a NumPy array of one element of {dtype}, got {given}"
            )

    def _device_init(self, given: Any, dtype: np.dtype[Any]) -> None:
        if not isinstance(given, ViewType) or structs.layout(given.numpy_dtype) != structs.layout(dtype):
            raise errors.TypingError(f"h_init: expected cupar.view(array) of {dtype}, got {given}")
        self._refuse("h_init.size < 1", "h_init: has no item")
        self._values["init"] = "_int(h_init.address)"

    def _array_init(self, given: Any, dtype: np.dtype[Any]) -> None:
        found = as_dtype(given.dtype)
        if found != dtype and structs.layout(found) != structs.layout(dtype):
            raise errors.TypingError(f"h_init: {initial.other_dtype('an array', found, dtype)}")
        self._refuse("h_init.size != 1", "h_init: expected one element")
        self._values["init"] = "_int(h_init.ctypes.data)"

    def _number_init(self, given: Any, dtype: np.dtype[Any]) -> None:
        found = as_dtype(given)
        is_taken = initial.is_convertible(found, dtype)
        if is_taken and structs.is_bfloat16(dtype):  # numba has no array of it
            self.names["_bits"] = _bfloat16_bits()
            self._checks.append("_h_init = _bits(h_init)")
            self._values["init"] = "_on_stack(_h_init)"
            return
        if not is_taken:
            raise errors.TypingError(f"h_init: {initial.not_converted(str(found), dtype)}")
        if dtype.kind == "f" and dtype.itemsize == 2:
            raise errors.TypingError(
                f"h_init: compiled host code has no numbers of {dtype}; give a NumPy array of one element"
            )
        self.names["_accumulator"] = from_dtype(dtype)
        self._checks.append("_h_init = _accumulator(h_init)")
        lossless = dtype.kind in "iu" and not (found.kind == "b" or np.can_cast(found, dtype))
        if lossless:
            wrong = "_h_init != h_init or (_h_init < 0) != (h_init < 0)"
            self._refuse(wrong, f"h_init: {dtype} cannot hold it")
        self._values["init"] = "_on_stack(_h_init)"


@functools.cache
def _bfloat16_bits() -> Any:
    """Return a function from a number to the bits of a bfloat16: rounded to nearest, ties to even."""
    single, word, half = np.float32, np.uint32, np.uint16

    def bits(number: Any) -> Any:
        wide = single(number)
        found = wide.view(word)
        if wide != wide:  # noqa: PLR0124
            return half(0x7FFF)
        return half((found + word(0x7FFF) + ((found >> word(16)) & word(1))) >> word(16))

    return register_jitable(bits)


@register_jitable
def _in_order(c_order, shape, strides, itemsize):  # type: ignore[no-untyped-def]
    """Tell whether items lie one after another, in C's order or Fortran's."""
    expected, found = itemsize, True
    for k in range(len(shape)):
        axis = len(shape) - 1 - k if c_order else k
        found = found and (shape[axis] == 1 or strides[axis] == expected)
        expected *= shape[axis]
    return found or expected == 0
