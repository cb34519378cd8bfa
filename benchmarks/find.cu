// CUB's search for the first item, for find.py: of 1 in float items.
//
// As CUB's own function, it asks for its temporary storage where that is null, and returns a CUDA error.

#include <cub/device/device_find.cuh>

#include <cstddef>

struct is_one {
  __device__ bool operator()(float item) const { return item == 1; }
};

extern "C" int cub_find(void* temp, std::size_t* temp_bytes, const float* items, long long* out, long long n,
                        cudaStream_t stream) {
  return cub::DeviceFind::FindIf(temp, *temp_bytes, items, out, is_one{}, n, stream);
}
