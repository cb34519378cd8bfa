// What a C++ programmer pays for a launch: kernels.py compiles this and times it in turns with others.

#include <chrono>
#include <cstdint>

namespace {
__global__ void axpy(const float* x, const float* y, float* out, std::int64_t n, double alpha) {
  const std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
  if (i < n) {
    out[i] = static_cast<float>(alpha * x[i] + y[i]);
  }
}
}  // namespace

// Returns nanoseconds of host time to enqueue so many launches, which take the inputs in turns, or minus the
// CUDA error.
extern "C" std::int64_t axpy_batch(const float* const* x, std::int64_t arrays, const float* y, float* out,
                                   std::int64_t n, double alpha, int launches) {
  using Clock      = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < launches; ++i) {
    axpy<<<static_cast<unsigned>((n + 255) / 256), 256>>>(x[i % arrays], y, out, n, alpha);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) {
      return -static_cast<std::int64_t>(status);
    }
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}
