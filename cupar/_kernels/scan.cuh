// Scans: of arrays by warps that share the work, where the GPU has bulk copies; of all else, and where that is wanted,
// by CUB's look-back. What both need: how the initial value is given, and what clears states.
//
// Given: d_in_t, d_out_t, op_t, accum_t; is_inclusive; init_is_value, init_is_on_device (neither: there is none).
#include "cupar.cuh"

namespace cupar {
struct no_init {};

constexpr bool has_init = init_is_value || init_is_on_device;

using init_t = cuda::std::conditional_t<init_is_value, accum_t,
                                        cuda::std::conditional_t<init_is_on_device, const accum_t*, no_init>>;
}  // namespace cupar

#if CUPAR_LOOKAHEAD
#include "scan_lookahead.cuh"
#else
#include "scan_lookback.cuh"
#endif
