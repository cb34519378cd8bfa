"""Stable sorts of arrays in shards: sorted locally, cut by exact splitters, exchanged once, and merged.

Each shard keeps its size, so that work and memory are balanced whatever the keys are. It takes two further
shards of memory, beside the input and the output, and all ranks must have it before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .._functions.axes import INT64
from .._functions.calls import Work
from ..merges import merge
from ..operators import Op, RawOp
from ..search import lower_bound, upper_bound
from .comm import attempted, copied, viewed
from .halves import Halves
from .samples import Samples
from .shard_items import dtypes_of, first_items, two
from .sharded import Sharded

_WORD = 16  # bytes: what begins so is exchanged quicker
_SLICE, _MOST_SLICES = 2**27, 8  # bytes of a slice that is merged as the next one comes, at least
_BYTE = np.dtype(np.uint8)


class Sort(Sharded):
    """The common part of both sorts: all but the local one."""

    _beside: str  # the parameter of the output for what goes with keys

    def _prepare(self, work: Work, keys: Any, items: Any, key: np.dtype[Any], less: Op) -> None:
        """Build all that follows the local sort; keys are compared as `key`, which may be their bits."""
        self._dtypes = dtypes_of(d_in_keys=keys, d_in_items=items)
        self._key, item = key, two(self._dtypes)[1]
        if self.group.size == 1:
            return
        self._merge = merge(key, item, key, item, key, item, less)
        if self.group.size == 2:
            # Equal items of rank 0 come first.
            search = upper_bound if self.group.rank == 0 else lower_bound
            self._search, self._place = search(key, key, INT64, less), work.empty((1,), INT64)
        by_pairs = self.group.size == 2 and not isinstance(less, RawOp)
        self._splitters: Halves | Samples = (Halves if by_pairs else Samples)(work, self.group, key, less)

    def _check(self, arguments: Sequence[Any]) -> None:
        """Leave it to `_call`, which tells the others of an error."""

    def _call(self, work: Work, *arguments: Any) -> None:
        group, num_items = self.group, self._named(arguments)["num_items"]
        found, error = attempted(partial(self._sort_shard, work, arguments))
        # The host waits for the other ranks while the shard is sorted.
        sizes = group.sizes(0 if error else num_items, self._factory.__name__, error)
        if found is None or group.size == 1 or not sum(sizes):
            return
        outputs, buffers = found
        outputs[0] = viewed(outputs[0], self._key)
        columns = [_items(buffer, out) for buffer, out in zip(buffers, outputs, strict=False)]
        cuts = self._splitters.cuts(work, columns[0], sizes)
        pieces, finish = self._exchanged(work, buffers, columns, cuts)
        if len(finish) > 1:
            first = int(cuts[group.rank, 1 - group.rank])
            self._merged_by_slices(work, pieces, finish, first, outputs)
            return
        finish[0]()
        spare = columns if _levels(group.size) % 2 == 0 else _columns(buffers[-1], outputs)
        self._merged(work, pieces, spare, outputs)

    def _sort_shard(self, work: Work, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Sort the shard alone: into the output, if there are no other ranks.

        Return the outputs; and the memory of each column, and last the buffer for items of other ranks, which
        the sort takes as its storage before.
        """
        super()._check(arguments)
        given, size = self._named(arguments), self.group.size
        names = [name for name in ("d_out_keys", self._beside) if given[name] is not None]
        outputs = [first_items(work, name, given[name], given["num_items"]) for name in names]
        columns, buffers, nbytes = outputs, [], 0
        if size > 1:
            buffers = [work.temporary(each.nbytes + _WORD, _BYTE) for each in outputs]
            columns = [_items(buffer, out) for buffer, out in zip(buffers, outputs, strict=True)]
            nbytes = sum(each.nbytes + 2 * _WORD * size for each in outputs)
        given |= dict(zip(names, columns, strict=True))
        if given["num_items"]:
            nbytes = max(nbytes, self._local(None, **given))
        buffers.append(work.temporary(nbytes, _BYTE))
        if given["num_items"]:
            self._local(buffers[-1], **given, stream=work.stream)
        return outputs, buffers

    def _exchanged(
        self, work: Work, buffers: list[Any], columns: list[Any], cuts: Any
    ) -> tuple[list[list[Any]], list[Callable[[], Any]]]:
        """Begin to send the parts of the sorted shard to their ranks, in slices.

        Return the pieces of this one, in rank order, and what waits for each slice. Whole words are sent,
        from places where such begin: what lies beside a part goes with it.
        """
        rank, size, stream = self.group.rank, self.group.size, work.stream
        arena, at, slices = buffers[-1], 0, self._slices(cuts)
        pieces: list[list[Any]] = [[] for _ in range(size)]
        exchanges: list[list[tuple[list[Any], list[Any]]]] = [[] for _ in range(slices)]
        for buffer, column in zip(buffers, columns, strict=False):
            width = column.itemsize
            for each in exchanges:
                each.append(([arena[:0]] * size, [arena[:0]] * size))
            for r in range(size):
                first, last = int(cuts[rank, r]), int(cuts[rank + 1, r])
                begin = _word(first * width)
                if r != rank:
                    come, go = (
                        _parts(first, last, slices),
                        _parts(int(cuts[r, rank]), int(cuts[r + 1, rank]), slices),
                    )
                    for exchange, came, gone in zip(exchanges, come, go, strict=True):
                        send, recv = exchange[-1]
                        send[r] = buffer[slice(*_words(*gone, width))]
                        places = _words(*came, width)
                        recv[r] = arena[at + places[0] - begin : at + places[1] - begin]
                piece = arena[at + first * width - begin :][: (last - first) * width]
                if r == rank and _levels(size) % 2:
                    piece = buffer[first * width : last * width]
                elif r == rank:  # pieces are merged to where the shard is
                    copied(buffer[first * width : last * width], piece, stream)
                pieces[r].append(viewed(piece, column.dtype))
                at += _word(last * width + _WORD - 1) - begin
        return pieces, [self.group.exchanging(each, stream) for each in exchanges]

    def _slices(self, cuts: Any) -> int:
        """Return the number of slices in which two ranks exchange parts, which are merged as they arrive."""
        if self.group.size != 2:
            return 1
        most = max(int(cuts[2, 0] - cuts[1, 0]), int(cuts[1, 1]))
        return min(max(most * sum(each.itemsize for each in self._dtypes) // _SLICE, 1), _MOST_SLICES)

    def _merged_by_slices(
        self,
        work: Work,
        pieces: list[list[Any]],
        finish: list[Callable[[], Any]],
        first: int,
        outputs: list[Any],
    ) -> None:
        """Merge the piece of this rank with that of the other one, whose items begin at `first` there."""
        rank = self.group.rank
        own, other = pieces[rank], pieces[1 - rank]
        before, came, at = 0, 0, 0
        parts = _parts(first, first + len(other[0]), len(finish))
        for wait, (_, end) in zip(finish, parts, strict=True):
            wait()
            until, behind = end - first, len(own[0])
            if until < len(other[0]):
                if until == came:
                    continue
                work.run(self._search, own[0], behind, other[0][until - 1 :], 1, self._place.items)
                behind = int(work.host(self._place)[0])
            both = [each[before:behind] for each in own], [each[came:until] for each in other]
            count = behind - before + until - came
            self._mergetwo(
                work, both if rank == 0 else both[::-1], [each[at : at + count] for each in outputs]
            )
            before, came, at = behind, until, at + count

    def _merged(self, work: Work, pieces: list[list[Any]], spare: list[Any], outputs: list[Any]) -> None:
        """Merge neighbouring pieces until there is one; earlier pieces come from lower ranks."""
        for level in reversed(range(_levels(len(pieces)))):
            target, at, found = spare if level % 2 else outputs, 0, []
            if len(pieces) % 2:
                pieces.append([each[:0] for each in pieces[0]])
            for first, second in zip(pieces[::2], pieces[1::2], strict=True):
                counts = len(first[0]), len(second[0])
                out = [each[at : at + sum(counts)] for each in target]
                self._mergetwo(work, (first, second), out)
                found.append(out)
                at += sum(counts)
            pieces = found

    def _mergetwo(self, work: Work, pieces: tuple[list[Any], ...], out: list[Any]) -> None:
        given = [value for each in pieces for value in (*two(each), len(each[0]))]
        work.run(self._merge, *given, *two(out))


def _levels(pieces: int) -> int:
    """Return the number of levels in which pairs of pieces are merged."""
    return (pieces - 1).bit_length()


def _word(place: int) -> int:
    """Return the offset of the word that a byte is in."""
    return place // _WORD * _WORD


def _words(first: int, last: int, width: int) -> tuple[int, int]:
    """Return the range of the words that have some items; an empty one if there are no items."""
    begin = _word(first * width)
    return begin, _word(last * width + _WORD - 1) if last > first else begin


def _parts(first: int, last: int, number: int) -> list[tuple[int, int]]:
    """Return the parts of a range, which begin and end with words but for its own ends."""
    inner = (first + (last - first) * i // number for i in range(1, number))
    ends = [first, *(max(each // _WORD * _WORD, first) for each in inner), last]
    return [*pairwise(ends)]


def _items(buffer: Any, like: Any) -> Any:
    """Return items in the memory of some bytes, as many and of the dtype of others."""
    return viewed(buffer[: like.nbytes], like.dtype)


def _columns(arena: Any, outputs: list[Any]) -> list[Any]:
    """Return memory for the items of each output."""
    found, at = [], 0
    for each in outputs:
        found.append(_items(arena[at:], each))
        at += _word(each.nbytes + _WORD - 1)
    return found
