"""What the cache costs: opening bundles, a hit in each layer, listing, and many processes at once.

Entries are made up, of the size of real ones; no GPU and no compiler is needed. Beside a bundle stands what
one would carry files in otherwise, a zip archive (stored, not compressed).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _common

from cupar._store import bundle as _bundle
from cupar._store import entry as _entry
from cupar._store.disk import Disk
from cupar._store.locks import Deadline
from cupar._store.remotes import open_url
from cupar._store.shared import Shared

ENTRIES = 10_000
LISTED = 20_000
PAYLOAD = 20_000  # bytes; so that 10,000 entries fit everywhere
HIT = 110_000  # bytes: a reduction's
CROWD = 100

ASK = """
import sys, time
from cupar import _cache
key = sys.argv[1]
sys.stdin.readline()
begin = time.perf_counter()
found = _cache.fetch(key, lambda: sys.exit("built"))
print(time.perf_counter() - begin, found.source)
"""


def entry(number: int, size: int = PAYLOAD) -> tuple[str, _entry.Entry]:
    """Return a key and an entry with metadata like those of builds."""
    parts = {"algorithm": "reduce_into", "number": number, "arguments": ["x" * 100] * 15}
    meta = {"algorithm": "reduce_into", "cc": 90, "entry": "build", "cubin_size": size, "parts": parts}
    payload = hashlib.sha256(str(number).encode()).digest() * (size // 32)
    return hashlib.sha256(b"%d" % number).hexdigest(), _entry.Entry(meta, payload)


def encoded(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield keys and encoded entries."""
    for number in range(count):
        key, made = entry(number)
        yield key, _entry.encode(key, made)


def timed(repeat: int, do: Callable[[], Any]) -> dict[str, Any]:
    """Call something some times; return its seconds."""
    taken = []
    for _ in range(repeat):
        begin = time.perf_counter()
        do()
        taken.append(time.perf_counter() - begin)
    return _common.summary(taken)


def opening(folder: Path, repeat: int) -> dict[str, Any]:
    """Open a bundle and a zip archive of the same entries, and read one entry of each."""
    bundle, archive = folder / "entries.cupar-bundle", folder / "entries.zip"
    _bundle.write(bundle, encoded(ENTRIES))
    with zipfile.ZipFile(archive, "w") as file:
        for key, data in encoded(ENTRIES):
            file.writestr(key, data)
    key = entry(ENTRIES // 2)[0]
    opened, unzipped = _bundle.Bundle(bundle), zipfile.ZipFile(archive)
    return {
        f"open a bundle of {ENTRIES:,}": timed(repeat, lambda: _bundle.Bundle(bundle).close()),
        f"open a zip archive of {ENTRIES:,}": timed(repeat, lambda: zipfile.ZipFile(archive).close()),
        "a hit in the open bundle": timed(repeat * 10, lambda: opened.load(key)),
        "the same in the open archive": timed(repeat * 10, lambda: _entry.decode(unzipped.read(key), key)),
        "a miss in the open bundle": timed(repeat * 10, lambda: opened.load("0" * 64)),
    }


@contextmanager
def redis() -> Iterator[str | None]:
    """Run a Redis server; None if there is none to run."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def hits(folder: Path, url: str | None, repeat: int) -> dict[str, Any]:
    """Find an entry of a usual size in each layer, as a process that has not read it yet."""
    key, made = entry(0, HIT)
    own = Disk(folder / "own", 1 << 30)
    own.store(key, made)
    bundle = folder / "one.cupar-bundle"
    _bundle.write(bundle, [(key, _entry.encode(key, made))])
    opened = _bundle.Bundle(bundle)
    stores = {"a shared directory": str(folder / "shared")}
    if url is not None:
        stores["Redis on this machine"] = url
    found = {
        f"user's directory, {HIT // 1000} kB": timed(repeat, lambda: own.load(key)),
        "bundle": timed(repeat, lambda: opened.load(key)),
    }

    def refuse() -> _entry.Entry:
        raise AssertionError("there is an entry")

    for name, place in stores.items():
        store = Shared(open_url(place), place)
        how: dict[str, Any] = {"timeout": 5.0, "deadline": Deadline(60.0), "secret": None}
        store.fetch(key, lambda: made, **how)
        found[name] = timed(repeat, lambda store=store, how=how: store.fetch(key, refuse, **how))
    return found


def listing(folder: Path, repeat: int) -> dict[str, Any]:
    """List many entries with the command line, start of Python included."""
    directory = folder / "listed"
    for key, data in encoded(LISTED):
        path = directory / "v1" / key[:2] / f"{key}{_entry.SUFFIX}"
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
    environment = {**os.environ, "CUPAR_CACHE_DIR": str(directory)}

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "cupar", *words]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

    return {
        f"cupar cache list, {LISTED:,} entries": timed(repeat, lambda: run("cache", "list")),
        "the same with --json": timed(repeat, lambda: run("cache", "list", "--json")),
        "cupar --version": timed(repeat, lambda: run("--version")),
    }


def crowd(folder: Path, url: str) -> dict[str, Any]:
    """Start many processes at once on an empty directory, with the build in the shared store."""
    key, made = entry(1, HIT)
    Shared(open_url(url), url).fetch(key, lambda: made, timeout=5.0, deadline=Deadline(60.0), secret=None)
    environment = {**os.environ, "CUPAR_CACHE_DIR": str(folder / "crowd"), "CUPAR_SHARED": url}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ASK, key]
    running = [
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) for _ in range(CROWD)
    ]
    begin = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate()[0].split() for process in running]
    whole = time.perf_counter() - begin
    if any(process.returncode for process in running):
        raise SystemExit("a process built what was in the store")
    sources = [source for _, source in answers]
    return {
        "processes": CROWD,
        "to the last answer": whole,
        "one process": _common.summary([float(seconds) for seconds, _ in answers]),
        "found in the store": sum(source.startswith("redis") for source in sources),
        "found in the directory": sum(not source.startswith("redis") for source in sources),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/cache-cpu.json")
    parser.add_argument("--repeat", type=int, default=20, help="rounds; default 20")
    options = parser.parse_args()
    facts = _common.environment(None)
    os.environ["CUPAR_CACHE"] = "1"
    with tempfile.TemporaryDirectory(prefix="cupar-cache-") as name, redis() as url:
        folder = Path(name)
        tables = {
            "carried in one file": opening(folder, options.repeat),
            "a hit in each layer": hits(folder, url, options.repeat * 5),
            "the command line": listing(folder, max(3, options.repeat // 4)),
        }
        together = None if url is None else crowd(folder, url)
    _common.print_environment(facts)
    for title, rows in tables.items():
        print(f"\n{title}\n")
        _common.print_table(("", "seconds"), ((row, _common.spread(taken)) for row, taken in rows.items()))
    if together is not None:
        print(
            f"\n{CROWD} processes at once, an empty directory and a warm Redis: no build; the last has its "
            f"entry after {_common.seconds(together['to the last answer'])}, one waits "
            f"{_common.spread(together['one process'])}; {together['found in the store']} asked the store"
        )
    path = options.json or _common.RESULTS / "cache-cpu.json"
    content = {"benchmark": "cache", "environment": facts, "repeat": options.repeat, **tables}
    _common.write_json(path, {**content, "crowd": together})


if __name__ == "__main__":
    main()
