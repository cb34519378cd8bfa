// CUB's merges, for merges.py: keys of int, and items of int that go with them.
//
// As CUB's own functions, each asks for its temporary storage where that is null, and returns a CUDA error.

#include <cub/device/device_merge.cuh>

#include <cuda/std/functional>

#include <cstddef>

extern "C" {
int cub_merge(void* temp, std::size_t* temp_bytes, const int* keys1, const int* keys2, int* out, int n,
              cudaStream_t stream) {
  return cub::DeviceMerge::MergeKeys(temp, *temp_bytes, keys1, n, keys2, n, out, cuda::std::less<>{}, stream);
}

int cub_merge_pairs(void* temp, std::size_t* temp_bytes, const int* keys1, const int* items1,
                    const int* keys2, const int* items2, int* out, int* out_items, int n,
                    cudaStream_t stream) {
  return cub::DeviceMerge::MergePairs(temp, *temp_bytes, keys1, items1, n, keys2, items2, n, out, out_items,
                                      cuda::std::less<>{}, stream);
}
}
