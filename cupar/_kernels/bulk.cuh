// Bulk copies from global into shared memory, which run beside the threads, and the barriers that they arrive at.
//
// Source: PTX ISA, "Asynchronous copy: cp.async.bulk" and "mbarrier". They need compute capability 9.0.
#pragma once

#include "cupar.cuh"

namespace cupar {
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// What was read or written in shared memory before is done with when bulk copies, issued after, write there.
__device__ __forceinline__ void fence_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier in shared memory. Its phases have parity 0, 1, 0, …: one ends when all bytes that it expects are there.
struct bulk_barrier {
  u64 state;

  // One thread does this, and a fence, before any other uses it.
  __device__ __forceinline__ void init() {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&state)) : "memory");
  }

  __device__ __forceinline__ void expect(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }

  __device__ __forceinline__ void wait(unsigned parity) {
    unsigned is_over;
    do {
      asm volatile(
        "{\n"
        "  .reg .pred over;\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, over;\n"
        "}"
        : "=r"(is_over)
        : "r"(shared_address(&state)), "r"(parity)
        : "memory");
    } while (!is_over);
  }
};

// Begins a copy of a multiple of 16 bytes between addresses that are multiples of 16.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, unsigned bytes, bulk_barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                 shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier.state))
               : "memory");
}
}  // namespace cupar
