"""Stores of entries: opaque bytes under keys.

To add a store that machines share, write a mapping of str to bytes (a `MutableMapping`; an atomic
``setdefault`` saves work) and put what opens its URLs into the table `remotes._STORES`. `shared.Shared` does
the rest: time limits, leases, signatures, stores that fail or garble. What fsspec knows needs nothing.

To add a kind of layer that is read where it lies, as directories and bundles are, derive from `layer.Layer`,
which has five abstract methods, and let `cupar._cache.layer` open it. Lookups, listings, statistics,
``explain``, ``verify``, ``import`` and the warnings of faulty entries need no more.
"""
