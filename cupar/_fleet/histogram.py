"""Histograms of arrays in shards, whose counts are on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import histogram as local
from .._arguments.order import two_phases
from .._functions.calls import Work
from .engines import collective
from .shard_items import items_of
from .sharded import Sharded, made, run_of

if TYPE_CHECKING:
    from .._base.annotations import Array

_LEVELS = "number of levels", "lower level", "upper level"


class Histogram(Sharded):
    """A histogram of an array in shards; see `histogram_even`."""

    _sends_sizes = True

    @run_of(local.Histogram.run)
    def run(self) -> None:
        """Count the first `num_samples` samples of each shard; `stream` as in `cupar.Algorithm`."""

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    def _build(self, work: Work, *given: Any, **levels: Any) -> None:
        super()._build(work, *given)

    def _alike(self, *given: Any) -> dict[str, Any]:
        return dict(zip(_LEVELS, given[2:5], strict=True))

    def _call(self, work: Work, *given: Any) -> None:
        _, d_histogram, levels, _, _, num_samples = given
        if self._agrees():
            self.group.sizes(num_samples, **self._alike(*given))
        work.run(self._local, *given)
        counts = items_of(work, "d_histogram", d_histogram)[: int(levels) - 1]
        self.group.total(counts, work.stream)


@collective
def histogram_even(
    d_samples: Array,
    d_histogram: Array,
    h_num_output_levels: Any,
    h_lower_level: Any,
    h_upper_level: Any,
    num_samples: int,
    *,
    group: Any = None,
) -> Histogram:
    """Build a histogram of an array in shards, with bins of equal width: the counts are on every rank.

    Parameters
    ----------
    d_samples : array or iterator, num_samples items
        The shard of this rank, which may be empty. Only its dtype matters here.
    d_histogram : array, num_output_levels - 1 items
        Where the counts of all samples go: integers of 4 or 8 bytes.
    h_num_output_levels, h_lower_level, h_upper_level, num_samples
        As for `cupar.histogram_even`; `num_samples` is of this shard. The levels are the same on all ranks.
    group : Group, ProcessGroup, mpi4py communicator, Comm or None
        As for `group`.

    Returns
    -------
    Histogram

    Raises
    ------
    TypeError, ValueError
        If an argument has another type or value than described, or ranks differ.
    GroupError
        If another rank raised an error, or did not answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shard, counts = np.array([0.05, 0.5, 0.55, 0.95]), np.zeros(10, np.int32)
    >>> arguments = shard, counts, 11, 0.0, 1.0, 4
    >>> distributed.histogram_even(*arguments).run(*arguments)
    >>> print(counts)
    [1 0 0 0 0 2 0 0 0 1]
    """
    levels = h_num_output_levels, h_lower_level, h_upper_level
    given = d_samples, d_histogram, *levels, num_samples
    return made(Histogram, group, local.histogram_even, *given, **dict(zip(_LEVELS, levels, strict=True)))
