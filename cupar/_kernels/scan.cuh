// What all scans need: how the initial value is given.
//
// Given: d_in_t, d_out_t, op_t, accum_t; is_inclusive; init_is_value, init_is_on_device (neither: there is
// none).
#pragma once

#include "cupar.cuh"

namespace cupar {
struct no_init {};

constexpr bool has_init = init_is_value || init_is_on_device;

using init_t = cuda::std::conditional_t<init_is_value, accum_t,
                                        cuda::std::conditional_t<init_is_on_device, const accum_t*, no_init>>;
}  // namespace cupar
