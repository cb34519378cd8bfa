"""Compile programs, or run those that another process has compiled: with or without the cache of that one."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

import cupar.jax as cj
from cupar._compile.key import digest
from cupar._jax import resolved, runtime

HITS = []


def steps(a, b):
    return cj.linear_recurrence(a, b), cj.associative_scan(jnp.maximum, b, axis=1)


def given():
    return jnp.full((4, 8), 0.5), jnp.ones((4, 8))


def listen(event, **more):
    if event.endswith("/cache_hits"):
        HITS.append(event)


def compiled(folder):
    """Compile with JAX's cache on."""
    jax.monitoring.register_event_listener(listen)
    jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    arrays = given()
    HITS.clear()
    found = jax.jit(steps)(*arrays)
    hits = len(HITS)
    print("result", round(float(found[0][0, -1]), 2), float(found[1].sum()), "hits", hits)


def make(folder):
    """Compile, and export."""
    compiled(folder)
    print("handler", digest(runtime._parts()))
    print("builds", *resolved._codes)
    allowed = [export.DisabledSafetyCheck.custom_call("cupar_jax")]
    exported = export.export(jax.jit(steps), disabled_checks=allowed)(*given())
    (folder / "exported").write_bytes(exported.serialize())


def missing(folder):
    """Call what was exported, while nothing of cupar's is traced here."""
    exported = export.deserialize((folder / "exported").read_bytes())
    try:
        found = exported.call(*given())
        print("exported", round(float(found[0][0, -1]), 2), float(found[1].sum()), "numba" in sys.modules)
    except Exception as error:
        print("missing", " ".join(str(error).split()))


def use(folder):
    """Call it, and then compile the same here."""
    missing(folder)
    compiled(folder)


def sharded(folder):
    """Calls of arrays that are sharded by rows gather nothing, under jit and under shard_map."""
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    by_rows = NamedSharding(mesh, PartitionSpec("x", None))
    a, b = (jax.device_put(each, by_rows) for each in given())

    def slope(a, b):
        return jax.grad(lambda a, b: cj.linear_recurrence(a, b, initial=b[:, 0]).sum(), (0, 1))(a, b)

    for function in (slope, lambda a, b: cj.top_k(a + b, 3)):
        compiled = jax.jit(function).lower(a, b).compile()
        found, expected = (jax.tree.leaves(f(*x)) for f, x in ((compiled, (a, b)), (function, given())))
        same = all(np.allclose(*each) for each in zip(found, expected, strict=True))
        print("sharded", same, "all-gather" in compiled.as_text(), len(found[0].sharding.device_set))
    rows = PartitionSpec("x")
    mapped = jax.shard_map(cj.linear_recurrence, mesh=mesh, in_specs=(rows, rows), out_specs=rows)
    print("mapped", float(jax.jit(mapped)(a, b).sum()), float(cj.linear_recurrence(*given()).sum()))

    def scan(a):
        return cj.associative_scan(jax.numpy.logaddexp, a, axis=1)

    mapped = jax.shard_map(scan, mesh=mesh, in_specs=rows, out_specs=rows)
    print("slopes", *(float(jax.jvp(f, (x,), (x,))[1].sum()) for f, x in ((mapped, a), (scan, given()[0]))))


if __name__ == "__main__":
    {"make": make, "use": use, "missing": missing, "sharded": sharded}[sys.argv[1]](Path(sys.argv[2]))
