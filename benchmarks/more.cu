// Thrust's set operations of sorted int, for more.py. They allocate by CUDA's pool, and return how many items
// there are.

#include <thrust/device_ptr.h>
#include <thrust/mr/allocator.h>
#include <thrust/set_operations.h>
#include <thrust/system/cuda/execution_policy.h>

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
