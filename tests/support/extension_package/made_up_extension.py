"""A package that teaches numba-cuda a type, by an entry point, and brings a device function."""


class Interval:
    """Numbers from low to high."""

    def __init__(self, low, high):
        self.low, self.high = low, high


def width(interval):
    """Return how wide an interval is."""
    return interval.high - interval.low


class Clamp:
    """A device function that says what is linked for it."""

    name = "made_up_clamp"
    sig = "float32(float32, float32)"

    def __numba_cuda_link__(self, *types):
        """Generate its code."""
        from numba import cuda

        return cuda.CUSource(
            f'extern "C" __device__ float {self.name}(float x, float most) {{ return x < most ? x : most; }}'
        )


clamp = Clamp()


def register():
    """Is called by numba-cuda before it compiles anything."""
    from numba.cuda import types
    from numba.cuda.extending import overload, typeof_impl

    class IntervalType(types.Type):
        def __init__(self):
            super().__init__(name="Interval")

    @typeof_impl.register(Interval)
    def typeof_interval(value, context):
        return IntervalType()

    @overload(width)
    def width_of(interval):
        if isinstance(interval, IntervalType):
            return lambda interval: 1.0
        return None

    print("registered")
