"""Print where a program's launches differ from those of the same calls from Python."""

import math
import sys

import jax
import numpy as np
import pytest
from support import compilers, templates
from support.host import Driver
from support.xla import STREAM, Frames

import cupar

compilers.as_in_the_run(many=False)
templates.empty_others(pytest.MonkeyPatch(), ())  # whose names and parameters the driver knows

N = 100_000
F4, I4 = np.dtype("f4"), np.dtype("i4")
BUFFERS, STORAGE = 0x700000000000, 0x7F0000000000


def calls(render, body, static, inputs):
    """Return the calls of a program: algorithms, and arguments at the addresses that it is called with."""
    from cupar._functions.calls import Work
    from cupar._functions.libraries import ArrayLibrary

    class Real(ArrayLibrary):
        on_cpu, places = False, iter(render.arrays)

        def empty(self, shape, dtype):
            place = next(self.places)
            begin = STORAGE if place.buffer == render.storage else BUFFERS + (place.buffer << 36)
            strides = [math.prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape))]
            return cupar.View(begin + place.offset, dtype, shape, strides, True, None)

        def put(self, given):
            return self.empty(given.shape, given.dtype)

        def memory(self, array):
            return array

    class Caller(Work):
        def run(self, algorithm, *arguments, **named):
            found.append((algorithm, algorithm.completed(arguments, named)))

    found, work = [], Caller(Real(), 0)
    body(work, *[work.empty(shape, dtype) for shape, dtype in inputs], *static)
    return found


def recurrent(shape, axis, reverse, initial=()):
    from cupar._jax import recurrence

    arrays = [(shape, F4), (shape, F4), *initial]
    return recurrence._RECURRENCE.body, (axis, reverse), arrays, [(shape, F4)]


def other(factory, arrays, fixed, outputs):
    from cupar._jax import called

    given = tuple((name, called._Given(name, each)) for name, each in fixed.items())
    names = tuple((name, math.prod(shape)) for name, (shape, _) in arrays.items())
    static = factory, names, given, tuple((name, *each) for name, each in outputs.items())
    return called._body, static, [*arrays.values()], [*outputs.values()]


def problems():
    from cupar._jax import recurrence

    yield "one row", *recurrent((N,), 0, False)
    rows = [((7, 1000), F4)] * 3
    yield "gradients of rows", recurrence._GRADIENTS.body, (1, False), rows, rows[:2]
    total = {"op": cupar.OpKind.PLUS, "h_init": np.float32(0), "num_items": N}
    yield "reduce", *other(cupar.reduce_into, {"d_in": ((N,), F4)}, total, {"d_out": ((1,), F4)})


def more_problems():
    """What takes many builds: not for each run of the tests."""
    from cupar._jax import functions as f
    from cupar._jax import scans, traced

    op = traced.operator(lambda a, b: [jax.numpy.maximum(a, b)], [F4])
    yield "scan with jnp", scans._SCAN.body, (op, 0, False), [((N,), F4)], [((N,), F4)]
    yield "rows, from the end", *recurrent((7, 1000), 1, True)
    yield "columns with initial", *recurrent((300, 40), 0, False, [((40,), F4)])
    rows, few, ids, many = ((100, 300), F4), ((100, 5), F4), ((1000,), I4), ((N,), F4)
    yield "sort", f._SORT.body, (1, False, True), [rows], [rows]
    yield "top-k", f._TOP_K.body, (5, 1, True, I4), [rows], [few, (few[0], I4)]
    yield "segments", f._SUMS.body, (50, 0), [((1000,), F4), ids], [((50,), F4)]
    yield "more segments", f._SUMS.body, (4096, 0), [many, ((N,), I4)], [((4096,), F4)]
    yield "segments of rows", f._SUMS.body, (50, 0), [((1000, 8), F4), ids], [((50, 8), F4)]
    yield "edges", f._HISTOGRAM.body, ((0.0, 0.5, 2.0), "<f4", 0, I4), [((1000,), F4)], [((2,), I4)]
    yield "edges of rows", f._HISTOGRAM.body, ((0.0, 0.5, 2.0), "<f4", 1, I4), [rows], [((100, 2), I4)]


def compare(driver, frames, name, body, static, inputs, outputs):
    from cupar._jax import program, resolved, runtime

    runtime.register()
    found = program.words(body, static, inputs, outputs, on_cpu=False)
    render = program.Rendering(False, body, static, inputs, outputs)
    made = calls(render, body, static, inputs)
    for algorithm, _ in made:
        algorithm.ready(tier="fast")
        driver.knows(algorithm)
    driver.taken()
    storage = cupar.View(STORAGE, np.dtype("u1"), (found.nbytes + 255,), (1,), True, None)[render.scratch :]
    for algorithm, arguments in made:
        algorithm._execute(storage, STREAM, arguments)
    expected = driver.taken()
    count = len(inputs) + len(found.constants)
    buffers = [BUFFERS + (k << 36) for k in range(count + len(outputs))]
    function, _ = runtime._handler[0]
    assert not function(frames.frame(found, 0)), frames.errors
    assert not function(frames.frame(found, 3, [*buffers, STORAGE], count)), frames.errors
    launches = driver.taken()
    same = "same" if launches == expected else f"differs: {expected} {launches}"
    print(f"{same}: {name}, launches {len(launches)}")
    if name == "reduce":
        driver.set("fail_with", 701)
        driver.set("fail_at", 0)
        assert function(frames.frame(found, 3, [*buffers, STORAGE], count)) == 4242
        print("failed:", frames.errors.pop())
        driver.set("fail_at", -1)
        of_here, _ = resolved.functions(found.builds), resolved._codes.clear()
        print("from the cache:", resolved.functions(found.builds) == of_here, len(resolved._libraries))
        other = found._replace(builds=found.builds.replace('"sms":132', '"sms":114'))
        assert function(frames.frame(other, 0)) == 4242
        print("elsewhere:", frames.errors.pop())
        print("metadata:", frames.metadata(function))


def main():
    driver, frames = Driver(sys.argv[1]), Frames()
    for problem in more_problems() if sys.argv[2:] else problems():
        compare(driver, frames, *problem)


if __name__ == "__main__":
    main()
