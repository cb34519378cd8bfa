// Histograms whose bins may be too many for shared memory: they are counted in the output, but for the
// frequent ones. Each block looks at some samples from all over the input, and keeps the bins that it meets
// first in a direct-mapped cache in shared memory. For others, a warp adds what all of its lanes have for a
// bin at once, since additions to one address take turns.
#include "histogram.cuh"

namespace cupar {
// Adds one for each lane of a warp that is here together.
__device__ __forceinline__ void count_together(count_t* counters, unsigned bin) {
  const unsigned same = __match_any_sync(__activemask(), bin);
  if (threadIdx.x % 32 == __ffs(same) - 1) {
    add(counters + bin, __popc(same));
  }
}
}  // namespace cupar

// Counts in a cache of 2^k slots, and in the output. For the cache, each block reads as many samples as there
// are slots, `step` apart.
extern "C" __global__ __launch_bounds__(threads, resident) void cupar_histogram_cached(
    d_samples_t samples, u64 num_samples, d_histogram_t histogram, unsigned slots, u64 step,
    levels_t levels) {
  unsigned* const bins     = reinterpret_cast<unsigned*>(memory);
  unsigned* const counters = bins + slots;
  for (unsigned i = threadIdx.x; i < slots; i += threads) {
    bins[i]     = levels.bins;  // none
    counters[i] = 0;
  }
  join_stream();
  __syncthreads();
  with_scale(levels, [=](auto scale) {
    for (unsigned i = threadIdx.x; i < slots; i += threads) {
      const u64 at = (u64{gridDim.x} * i + blockIdx.x) * step;
      if (at < num_samples) {
        const unsigned bin = scale(samples[at]);
        atomicCAS(bins + (bin & (slots - 1)), levels.bins, bin);
      }
    }
    __syncthreads();
    for_each_sample(samples, num_samples, [=](sample_t sample) {
      const unsigned bin  = scale(sample);
      const unsigned slot = bin & (slots - 1);
      if (bins[slot] == bin) {
        atomicAdd(counters + slot, 1u);
      } else if (bin < levels.bins) {
        count_together(histogram, bin);
      }
    });
  });
  __syncthreads();
  for (unsigned i = threadIdx.x; i < slots; i += threads) {
    if (bins[i] < levels.bins && counters[i] != 0) {
      add(histogram + bins[i], counters[i]);
    }
  }
}
