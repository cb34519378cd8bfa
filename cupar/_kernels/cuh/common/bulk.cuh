// What warps that share work in a block tell each other by: barriers in shared memory, bulk copies that
// arrive at them, and bulk copies back.
//
// Source: PTX ISA, "mbarrier" and "cp.async.bulk", of compute capability 9.0 and later.
#pragma once

#include "common/types.cuh"

namespace cupar {
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// A barrier. Its phases have parity 0, 1, 0, …: one ends when all arrivals and bytes that it expects are
// there.
struct barrier {
  u64 state;

  // One thread does this, and `publish_barriers`, before any other uses it.
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals)
                 : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }

  // Arrives, and has the phase last until so many bytes of bulk copies are there.
  __device__ __forceinline__ void arrive_expecting(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
                 "r"(bytes)
                 : "memory");
  }

  // Waits until the phase of that parity is over.
  __device__ __forceinline__ void wait(int parity) {
    unsigned is_over;
    do {
      asm volatile(
          "{\n"
          "  .reg .pred over;\n"
          "  mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
          "  selp.u32 %0, 1, 0, over;\n"
          "}"
          : "=r"(is_over)
          : "r"(shared_address(this)), "r"(parity)
          : "memory");
    } while (!is_over);
  }
};

__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

// What the thread wrote to shared memory before, bulk copies see that are issued after.
__device__ __forceinline__ void publish_to_bulk() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Begins a copy into shared memory: of a multiple of 16 bytes, between addresses that are multiples of 16.
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, barrier& arrives_at) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&arrives_at))
      : "memory");
}

// Begins a copy out of shared memory, of the same kind.
__device__ __forceinline__ void bulk_store(void* to, const void* from, unsigned bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(
          __cvta_generic_to_global(to)),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

// Waits until shared memory is free again that the thread's copies out of it read.
__device__ __forceinline__ void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Waits for so many threads that share a barrier of the block; 0 is `__syncthreads`'.
__device__ __forceinline__ void sync(int barrier, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Bytes of dynamic shared memory that the block has.
__device__ __forceinline__ int shared_bytes() {
  int bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}
}  // namespace cupar
