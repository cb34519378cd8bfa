"""Entries as bytes: what stands in a file, a bundle or a shared store, and how its truth is told.

An entry is a header, metadata in one line of JSON, and the payload. The header names the sizes and a SHA-256
of all that follows and of the key, so an entry that was altered, cut, or moved to another key is none. Where
others could have written it, a signature may stand before it (see `seal`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = [
    "FORMAT",
    "SUFFIX",
    "Entry",
    "RefusedError",
    "decode",
    "encode",
    "is_key",
    "peek_meta",
    "read",
    "seal",
    "unseal",
]

FORMAT = 1
"""Version of what is on disk; entries of another version are left alone, in a directory of their own."""

SUFFIX = ".cupar"

LARGEST = 1 << 28
"""Bytes that an entry may have, 100 times what builds have: a larger one would fill its reader's memory."""

_HEADER_BYTES = 128
_HEADER = re.compile(rb"cupar-entry [0-9]+ [0-9a-f]{64} ([0-9]{1,15}) ([0-9]{1,15})\n")
_SEAL = re.compile(rb"cupar-signature ([0-9a-f]{64})\n")
_SEAL_BYTES = len("cupar-signature ") + 64 + 1
_KEY = re.compile(r"[0-9a-f]{64}")


class RefusedError(ValueError):
    """An entry that is not served; the message says why, as in ``is damaged``."""


@dataclass(frozen=True)
class Entry:
    """What the cache keeps under a key.

    Attributes
    ----------
    meta : Mapping[str, Any]
        What a person wants to know about the entry, as JSON has it.
    payload : bytes
        The thing itself.
    """

    meta: Mapping[str, Any]
    payload: bytes


def is_key(text: str) -> bool:
    """Tell whether this is a key: a SHA-256 in lower-case hexadecimal."""
    return _KEY.fullmatch(text) is not None


def _header(key: str, meta: bytes, payload: bytes) -> bytes:
    """Return the only first line that an entry with this content, stored under this key, may have.

    The checksum covers the line itself, with the key in its own place.
    """
    line = f"cupar-entry {FORMAT} %s {len(meta)} {len(payload)}\n"
    digest = hashlib.sha256((line % key).encode())
    digest.update(meta)
    digest.update(payload)
    return (line % digest.hexdigest()).encode()


def encode(key: str, entry: Entry) -> bytes:
    """Lay an entry out as bytes: header, metadata, each one line, then the payload."""
    meta = json.dumps(dict(entry.meta), sort_keys=True).encode() + b"\n"
    return _header(key, meta, entry.payload) + meta + entry.payload


def _sizes(header: bytes, size: int) -> tuple[int, int] | None:
    """Return the sizes of metadata and payload, None unless they are what an entry of `size` bytes has."""
    match = _HEADER.fullmatch(header)
    if match is None or size > LARGEST:
        return None
    meta, payload = int(match[1]), int(match[2])
    return (meta, payload) if len(header) + meta + payload == size else None


def _checked(key: str, header: bytes, meta: bytes, payload: bytes) -> Entry | None:
    if header != _header(key, meta, payload):
        return None
    try:
        fields = json.loads(meta)
    except (ValueError, RecursionError):
        return None
    return Entry(fields, payload) if isinstance(fields, dict) else None


def read(file: BinaryIO, size: int, key: str) -> Entry | None:
    """Read an entry from a file of `size` bytes; None if it is not what was stored under `key`."""
    header = file.readline(_HEADER_BYTES)
    sizes = _sizes(header, size)
    return None if sizes is None else _checked(key, header, file.read(sizes[0]), file.read(sizes[1]))


def read_meta(file: BinaryIO, size: int) -> dict[str, Any] | None:
    """Read the metadata alone, unchecked, for listings; None if this is no entry."""
    sizes = _sizes(file.readline(_HEADER_BYTES), size)
    try:
        fields = None if sizes is None else json.loads(file.read(sizes[0]))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def peek_meta(read: Callable[[int, int], bytes], size: int) -> dict[str, Any] | None:
    """Read the metadata alone, unchecked, of a sealed entry of `size` bytes; None if it is none.

    `read(offset, size)` returns that part of it.
    """
    head = read(0, _SEAL_BYTES + _HEADER_BYTES)
    match = _SEAL.match(head)
    start = 0 if match is None else match.end()
    end = head.find(b"\n", start) + 1
    sizes = _sizes(head[start:end], size - start)
    try:
        fields = None if sizes is None else json.loads(read(end, sizes[0]))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def decode(data: bytes | memoryview, key: str) -> Entry | None:
    """Return the entry that these bytes are; None if they are not what was stored under `key`."""
    header = bytes(data[:_HEADER_BYTES])
    header = header[: header.find(b"\n") + 1]
    sizes = _sizes(header, len(data))
    if sizes is None:
        return None
    middle = len(header) + sizes[0]
    return _checked(key, header, bytes(data[len(header) : middle]), bytes(data[middle:]))


def seal(data: bytes, key: str, secret: bytes | None) -> bytes:
    """Put a signature, HMAC-SHA-256 (RFC 2104) of key and entry, before an encoded entry.

    Without a secret, return it as it is.
    """
    return data if secret is None else b"cupar-signature %s\n" % _signature(data, key, secret) + data


def unseal(data: bytes | memoryview, key: str, secret: bytes | None) -> Entry:
    """Return the entry of what `seal` returned.

    Without a secret, a signature is not looked at; with one, what is not signed with it is refused.

    Raises
    ------
    RefusedError
        If it is not what was stored under `key`, or not signed with the secret.
    """
    match = _SEAL.match(bytes(data[:_SEAL_BYTES]))
    body = data if match is None else data[_SEAL_BYTES:]
    if secret is not None:
        if match is None:
            raise RefusedError("is not signed, and CUPAR_SIGNING_KEY is set")
        if not hmac.compare_digest(match[1], _signature(body, key, secret)):
            raise RefusedError("is not signed with the key in CUPAR_SIGNING_KEY")
    entry = decode(body, key)
    if entry is None:
        raise RefusedError("is damaged or of another format")
    return entry


def _signature(data: bytes | memoryview, key: str, secret: bytes) -> bytes:
    digest = hmac.new(secret, b"cupar-entry " + key.encode() + b"\n", hashlib.sha256)
    digest.update(data)
    return digest.hexdigest().encode()
