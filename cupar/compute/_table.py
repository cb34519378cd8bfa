"""The algorithms by ``cuda.compute``'s names and parameters, in one table; functions are written from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from .._base.generated import fill


class InterfaceRow(NamedTuple):
    """An algorithm.

    The parameters of the one call that cupar's factory takes are in its order, and so are those that its
    algorithm's ``run`` takes, but for an initial value, which is last there.
    """

    once: str  # the parameters of the one call
    what: str  # that ``make_…`` returns
    does: str  # the one call
    make: str = ""  # the parameters of ``make_…``, if they differ from the factory's
    names: Mapping[str, str] = {}  # cupar's name of a parameter, and the name here
    notes: str = ""  # on ``make_…``


TABLE: Final = {
    "binary_transform": InterfaceRow(
        "d_in1, d_in2, d_out, op, num_items",
        "A transform of two arrays",
        "Apply `op` to each of `num_items` pairs",
    ),
    "exclusive_scan": InterfaceRow(
        "d_in, d_out, op, init_value, num_items",
        "An exclusive scan",
        "Scan `num_items` items, item i of the result from those before it",
        names={"h_init": "init_value"},
    ),
    "histogram_even": InterfaceRow(
        "d_samples, d_histogram, num_output_levels, lower_level, upper_level, num_samples",
        "A histogram with bins of equal width",
        "Count `num_samples` samples in ``num_output_levels - 1`` bins",
        make="d_samples, d_histogram, h_num_output_levels, h_lower_level, h_upper_level, num_samples",
    ),
    "inclusive_scan": InterfaceRow(
        "d_in, d_out, op, init_value=None, num_items",
        "An inclusive scan",
        "Scan `num_items` items, item i of the result from it and those before",
        names={"h_init": "init_value"},
    ),
    "lower_bound": InterfaceRow(
        "d_data, num_items, d_values, num_values, d_out, comp=None",
        "A search for the first place where each value can be inserted",
        "Find the first place where each value can be inserted",
    ),
    "merge_sort": InterfaceRow(
        "d_in_keys, d_in_values=None, d_out_keys, d_out_values=None, num_items, op",
        "A stable sort by a comparison",
        "Sort `num_items` keys by a comparison, with their values if there are any",
        names={"d_in_items": "d_in_values", "d_out_items": "d_out_values"},
    ),
    "radix_sort": InterfaceRow(
        "d_in_keys, d_out_keys, d_in_values=None, d_out_values=None, num_items, order, "
        "begin_bit=None, end_bit=None",
        "A stable sort of numbers by their bits",
        "Sort `num_items` keys by their bits, with their values if there are any",
        make="d_in_keys, d_out_keys, d_in_values, d_out_values, order",
    ),
    "reduce_into": InterfaceRow(
        "d_in, d_out, num_items, op, h_init=None",
        "A reduction",
        "Reduce `num_items` items into ``d_out[0]``",
        notes="Beside those that are named it takes ``compute_capability=`` and ``determinism=``. Where "
        "there is nothing\n    quicker for `Determinism.NOT_GUARANTEED`, results are the same in every run.",
    ),
    "segmented_reduce": InterfaceRow(
        "d_in, d_out, num_segments, start_offsets_in, end_offsets_in, op, h_init, max_segment_size=None",
        "A segmented reduction",
        "Reduce each of `num_segments` segments",
    ),
    "segmented_sort": InterfaceRow(
        "d_in_keys, d_out_keys=None, d_in_values=None, d_out_values=None, num_items, num_segments, "
        "start_offsets_in, end_offsets_in, order",
        "A sort of segments, each by itself",
        "Sort the keys of each segment, with their values if there are any",
    ),
    "select": InterfaceRow(
        "d_in, d_out, d_num_selected_out, cond, num_items",
        "A selection",
        "Select from `num_items` items those for which `cond` holds",
    ),
    "three_way_partition": InterfaceRow(
        "d_in, d_first_part_out, d_second_part_out, d_unselected_out, d_num_selected_out, "
        "select_first_part_op, select_second_part_op, num_items",
        "A partition into three arrays",
        "Partition `num_items` items into three arrays",
    ),
    "unary_transform": InterfaceRow(
        "d_in, d_out, op, num_items",
        "A transform of one array",
        "Apply `op` to each of `num_items` items",
    ),
    "unique_by_key": InterfaceRow(
        "d_in_keys, d_in_items, d_out_keys, d_out_items, d_out_num_selected, op, num_items",
        "A selection of the first of each run of equal keys",
        "Select the first of each run among `num_items` keys, with its item",
    ),
    "upper_bound": InterfaceRow(
        "d_data, num_items, d_values, num_values, d_out, comp=None",
        "A search for the last place where each value can be inserted",
        "Find the last place where each value can be inserted",
    ),
}

_OPERATORS: Final = {"comp", "cond", "op", "select_first_part_op", "select_second_part_op"}
_ONE_PHASE: Final = {"binary_transform", "lower_bound", "unary_transform", "upper_bound"}
_INITIAL: Final = {"h_init", "init_value"}
_OPTIONAL: Final = {"begin_bit", "end_bit", "max_segment_size"}
_OF_RUN: Final = {"num_items", "num_segments", "num_values", *_OPTIONAL}
_TYPES: Final = {"order": "SortOrder", **dict.fromkeys(_OPTIONAL, "int | None")}

_PHASES: Final = "Return the bytes of temporary storage; run, unless `temp_storage` is None"
_SOURCE: Final = '''
from __future__ import annotations

class {cls}(Made):
    """{What}; see `make_{name}`."""

    _factory = staticmethod(factory)
    _names = names

    def __call__(self, *, {call}, stream: Any = None) -> {result}:
        """{call_does}."""
        try:
            {ready}
            return self._for({again}){run}({call_run}, stream{more_run})
        except ArgumentError as error:
            error.rename(names, everywhere=True)
            raise

made = {cls}

def make_{name}(*, {make}, {options}) -> {cls}:
    """Return {what}; see `cupar.{name}`.{notes}"""
    {make_ready}
    return {cls}.make({question}, {given})

def {name}(*, {once}, stream: Any = None{more}) -> None:
    """{does}; see {see}`cupar.{name}`."""
    try:
        {ready}
        algorithm = {algorithm}
        algorithm.run({once_run}, stream{more_run})
    except ArgumentError as error:
        error.rename(names, everywhere=True)
        raise
'''


def written(name: str) -> str:
    """Return the source of an algorithm's class and functions; `factory`, `names` and others complete it."""
    row, cls = TABLE[name], f"_{name.title().replace('_', '')}"
    is_open = name == "reduce_into"  # to further keywords
    once = dict(each.partition("=")[::2] for each in row.once.split(", "))
    make = {each: default for each, default in once.items() if each not in _OF_RUN}
    if row.make:
        make = dict(each.partition("=")[::2] for each in row.make.split(", "))
    storage = {} if name in _ONE_PHASE else {"temp_storage": ""}
    called = [f"h_{each}" if f"h_{each}" in make else each for each in once if each != "order"]
    ops = [each for each in make if each in _OPERATORS]
    question = ", ".join([f"({', '.join(make)})", *ops])
    initial = "".join(_INITIAL.intersection(make))
    ready = make_ready = list[str]()
    if initial:
        ready = [f"{initial} = {initial} if type({initial}) is ndarray else initial({initial})"]
        make_ready = [f"{initial} = initial({initial}, may_be_proxy=True)"]
    elif "order" in make:  # outputs do not count where the inputs are double buffers
        ready = make_ready = ["if isinstance(d_in_keys, DoubleBuffer): d_out_keys = d_out_values = None"]
    factory = f"factory({', '.join(each.removeprefix('h_') if each not in once else each for each in make)})"
    return fill(
        _SOURCE,
        name=name,
        What=row.what,
        does=row.does,
        cls=cls,
        make=_typed(make),
        call=_typed({**storage, **{each: once[each] if each in _OPTIONAL else "" for each in called}}),
        once=_typed(once),
        options="**kwargs: Any" if is_open else "compute_capability: Any = None",
        more=", **kwargs: Any" * is_open,
        given="**kwargs" if is_open else "compute_capability=compute_capability",
        question=question,
        again=question if ops else "()",  # there is nothing to ask again
        algorithm=(f"{cls}.make({question}, **kwargs)._for({question}) if kwargs else " * is_open) + factory,
        ready=ready,
        run="" if storage else ".run",
        make_ready=make_ready,
        call_run=", ".join([*storage, *_run(called)]),
        once_run=", ".join(_run(once)),
        more_run=", max_segment_size=max_segment_size" * ("max_segment_size" in once),
        result="int" if storage else "None",
        call_does=_PHASES if storage else row.does,
        what=f"{row.what[0].lower()}{row.what[1:]}",
        notes=f"\n\n    {row.notes}\n    " * is_open,
        see=f"`make_{name}` and " * is_open,
    )


def _run(names: Iterable[str]) -> list[str]:
    """Return the positional parameters of ``run``."""
    names = [each for each in names if each not in {*_OPERATORS, "order", "max_segment_size"}]
    return sorted(names, key=_INITIAL.__contains__)


def _typed(parameters: Mapping[str, str]) -> str:
    """Return parameters with their types."""
    kinds = {each: "int" if each.startswith("num_") else _TYPES.get(each, "Any") for each in parameters}
    return ", ".join(
        f"{each}: {kinds[each]}{default and f' = {default}'}" for each, default in parameters.items()
    )
