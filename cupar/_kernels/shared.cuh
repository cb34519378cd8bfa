// What PTX can do with shared memory and C++ has no words for.
//
// Bulk copies bring global memory there while the threads go on, and arrive at barriers. They need compute capability
// 9.0. Source: PTX ISA, "cp.async.bulk" and "mbarrier".
#pragma once

#include "cupar.cuh"

namespace cupar {
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Appends a number to a list of some, which ends at an address, if a condition holds. No branch.
__device__ __forceinline__ void append_if(unsigned condition, unsigned& end, unsigned short number) {
  asm volatile(
    "{\n"
    "  .reg .pred holds;\n"
    "  setp.ne.u32 holds, %1, 0;\n"
    "  @holds st.shared.u16 [%0], %2;\n"
    "  @holds add.u32 %0, %0, 2;\n"
    "}"
    : "+r"(end)
    : "r"(condition), "h"(number)
    : "memory");
}

// Appends a number to one of three lists, of which the third is the caller's to lengthen, unless it counts for nothing.
__device__ __forceinline__ void append_to(unsigned is_first, unsigned is_second, unsigned& first_end,
                                          unsigned& second_end, unsigned third_end, bool counts,
                                          unsigned short number) {
  asm volatile(
    "{\n"
    "  .reg .pred is_first, is_second, counts;\n"
    "  .reg .b32 end;\n"
    "  setp.ne.u32 is_first, %2, 0;\n"
    "  setp.ne.u32 is_second, %3, 0;\n"
    "  setp.ne.u32 counts, %5, 0;\n"
    "  selp.b32 end, %1, %4, is_second;\n"
    "  selp.b32 end, %0, end, is_first;\n"
    "  @counts st.shared.u16 [end], %6;\n"
    "  @is_first add.u32 %0, %0, 2;\n"
    "  @is_second add.u32 %1, %1, 2;\n"
    "}"
    : "+r"(first_end), "+r"(second_end)
    : "r"(is_first), "r"(is_second), "r"(third_end), "r"(unsigned{counts}), "h"(number)
    : "memory");
}

// Bulk copies that are issued from here on see what this thread did to shared memory.
__device__ __forceinline__ void fence_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A barrier in shared memory. Its phases have parity 0, 1, 0, …: one ends when all bytes that it expects are there.
struct bulk_barrier {
  u64 state;

  // One thread does this, and then fences, before it is used.
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
