"""A reduction and a scan with operators of your own.

Run it twice: the second run builds nothing. It runs on the GPU, or on the CPU
where there is none, and checks the results against NumPy's.
"""

import time

import numpy as np

import cupar


def largest_magnitude(a, b):
    """Return whichever is farther from zero."""
    return a if abs(a) > abs(b) else b


FULL = 1000.0


def pour(a, b):
    """Pour b into a bucket that holds a, until the bucket is full."""
    return min(a + b, FULL)


def report(algorithm, start):
    """Return a line: where a build came from and what it cost."""
    build = algorithm.build
    total = (time.perf_counter() - start) * 1e3
    line = f"{build.algorithm:<14} {build.origin:<6} {total:7.1f} ms"
    for name, seconds in build.seconds.items():
        if seconds >= 1e-3:
            line += f", {name} {1e3 * seconds:.0f}"
    return line


def build():
    """Build both algorithms, or fetch them; then ask again."""
    kind, h_init = np.float32, np.zeros(1, np.float32)
    lines = ["Built, or fetched from the cache:"]
    for _ in range(2):
        start = time.perf_counter()
        reduction = cupar.reduce_into(kind, kind, largest_magnitude, h_init)
        lines.append(report(reduction, start))
        start = time.perf_counter()
        scan = cupar.exclusive_scan(kind, kind, pour, h_init)
        lines.append(report(scan, start))
    print(*lines, sep="\n")
    return reduction, scan, h_init


def device_array(array):
    """Copy an array to the GPU, with whichever library is installed."""
    try:
        import cupy

        return cupy.asarray(array)
    except ImportError:
        from numba import cuda

        return cuda.to_device(array)


def host_array(array):
    """Copy an array from the GPU."""
    return array.get() if hasattr(array, "get") else array.copy_to_host()


def main():
    """Reduce and scan a million numbers, and check the results."""
    reduction, scan, h_init = build()
    place, fetch = device_array, host_array
    if reduction.build.cc == "cpu":  # as CUPAR_DEVICE=cpu asks for
        place, fetch = np.array, np.asarray

    host = np.random.default_rng(0).normal(size=1_000_000)
    host = host.astype(np.float32)
    d_in, d_out = place(host), place(np.zeros(1, np.float32))
    reduction.run(d_in, d_out, host.size, h_init)
    largest = fetch(d_out)[0]
    assert largest == host[np.argmax(np.abs(host))]
    print(f"largest magnitude of {host.size} numbers: {largest:.6f}")

    amounts = np.abs(host)
    d_in, d_scan = place(amounts), place(np.zeros_like(host))
    scan.run(d_in, d_scan, host.size, h_init)
    found = fetch(d_scan)
    poured = np.cumsum(amounts, dtype=np.float64)[:-1]
    levels = np.minimum(np.concatenate([[0], poured]), FULL)
    np.testing.assert_allclose(found, levels, rtol=1e-4)
    print(f"a bucket of {FULL:.0f} is full after", end=" ")
    print(f"{np.argmax(found == FULL)} of them")


if __name__ == "__main__":
    begin = time.perf_counter()
    try:
        main()
    except cupar.NoDeviceError:
        print("There is no GPU here, so this runs on the CPU.")
        with cupar.device("cpu"):
            main()
    stats = cupar.cache.stats()
    print(f"built {stats.built}, linked {stats.linked},", end=" ")
    print(f"from disk {stats.disk}, from memory {stats.memory}")
    print(f"cache: {cupar.cache.directory()}", end="; ")
    print(f"this took {time.perf_counter() - begin:.2f} s")
