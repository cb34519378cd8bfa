"""Call frames as XLA makes them, for a process whose driver has no GPU."""

import ctypes

import numpy as np

STREAM = 77
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)


class Frames:
    """Calls handlers with frames of its own."""

    def __init__(self):
        self.errors, self._kept = [], []
        self._api = self._block(
            *(192, 0, 24, 0, 9 << 32, 0, self._function(self._error), 0, 0, 0, self._function(self._stream)),
            *[0] * 20,
        )

    def _block(self, *words):
        block = (ctypes.c_uint64 * max(1, len(words)))(*[int(each) % 2**64 for each in words])
        self._kept.append(block)
        return ctypes.addressof(block)

    def _function(self, function):
        made = _FUNCTION(function)
        self._kept.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value

    def _error(self, arguments):
        text = ctypes.c_uint64.from_address(arguments + 16).value
        self.errors.append(ctypes.string_at(text).decode())
        return 4242

    def _stream(self, arguments):
        ctypes.c_uint64.from_address(arguments + 24).value = STREAM

    def _array(self, words):
        return self._block(5, len(words), self._block(*words))

    def frame(self, words, stage, buffers=(), count=0):
        """Return a frame for a program; `buffers` are addresses, of which the first `count` are arguments."""
        made = [self._block(48, 0, 11, each, 1, self._block(1)) for each in buffers]
        text = ctypes.create_string_buffer(words.builds.encode())
        self._kept.append(text)
        builds = self._block(ctypes.addressof(text), len(words.builds))
        attributes = self._block(builds, self._array(words.program), self._array(words.relocations))
        return self._block(
            *(168, 0, self._api, 5, stage),
            *(40, 0, count, 0, self._block(*made[:count])),
            *(40, 0, len(made) - count, 0, self._block(*made[count:])),
            *(48, 0, 3, 0, 0, attributes, 0),
        )

    def metadata(self, handler):
        """Return the version and the traits that a handler says it has."""
        found = np.zeros(7, np.int64)
        extension = self._block(32, 1, 0, found.ctypes.data)
        assert not handler(self._block(168, extension, self._api, 0, 0, *[0] * 16))
        return found.view(np.int32)[[6, 7, 8]].tolist()
