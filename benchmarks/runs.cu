// CUB's algorithms on runs of equal keys, for runs.py: keys of int, values of float.
//
// As CUB's own functions, each asks for its temporary storage where that is null, and returns a CUDA error.
// Numbers of items have 32 bits, for which CUB has its quicker kernels.

#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/version.cuh>

#include <cuda/std/functional>

#include <cstddef>

extern "C" {
int cub_version() {
  return CUB_VERSION;
}

int cub_reduce_by_key(void* temp, std::size_t* temp_bytes, const int* keys, int* unique, const float* values,
                      float* aggregates, int* runs, int n, cudaStream_t stream) {
  return cub::DeviceReduce::ReduceByKey(temp, *temp_bytes, keys, unique, values, aggregates, runs,
                                        cuda::std::plus<>{}, n, stream);
}

int cub_inclusive_scan_by_key(void* temp, std::size_t* temp_bytes, const int* keys, const float* values,
                              float* out, int n, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSumByKey(temp, *temp_bytes, keys, values, out, n, cuda::std::equal_to<>{},
                                            stream);
}

int cub_exclusive_scan_by_key(void* temp, std::size_t* temp_bytes, const int* keys, const float* values,
                              float* out, int n, cudaStream_t stream) {
  return cub::DeviceScan::ExclusiveSumByKey(temp, *temp_bytes, keys, values, out, n, cuda::std::equal_to<>{},
                                            stream);
}

int cub_run_length_encode(void* temp, std::size_t* temp_bytes, const int* in, int* unique, int* counts,
                          int* runs, int n, cudaStream_t stream) {
  return cub::DeviceRunLengthEncode::Encode(temp, *temp_bytes, in, unique, counts, runs, n, stream);
}
}
