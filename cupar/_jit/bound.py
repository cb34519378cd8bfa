"""Launches of kernels with everything bound."""

from __future__ import annotations

from typing import Any

from .._call.bound import Bound
from .._device import driver
from .launcher import Site, ordered
from .overload import Overload


class BoundKernel(Bound):
    """A launch of a kernel with everything bound: grid, arguments and stream. Made by `Kernel.bind`."""

    def __init__(self, site: Site, arguments: tuple[Any, ...]) -> None:
        overload = site.kernel.overload_for(ordered(site.kernel, arguments, {}))
        overload.loaded.check(site.config)
        super().__init__(_Caller(site, overload), site.stream, arguments, {})  # type: ignore[arg-type]


class _Caller:
    """What a bound launch asks in place of an algorithm."""

    _family = Overload._family

    def __init__(self, site: Site, overload: Overload) -> None:
        self._site, self._overload = site, overload
        self._code = overload._code

    def _new_call(self, context: driver.Context, number: int | None, stream: int) -> _Call:
        return _Call(self._site, self._overload)

    def _completed(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        return ordered(self._site.kernel, arguments, named)

    def _captured_arrays(self, arguments: Any) -> list[Any]:
        states: Any = self._overload._states
        return [array for state in states if state for array in state.arrays()]

    def _enqueued(self, arguments: tuple[Any, ...]) -> None:
        pass


class _Call:
    """One launch, as a bound call asks for it: see `Call`."""

    nbytes, shape, numbers = 0, "kernel", ()

    def __init__(self, site: Site, overload: Overload) -> None:
        self.loaded, self.name = overload.loaded, site.kernel.__name__
        self._lent: list[Any] = []
        self._pack, self._config = site.packer(overload, self._lent), site.config

    def take_lent(self) -> tuple[Any, ...]:
        """Return what the arguments were lent; see `Call.take_lent`."""
        found = tuple(self._lent)
        self._lent.clear()
        return found

    def bind(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what is packed, and how it is launched."""
        return self._pack(*arguments), self._config

    def prepare(self, bound: tuple[Any, ...]) -> None:
        """Do nothing: there is one plan."""
