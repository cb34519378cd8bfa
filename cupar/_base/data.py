"""`dataclass` for a process that must start quickly, and `Recent`, a table of recently used items.

The data classes behave as the standard library's, and nothing is compiled. That library writes the methods of
each class as text, and compiles them when the class is made: 0.2 to 0.8 ms a class, and a process that finds
its builds would pay for forty. Here the methods are closures over the names of the fields. What `inspect` and
`dataclasses` ask for (signatures, `fields`, `asdict`) is the standard library's own, made when they ask.

Options that cupar does not use are missing: `slots`, `order`, `init`, `InitVar`, `KW_ONLY`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

__all__ = ["Recent", "dataclass", "field", "fields", "replace"]

K = TypeVar("K")
V = TypeVar("V")


class Recent(dict[K, V]):
    """A bounded table that keeps items in repeated use, however many are used once.

    It has two generations. When the newer one has `most` items, it takes the place of the older one, which is
    dropped; items found in the older one go into the newer one again. So the last `most` that were
    asked for are there, and twice as many at most. The table is a dict of the newer one, and so quick to ask:
    by ``table[key]``, KeyError if it is in neither. `get`, `in`, `len` and loops know the newer one alone.

    Threads may use it at the same time: one may miss what another puts there just then.

    Parameters
    ----------
    most : int
        Items of a generation.
    """

    __slots__ = ("_before", "_most")

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._before: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        self[key] = found = self._before[key]
        return found

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._most and key not in self:
            self._before = dict(self)
            super().clear()
        super().__setitem__(key, value)

    def find(self, key: K) -> V | None:
        """Return the item of either generation, or None."""
        try:
            return self[key]
        except KeyError:
            return None

    def setdefault(self, key: K, default: V) -> V:
        """Return the item under a key, and put the default there first if the key is free."""
        try:
            return self[key]
        except KeyError:
            self[key] = default
            return default

    def all(self) -> dict[K, V]:
        """Return the items of both generations."""
        return {**self._before, **self}

    def clear(self) -> None:
        """Empty both generations."""
        self._before = {}
        super().clear()


if TYPE_CHECKING:
    from dataclasses import dataclass, field, fields, replace
else:
    _NOTHING = object()  # in place of a missing default
    _set = object.__setattr__  # which a frozen object has, too

    class field:  # noqa: N801 - its name in the standard library
        """A field of a data class, where it is more than a type and a default."""

        def __init__(
            self,
            *,
            default=_NOTHING,
            default_factory=_NOTHING,
            repr=True,
            hash=None,
            compare=True,
            kw_only=False,
        ):
            self.default, self.default_factory = default, default_factory
            self.repr, self.compare, self.kw_only = repr, compare, kw_only
            self.hash = compare if hash is None else hash

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True):
        """Give a class the methods of a data class, but those that it defines."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq, repr=repr)
        own = cls.__annotations__.items()
        known = dict(getattr(cls, "__cupar_fields__", {}))  # there is one base at most
        known |= {name: _declared(cls, name, kind) for name, kind in own if not kind.startswith("ClassVar[")}
        methods = {"__init__": _initialiser(known, hasattr(cls, "__post_init__"))}
        if repr:
            methods["__repr__"] = _representation([name for name, each in known.items() if each.repr])
        if eq:
            methods["__eq__"] = _equality(_values([name for name, each in known.items() if each.compare]))
            hashed = _values([name for name, each in known.items() if each.hash])
            methods["__hash__"] = (lambda self: hash(hashed(self))) if frozen else None
        if frozen:
            methods["__setattr__"], methods["__delattr__"] = _refuse_to_set, _refuse_to_delete
        for name, method in methods.items():
            if name not in cls.__dict__:
                setattr(cls, name, method)
        cls.__cupar_fields__ = known
        cls.__match_args__ = tuple(name for name, each in known.items() if not each.kw_only)
        cls.__dataclass_fields__ = _Late(lambda cls: _standard(cls).__dataclass_fields__)
        cls.__signature__ = _Late(_signature)
        return cls

    def _declared(cls, name, kind):
        given = cls.__dict__.get(name, _NOTHING)
        found = given if isinstance(given, field) else field(default=given)
        found.name, found.type = name, kind
        if found is given:  # the class has its default, as if there were no `field`
            if found.default is _NOTHING:
                delattr(cls, name)
            else:
                setattr(cls, name, found.default)
        return found

    def _initialiser(known, has_more):
        names = [name for name, each in known.items() if not each.kw_only]
        defaults = {name: each.default for name, each in known.items() if each.default is not _NOTHING}
        factories = [
            (n, each.default_factory) for n, each in known.items() if each.default_factory is not _NOTHING
        ]
        is_plain = len(names) == len(known)

        def __init__(self, /, *values, **named):  # noqa: N807
            if is_plain and not named and len(values) == len(names):
                for name, value in zip(names, values):  # noqa: B905 - their number is the same
                    _set(self, name, value)
            else:
                given = {**dict(zip(names, values)), **named}  # noqa: B905 - and if not, that is seen below
                state = {**defaults, **given}
                for name, make in factories:
                    if name not in given:
                        state[name] = make()
                if state.keys() != known.keys() or len(given) != len(values) + len(named):
                    _say_what_is_wrong(type(self), values, named)
                for name, value in state.items():
                    _set(self, name, value)
            if has_more:
                self.__post_init__()

        return __init__

    def _say_what_is_wrong(cls, values, named):
        try:
            cls.__signature__.bind(*values, **named)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None

    def _representation(names):
        def __repr__(self):  # noqa: N807
            shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
            return f"{type(self).__qualname__}({shown})"

        return __repr__

    def _values(names):
        """Return a function that returns the tuple of these fields' values of an object."""
        if len(names) > 1:
            return attrgetter(*names)  # in C
        return lambda self: tuple([getattr(self, name) for name in names])

    def _equality(values):
        def __eq__(self, other):  # noqa: N807
            if other.__class__ is not self.__class__:
                return NotImplemented
            return values(self) == values(other)

        return __eq__

    def _refuse_to_set(self, name, value):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self, name):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def fields(instance):
        """Return the fields of a data class, or of an object of one."""
        return tuple(instance.__cupar_fields__.values())

    def replace(instance, /, **changes):
        """Return an object that differs in these fields."""
        kept = {name: getattr(instance, name) for name in instance.__cupar_fields__ if name not in changes}
        return type(instance)(**kept, **changes)

    class _Late:
        """An attribute of a data class that is made when somebody asks for it."""

        def __init__(self, made):
            self._made = made

        def __get__(self, instance, cls):
            return self._made(cls)

    def _standard(cls):
        """Return a data class of the standard library's with the same fields."""
        import dataclasses

        found = []
        for name, each in cls.__cupar_fields__.items():
            options = {key: value for key, value in vars(each).items() if value is not _NOTHING}
            del options["name"], options["type"]
            found.append((name, each.type, dataclasses.field(**options)))
        return dataclasses.make_dataclass(cls.__name__, found)

    def _signature(cls):
        import inspect

        return inspect.signature(_standard(cls))
