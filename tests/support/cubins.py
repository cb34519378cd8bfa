"""What an ELF file of GPU code says of its kernels."""

import struct


def _sections(cubin):
    (at,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    found = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + i * size) for i in range(count)]
    texts = found[names][4]
    for name, _, _, _, offset, length, *_ in found:
        start = texts + name
        yield cubin[start : cubin.index(b"\0", start)].decode(), cubin[offset : offset + length]


def kernels(cubin):
    """Return the symbols of all kernels."""
    prefix = ".nv.info."
    return [name[len(prefix) :] for name, _ in _sections(cubin) if name.startswith(prefix)]


def parameters(cubin, symbol):
    """Return the bytes of each parameter of a kernel, in order."""
    ((_, info),) = [each for each in _sections(cubin) if each[0] == f".nv.info.{symbol}"]
    found, at = {}, 0
    while at < len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if kind != 4:  # it has its value in place of its size
            continue
        if attribute == 0x17:  # EIATTR_KPARAM_INFO
            _, ordinal, _, flags = struct.unpack_from("<IHHI", info, at)
            found[ordinal] = flags >> 18
        at += size
    return [found[ordinal] for ordinal in sorted(found)]
