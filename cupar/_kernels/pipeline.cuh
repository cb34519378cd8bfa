// What warps that share work in a block tell each other by: barriers in shared memory, bulk copies that
// arrive at them, and bulk copies back. And values of any type as words, as which they are shuffled and
// published.
//
// Source: PTX ISA, "mbarrier" and "cp.async.bulk". All but the words need compute capability 9.0.
#pragma once

#include "cupar.cuh"
#include "whole.cuh"

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

// A value as words of 32 bits.
template <class T>
struct words {
  static constexpr int count = (sizeof(T) + 3) / 4;
  unsigned word[count];

  words() = default;
  __device__ __forceinline__ explicit words(const T& value) {
    word[count - 1] = 0;
    memcpy(word, &value, sizeof(T));
  }
  __device__ __forceinline__ T value() const {
    T result;
    memcpy(&result, word, sizeof(T));
    return result;
  }
};

// The value of the lane so many lanes below, or above; of those that have none, the lane's own.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& value, int lanes) {
  words<T> given(value);
  for (unsigned& word : given.word) word = __shfl_up_sync(~0u, word, lanes);
  return given.value();
}
template <class T>
__device__ __forceinline__ T shuffle_down(const T& value, int lanes) {
  words<T> given(value);
  for (unsigned& word : given.word) word = __shfl_down_sync(~0u, word, lanes);
  return given.value();
}

// The value of one lane.
template <class T>
__device__ __forceinline__ T shuffle(const T& value, int lane) {
  words<T> given(value);
  for (unsigned& word : given.word) word = __shfl_sync(~0u, word, lane);
  return given.value();
}

// A value in global memory that one thread publishes and others wait for. It is kept in parts that are
// written and read at once, each with a flag; so it needs no order of memory accesses. All flags must be 0
// before.
template <class T>
struct published {
  static constexpr bool is_narrow = words<T>::count == 1;
  static constexpr int parts      = is_narrow ? 1 : (words<T>::count + 2) / 3;
  using part                      = cuda::std::conditional_t<is_narrow, uint2, uint4>;

  part at[parts];

  __device__ __forceinline__ void publish(const T& value) {
    const words<T> given(value);
    for (int i = 0; i < parts; ++i) {
      if constexpr (is_narrow) {
        store_whole(&at[i], uint2{given.word[0], 1});
      } else {
        store_whole(&at[i], uint4{word(given, 3 * i), word(given, 3 * i + 1), word(given, 3 * i + 2), 1});
      }
    }
  }

  // What can be read of one at some time: whether it was published, and what.
  struct copy {
    part at[parts];

    __device__ __forceinline__ bool is_there() const {
      bool all = true;
      for (const part& each : at) all &= flag(each) != 0;
      return all;
    }
    __device__ __forceinline__ T value() const {
      words<T> found;
      for (int i = 0; i < parts; ++i) {
        found.word[is_narrow ? i : 3 * i] = at[i].x;
        if constexpr (!is_narrow) {
          if (3 * i + 1 < words<T>::count) found.word[3 * i + 1] = at[i].y;
          if (3 * i + 2 < words<T>::count) found.word[3 * i + 2] = at[i].z;
        }
      }
      return found.value();
    }
  };
  __device__ __forceinline__ copy read() const {
    copy found;
    for (int i = 0; i < parts; ++i) found.at[i] = load_whole(&at[i]);
    return found;
  }

 private:
  static __device__ __forceinline__ unsigned flag(uint2 x) { return x.y; }
  static __device__ __forceinline__ unsigned flag(uint4 x) { return x.w; }
  static __device__ __forceinline__ unsigned word(const words<T>& given, int i) {
    return i < words<T>::count ? given.word[i] : 0;
  }
};
}  // namespace cupar
