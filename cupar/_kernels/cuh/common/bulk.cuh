// Barriers in shared memory, and bulk copies that arrive at them: `cuda::ptx`'s, with the order and scope
// that kernels of cupar use. From compute capability 9.0 on.
#pragma once

#include <cuda/__ptx/instructions/cp_async_bulk.h>
#include <cuda/__ptx/instructions/cp_async_bulk_commit_group.h>
#include <cuda/__ptx/instructions/cp_async_bulk_wait_group.h>
#include <cuda/__ptx/instructions/fence.h>
#include <cuda/__ptx/instructions/mbarrier_arrive.h>
#include <cuda/__ptx/instructions/mbarrier_init.h>
#include <cuda/__ptx/instructions/mbarrier_wait.h>

#include "common/types.cuh"

namespace cupar {
// A barrier. Its phases have parity 0, 1, 0, …: one ends when all arrivals and bytes that it expects are
// there.
struct barrier {
  cuda::std::uint64_t state;

  // One thread does this, and `publish_barriers`, before any other uses it.
  __device__ __forceinline__ void init(int arrivals) { cuda::ptx::mbarrier_init(&state, arrivals); }

  __device__ __forceinline__ void arrive() { cuda::ptx::mbarrier_arrive(&state); }

  // Arrives, and has the phase last until this many bytes of bulk copies have arrived.
  __device__ __forceinline__ void arrive_expecting(unsigned bytes) {
    cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                         cuda::ptx::space_shared, &state, bytes);
  }

  // Waits until the phase of that parity is over.
  __device__ __forceinline__ void wait(int parity) {
    while (!cuda::ptx::mbarrier_try_wait_parity(&state, parity)) {
    }
  }
};

// Makes the thread's writes to shared memory visible to bulk copies that are issued later.
__device__ __forceinline__ void publish_to_bulk() {
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

__device__ __forceinline__ void publish_barriers() {
  cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
  publish_to_bulk();
}

// Begins a copy into shared memory: of a multiple of 16 bytes, between addresses that are multiples of 16.
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, barrier& arrives_at) {
  cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, to, from, bytes,
                           &arrives_at.state);
}

// Begins a copy out of shared memory, of the same kind.
__device__ __forceinline__ void bulk_store(void* to, const void* from, unsigned bytes) {
  cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, to, from, bytes);
  cuda::ptx::cp_async_bulk_commit_group();
}

// Waits until shared memory is free again that the thread's copies out of it read.
__device__ __forceinline__ void wait_for_bulk_stores() {
  cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>{});
}
}  // namespace cupar
