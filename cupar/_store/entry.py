"""The byte format of entries in all layers, with checks for damage and forgery.

An entry is a header, metadata in one line of JSON, and the payload. The header names the sizes and a SHA-256
of all that follows and of the key: an entry that was altered, cut, or moved to another key is refused. Where
others could have written it, a signature may stand before it (see `seal`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._base.digests import sha256
from .._base.errors import RefusedError

FORMAT = 1
"""Version of the files on disk; entries of another version are left alone, in their own directory."""

SUFFIX = ".cupar"

LARGEST = 1 << 28
"""Bytes that an entry may have, 100 times what builds have: a larger one would fill its reader's memory."""

DAMAGED = "is damaged or of another format"

_HEADER_BYTES = 128
_SEAL = b"cupar-signature "
_SEAL_BYTES = len(_SEAL) + 64 + 1
_FIRST, _LAST = 8, 32  # these characters of a key tell compilers apart
_HEXADECIMAL = frozenset("0123456789abcdef")


class Entry:
    """A cache entry: a payload, and metadata for people."""

    def __init__(self, meta: Mapping[str, Any] | bytes, payload: bytes) -> None:
        self._meta, self.payload = meta, payload

    @property
    def meta(self) -> Mapping[str, Any]:
        """The metadata, parsed when it is first asked for: to run a build needs the payload alone."""
        if isinstance(self._meta, bytes):
            self._meta = _fields(self._meta) or {}
        return self._meta

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.meta, self.payload) == (other.meta, other.payload)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Entry({self.meta!r}, {self.payload!r})"


def is_key(text: str) -> bool:
    """Tell whether this is a key: a SHA-256 in lower-case hexadecimal."""
    return len(text) == 64 and _HEXADECIMAL.issuperset(text)


def key_of(meaning: str, compilers: str) -> str:
    """Return the key of an entry that means something, made by these compilers: a SHA-256 of each.

    What means the same has the same first digits, so it lies together; and the next ones, which people see,
    tell compilers apart.
    """
    return meaning[:_FIRST] + compilers[: _LAST - _FIRST] + meaning[_FIRST : 64 - _LAST + _FIRST]


def meaning_of(key: str) -> str:
    """Return the common prefix of the keys of equivalent entries, made by any versions of the compilers."""
    return key[:_FIRST] + key[_LAST:]


def _header(key: str, meta: bytes, payload: bytes) -> bytes:
    """Return the only header that an entry with this content, stored under this key, may have.

    The checksum covers the line itself, with the key in its own place.
    """
    line = f"cupar-entry {FORMAT} %s {len(meta)} {len(payload)}\n"
    digest = sha256((line % key).encode())
    digest.update(meta)
    digest.update(payload)
    return (line % digest.hexdigest()).encode()


def encode(key: str, entry: Entry) -> bytes:
    """Lay an entry out as bytes: header, metadata, each one line, then the payload."""
    import json  # 2 ms, which a process that finds its builds does not pay

    meta = json.dumps(dict(entry.meta), sort_keys=True).encode() + b"\n"
    return _header(key, meta, entry.payload) + meta + entry.payload


def decode(data: bytes | memoryview, key: str) -> Entry | None:
    """Return the entry that these bytes are; None if they are not what was stored under `key`."""
    header, meta_size, payload_size = _split(bytes(data[:_HEADER_BYTES]))
    end = len(header) + meta_size
    if not header or end + payload_size != len(data):
        return None
    meta, payload = bytes(data[len(header) : end]), bytes(data[end:])
    if header != _header(key, meta, payload):
        return None
    is_object = meta.startswith(b"{") and meta.endswith(b"}\n")  # `meta` parses the rest
    return Entry(meta, payload) if is_object else None


def peek_meta(peek: Callable[[int, int], bytes]) -> dict[str, Any] | None:
    """Read the metadata alone, unchecked, of an entry, sealed or not; None without any.

    `peek(offset, size)` returns that part of it; less if it ends before.
    """
    head = peek(0, _SEAL_BYTES + _HEADER_BYTES)
    start = _SEAL_BYTES if _is_sealed(head) else 0
    header, size, _ = _split(head[start:])
    return _fields(peek(start + len(header), size)) if header else None


def _split(head: bytes) -> tuple[bytes, int, int]:
    """Return the header, and the sizes of metadata and payload; an empty header if no entry begins so."""
    header = head[: head.find(b"\n") + 1]
    words = header[:-1].split(b" ")
    sizes = [int(each) for each in words[3:] if each.isdigit() and len(each) < 16]
    if words[0] == b"cupar-entry" and len(words) == 5 and len(sizes) == 2:
        meta, payload = sizes
        if meta + payload <= LARGEST:
            return header, meta, payload
    return b"", 0, 0


def _is_sealed(head: bytes) -> bool:
    """Tell whether a signature stands before an entry; whether it is a good one, `unseal` says."""
    return head.startswith(_SEAL) and head[_SEAL_BYTES - 1 : _SEAL_BYTES] == b"\n"


def _fields(meta: bytes) -> dict[str, Any] | None:
    import json

    try:
        fields = json.loads(meta)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def seal(data: bytes, key: str, secret: bytes | None) -> bytes:
    """Put a signature, HMAC-SHA-256 (RFC 2104) of key and entry, before an encoded entry.

    Without a secret, return it as it is.
    """
    return data if secret is None else b"cupar-signature %s\n" % _signature(data, key, secret) + data


def unseal(data: bytes | memoryview, key: str, secret: bytes | None) -> Entry:
    """Return the entry in bytes of `seal`; raise `RefusedError` if they are not intact.

    Without a secret, a signature is not looked at; with one, entries that are not signed with it are refused.
    """
    head = bytes(data[:_SEAL_BYTES])
    is_sealed = _is_sealed(head)
    body = data[_SEAL_BYTES:] if is_sealed else data
    if secret is not None:
        import hmac

        if not is_sealed:
            raise RefusedError("is not signed, and CUPAR_SIGNING_KEY is set")
        if not hmac.compare_digest(head[len(_SEAL) : -1], _signature(body, key, secret)):
            raise RefusedError("is not signed with the key in CUPAR_SIGNING_KEY")
    entry = decode(body, key)
    if entry is None:
        raise RefusedError(DAMAGED)
    return entry


def _signature(data: bytes | memoryview, key: str, secret: bytes) -> bytes:
    import hmac

    digest = hmac.new(secret, b"cupar-entry " + key.encode() + b"\n", sha256)
    digest.update(data)
    return digest.hexdigest().encode()
