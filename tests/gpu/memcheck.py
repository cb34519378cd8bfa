"""A short run of everything for compute-sanitizer, with arrays that end where their last item ends.

    python tests/gpu/memcheck.py && compute-sanitizer --tool memcheck python tests/gpu/memcheck.py

The first run fills the cache, so that the second has no compilers to slow down.
"""

import cupy as cp
import numpy as np

import cupar

SIZES = (0, 1, 33, 5001, 100_003)
TYPES = [(code,) * 3 for code in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")]
TYPES += [("f4", "f4", "f2"), ("i4", "i8", "i2"), ("f4", "c16", "c8"), ("i8", "f8", "c16")]


def either(a, b):
    return a or b


def add(a, b):
    return a + b


def main():
    cp.cuda.set_allocator(None)  # one cudaMalloc for each array, and no pool around it
    np.seterr(over="ignore")
    calls = 0
    for source, accumulator, target in TYPES:
        op = either if accumulator == "?" else add
        h_init = np.ones(1, accumulator)
        for n in SIZES:
            d_in, d_one, d_all = cp.ones(n, source), cp.zeros(1, target), cp.zeros(n, target)
            reduction = cupar.reduce_into(d_in, d_one, op, h_init)
            storage = cp.empty(reduction(None, d_in, d_one, n, h_init), "u1")
            reduction(storage, d_in, d_one, n, h_init)
            expected = np.ones(1, target)[0] if accumulator == "?" else np.array(n + 1).astype(target)
            if target != "f2" or n < 2048:
                assert d_one.get()[0] == expected, (source, accumulator, target, n)
            for factory in (cupar.exclusive_scan, cupar.inclusive_scan):
                scan = factory(d_in, d_all, op, h_init)
                storage = cp.empty(scan(None, d_in, d_all, n, h_init), "u1")
                scan(storage, d_in, d_all, n, h_init)
                scan.run(d_in, d_all, n, h_init)
                calls += 2
            calls += 1
    cp.cuda.Device().synchronize()
    print(f"{calls} calls, all finished")


if __name__ == "__main__":
    main()
