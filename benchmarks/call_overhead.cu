// What a C++ programmer pays for a call of CUB: call_overhead.py compiles this and times it in turns with
// others.
//
// Each algorithm has three functions:
//
//   X_temp_bytes  bytes of temporary storage, or minus the CUDA error
//   X_batch       nanoseconds of host time to enqueue so many calls, or minus the CUDA error
//   X_latency     writes, for each call, the nanoseconds until its result is there; returns the CUDA error
//
// A call takes the next ones of some arrays, and the next one of some numbers of items, in turns; with one of
// each, all calls are the same.
//
// Everything runs on the default stream, as cupar's, CuPy's and PyTorch's calls do unless told otherwise.
// Numbers of items have 64 bits, as in cupar's calls and in the C library that cuda.compute calls.

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_transform.cuh>
#include <cub/version.cuh>

#include <cuda/std/functional>

#include <chrono>
#include <cstddef>
#include <cstdint>

// What calls are made of; call_overhead.py has the same struct. `call` counts the calls that were made.
struct Turns {
  const void* const* in;
  void* const* out;
  const std::int64_t* items;
  std::int64_t arrays;
  std::int64_t sizes;
  void* temp;
  std::size_t temp_bytes;
  std::int64_t call;
};

namespace {
using Clock = std::chrono::steady_clock;
using Call  = cudaError_t (*)(void* temp, std::size_t& temp_bytes, const void* in, void* out, std::int64_t n);

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

template <Call call>
std::int64_t temp_bytes(std::int64_t n) {
  std::size_t bytes        = 0;
  const cudaError_t status = call(nullptr, bytes, nullptr, nullptr, n);
  return status == cudaSuccess ? static_cast<std::int64_t>(bytes) : -static_cast<std::int64_t>(status);
}

template <Call call>
cudaError_t next(Turns& turns) {
  const std::int64_t array = turns.call % turns.arrays;
  const std::int64_t n     = turns.items[turns.call % turns.sizes];
  ++turns.call;
  return call(turns.temp, turns.temp_bytes, turns.in[array], turns.out[array], n);
}

template <Call call>
std::int64_t batch(Turns* turns, int calls) {
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) {
    const cudaError_t status = next<call>(*turns);
    if (status != cudaSuccess) {
      return -static_cast<std::int64_t>(status);
    }
  }
  return nanoseconds(Clock::now() - start);
}

template <Call call>
int latency(Turns* turns, int calls, std::int64_t* ns) {
  for (int i = 0; i < calls; ++i) {
    const auto start   = Clock::now();
    cudaError_t status = next<call>(*turns);
    if (status == cudaSuccess) {
      status = cudaStreamSynchronize(nullptr);
    }
    ns[i] = nanoseconds(Clock::now() - start);
    if (status != cudaSuccess) {
      return status;
    }
  }
  return cudaSuccess;
}

struct Square {
  __host__ __device__ float operator()(float x) const { return x * x; }
};

cudaError_t reduce(void* temp, std::size_t& temp_bytes, const void* in, void* out, std::int64_t n) {
  return cub::DeviceReduce::Reduce(temp, temp_bytes, static_cast<const float*>(in), static_cast<float*>(out),
                                   n, cuda::std::plus<>{}, 0.0f);
}

cudaError_t scan(void* temp, std::size_t& temp_bytes, const void* in, void* out, std::int64_t n) {
  return cub::DeviceScan::InclusiveScan(temp, temp_bytes, static_cast<const float*>(in),
                                        static_cast<float*>(out), cuda::std::plus<>{}, n);
}

// It needs no temporary storage, and CUB's call takes none.
cudaError_t transform(void*, std::size_t& temp_bytes, const void* in, void* out, std::int64_t n) {
  if (out == nullptr) {
    temp_bytes = 0;
    return cudaSuccess;
  }
  return cub::DeviceTransform::Transform(static_cast<const float*>(in), static_cast<float*>(out), n,
                                         Square{});
}

cudaError_t sort(void* temp, std::size_t& temp_bytes, const void* in, void* out, std::int64_t n) {
  return cub::DeviceRadixSort::SortKeys(temp, temp_bytes, static_cast<const std::int32_t*>(in),
                                        static_cast<std::int32_t*>(out), n);
}
}  // namespace

#define EXPORT(X)                                              \
  std::int64_t X##_temp_bytes(std::int64_t n) {                \
    return temp_bytes<X>(n);                                   \
  }                                                            \
  std::int64_t X##_batch(Turns* turns, int calls) {            \
    return batch<X>(turns, calls);                             \
  }                                                            \
  int X##_latency(Turns* turns, int calls, std::int64_t* ns) { \
    return latency<X>(turns, calls, ns);                       \
  }

extern "C" {
EXPORT(reduce)
EXPORT(scan)
EXPORT(transform)
EXPORT(sort)

int cub_version() {
  return CUB_VERSION;
}
}
