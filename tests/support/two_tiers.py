"""An algorithm that has a quick and a fast tier: reductions, which link quickly in both."""

from dataclasses import replace

from cupar._arguments.order import two_phases
from cupar._call.algorithm import Algorithm
from cupar._kernels.reduce import REDUCE
from cupar._obtain.arguments import accumulation
from cupar._obtain.factory_cache import memoised
from cupar._obtain.obtain import obtain

FAMILY = replace(
    REDUCE,
    traits=lambda spec: f"{REDUCE.traits(spec)}\n// {spec.option('tier') or 'fast'}",
    has_quick_tier=lambda spec: True,
)


class Twofold(Algorithm, family=FAMILY, uses={"d_in": "num_items", "d_out": 1}):
    """A helper process finds this class as this one does, by its name."""

    def run(self, d_in, d_out, num_items, h_init=None, stream=None):
        self._run(stream, (d_in, d_out, num_items, h_init))

    @two_phases(run)
    def __call__(self) -> None: ...


@memoised
def twofold(d_in, d_out, op, h_init=None, *, cc=None, wait=True):
    types = accumulation(d_in, d_out, op, h_init)
    return obtain(
        Twofold,
        "twofold",
        (types.d_in, types.d_out),
        {"op": types.operator},
        cc,
        wait,
        init=types.init,
        determinism="RUN_TO_RUN",
    )
