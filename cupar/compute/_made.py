"""What ``make_…`` functions return: algorithms that take operators and iterators anew in each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

from .. import cache
from .._base.bounded import of_builds
from .._base.device import CPU, is_cpu, public, text, using
from .._base.errors import ArgumentError
from .._call.algorithm import Algorithm
from .._call.built import Build
from .._device import driver
from .._fingerprint import walk
from .._fingerprint.numbers import choosing
from .._ir.specialisation import Specialisation
from .._obtain.obtain import specification
from .._obtain.target import is_cpu_name, parse_cc
from ..operators import OpKind, RawOp
from ..reduce import Determinism
from . import _blob

__all__ = ["clear_all_caches", "clear_pch_cache", "pch_cache_dir"]

_made: WeakValueDictionary[Specialisation, Made] = of_builds(WeakValueDictionary())
_Checks = tuple[tuple[Callable[[Any], bool], Any], ...]


class _Known(NamedTuple):
    """The operators of a call, a check of each for changes, and the algorithm."""

    ops: tuple[Any, ...]
    checks: _Checks
    algorithm: Algorithm


def _checks(ops: tuple[Any, ...]) -> _Checks:
    """Return the checks for changes of the operators that can change."""
    return tuple((_check(op), op) for op in ops if not isinstance(op, (OpKind, RawOp, NoneType)))


def _check(op: Any) -> Callable[[Any], bool]:
    try:
        return walk.fingerprint(op).guard.checker()
    except walk.Unfingerprintable:
        return lambda op: False


class Made:
    """An algorithm for given types. Made by ``make_…`` functions and `deserialize`, not by its constructor.

    It is called by name, in two phases where there is temporary storage, with operators and iterators anew in
    each call. An operator that is another than that of the call before, or the same but for what it reads, is
    asked for again, so that its own code runs as it is then. One object serves any number of threads.
    """

    __slots__ = ("__weakref__", "_builds", "_cc", "_is_ahead", "_is_restored", "_known", "_options")

    _factory: ClassVar[Callable[..., Algorithm]]  # which is asked
    _names: ClassVar[Mapping[str, str]]  # cupar's names of parameters, and those here

    def __init__(
        self,
        builds: Mapping[int, Algorithm],
        options: Mapping[str, Any],
        known: Mapping[int, _Known] | None = None,
        *,
        is_ahead: bool = True,
        is_restored: bool = False,
    ) -> None:
        self._builds, self._options = builds, options
        self._is_ahead, self._is_restored = is_ahead, is_restored
        # That of the only build; None: that of the device that is current in a call.
        self._cc = next(iter(builds)) if len(builds) == 1 else None
        self._known = {**(known or {})}  # by compute capability, from the call before

    @classmethod
    def make(
        cls, question: tuple[Any, ...], *ops: Any, compute_capability: Any = None, **options: Any
    ) -> Any:
        """Return the object for a question to the factory, with these operators among its arguments.

        It is the same one as long as it is there, but for those for compute capabilities that are named.
        """
        try:
            if compute_capability is not None:
                ccs = capabilities(compute_capability)
                one = len(ccs) == 1  # and several at the same time
                with walk.fingerprint_scope():
                    builds = {cc: cls._factory(*question, cc=cc or "cpu", wait=one, **options) for cc in ccs}
                    checks = _checks(ops)
                for each in builds.values():
                    each.ready()
                return cls(builds, options, {cc: _Known(ops, checks, each) for cc, each in builds.items()})
            with walk.fingerprint_scope():
                algorithm = cls._factory(*question, **options)
                known = {algorithm._spec.cc: _Known(ops, _checks(ops), algorithm)}
        except (TypeError, ValueError) as error:
            if options.get("determinism") == Determinism.NOT_GUARANTEED and isinstance(error, ValueError):
                options["determinism"] = Determinism.RUN_TO_RUN
                return cls.make(question, *ops, compute_capability=compute_capability, **options)
            if isinstance(error, ArgumentError):
                error.rename(cls._names, everywhere=True)
            raise
        spec = algorithm._spec.without_user().as_asked()
        made = _made.get(spec)
        if made is None:
            made = _made[spec] = cls({spec.cc: algorithm}, options, known, is_ahead=False)
        else:
            made._known = known
        return made

    @property
    def builds(self) -> dict[int | str, Build]:
        """Where the code came from, by compute capability, as in 90, or ``"cpu"``; see `cupar.Build`."""
        return {public(cc): each.build for cc, each in self._builds.items()}

    def serialize(self) -> bytes:
        """Return it as bytes, with its builds for all compute capabilities; see `deserialize`."""
        for each in self._builds.values():
            each.ready(tier="fast")
        built = {cc: each._built for cc, each in self._builds.items()}
        return _blob.dumps(self._factory.__name__, self._options, built)

    @classmethod
    def deserialize(cls, blob: bytes) -> Any:
        """Return what `serialize` made bytes of; see the function `deserialize`."""
        name, options, builds = _blob.loads(blob)
        if name != cls._factory.__name__:
            raise ValueError(f"blob: wrong algorithm: expected a {cls.__name__}, got {name!r}")
        return cls(builds, options, is_restored=True)

    def _for(self, question: tuple[Any, ...], *ops: Any) -> Any:
        """Return the algorithm for the arguments of a call, and the operators among them."""
        cc = self._cc
        if cc is None:
            cc = CPU if CPU in self._builds and is_cpu() else driver.current_device().cc
        known = self._known.get(cc)
        if known is not None and known.ops == ops:
            for is_unchanged, op in known.checks:
                if not is_unchanged(op):
                    break
            else:
                return known.algorithm
        with walk.fingerprint_scope():
            algorithm = self._other(cc, question, ops)
            self._known = {**self._known, cc: _Known(ops, _checks(ops), algorithm)}
        return algorithm

    def _other(self, cc: int, question: tuple[Any, ...], ops: tuple[Any, ...]) -> Algorithm:
        mine = self._builds.get(cc)
        if mine is None:
            there = ", ".join(f"{each // 10}.{each % 10}" if each else text(each) for each in self._builds)
            raise RuntimeError(
                f"This algorithm was compiled for compute capabilities [{there}], but the current device has "
                f"compute capability {cc // 10}.{cc % 10}: make it with compute_capability including {cc}"
            )
        if self._is_restored and not ops:
            return mine
        if is_cpu() != (cc == CPU):  # the device it was made for, wherever it is called
            return using(cc == CPU, self._other, cc, question, ops)
        named = {**self._options, "cc": cc} if self._is_ahead and cc != CPU else self._options
        try:
            if not self._is_restored:
                return self._factory(*question, **named)
            asked = choosing(_blob.same_numbers(mine._spec), specification, self._factory, *question, **named)
        except ArgumentError as error:
            error.rename(self._names, everywhere=True)
            raise
        _blob.check_operators(mine._spec, asked)
        return type(mine)(mine._built, asked.states)


def capabilities(value: Any) -> list[int]:
    """Return one compute capability, or several, in order and each once; 0 for ``"cpu"``."""
    is_pair = isinstance(value, tuple) and len(value) == 2 and all(isinstance(each, int) for each in value)
    try:
        several = [value] if is_pair or isinstance(value, (int, str)) else list(value)
        found = sorted({CPU if is_cpu_name(each) else parse_cc(each) for each in several})
    except ArgumentError as error:
        error.rename({"cc": "compute_capability"})
        raise
    if not found:
        raise ValueError("compute_capability: expected one or several, got none")
    return found


def clear_all_caches() -> None:
    """Forget all builds of this process. Those on disk are found again; `cupar.cache.clear` removes them."""
    cache.clear(disk=False)


def pch_cache_dir() -> Path | None:
    """Return None: cupar keeps no precompiled headers, as kernels of the same types are compiled once."""
    return None


def clear_pch_cache() -> int:
    """Remove nothing, and return 0; see `pch_cache_dir`."""
    return 0
