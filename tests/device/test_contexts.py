"""What belongs to a context is found in that one alone; whose memory and streams calls are given."""

import re

import numpy as np
import pytest
from support.common import DeviceArray

import cupar
from cupar._device import arrays, driver, peers

PRIMARY, SECOND = 0xA0, 0xB0  # handles


class Library:
    """Two devices with a primary context each, and a second context on the first."""

    def __init__(self, devices=1):
        self.devices, self.current, self.stack = devices, None, []
        self.numbers = {PRIMARY: 1, SECOND: 2, PRIMARY + 1: 3}
        self.ordinals = {PRIMARY: 0, SECOND: 0, PRIMARY + 1: 1}
        self.memory = {}  # by address: attributes
        self.streams = {}  # their contexts
        self.executables = {}  # the contexts that they were made in
        self.loaded = []  # in which contexts
        self.launched = []  # in which context, and which executable

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *arguments: getattr(self, f"do_{name}", lambda *arguments: 0)(*arguments) or 0

    def do_cuCtxGetId(self, handle, number):
        handle = self.current if handle is None else handle.value
        if handle not in self.numbers:
            return 201
        number._obj.value = self.numbers[handle]
        return 0

    def do_cuCtxGetDevice(self, ordinal):
        ordinal._obj.value = self.ordinals[self.current]

    def do_cuDeviceGetCount(self, count):
        count._obj.value = self.devices

    def do_cuDeviceGetAttribute(self, value, attribute, ordinal):
        value._obj.value = 9 if attribute == 75 else 0

    def do_cuDevicePrimaryCtxRetain(self, handle, ordinal):
        handle._obj.value = PRIMARY + ordinal

    def do_cuDevicePrimaryCtxGetState(self, ordinal, flags, is_active):
        is_active._obj.value = PRIMARY + ordinal in self.numbers

    def do_cuCtxSetCurrent(self, handle):
        self.current = handle.value

    def do_cuCtxPushCurrent_v2(self, handle):
        self.stack.append(self.current)
        self.current = handle.value

    def do_cuCtxPopCurrent_v2(self, handle):
        self.current = self.stack.pop()

    def do_cuStreamGetCtx(self, stream, handle):
        handle._obj.value = self.streams[stream.value]

    def do_cuLibraryLoadData(self, *arguments):
        self.loaded.append(self.current)

    def do_cuLibraryGetKernel(self, kernel, library, name):
        kernel._obj.value = 1

    def do_cuGraphAddKernelNode_v2(self, node, *arguments):
        node._obj.value = 1

    def do_cuKernelGetFunction(self, function, kernel):
        function._obj.value = 1

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(self, found, *arguments):
        found._obj.value = 8

    def do_cuGraphInstantiateWithFlags(self, executable, *arguments):
        self.executables[len(self.executables) + 1] = self.current
        executable._obj.value = len(self.executables)

    def do_cuGraphLaunch(self, executable, stream):
        self.launched.append((self.current, executable.value))

    def do_cuLaunchKernelEx(self, config, *arguments):
        self.launched.append((self.current, None))

    def do_cuPointerGetAttribute(self, value, attribute, address):
        found = self.memory.get(address.value, {}).get(attribute)
        if found is None:
            return 1
        value._obj.value = found
        return 0


@pytest.fixture
def have(monkeypatch):
    def have(library):
        for name in ("_device_count", "device_at"):
            getattr(driver, name).cache_clear()
        monkeypatch.setattr(driver, "library", lambda: library)
        monkeypatch.setattr(driver, "_contexts", {})
        monkeypatch.setattr(driver, "has_several_devices", False)
        monkeypatch.setattr(driver, "check", check)
        driver._forget()  # this thread knows of no driver
        return library

    yield have
    for name in ("_device_count", "device_at"):
        getattr(driver, name).cache_clear()
    driver._forget()


def check(status, call):
    if status:
        raise cupar.DriverError(f"{call}: {status}")


def test_without_a_context_the_first_devices_primary_one_is_made_current(have):
    library = have(Library())
    found = driver.current_context()
    assert library.current == PRIMARY
    assert found == driver.Context(1, driver.Device(0, 90), True)
    assert driver.current_device() == found.device
    assert driver.this_thread.has_the_only_device
    assert not driver.has_several_devices


def test_a_thread_that_changes_its_context(have):
    library = have(Library())
    assert driver.current_context().is_primary
    library.current = SECOND
    second = driver.current_context()
    assert (second.number, second.is_primary) == (2, False)
    library.numbers[SECOND] = 7  # another, at the same address
    assert driver.current_context().number == 7
    library.current = PRIMARY
    assert driver.current_context().number == 1


def test_a_context_is_touched_only_if_it_is_known_to_be_there(have):
    library = have(Library(2))
    first = driver.current_context()
    with driver.on(first):
        assert not library.stack
    library.current = SECOND
    second = driver.current_context()
    with driver.on(first):
        assert library.current == PRIMARY
    assert library.current == SECOND
    assert driver.is_there(first)
    assert driver.is_there(second)
    library.current = PRIMARY + 1
    assert not driver.is_there(second)  # it may be
    with (
        pytest.raises(cupar.DriverError, match="a context of device 0 that is not"),
        driver.on(second),
    ):
        pass
    library.numbers[PRIMARY] = 9  # it was reset
    assert not driver.is_there(first)
    del library.numbers[PRIMARY]
    assert not driver.is_there(first)


# --- Calls -----------------------------------------------------------------------------------------------


@pytest.fixture
def total():
    cupar.cache.clear(disk=False)
    yield cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc=90)
    cupar.cache.clear(disk=False)


D_IN, D_OUT, STORAGE = DeviceArray(1 << 20), DeviceArray(1 << 21), DeviceArray(1 << 22, 64, "|u1")


def call(total):
    total(STORAGE, D_IN, D_OUT, 1000, 7)


def test_each_context_has_code_and_calls_of_its_own(have, total):
    """Also of one device; each call asks which context is current."""
    library = have(Library())
    for library.current in (PRIMARY, SECOND, PRIMARY, PRIMARY, SECOND):
        call(total)
    contexts, executables = zip(*library.launched, strict=True)
    assert contexts == (PRIMARY, SECOND, PRIMARY, PRIMARY, SECOND)
    assert executables[0] == executables[2] == executables[3]
    assert library.executables[executables[0]] == PRIMARY
    assert executables[1] is None  # nobody can tell when such a context is destroyed
    library.numbers[SECOND] = 5  # it was destroyed, and another made at its address
    library.current = SECOND
    call(total)
    assert library.loaded == [PRIMARY, SECOND, SECOND]


def test_with_one_device_nobody_asks_whose_an_array_is(have, total, monkeypatch):
    library = have(Library())
    library.do_cuPointerGetAttribute = library.do_cuStreamGetCtx = None
    call(total)
    assert driver.stream_handle(77) == 77


# --- Several devices ---------------------------------------------------------------------------------------

# By CU_POINTER_ATTRIBUTE: 9 is the ordinal, 3 the address in the current context, as H100s answer.
MEMORY = {
    "its own": ({9: 0, 3: 1}, True),
    "another's": ({9: 1}, False),
    "a peer's, the host's, or managed": ({9: 1, 3: 1}, True),
    "none of CUDA's": ({}, True),
}


@pytest.mark.parametrize("which", ["d_in", "d_out", "temp_storage"])
@pytest.mark.parametrize(("memory", "is_taken"), MEMORY.values(), ids=MEMORY)
def test_arrays_of_other_devices(have, total, memory, is_taken, which):
    library = have(Library(2))
    address = {"d_in": 1 << 20, "d_out": 1 << 21, "temp_storage": 1 << 22}
    library.memory = dict.fromkeys(address.values(), MEMORY["its own"][0])
    library.memory[address[which]] = memory
    if is_taken:
        call(total)
        assert len(library.launched) == 1
        return
    message = f"^{which}: is on device 1, the current device is 0: make device 1 current, copy the array to"
    with pytest.raises(ValueError, match=message):
        call(total)
    assert not library.launched


def test_arrays_within_iterators_and_of_operators(have):
    library = have(Library(2))
    driver.current_context()
    library.memory[1 << 20] = MEMORY["another's"][0]
    iterator = cupar.ReverseIterator(D_IN)
    with pytest.raises(ValueError, match="^d_in: is on device 1, the current device is 0"):
        iterator.pack("d_in", 10, False)
    with pytest.raises(ValueError, match="^d_in: is on device 1, the current device is 0"):
        arrays.address("d_in", D_IN, np.dtype("i4"), 0, False)


def test_streams_of_other_devices(have):
    library = have(Library(2))
    library.streams = {77: PRIMARY, 78: PRIMARY + 1, 79: SECOND}
    driver.current_context()
    assert driver.stream_handle(77) == 77
    assert driver.stream_handle(79) == 79
    assert [driver.stream_handle(handle) for handle in (0, 1, 2)] == [0, 1, 2]
    with pytest.raises(ValueError, match="^stream: is of device 1, the current device is 0: make device 1"):
        driver.stream_handle(78)
    assert not library.stack


def test_messages_name_both_devices_whichever_is_current(have):
    library = have(Library(2))
    library.current = PRIMARY + 1
    library.memory[5] = {9: 0}
    with pytest.raises(ValueError, match=re.escape("or enable device 1's access to its peer 0")):
        peers.check_memory("d_in", 5)
