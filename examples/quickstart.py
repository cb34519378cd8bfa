"""A reduction and a scan with operators of your own.

Run it twice: the second run builds nothing. With a GPU it checks the results
against NumPy. Without one it builds for compute capability 9.0 (an H100 or
H200) and says so.
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
    """Print where a build came from and what it cost."""
    build = algorithm.build
    total = (time.perf_counter() - start) * 1e3
    print(f"{build.algorithm:<14} {build.origin:<6} {total:7.1f} ms", end="")
    stages = {name: 1e3 * seconds for name, seconds in build.seconds.items()}
    for name, ms in stages.items():
        if ms >= 1:
            print(f", {name} {ms:.0f}", end="")
    print()


def build(d_in, d_out, d_scan, cc=None):
    """Build both algorithms, or fetch them; then ask again."""
    h_init = np.zeros(1, np.float32)
    for _ in range(2):
        start = time.perf_counter()
        reduction = cupar.reduce_into(
            d_in, d_out, largest_magnitude, h_init, cc=cc
        )
        report(reduction, start)
        start = time.perf_counter()
        scan = cupar.exclusive_scan(d_in, d_scan, pour, h_init, cc=cc)
        report(scan, start)
    return reduction, scan, h_init


def device_array(array):
    """Copy an array to the GPU, with whichever library is installed."""
    try:
        import cupy

        return cupy.asarray(array), lambda d_array: d_array.get()
    except ImportError:
        from numba import cuda

        return cuda.to_device(array), lambda d_array: d_array.copy_to_host()


def main_with_gpu():
    """Reduce and scan a million numbers, and check the results."""
    print("Building, or fetching from the cache:")
    reduction, scan, h_init = build(np.float32, np.float32, np.float32)

    host = np.random.default_rng(0).normal(size=1_000_000)
    host = host.astype(np.float32)
    d_in, to_host = device_array(host)
    d_out, _ = device_array(np.zeros(1, np.float32))
    d_scan, _ = device_array(np.zeros_like(host))

    reduction.run(d_in, d_out, host.size, h_init)
    expected = host[np.argmax(np.abs(host))]
    assert to_host(d_out)[0] == expected
    print(f"largest magnitude of {host.size} numbers: {expected:.6f}")

    amounts = np.abs(host)
    d_in, _ = device_array(amounts)
    scan.run(d_in, d_scan, host.size, h_init)
    poured = np.cumsum(amounts, dtype=np.float64)[:-1]
    levels = np.minimum(np.concatenate([[0], poured]), FULL)
    np.testing.assert_allclose(to_host(d_scan), levels, rtol=1e-4)
    print(f"a bucket of {FULL:.0f} is full after", end=" ")
    print(f"{np.argmax(levels == FULL)} of them")


def main_without_gpu():
    """Build for a GPU that is not here."""
    print("No GPU here, so for compute capability 9.0 (H100, H200):")
    build(np.float32, np.float32, np.float32, cc=90)


if __name__ == "__main__":
    begin = time.perf_counter()
    try:
        main_with_gpu()
    except cupar.NoDeviceError:
        main_without_gpu()
    stats = cupar.cache.stats()
    print(f"built {stats.built}, linked {stats.linked},", end=" ")
    print(f"from disk {stats.disk}, from memory {stats.memory}")
    print(f"cache: {cupar.cache.directory()}", end="; ")
    print(f"this took {time.perf_counter() - begin:.2f} s")
