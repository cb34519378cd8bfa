"""Mutated entries and bundles: no crash, no hang, and nothing is served but what was stored.

The mutants are those of AFL's havoc stage: bits, bytes, blocks, interesting integers, splices. In half of the
cases checksums are computed again, for they keep most others from the code behind them. Each mutant has a
number, from which it can be made again. CUPAR_FUZZ_MUTANTS says how many there are of each kind, 5,000 by
default, which are the same in each run.
"""

import hashlib
import hmac
import json
import os
import random
import re
import signal
import struct
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupar._store import bundle as _bundle
from cupar._store import entry as _entry
from cupar._store import layer as _layer
from cupar._store.bundle import Bundle
from cupar._store.entry import Entry, RefusedError

MUTANTS = int(os.environ.get("CUPAR_FUZZ_MUTANTS", "5000"))
HANG_SECONDS = 10  # for one mutant, which takes less than a millisecond

SECRET = b"the secret"
WRONG_SECRET = b"another secret"
SIGNATURE_BYTES = 81


def key(number):
    return hashlib.sha256(b"%d" % number).hexdigest()


KEYS = [key(number) for number in range(6)]
STORED = {
    KEYS[0]: Entry({}, b""),
    KEYS[1]: Entry(
        {"algorithm": "reduce", "cc": 90, "parts": {"op": ["<lambda>", 1.5, None]}}, b"\x7fELF" * 60
    ),
    KEYS[2]: Entry({"text": "\u0394\n\ud800", "n": 10**30}, bytes(range(256))),
    KEYS[3]: Entry({"deep": [[[[[[]]]]]]}, b"cupar-entry 1 "),
    KEYS[4]: Entry({"a": "x" * 200}, b"\n" * 40),
}
ENCODED = {name: _entry.encode(name, entry) for name, entry in STORED.items()}
INSIDE = KEYS[5]  # an entry whose payload is another's bytes: parsers that scan are led astray
STORED[INSIDE] = Entry({"entry": "build"}, ENCODED[KEYS[1]])
ENCODED[INSIDE] = _entry.encode(INSIDE, STORED[INSIDE])


# --- The formats, written down a second time: what the parsers are held to


def checksum(line, name, rest):
    return hashlib.sha256(line % name.encode() + rest).hexdigest().encode()


def with_checksum(line, name, rest):
    """Lay out an entry with this first line, in which `%s` stands where the right checksum goes."""
    return line % checksum(line, name, rest) + rest


def signature(data, name, secret):
    digest = hmac.new(secret, b"cupar-entry " + name.encode() + b"\n" + data, "sha256").hexdigest()
    return b"cupar-signature " + digest.encode() + b"\n"


def vouched(data, name):
    """Return all entries, wherever they are in the data, whose checksum is right for this key."""
    found = []
    for match in re.finditer(rb"cupar-entry 1 ([0-9a-f]{64}) ([0-9]{1,15}) ([0-9]{1,15})\n", data):
        meta_end = match.end() + int(match[2])
        end = meta_end + int(match[3])
        line = b"cupar-entry 1 %%s %s %s\n" % (match[2], match[3])
        if end <= len(data) and match[1] == checksum(line, name, data[match.end() : end]):
            meta = {}  # of what only looks like an object
            with suppress(ValueError, RecursionError):
                meta = json.loads(data[match.end() : meta_end])
            if re.fullmatch(rb"\{.*\}\n", data[match.end() : meta_end], re.DOTALL):
                found.append(Entry(meta, data[meta_end:end]))
    return found


RECORD = struct.Struct("<32sQQ32s")


def bundle_of(records, frames, count=None, start=None, size=None):
    """Lay out a bundle with a right checksum over whatever it is given."""
    index = b"".join(RECORD.pack(*record) for record in records)
    start = 128 + len(frames) if start is None else start
    size = 128 + len(frames) + len(index) if size is None else size
    line = b"cupar-bundle 1 %d %d %d " % (len(records) if count is None else count, start, size)
    header = line + hashlib.sha256(line + index).hexdigest().encode()
    return header.ljust(127)[:127] + b"\n" + frames + index


# --- Mutants

INTERESTING = [0, 1, 2, 16, 80, 127, 128, 129, 255, 256, 4096, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1]
INTERESTING += [
    1 << 32,
    (1 << 53) + 1,
    10**14,
    10**15 - 1,
    10**15,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
]


def place(rng, size):
    """Choose where to alter: as often as not in what parsers look at first, the beginning and the end."""
    if size > 400 and rng.random() < 0.5:
        return rng.randrange(200) if rng.random() < 0.6 else size - 1 - rng.randrange(200)
    return rng.randrange(size)


def block(rng, size):
    start = place(rng, size)
    return start, min(size, start + rng.choice((1, 4, 8, 32, 80, 1 + rng.randrange(size))))


def flip_bit(rng, data, _):
    data[place(rng, len(data))] ^= 1 << rng.randrange(8)


def set_byte(rng, data, _):
    data[place(rng, len(data))] = rng.choice((0, 9, 10, 13, 32, 37, 48, 57, 127, 255, rng.randrange(256)))


def add(rng, data, _):
    at = place(rng, len(data))
    data[at] = (data[at] + rng.randint(-35, 35)) % 256


def set_integer(rng, data, _):
    at, form = place(rng, len(data)), rng.choice(("<H", "<I", "<Q", ">I", ">Q"))
    raw = struct.pack(form, rng.choice(INTERESTING) % (1 << 8 * struct.calcsize(form)))
    data[at : at + len(raw)] = raw


def set_number(rng, data, _):
    """Put another number in place of one that is written in digits."""
    numbers = list(re.finditer(rb"\b[0-9]{1,15}\b", data[:300]))
    if numbers:
        match = rng.choice(numbers)
        near = int(match[0]) + rng.randint(-3, 3)
        text = rng.choice(
            (b"%d" % rng.choice(INTERESTING), b"%d" % near, b"0" + match[0], b"", b"-1", b"9" * 400)
        )
        data[match.start() : match.end()] = text


def truncate(rng, data, _):
    del data[place(rng, len(data)) :]


def extend(rng, data, _):
    zeros, noise = bytes(rng.randrange(300)), rng.randbytes(rng.randrange(100))
    data += rng.choice((b"\n", zeros, noise, data[-80:], bytes(data)))


def copy(rng, data, _):
    start, end = block(rng, len(data))
    at = place(rng, len(data))
    data[at : at + (end - start if rng.random() < 0.5 else 0)] = data[start:end]


def swap(rng, data, _):
    (first, end), second = block(rng, len(data)), place(rng, len(data))
    one, two = data[first:end], data[second : second + end - first]
    data[first : first + len(one)] = two[: len(one)].ljust(len(one))
    data[second : second + len(two)] = one[: len(two)]


def delete(rng, data, _):
    start, end = block(rng, len(data))
    del data[start:end]


def splice(rng, data, others):
    other = rng.choice(others)
    data[place(rng, len(data)) :] = other[rng.randrange(len(other) + 1) :]


OPERATIONS = [flip_bit, set_byte, add, set_integer, set_number, truncate, extend, copy, swap, delete, splice]


def havoc(rng, data, others):
    """Alter data by one or a few operations."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 8))):
        if not data:
            data += rng.randbytes(rng.randrange(1, 200))
        rng.choice(OPERATIONS)(rng, data, others)
    return bytes(data)


DOCUMENTS = [
    b"{}",
    b"[]",
    b"null\n",
    b"7",
    b'""',
    b"NaN",
    b'{"a": NaN}',
    b'{"a": 1, "a": 2}',
    b"",
    b"{}{}",
    b"\xff",
]
DOCUMENTS += [
    b'{"n": %s}' % (b"9" * 5000),
    b"[" * 20_000,
    b'{"a":' * 20_000,
    '{"a": "b"}'.encode("utf-16"),
    b"\0",
]


def repaired_entry(rng, name, others):
    """Alter metadata, payload or the sizes of an entry, and compute its checksum again."""
    _, meta, payload = ENCODED.get(name, ENCODED[INSIDE]).split(b"\n", 2)
    meta += b"\n"
    if rng.random() < 0.3:
        meta = havoc(rng, meta, others)
    elif rng.random() < 0.1:
        meta = rng.choice(DOCUMENTS)
    if rng.random() < 0.5:
        payload = havoc(rng, payload, others)
    version, sizes = 1, [len(meta), len(payload)]
    if rng.random() < 0.3:
        sizes[rng.randrange(2)] = rng.choice((*INTERESTING, sum(sizes), sizes[0] + 1, sizes[1] + 1))
    if rng.random() < 0.05:
        version = rng.choice((0, 2, 10**20))
    return with_checksum(b"cupar-entry %d %%s %d %d\n" % (version, *sizes), name, meta + payload)


def repaired_bundle(rng, bundles):
    """Alter frames, records or the numbers of a bundle, and compute its checksums again."""
    whole = rng.choice(bundles)
    start = int(whole[:128].split()[3])
    records = [list(record) for record in RECORD.iter_unpack(whole[start:])]
    frames = bytearray(whole[128:start])
    others = list(ENCODED.values())
    for record in records:
        if rng.random() < 0.4:
            alter_record(rng, record, records, frames, others)
    if rng.random() < 0.2:
        rng.shuffle(records)
    if rng.random() < 0.2 and records:
        del records[rng.randrange(len(records)) :: rng.randint(1, 3)]
    numbers = {}
    if rng.random() < 0.15:
        numbers[rng.choice(("count", "start", "size"))] = rng.choice(
            (*INTERESTING, start, start - 80, start + 80)
        )
    return bundle_of(records, bytes(frames), **numbers)


def alter_record(rng, record, records, frames, others):
    """Alter what the index says of an entry, or the entry itself, and mostly make the checksum right."""
    offset, size = record[1:3]
    near = (offset, offset + 1, offset + size, 127, 128, 128 + len(frames), SIGNATURE_BYTES, *INTERESTING)
    what = rng.choice(("key", "offset", "size", "other", "frame", "entry", "entry", "entry"))
    if what == "key":
        record[0] = rng.choice((rng.choice(records)[0], rng.randbytes(32), bytes(32), b"\xff" * 32))
    elif what == "offset":
        record[1] = rng.choice(near)
    elif what == "size":
        record[2] = rng.choice(
            (size - 1, size + 1, abs(size - SIGNATURE_BYTES), size + SIGNATURE_BYTES, *near)
        )
    elif what == "other":
        record[1:] = rng.choice(records)[1:]
    else:
        frame = bytes(frames[offset - 128 :][:size])
        name = record[0].hex()
        new = havoc(rng, frame, others) if what == "frame" else repaired_entry(rng, name, others)
        signatures = (
            b"",
            b"",
            signature(new, name, WRONG_SECRET),
            frame[:SIGNATURE_BYTES],
            b"cupar-signature x\n",
        )
        new = rng.choice(signatures) + new
        record[1:3] = 128 + len(frames), len(new)
        frames += new
    if rng.random() < 0.9:
        record[3] = hashlib.sha256(frames[max(0, record[1] - 128) :][: record[2]]).digest()


# --- The tests


class Watch:
    """Counts outcomes, and raises where a mutant takes for ever."""

    def __init__(self, kind, record_property):
        self.kind, self.counts, self.slowest = kind, Counter(), 0.0
        self._record_property = record_property

    def mutants(self):
        """Yield the generator of random numbers of each mutant."""
        begin = time.perf_counter()
        before = signal.signal(signal.SIGALRM, self.hang)
        try:
            for self.number in range(MUTANTS):
                signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
                start = time.perf_counter()
                yield random.Random(f"{self.kind} {self.number}")
                self.slowest = max(self.slowest, time.perf_counter() - start)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self._record_property("fuzz", {"kind": self.kind, "mutants": MUTANTS, **self.counts})
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in self.counts.most_common())
        print(
            f"{self.kind}: {MUTANTS:,} mutants in "
            f"{time.perf_counter() - begin:.1f} s, the slowest {self.slowest * 1e3:.1f} ms: {outcomes}"
        )

    def hang(self, *_):
        raise TimeoutError(f"{self.kind} mutant {self.number} took more than {HANG_SECONDS} s")

    def serve(self, name, served, allowed, outcome):
        """Count what was served, which must be one of the entries that are allowed."""
        assert served in allowed, f"{self.kind} mutant {self.number}: {name} served as {served}"
        self.counts[outcome] += 1


def outcome_of(served, name):
    if served is None:
        return "refused"
    return "served as stored" if served == STORED.get(name) else "served as their new checksum says"


def part_of(data):
    return lambda offset, size: data[offset : offset + size]


def keys_of(bundle):
    return [each.key for each in bundle.entries()]


def test_entries(record_property):
    """Entries as a user's directory holds them."""
    watch = Watch("entries", record_property)
    others = list(ENCODED.values())
    for rng in watch.mutants():
        name = rng.choice(KEYS)
        repair = rng.random() < 0.5
        data = repaired_entry(rng, name, others) if repair else havoc(rng, ENCODED[name], others)
        asked = name if rng.random() < 0.9 else rng.choice(KEYS)
        served = _entry.decode(data, asked)
        assert served == _entry.decode(memoryview(data), asked)
        meta = _entry.peek_meta(part_of(data))
        assert meta is None or isinstance(meta, dict)
        assert served is None or (meta or {}) == served.meta
        allowed = vouched(data, asked) if repair else [STORED[asked]]
        watch.serve(asked, served, [None, *allowed], outcome_of(served, asked))
    assert watch.counts["refused"] and watch.counts["served as their new checksum says"]


def unsealed(data, name, secret):
    try:
        return _entry.unseal(data, name, secret)
    except RefusedError:
        return None


def test_sealed_entries(record_property):
    """Sealed entries, as shared stores hold them, read by somebody with a secret and by somebody without."""
    watch = Watch("sealed entries", record_property)
    others = [_entry.seal(data, name, SECRET) for name, data in ENCODED.items()]
    for rng in watch.mutants():
        name = rng.choice(KEYS)
        sealed = _entry.seal(ENCODED[name], name, rng.choice((SECRET, SECRET, WRONG_SECRET, None)))
        repair = rng.random() < 0.5
        if repair:
            entry = repaired_entry(rng, name, others)
            secret_free = (b"", signature(entry, name, WRONG_SECRET), sealed[:SIGNATURE_BYTES])
            data = rng.choice(secret_free) + entry
        else:
            data = havoc(rng, sealed, others)
        meta = _entry.peek_meta(part_of(data))
        assert meta is None or isinstance(meta, dict)
        served = unsealed(data, name, None)
        allowed = vouched(data, name) if repair else [STORED[name]]
        watch.serve(name, served, [None, *allowed], f"{outcome_of(served, name)} without secret")
        served = unsealed(memoryview(data), name, SECRET)
        watch.serve(name, served, [None, STORED[name]], f"{outcome_of(served, name)} with secret")
        assert served is None or data.startswith(signature(ENCODED[name], name, SECRET))
    assert watch.counts["served as their new checksum says without secret"]
    assert watch.counts["refused with secret"]


@contextmanager
def opened(path, secret):
    """Open a bundle; None if it is refused."""
    try:
        bundle = Bundle(path, secret)
    except ValueError:
        yield None
        return
    try:
        yield bundle
    finally:
        bundle.close()


@pytest.fixture
def bundles(tmp_path):
    """Return bundles of various entries, signed, not signed and wrongly signed."""
    found = []
    for names in (KEYS[1:2], KEYS, KEYS[:3], KEYS[3:]):
        for secret in (None, SECRET, WRONG_SECRET):
            sealed = [(name, _entry.seal(ENCODED[name], name, secret)) for name in names]
            _bundle.write(tmp_path / "bundle", sealed)
            found.append((tmp_path / "bundle").read_bytes())
    _bundle.write(tmp_path / "bundle", [])
    return [*found, (tmp_path / "bundle").read_bytes()]


@pytest.fixture
def warned(monkeypatch):
    """Collect what is warned of, however often."""
    topics = []
    monkeypatch.setattr(_layer, "warn_once", lambda topic, _: topics.append(topic))
    return topics


def test_bundles(tmp_path, bundles, warned, record_property):
    """Bundles, read by somebody with a secret or without."""
    watch = Watch("bundles", record_property)
    path = tmp_path / "bundle"
    for rng in watch.mutants():
        repair = rng.random() < 0.6
        data = repaired_bundle(rng, bundles) if repair else havoc(rng, rng.choice(bundles), bundles)
        path.unlink()  # file systems that flush what is written over would take most of the time
        path.write_bytes(data)
        secret = rng.choice((None, SECRET))
        with opened(path, secret) as bundle:
            watch.counts["bundles refused" if bundle is None else "bundles opened"] += 1
            if bundle is None:
                continue
            names = {*KEYS, *keys_of(bundle)}
            for name in names:
                meta = bundle.meta(name)
                assert meta is None or isinstance(meta, dict)
                warned.clear()
                served = bundle.load(name)
                allowed = [STORED[name]] if name in STORED else []
                if repair and secret is None:
                    allowed = vouched(data, name)
                absent = served is None and not warned
                outcome = "absent" if absent else outcome_of(served, name)
                watch.serve(name, served, [None, *allowed], f"entries {outcome}")
                if served is not None and secret is not None:
                    assert signature(ENCODED[name], name, SECRET) + ENCODED[name] in data
            list(bundle.check())
    for outcome in ("bundles refused", "entries refused", "entries served as their new checksum says"):
        assert watch.counts[outcome]


# --- What hypothesis finds


@given(st.binary(), st.sampled_from([None, SECRET]))
@settings(deadline=None)
def test_any_bytes_are_no_entry(data, secret):
    assert _entry.decode(data, KEYS[1]) is None
    assert unsealed(data, KEYS[1], secret) is None


@given(st.binary(), st.integers(0, 1 << 60), st.integers(0, 1 << 60))
@settings(deadline=None)
def test_any_bytes_with_a_right_checksum(rest, meta, payload):
    data = with_checksum(b"cupar-entry 1 %%s %d %d\n" % (meta, payload), KEYS[1], rest)
    assert _entry.decode(data, KEYS[1]) in [None, *vouched(data, KEYS[1])]
    assert unsealed(data, KEYS[1], SECRET) is None


u64 = st.integers(0, (1 << 64) - 1) | st.integers(0, 4096)
keys = st.sampled_from([bytes.fromhex(name) for name in KEYS]) | st.binary(min_size=32, max_size=32)


@given(
    st.lists(st.tuples(keys, u64, u64, st.none() | st.binary(min_size=32, max_size=32)), max_size=8),
    st.data(),
)
@settings(deadline=None)
def test_any_index_with_a_right_checksum(tmp_path_factory, records, data):
    frames = b"".join(ENCODED.values())
    whole = bytes(128) + frames
    records = [
        (name, at, size, hashlib.sha256(whole[at : at + size]).digest() if digest is None else digest)
        for name, at, size, digest in records
    ]
    if data.draw(st.booleans()):
        records.sort()
    path = tmp_path_factory.mktemp("fuzz") / "bundle"
    path.write_bytes(bundle_of(records, frames))
    with pytest.MonkeyPatch.context() as patch, opened(path, None) as bundle:
        patch.setattr(_layer, "warn_once", lambda *_: None)
        assert bundle.usage().entries == len(records)
        for name in {*KEYS, *keys_of(bundle)}:
            assert bundle.load(name) in [None, STORED.get(name)]
            bundle.meta(name)
        assert len([key for key, why in bundle.check() if why]) <= len(records) + 2
