// Initial values, as calls give them: none, a value, or the address of one on the device.
#pragma once

#include "common/types.cuh"

namespace cupar {
struct no_init {};

// The type of a kernel's parameter.
template <class T, bool is_value, bool is_on_device>
using init_parameter =
    cuda::std::conditional_t<is_value, T, cuda::std::conditional_t<is_on_device, const T*, no_init>>;

// The initial value in a parameter. Without one, the parameter may not be read.
template <class T>
__device__ __forceinline__ T initial(no_init) {
  T none;
  return none;
}
template <class T, class Given>
__device__ __forceinline__ T initial(const Given& given) {
  return given;
}
template <class T, class Given>
__device__ __forceinline__ T initial(const Given* given) {
  return *given;
}
}  // namespace cupar
