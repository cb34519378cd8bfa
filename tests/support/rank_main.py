"""A rank of a test that is a process of its own: `rank_main.py mpi|nccl [rank size ports...]`.

Or all ranks of gloo: `rank_main.py gloo size`.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import weakref
from unittest import mock

import numpy as np

import cupar
from cupar import cache, distributed
from cupar._fleet import c10d

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support import compilers, failing_ranks, ranks

TIMEOUT = 300  # seconds that a rank waits for others, which may build in the meantime, on a busy machine


def farthest(a, b):
    return a if abs(a) > abs(b) else b


def one_build(group):
    """Return how many builds all ranks made together whose own caches are empty."""
    os.environ["CUPAR_CACHE_DIR"] = tempfile.mkdtemp()
    cache.clear(disk=False)
    cache.reset_stats()
    x, out = np.arange(-3.0, 3), np.zeros(1)
    signed, put = mock.patch.dict(os.environ, CUPAR_SIGNING_KEY="ab" * 32), c10d.StoreMapping.__setitem__
    with signed, mock.patch.object(c10d.StoreMapping, "__setitem__", autospec=True, side_effect=put) as puts:
        distributed.reduce_into(x, out, farthest, 0.5, group=group).run(x, out, 6, 0.5)
    written = {each.args[2].split()[0] for each in puts.call_args_list}
    assert written <= {b"cupar-lease", b"cupar-signature"}
    assert out[0] == -3
    stats = cache.stats()
    return sum(group.sizes(stats.built + stats.linked)), sum(group.sizes(stats.disk))


def in_another_tier(group):
    """Return what ranks are told of which the last one asks for other kernels."""
    x = np.arange(3)
    os.environ["CUPAR_TIER"] = "quick" if group.rank == group.size - 1 else "fast"
    told = ranks.told(lambda: distributed.reduce_into(x, x, ranks.plus, 0, group=group))
    del os.environ["CUPAR_TIER"]
    return told


def mpi():
    """Join MPI's world, which `distributed.group` finds."""
    from mpi4py import MPI

    assert MPI.COMM_WORLD.size == 4

    from cupar._fleet import mpi as engine

    engine._LARGEST = 100  # bytes of a message, so that there are many
    group = distributed.group(timeout=TIMEOUT)
    numbers = np.arange(250.0) * group.rank
    group.total(numbers)
    np.testing.assert_array_equal(numbers, np.arange(250) * sum(range(group.size)))
    assert group.transport.startswith("MPI")
    return group, {"wait_for_all": MPI.COMM_WORLD.Barrier}


def gloo(rank, size, *listeners):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    gc.disable()  # groups that have failed are not to wait for it
    joined_by_gloo(rank, size, listeners[0])
    group = distributed.group(timeout=TIMEOUT)
    assert group.transport == "torch.distributed (gloo)"
    return group, {"listener": listeners[1], "wait_for_all": dist.barrier}


def joined_by_gloo(rank, size, listener):
    """Join a group whose store rank 0 serves at a socket that it has: a free port can be taken by then."""
    import torch.distributed as dist

    port, served = listener.getsockname()[1], None
    if rank == 0:
        served = listener.detach()
    else:
        listener.close()
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, master_listen_fd=served)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def beside():
    """Return what ranks say in a group beside one of NCCL, which is gloo's that says it is another."""
    import torch.distributed as dist

    with mock.patch.object(dist, "get_backend", lambda group: "nccl"):
        found = [c10d.TorchComm(dist.group.WORLD, 60) for _ in range(2)]
    assert found[0]._talk is found[1]._talk is not dist.group.WORLD
    assert dist.get_backend(found[0]._talk) == "gloo"
    return [each.decode() for each in found[1].agree(b"rank %d" % found[1].rank * (found[1].rank + 1))]


def nccl(rank, size, *ports):
    """Join a group whose ranks have a GPU each."""
    import cupy
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(rank))
    cupy.cuda.Device(int(rank)).use()
    init = f"tcp://127.0.0.1:{ports[0]}"
    dist.init_process_group("nccl", init_method=init, rank=int(rank), world_size=int(size))
    group = distributed.group(timeout=TIMEOUT)
    assert group.transport == "torch.distributed (nccl)"
    transported(group)
    repeated(group)
    return group, {"ports": ports}


def transported(group):
    """Have NCCL carry what algorithms give it, on a stream of its own, at odd addresses, and of any dtype."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        own = cupy.asarray((np.arange(1003) + group.rank).astype("u1"))[3:]
        everything = cupy.zeros(1001 + group.size * 1000, "u1")
        group.gather(cupar.view(own), cupar.view(everything[1001:]), stream.ptr)
        rows = everything[1001:].reshape(group.size, 1000).get()
        for rank, row in enumerate(rows):
            np.testing.assert_array_equal(row, (np.arange(3, 1003) + rank).astype("u1"))
        for dtype in ("i4", "u4", "i8", "u8", "f4", "f8"):
            numbers = cupy.arange(5, dtype=dtype) * (group.rank + 1)
            group.total(cupar.view(numbers), stream.ptr)
            expected = np.arange(5, dtype=dtype) * sum(range(1, group.size + 1))
            np.testing.assert_array_equal(numbers.get(), expected)
        send = [cupy.full(9 * (r + group.rank), group.rank, "u1") for r in range(group.size)]
        recv = [cupy.full(9 * (r + group.rank), 99, "u1") for r in range(group.size)]
        send[group.rank] = recv[group.rank] = own[:0]
        group.exchange([cupar.view(each) for each in send], [cupar.view(each) for each in recv], stream.ptr)
        for rank, each in enumerate(recv):
            assert {*each.get().tolist()} <= {rank}
    assert [each.decode() for each in group.agree(b"rank %d" % group.rank)] == [
        f"rank {rank}" for rank in range(group.size)
    ]


def repeated(group):
    """Have calls repeat, with other data and on other streams: from the second one on they are graphs."""
    import cupy
    import torch

    x, out, zero = cupy.zeros(1000, "i4"), cupy.zeros(1, "i4"), np.zeros(1, "i4")
    keys, unique, sums, scanned, counts = *(x.copy() for _ in range(4)), cupy.zeros(3, "i8")
    arrays = keys, unique, x, sums, counts
    total = distributed.reduce_into(x, out, ranks.plus, zero, group=group)
    by_key = distributed.reduce_by_key(*arrays, ranks.plus, group=group)
    handed = distributed.inclusive_scan(x, x, ranks.plus, zero, carry="returned", group=group)
    scans = []
    for i, stream in enumerate([cupy.cuda.Stream.null] * 3 + [cupy.cuda.Stream(non_blocking=True)] * 2):
        x[...] = i + group.rank
        keys[...] = cupy.arange(1000) // (100 + i) + 10 * group.rank * (i % 2)
        cupy.cuda.Stream.null.synchronize()
        total.run(x, out, 1000, zero, stream)
        by_key.run(*arrays, 1000, stream)
        scans.append((cupy.zeros(1000, "i4"), handed.run(x, scanned, 1000, zero, stream)))
        stream.synchronize()
        scans[-1][0][...] = scanned
        assert int(out[0]) == 1000 * sum(range(i, i + group.size))
        every = [np.arange(1000) // (100 + i) + 10 * rank * (i % 2) for rank in range(group.size)]
        assert int(counts[2]) == 1 + np.count_nonzero(np.diff(np.concatenate(every)))
    for i, (own, prefix) in enumerate(scans):  # prefixes stay as they were
        result, items = cupy.zeros(1000, "i4"), prefix.applied(own)
        cupar.unary_transform(items, result, cupar.OpKind.IDENTITY).run(items, result, 1000)
        before = 1000 * sum(range(i, i + group.rank))
        np.testing.assert_array_equal(result.get(), before + (i + group.rank) * np.arange(1, 1001))
    for each in (total, by_key, handed):
        assert [callable(known.replay[0]) for known in each._replays._known.values()] == [True]
    tensors = (torch.full((1000,), group.rank, dtype=torch.int32, device="cuda") for _ in range(2))
    result = torch.zeros(1, dtype=torch.int32, device="cuda")
    for i, tensor in enumerate([next(tensors)] * 3 + [*tensors]):
        total.run(tensor.add_(1), result, 1000, zero)
        begun = i + 1 if i < 3 else 1
        assert int(result) == 1000 * sum(range(begun, begun + group.size))
    assert len(total._replays._known) == 3


def aborted(group, ports):
    """Have the group fail, which aborts NCCL's communicator; return what a new one does."""
    import cupy
    import torch.distributed as dist

    x, out = cupy.arange(5), cupy.zeros(1, "i8")
    distributed.reduce_into(x, out, ranks.plus, 0, group=group).run(x, out, 5, 0)
    assert int(out[0]) == 10 * group.size
    if group.rank == 0:
        group.comm.abort("rank 0 has had enough")
    else:  # waits for rank 0 on the GPU, and then on the host
        group.gather(cupar.view(x.view("u1")), cupar.view(cupy.zeros(40 * group.size, "u1")), 0)
        cupy.cuda.Stream.null.synchronize()
    told = ranks.told(group.synchronize)
    dist.destroy_process_group()
    init = f"tcp://127.0.0.1:{ports[1]}"
    dist.init_process_group("nccl", init_method=init, rank=group.rank, world_size=group.size)
    again = distributed.group(timeout=TIMEOUT)
    distributed.reduce_into(x, out, ranks.plus, 0, group=again).run(x, out, 5, 0)
    found = int(out[0])
    dist.destroy_process_group()
    return told, found


def faults(group, wait_for_all):
    """Return how many steps failed on one rank, and what all are told if one is interrupted."""
    new = distributed.group
    failed = failing_ranks.check(lambda: new(timeout=TIMEOUT), ["sort"], range(0, 99, 9))
    assert threading.active_count() == 1  # one that comes back from PyTorch as Python ends has it aborted
    mine = new(timeout=TIMEOUT)
    told = failing_ranks.interrupted(mine, wait_for_all)
    assert mine.transport.startswith("MPI") or mine.comm._line.group is None
    return group.rank, failed, told


def survivors(group, listener):
    """Have the last rank die; return what the others are told, and what they do in a new group."""
    import torch.distributed as dist

    x, out = np.arange(5), np.zeros(1, "i8")
    total = distributed.reduce_into(x, out, ranks.plus, 0, group=group)
    if group.rank == group.size - 1:
        os._exit(7)
    told = [ranks.told(lambda: total.run(x, out, 5, 0)) for _ in range(2)]
    # What this rank has left, others may wait for.
    known = dist.distributed_c10d._world.pg_map
    groups = [weakref.ref(each) for each in known if each is not dist.group.WORLD]
    dist.destroy_process_group()
    assert len(groups) > 2 and not any(each() for each in groups) and not any(c10d._unfinished)
    joined_by_gloo(group.rank, group.size - 1, listener)
    again = distributed.group(dist.group.WORLD, timeout=TIMEOUT)
    distributed.reduce_into(x, out, ranks.plus, 0, group=again).run(x, out, 5, 0)
    dist.destroy_process_group()
    return told, int(out[0])


def main(engine, *given):
    if engine == "aborted":
        group, more = nccl(*given)
        print(json.dumps({"aborted": aborted(group, **more)}), flush=True)
        return
    group, more = {"mpi": mpi, "gloo": gloo, "nccl": nccl}[engine](*given)
    kind = {"mpi": ranks.Host, "gloo": ranks.Tensors, "nccl": ranks.Device}[engine]
    shapes = ["uneven"] if engine == "gloo" else ranks.SHAPES
    found = {"problems": ranks.check_all(group, kind, shapes), "differing": ranks.differing(group, kind)}
    found["tier"] = in_another_tier(group)
    if engine != "nccl":
        found["faults"] = faults(group, more.pop("wait_for_all"))
        group = distributed.group(timeout=TIMEOUT)
    if engine == "gloo":
        found["beside"] = beside()
        found["builds"] = one_build(group)
        found["survivors"] = survivors(group, **more)
    print(json.dumps(found), flush=True)
    if engine == "nccl":
        import torch.distributed as dist

        dist.destroy_process_group()


def forked(size):
    """Be a rank of gloo, or the process that has forked them: to import PyTorch takes them longest.

    That one prints what they do; its status says whether theirs are as they should be. If one fails, the
    others, which may wait for it, are killed.
    """
    import torch.distributed  # noqa: F401

    compilers.as_in_the_run(many=False)
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    said = {}
    with contextlib.ExitStack() as files:
        for rank in range(size):
            out = files.enter_context(tempfile.TemporaryFile("w+"))
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), 1)
                main("gloo", rank, size, *listeners)
                return
            said[child] = out
        expected = dict(zip(said, [0] * (size - 1) + [7], strict=True))
        statuses = ended(expected)
        for out in said.values():
            out.seek(0)
            print(out.read(), end="")
    assert statuses == expected, statuses


def ended(expected):
    """Return the statuses of children once all have ended; the first unexpected one has the others killed."""
    statuses = {}
    while len(statuses) < len(expected):
        child, status = os.wait()
        statuses[child] = os.waitstatus_to_exitcode(status)
        if statuses[child] not in (expected[child], -signal.SIGKILL):
            for each in expected.keys() - statuses:
                os.kill(each, signal.SIGKILL)
    return statuses


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    if sys.argv[1] == "gloo":
        forked(int(sys.argv[2]))
    else:
        main(*sys.argv[1:])
