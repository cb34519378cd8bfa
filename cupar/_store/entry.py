"""Entries as bytes, wherever they are kept, and how damage and forgery are found out.

An entry is a header, metadata in one line of JSON, and the payload. The header names the sizes and a SHA-256
of all that follows and of the key: an entry that was altered, cut, or moved to another key is refused. Where
others could have written it, a signature may stand before it (see `seal`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = 1
"""Version of what is on disk; entries of another version are left alone, in a directory of their own."""

SUFFIX = ".cupar"

LARGEST = 1 << 28
"""Bytes that an entry may have, 100 times what builds have: a larger one would fill its reader's memory."""

DAMAGED = "is damaged or of another format"

_HEADER_BYTES = 128
_HEADER = re.compile(rb"cupar-entry [0-9]+ [0-9a-f]{64} ([0-9]{1,15}) ([0-9]{1,15})\n")
_SEAL = re.compile(rb"cupar-signature ([0-9a-f]{64})\n")
_SEAL_BYTES = len("cupar-signature ") + 64 + 1
_KEY = re.compile(r"[0-9a-f]{64}")


class RefusedError(ValueError):
    """An entry or a bundle is not served; the message says why, as in ``is damaged``.

    `file` is the status of the file that was refused: another process may have put a good one in its place.
    """

    def __init__(self, why: str, file: os.stat_result | None = None) -> None:
        super().__init__(why)
        self.file = file


@dataclass(frozen=True)
class Entry:
    """What the cache keeps under a key: a payload, and what a person wants to know about it."""

    meta: Mapping[str, Any]
    payload: bytes


def is_key(text: str) -> bool:
    """Tell whether this is a key: a SHA-256 in lower-case hexadecimal."""
    return _KEY.fullmatch(text) is not None


def _header(key: str, meta: bytes, payload: bytes) -> bytes:
    """Return the only header that an entry with this content, stored under this key, may have.

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


def decode(data: bytes | memoryview, key: str) -> Entry | None:
    """Return the entry that these bytes are; None if they are not what was stored under `key`."""
    header, meta_size, payload_size = _split(bytes(data[:_HEADER_BYTES]))
    end = len(header) + meta_size
    if not header or end + payload_size != len(data):
        return None
    meta, payload = bytes(data[len(header) : end]), bytes(data[end:])
    if header != _header(key, meta, payload):
        return None
    fields = _fields(meta)
    return None if fields is None else Entry(fields, payload)


def peek_meta(peek: Callable[[int, int], bytes]) -> dict[str, Any] | None:
    """Read the metadata alone, unchecked, of an entry, sealed or not; None if there is none.

    `peek(offset, size)` returns that part of it; less if it ends before.
    """
    head = peek(0, _SEAL_BYTES + _HEADER_BYTES)
    start = _SEAL_BYTES if _SEAL.match(head) else 0
    header, size, _ = _split(head[start:])
    return _fields(peek(start + len(header), size)) if header else None


def _split(head: bytes) -> tuple[bytes, int, int]:
    """Return the header, and the sizes of metadata and payload; an empty header if no entry begins so."""
    header = head[: head.find(b"\n") + 1]
    match = _HEADER.fullmatch(header)
    sizes = (0, 0) if match is None else (int(match[1]), int(match[2]))
    return (header, *sizes) if match and sum(sizes) <= LARGEST else (b"", 0, 0)


def _fields(meta: bytes) -> dict[str, Any] | None:
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
    """Return the entry of what `seal` returned; raise `RefusedError` if it is not what was stored.

    Without a secret, a signature is not looked at; with one, what is not signed with it is refused.
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
        raise RefusedError(DAMAGED)
    return entry


def _signature(data: bytes | memoryview, key: str, secret: bytes) -> bytes:
    digest = hmac.new(secret, b"cupar-entry " + key.encode() + b"\n", hashlib.sha256)
    digest.update(data)
    return digest.hexdigest().encode()
