"""All algorithms, by name: what makes a random case of each."""

import functools

from . import cases, columns, selections, sorts

ALGORITHMS = {
    each.__name__: each
    for each in (
        cases.unary_transform,
        cases.binary_transform,
        cases.reduce_into,
        cases.reduce_by_index,
        cases.reduce_by_key,
        cases.run_length_encode,
        columns.column_reduce,
        selections.find_if,
        selections.select,
        selections.three_way_partition,
        selections.unique_by_key,
        selections.histogram_even,
        selections.histogram_range,
        sorts.merge,
        sorts.merge_sort,
        sorts.radix_sort,
        sorts.segmented_copy,
        sorts.segmented_reduce,
        sorts.segmented_sort,
        sorts.segmented_nth_element,
        sorts.segmented_top_k,
        sorts.top_k,
    )
}
for _kind in ("inclusive", "exclusive"):
    ALGORITHMS[f"{_kind}_scan"] = functools.partial(cases.scan, _kind)
    ALGORITHMS[f"{_kind}_scan_by_key"] = functools.partial(cases.scan_by_key, _kind)
    ALGORITHMS[f"{_kind}_column_scan"] = functools.partial(columns.column_scan, _kind)
    ALGORITHMS[f"{_kind}_segmented_scan"] = functools.partial(sorts.segmented_scan, _kind)
for _name in ("union", "intersection", "difference", "symmetric_difference"):
    ALGORITHMS[f"set_{_name}"] = functools.partial(sorts.sets, _name)
for _name in ("lower_bound", "upper_bound"):
    ALGORITHMS[_name] = functools.partial(selections.search, _name)
