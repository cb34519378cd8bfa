// Thrust's set operations of sorted int, and of int with items of int, for more.py. They return how many
// items there are. And CUB's copies of many ranges, of 4-byte items.

#include <thrust/device_ptr.h>
#include <thrust/mr/allocator.h>
#include <thrust/set_operations.h>
#include <thrust/system/cuda/execution_policy.h>
#include <cub/device/device_memcpy.cuh>

// Memory that is kept from call to call, so that allocation is not what is measured.
struct kept {
  using value_type = char;
  char* memory;
  std::size_t size, used;
  char* allocate(std::ptrdiff_t n) {
    char* found = memory + used;
    used += (n + 255) / 256 * 256;
    return used <= size ? found : throw std::bad_alloc{};
  }
  void deallocate(char*, std::size_t) {}
};

extern "C" long long thrust_sets(int what, const int* a, const int* b, int* out, long long n, long long m,
                                 void* memory, std::size_t size, cudaStream_t stream) {
  kept allocator{static_cast<char*>(memory), size, 0};
  const auto policy = thrust::cuda::par_nosync(allocator).on(stream);
  const thrust::device_ptr<const int> first(a), second(b);
  const thrust::device_ptr<int> to(out);
  auto end = to;
  if (what == 0) {
    end = thrust::set_union(policy, first, first + n, second, second + m, to);
  } else if (what == 1) {
    end = thrust::set_intersection(policy, first, first + n, second, second + m, to);
  } else if (what == 2) {
    end = thrust::set_difference(policy, first, first + n, second, second + m, to);
  } else {
    end = thrust::set_symmetric_difference(policy, first, first + n, second, second + m, to);
  }
  return end - to;
}

extern "C" long long thrust_sets_by_key(int what, const int* a, const int* items_a, const int* b,
                                        const int* items_b, int* out, int* items_out, long long n,
                                        long long m, void* memory, std::size_t size, cudaStream_t stream) {
  kept allocator{static_cast<char*>(memory), size, 0};
  const auto policy = thrust::cuda::par_nosync(allocator).on(stream);
  const thrust::device_ptr<const int> first(a), second(b), items1(items_a), items2(items_b);
  const thrust::device_ptr<int> to(out), items_to(items_out);
  auto end = to;
  if (what == 0) {
    end = thrust::set_union_by_key(policy, first, first + n, second, second + m, items1, items2, to, items_to)
              .first;
  } else if (what == 1) {
    end = thrust::set_intersection_by_key(policy, first, first + n, second, second + m, items1, to, items_to)
              .first;
  } else if (what == 2) {
    end = thrust::set_difference_by_key(policy, first, first + n, second, second + m, items1, items2, to,
                                        items_to)
              .first;
  } else {
    end = thrust::set_symmetric_difference_by_key(policy, first, first + n, second, second + m, items1,
                                                  items2, to, items_to)
              .first;
  }
  return end - to;
}

extern "C" int cub_ranges(void* memory, std::size_t* size, const void** from, void** to, const int* bytes,
                          long long n, cudaStream_t stream) {
  return cub::DeviceMemcpy::Batched(memory, *size, from, to, bytes, n, stream);
}
