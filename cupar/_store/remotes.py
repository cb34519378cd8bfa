"""Stores by URL: mappings of str to bytes that many machines reach."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from .entry import FORMAT

LEASES = f"v{FORMAT}/lease/"  # prefix of the names of leases, which may expire
_SOCKET_SECONDS = 60.0  # for which a thread may hang that is not waited for any more
_MOST_TRIES = 100


class RedisMapping(MutableMapping[str, bytes]):
    """A Redis database, or a part of it, as a mapping of str to bytes.

    Parameters
    ----------
    client : redis.Redis
        Must return bytes (``decode_responses=False``, as is the default).
    prefix : str, optional
        Prefix of its keys.

    Raises
    ------
    TypeError
        If the client is not one, or the prefix is not a str.

    Notes
    -----
    Entries stay until the server evicts them (``maxmemory-policy``); leases that their holders leave behind
    expire.
    """

    _LEASE_SECONDS = 60

    def __init__(self, client: Any, prefix: str = "cupar:") -> None:
        if not all(hasattr(client, name) for name in ("get", "set", "delete", "scan_iter")):
            raise TypeError(f"client: expected a redis.Redis, got {type(client).__name__}")
        if not isinstance(prefix, str):
            raise TypeError(f"prefix: expected a str, got {type(prefix).__name__}")
        self._client = client
        self._prefix = prefix

    def __getitem__(self, key: str) -> bytes:
        value: bytes | None = self._client.get(self._prefix + key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: bytes) -> None:
        self._client.set(self._prefix + key, value, ex=self._expiry(key))

    def __delitem__(self, key: str) -> None:
        if not self._client.delete(self._prefix + key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        pattern = re.sub(r"([\\*?\[\]])", r"\\\1", self._prefix) + "*"
        names = {bytes(name) for name in self._client.scan_iter(match=pattern, count=1000)}
        return (name.decode()[len(self._prefix) :] for name in names)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def setdefault(self, key: str, default: bytes) -> bytes:
        """Return the value under `key`; put `default` there first if the key is free, atomically."""
        for _ in range(_MOST_TRIES):
            if self._client.set(self._prefix + key, default, nx=True, ex=self._expiry(key)):
                return default
            value: bytes | None = self._client.get(self._prefix + key)
            if value is not None:  # it may have gone just now
                return value
        raise RuntimeError(
            f"{self._prefix}{key} is there whenever it is to be set, and never when it is read"
        )

    def _expiry(self, key: str) -> int | None:
        return self._LEASE_SECONDS if key.startswith(LEASES) else None


def open_url(url: str) -> MutableMapping[str, bytes]:
    """Return the store at a URL, or in the directory that a path names.

    Raise ImportError if the package that talks to such a store is not installed; ValueError if there is no
    such store, or the URL is not written as one: it is not taken for a directory then.
    """
    _check_url(url)
    scheme, separator, _ = url.partition("://")
    return _STORES.get(scheme + separator, _fsspec)(url)


def _redis(url: str) -> MutableMapping[str, bytes]:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise ImportError("redis is missing. Run: pip install 'cupar[shared]'") from error
    client = redis.Redis.from_url(
        url,
        socket_timeout=_SOCKET_SECONDS,
        socket_connect_timeout=_SOCKET_SECONDS,
        # Once, at once, for a restarted server; more retries would only hide a missing one.
        retry=Retry(NoBackoff(), 1),
    )
    return RedisMapping(client)


def _fsspec(url: str) -> MutableMapping[str, bytes]:
    try:
        import fsspec
    except ImportError as error:
        raise ImportError("fsspec is missing. Run: pip install 'cupar[shared]'") from error
    mapper: MutableMapping[str, bytes] = fsspec.get_mapper(url)
    return mapper


# Functions that open URLs, by scheme. fsspec opens all others, such as s3://bucket/cupar, and paths.
_STORES = {"redis://": _redis, "rediss://": _redis, "unix://": _redis}
# The scheme of a URL, also of an invalid one. fsspec joins several with '::'.
_SCHEME = re.compile(r"((?:[^/:]*::)*)([^/:]*)(:/{0,2}|//)")
_WITHOUT_HOST = ("file", "local", "memory", "unix")


def _check_url(url: str) -> None:
    """Raise ValueError for what looks like a URL and is not one, such as ``redis:/host`` and ``s3:bucket``.

    fsspec takes all that has no ``://`` for a path. A path may have a colon, but not before its first ``/``.
    """
    match = _SCHEME.match(url)
    if match is None:
        return
    scheme, separator, place = match[2], match[3], url[match.end() :]
    if separator != "://" or not scheme:
        if scheme in ("file", "local") and separator == ":/":
            return
        raise ValueError(
            "expected a URL such as redis://host or s3://bucket/cupar, or the path of a directory (which "
            "begins with './' if there is a colon in its name)"
        )
    if scheme not in _WITHOUT_HOST and not re.split("[/?#]", place.rpartition("@")[2])[0].strip():
        raise ValueError(f"expected the name of a host or bucket behind {scheme}://")
    if scheme != "memory" and not place.strip("/"):
        raise ValueError(f"expected a path behind {scheme}://")


def name_of(url: str) -> str:
    """Return a URL without the secrets that may be in it, for messages."""
    match = _SCHEME.match(url)
    if match is None:
        return url
    account, at, place = url[match.end() :].rpartition("@")  # the last one: passwords may contain it
    return f"{match[0]}{'***' if account else ''}{at}{re.split('[?#]', place)[0]}"
