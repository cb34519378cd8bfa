"""Groups as engines have started them: ranks of PyTorch's, of MPI's, of a transport of one's own, threads."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .comm import Alone, Comm
from .group import Group

P = ParamSpec("P")
T = TypeVar("T")

_OF_COMM = (*Comm.__annotations__, *(name for name in vars(Comm) if name[0] != "_"))  # what a Comm has


def _check_in(is_in: bool) -> None:
    if not is_in:
        raise ValueError("group: expected ranks of which this one is, got a process group that it is not in")


def threads(size: int, timeout: float = 300) -> list[Group]:
    """Return the ranks of a new group of threads of this process: each thread uses one of them.

    Parameters
    ----------
    size : int
        How many ranks there are.
    timeout : float, optional
        Seconds that a rank waits for the others.

    Returns
    -------
    list of Group

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shards = [np.array([3, 1]), np.array([4]), np.array([1, 5])]
    >>> def largest(group):
    ...     shard, out = shards[group.rank], np.zeros(1, np.int64)
    ...     distributed.reduce_into(shard, out, max, 0, group=group).run(shard, out, len(shard), 0)
    ...     return int(out[0])
    >>> with ThreadPoolExecutor(3) as pool:
    ...     print(list(pool.map(largest, distributed.threads(3))))
    [5, 5, 5]
    """
    from .threads import comms

    if size < 1:
        raise ValueError(f"size: expected at least 1, got {size}")
    return [Group(comm, timeout) for comm in comms(size, timeout)]


def group(engine: Any = None, timeout: float = 300) -> Group:
    """Return the ranks that work together, as an engine has started them.

    Parameters
    ----------
    engine : ProcessGroup, mpi4py communicator, Comm or None
        None: PyTorch's default process group if there is one, else MPI's world if mpi4py has initialised it,
        else this process alone. A `Group` is returned as it is.
    timeout : float, optional
        Seconds that a rank waits for the others, before it raises `GroupError`.

    Returns
    -------
    Group

    Raises
    ------
    TypeError
        If it is not one of these.
    ValueError
        If the rank of a Comm is not below its size, this process is not in the process group, or the timeout
        is not positive.

    Notes
    -----
    With a process group of PyTorch, builds are shared through its store: one rank builds, the others fetch.
    Whoever reaches that store can write code that all ranks run; ``CUPAR_SIGNING_KEY`` has entries signed.

    Examples
    --------
    >>> from cupar import distributed
    >>> distributed.group()
    <cupar group: rank 0 of 1, one rank>
    """
    if isinstance(engine, Group):
        return engine
    if not timeout > 0:
        raise ValueError(f"timeout: expected more than 0 seconds, got {timeout}")
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available():
        if engine is None and dist.is_initialized():
            engine = dist.group.WORLD
        _check_in(engine is not dist.GroupMember.NON_GROUP_MEMBER)
        if isinstance(engine, dist.ProcessGroup):
            from .c10d import TorchComm

            return Group(TorchComm(engine, timeout), timeout)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        if engine is None and mpi.Is_initialized() and not mpi.Is_finalized():
            engine = mpi.COMM_WORLD
        if isinstance(engine, mpi.Comm):
            _check_in(engine != mpi.COMM_NULL)
            from .mpi import MPIComm

            return Group(MPIComm(engine, timeout), timeout)
    if engine is None:
        return Group(Alone(), timeout)
    missing = [name for name in _OF_COMM if not hasattr(engine, name)]
    if not missing:
        rank, size = engine.rank, engine.size
        if not all(isinstance(each, (int, np.integer)) for each in (rank, size)) or not 0 <= rank < size:
            raise ValueError(
                f"group: expected a Comm with a rank from 0 to size - 1, got rank {rank!r} and size {size!r}"
            )
        return Group(engine, timeout)
    hint = f", which has no {', '.join(missing)}, as a Comm has" if hasattr(engine, "agree") else ""
    raise TypeError(
        "group: expected a process group of torch.distributed, a communicator of mpi4py, a Group, a Comm or "
        f"None, got {type(engine).__name__}{hint}"
    )


def collective(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that ranks call together: if one gives too few arguments, say, all are told."""

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> T:
        try:
            return function(*given, **named)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # it was not entered
                group(named.get("group")).compare(function.__name__, {}, error)
            raise

    return called
