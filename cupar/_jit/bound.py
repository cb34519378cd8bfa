"""Launches of kernels with everything bound."""

from __future__ import annotations

from typing import Any

from .._arguments.order import ordered
from .._call.bound import Bound
from .._launch.state import LaunchState
from .site import LaunchSite


class BoundKernel(Bound):
    """A launch of a kernel with everything bound: grid, arguments and stream. Made by `Kernel.bind`."""

    def __init__(self, site: LaunchSite, arguments: tuple[Any, ...]) -> None:
        overload = site.kernel.overload_for(ordered(site.kernel.__name__, site.kernel.names, arguments, {}))
        overload.loaded.check(site.config)
        self._site = site
        super().__init__(overload, site.stream, arguments, {})

    def _new_state(self) -> LaunchState:
        state, config = super()._new_state(), self._site.config
        overload: Any = self._algorithm
        pack = self._site.packer(overload, state._lent)
        state.read = lambda arguments: (config, pack(*arguments))
        return state

    def _bind_plan(self, read: Any, address: int) -> None:
        super()._bind_plan(read[1], address)  # the packed arguments
