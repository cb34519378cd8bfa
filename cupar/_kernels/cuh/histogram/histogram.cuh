// Histograms with bins of equal or of any width. Each block counts in shared memory, and adds what it has
// counted to the output, which a kernel before it has set to zero; a grid of one block does that itself.
//
// - Bins that fit into shared memory are counted there, with 16-byte loads of samples. Lanes that count in
//   one bin are merged by the hardware; lanes that count in bins of the same bank are not, and take turns.
//   Where that would be what the samples wait for, there are 32 copies of the bins, one a lane, so that no
//   two lanes meet in a bank.
// - Samples of one byte are counted by their 256 values, and the values are put into bins at the end.
// - More bins are counted in the output, but for the frequent ones. Each block looks at some samples
//   from all over the input, and keeps the bins that it meets first in a direct-mapped cache in shared
//   memory. For others, a warp adds what all of its lanes have for a bin at once, since additions to one
//   address take turns.
//
// Which bin a sample is in is what cub::DeviceHistogram says (kernel_histogram.cuh, ScaleTransform), without
// its division: by reciprocals that the host made, exact for integers (T. Granlund, P. Montgomery, "Division
// by invariant integers using multiplication", PLDI 1994).
//
// Levels that are not evenly apart are in shared memory, where they fit there, beside a table of parts of
// equal width: which levels are in the part of a sample is known, and of so many parts most have none or one.
//
// Traits: d_samples_t, d_histogram_t, level_t (double, long long or unsigned long long; of ranges, any), and,
// by histogram.py, has_ranges, threads, loads, resident, is_spread.
#pragma once

#include "common/kernel.cuh"
#include "common/warp.cuh"

namespace cupar {
extern __shared__ uint4 memory[];

template <class Traits>
struct histogram_kernels {
  using d_samples_t               = typename Traits::d_samples_t;
  using d_samples_v               = typename Traits::d_samples_v;
  using d_histogram_t             = typename Traits::d_histogram_t;
  using d_histogram_v             = typename Traits::d_histogram_v;
  using level_t                   = typename Traits::level_t;
  static constexpr int threads    = Traits::threads;
  static constexpr int loads      = Traits::loads;
  static constexpr int resident   = Traits::resident;
  static constexpr bool is_spread = Traits::is_spread;

  using sample_t = d_samples_v;
  using count_t  = d_histogram_v;

  static constexpr bool is_byte          = sizeof(sample_t) == 1;
  static constexpr bool has_ranges       = Traits::has_ranges;
  static constexpr bool has_float_levels = !has_ranges && cuda::std::is_same_v<level_t, double>;
  static constexpr int vector_items      = is_array<d_samples_t> ? 16 / sizeof(sample_t) : 1;
  static constexpr int narrow_bits =
      sizeof(sample_t) <= 2 ? 16 : 32;  // of ranges that are quicker to divide by

  // ---- From a sample to its bin ----

  // Levels that are floats, as a call hands them over.
  struct float_levels {
    double lower, upper;
    double unit;        // a power of two, by which distances are multiplied, so that the width is about 1
    double shift;       // -lower * unit
    double reciprocal;  // of a bin's width in that unit, which overflows for no levels
    unsigned bins;
  };

  // Levels that are integers.
  struct integer_levels {
    u64 first;  // the smallest sample that there is from the lower level on; of a negative one, its low bits
    u64 last;   // the distance of the largest from that
    u64 below;  // the distance of the first from the lower level
    u64 reciprocal;
    unsigned bins;
    unsigned times;
    int shift;  // 0: the levels are at most 2^narrow_bits apart
  };

  // Levels of bins of any width, in memory.
  struct range_levels {
    const level_t* levels;
    unsigned bins;
    unsigned parts;  // of the table in shared memory; 0: levels are searched where they are
  };

  using levels_t =
      cuda::std::conditional_t<has_ranges, range_levels,
                               cuda::std::conditional_t<has_float_levels, float_levels, integer_levels>>;

  // Each takes a sample and returns its bin, or the number of bins if it is in none.
  struct float_scale {
    float_levels levels;

    __device__ __forceinline__ unsigned operator()(sample_t sample) const {
      const auto x          = static_cast<double>(sample);
      const double distance = __fma_rn(x, levels.unit, levels.shift);  // (x - lower) * unit, rounded once
      // To add 2^52 rounds down to an integer, which the low word is then; that is quicker than a conversion.
      const unsigned bin = __double2loint(__dadd_rz(__dmul_rn(distance, levels.reciprocal), 0x1p52));
      return x >= levels.lower && x < levels.upper ? least(bin, levels.bins) : levels.bins;
    }
  };

  // How samples and their distances are computed with: modulo 2^32 if that is as much as samples have.
  using word_t = cuda::std::conditional_t<sizeof(sample_t) == 8, u64, unsigned>;

  // floor(distance * bins / range) for range <= 2^narrow_bits: distance * (bins / range), of which `times` is
  // the integer part, and `reciprocal` / 2^(2 narrow_bits) the fraction, rounded up.
  struct narrow_scale {
    integer_levels levels;

    __device__ __forceinline__ unsigned operator()(sample_t sample) const {
      const word_t offset = static_cast<word_t>(sample) - static_cast<word_t>(levels.first);
      const auto distance = static_cast<unsigned>(offset) + static_cast<unsigned>(levels.below);
      unsigned bin        = __umulhi(distance, static_cast<unsigned>(levels.reciprocal));
      if constexpr (narrow_bits == 32) {
        const auto high = static_cast<unsigned>(levels.reciprocal >> 32);
        bin             = static_cast<unsigned>((u64{distance} * high + bin) >> 32);
      }
      bin += distance * levels.times;
      return offset <= static_cast<word_t>(levels.last) ? bin : levels.bins;
    }
  };

  // The same for any range: `times` is the number of bins, and distance * bins less than 2^64.
  struct wide_scale {
    integer_levels levels;

    __device__ __forceinline__ unsigned operator()(sample_t sample) const {
      const word_t offset = static_cast<word_t>(sample) - static_cast<word_t>(levels.first);
      const u64 product   = (offset + levels.below) * levels.times;
      const u64 high      = __umul64hi(product, levels.reciprocal);
      const auto bin      = static_cast<unsigned>((high + ((product - high) >> 1)) >> levels.shift);
      return offset <= static_cast<word_t>(levels.last) ? bin : levels.bins;
    }
  };

  // Both find how many levels are at or below a sample: of NaN, none is, and NaN as the last level is above
  // all samples. The bin is that of the last of them.
  static __device__ __forceinline__ unsigned bin_behind(unsigned count, unsigned bins) {
    return count == 0 ? bins : least(count - 1, bins);
  }

  // Parts of equal width between the first and the last level that are finite. Of two numbers, the larger is
  // never in an earlier part, however differences are rounded; what is before all parts is in the first, and
  // what is behind them in the last.
  struct level_parts {
    static constexpr bool is_integer = cuda::std::is_integral_v<level_t>;
    // Integers are subtracted modulo 2^32 or 2^64, and small floats as float.
    using wide_t =
        cuda::std::conditional_t<is_integer, cuda::std::conditional_t<sizeof(level_t) == 8, u64, unsigned>,
                                 cuda::std::conditional_t<sizeof(level_t) == 8, double, float>>;

    level_t first;
    float scale;
    unsigned last;

    __device__ __forceinline__ level_parts(const level_t* levels, unsigned bins, unsigned parts)
        : first(levels[is_finite(levels[0]) ? 0 : 1]), last(parts - 1) {
      scale = static_cast<float>(parts) / distance(levels[is_finite(levels[bins]) ? bins : bins - 1]);
    }

    static __device__ __forceinline__ bool is_finite(level_t level) {
      const auto x = static_cast<wide_t>(level);
      return x - x == wide_t{0};
    }
    __device__ __forceinline__ float distance(level_t x) const {
      const auto apart = static_cast<wide_t>(x) - static_cast<wide_t>(first);
      return is_integer && x < first ? 0 : static_cast<float>(apart);
    }
    __device__ __forceinline__ unsigned operator()(level_t x) const {
      return least(__float2uint_rd(distance(x) * scale), last);  // of NaN, 0
    }
  };

  // In shared memory.
  struct staged_scale {
    const level_t* levels;
    const unsigned* table;  // of each part, how many levels are before it; and in it, in the high half
    level_parts part_of;
    unsigned bins;

    __device__ __forceinline__ unsigned operator()(sample_t sample) const {
      const auto x        = static_cast<level_t>(sample);
      const unsigned part = table[part_of(x)];
      unsigned at = part & 0xffff, count = part >> 16;
      while (count > 0) {
        const unsigned half = (count + 1) / 2;
        at += levels[at + half - 1] <= x ? half : 0;
        count -= half;
      }
      return bin_behind(at, bins);
    }
  };

  // Of any number of levels, anywhere. A range whose length is a power of two holds the answer, and is
  // halved.
  struct range_scale {
    const level_t* first;
    unsigned bins;

    __device__ __forceinline__ unsigned operator()(sample_t sample) const {
      const auto x         = static_cast<level_t>(sample);
      const unsigned count = bins + 1, half = 1u << (31 - __clz(count));
      unsigned at = first[half - 1] <= x ? count + 1 - half : 0;
      for (unsigned step = half / 2; step > 0; step /= 2) {
        at += first[at + step - 1] <= x ? step : 0;
      }
      return bin_behind(at, bins);
    }
  };

  static __device__ __forceinline__ unsigned* table_behind(const level_t* levels, unsigned bins) {
    const u64 bytes = u64{bins + 1} * sizeof(level_t);
    return reinterpret_cast<unsigned*>(reinterpret_cast<uint4*>(const_cast<level_t*>(levels)) +
                                       (bytes + 15) / 16);
  }
  // Copies levels to shared memory, and makes the table, if one has been planned. All threads do, before they
  // synchronise. Whatever the levels are, parts have all of them together.
  static __device__ __forceinline__ void stage(const range_levels& levels, uint4* to) {
    constexpr unsigned warps = threads / 32;
    __shared__ unsigned of_warps[warps];
    if (levels.parts == 0) {
      return;
    }
    auto* const staged    = reinterpret_cast<level_t*>(to);
    unsigned* const table = table_behind(staged, levels.bins);
    for (unsigned i = threadIdx.x; i < levels.parts; i += threads) {
      table[i] = 0;
    }
    for (unsigned i = threadIdx.x; i <= levels.bins; i += threads) {
      staged[i] = levels.levels[i];
    }
    __syncthreads();
    const level_parts part_of(staged, levels.bins, levels.parts);
    for (unsigned i = threadIdx.x; i <= levels.bins; i += threads) {
      const level_t level = staged[i];
      atomicAdd(table + (level == level ? part_of(level) : part_of.last), 1u << 16);  // NaN is above all
    }
    __syncthreads();
    // Each warp adds up some rows of 32 parts.
    const unsigned warp = threadIdx.x / 32, rows = (levels.parts + threads - 1) / threads;
    const auto for_each_row = [&](auto use) {
      for (unsigned row = 0; row < rows; ++row) {
        const unsigned part = (warp * rows + row) * 32 + threadIdx.x % 32;
        use(part, part < levels.parts ? table[part] >> 16 : 0);
      }
    };
    unsigned before = 0;
    for_each_row([&](unsigned, unsigned count) { before += count; });
    before = sum_of_lanes(before);
    if (threadIdx.x % 32 == 0) {
      of_warps[warp] = before;
    }
    __syncthreads();
    before = 0;
    for (unsigned w = 0; w < warp; ++w) {
      before += of_warps[w];
    }
    for_each_row([&](unsigned part, unsigned count) {
      const unsigned up_to = sum_up_to_lane(count);
      if (part < levels.parts) {
        table[part] |= before + up_to - count;
      }
      before += __shfl_sync(~0u, up_to, 31);
    });
  }
  template <class Levels>
  static __device__ __forceinline__ void stage(const Levels&, uint4*) {}

  // Calls `use` with the constants of the levels.
  template <class Use>
  static __device__ __forceinline__ void with_scale(const float_levels& levels, Use use) {
    use(float_scale{levels});
  }
  template <class Use>
  static __device__ __forceinline__ void with_scale(const range_levels& levels, Use use) {
    use(range_scale{levels.levels, levels.bins});
  }
  template <class Use>
  static __device__ __forceinline__ void with_scale(const integer_levels& levels, Use use) {
    if (levels.shift == 0) {
      use(narrow_scale{levels});
    } else {
      use(wide_scale{levels});
    }
  }

  // The same, if levels have been copied to shared memory.
  template <class Levels, class Use>
  static __device__ __forceinline__ void with_staged_scale(const Levels& levels, const uint4*, Use use) {
    with_scale(levels, use);
  }
  template <class Use>
  static __device__ __forceinline__ void with_staged_scale(const range_levels& levels, const uint4* at,
                                                           Use use) {
    if (levels.parts > 0) {
      const auto* const staged = reinterpret_cast<const level_t*>(at);
      use(staged_scale{staged, table_behind(staged, levels.bins),
                       level_parts(staged, levels.bins, levels.parts), levels.bins});
    } else {
      with_scale(levels, use);
    }
  }

  // ---- All samples ----

  // Calls `use` with each index below a count that is this thread's, `unroll` of them at a time: `read(i)` of
  // all, then `use` of what was read.
  template <int unroll, class Read, class Use>
  static __device__ __forceinline__ void for_each_index(u64 count, Read read, Use use) {
    const u64 stride = u64{gridDim.x} * threads;
    u64 i            = u64{blockIdx.x} * threads + threadIdx.x;
    if constexpr (unroll > 1) {
      for (; i + (unroll - 1) * stride < count; i += unroll * stride) {
        decltype(read(i)) items[unroll];
#pragma unroll
        for (int k = 0; k < unroll; ++k) {
          items[k] = read(i + k * stride);
        }
#pragma unroll
        for (int k = 0; k < unroll; ++k) {
          use(items[k]);
        }
      }
    }
    for (; i < count; i += stride) {
      use(read(i));
    }
  }

  // Calls `use` with each sample that is this thread's, read one by one.
  template <class Use>
  static __device__ __forceinline__ void for_each_sample(d_samples_t samples, u64 num_samples, Use use) {
    constexpr int unroll = sizeof(sample_t) == 8 ? 2 : 4;
    for_each_index<unroll>(num_samples, [=](u64 i) { return static_cast<sample_t>(samples[i]); }, use);
  }

  // The same, but arrays are read in vectors of 16 bytes.
  template <class Samples, class Use>
  static __device__ __forceinline__ void for_each_sample_of_vectors(Samples samples, u64 num_samples,
                                                                    Use use) {
    if constexpr (is_array<Samples>) {
      struct vector_t {
        sample_t items[vector_items];
      };
      // What is before the first 16-byte boundary and after the last is left over: at most two samples less
      // than two vectors have, so it is for the first block.
      const u64 misaligned  = reinterpret_cast<u64>(samples) / sizeof(sample_t) % vector_items;
      const u64 head        = least((vector_items - misaligned) % vector_items, num_samples);
      const u64 num_vectors = (num_samples - head) / vector_items;
      const u64 left_over   = num_samples - num_vectors * vector_items;
      if (blockIdx.x == 0 && threadIdx.x < left_over) {
        use(samples[threadIdx.x < head ? threadIdx.x : threadIdx.x + num_vectors * vector_items]);
      }
      const auto* vectors = reinterpret_cast<const uint4*>(samples + head);
      auto use_all        = [=](uint4 loaded) {
        const auto vector = __builtin_bit_cast(vector_t, loaded);
#pragma unroll
        for (int k = 0; k < vector_items; ++k) {
          use(vector.items[k]);
        }
      };
      for_each_index<loads>(num_vectors, [=](u64 i) { return __ldcs(vectors + i); }, use_all);
    } else {
      for_each_sample(samples, num_samples, use);
    }
  }

  // ---- Counters ----

  static __device__ __forceinline__ void add(count_t* counter, unsigned count) {
    // There are atomic additions for unsigned integers, and they are the same for signed ones.
    using unsigned_t = cuda::std::conditional_t<sizeof(count_t) == 8, u64, unsigned>;
    atomicAdd(reinterpret_cast<unsigned_t*>(counter), unsigned_t{count});
  }

  static __device__ __forceinline__ void set_to_zero(count_t* counters, unsigned count) {
    const u64 stride = u64{gridDim.x} * blockDim.x;
    for (u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
      counters[i] = 0;
    }
  }

  // Calls `use` with each of the first rows of a block's counters that is not zero, and the sum of its
  // copies.
  template <class Use>
  static __device__ __forceinline__ void for_each_count(unsigned rows, unsigned copies, Use use) {
    if (copies == 1) {
      for (unsigned row = threadIdx.x; row < rows; row += threads) {
        if (const unsigned count = reinterpret_cast<const unsigned*>(memory)[row]) {
          use(row, count);
        }
      }
      return;
    }
    // Of 32 copies, eight lanes add four each, so a warp has four rows.
    const unsigned lane = threadIdx.x % 8;
    for (unsigned first = threadIdx.x / 32 * 4; first < rows; first += threads / 8) {
      const unsigned row = first + threadIdx.x % 32 / 8;
      unsigned count     = 0;
      if (row < rows) {
        const uint4 four = memory[row * 8 + lane];
        count            = four.x + four.y + four.z + four.w;
      }
#pragma unroll
      for (int distance = 4; distance > 0; distance /= 2) {
        count += __shfl_xor_sync(~0u, count, distance);
      }
      if (lane == 0 && count != 0) {
        use(row, count);
      }
    }
  }

  struct cupar_histogram_zero : kernel<1024> {
    static __device__ __forceinline__ void run(d_histogram_t histogram, unsigned bins) {
      join_stream();
      set_to_zero(histogram, bins);
    }
  };

  // Counts bins, or the values of bytes, in shared memory, in 1 or 32 copies. Samples in no bin are counted,
  // too, in a row of their own, so that nothing branches.
  struct cupar_histogram_shared : kernel<threads, resident> {
    static __device__ __forceinline__ void run(d_samples_t samples, u64 num_samples, d_histogram_t histogram,
                                               unsigned copies, levels_t levels) {
      const unsigned rows = is_byte ? 256 : levels.bins + 1;
      for (unsigned i = threadIdx.x; i < (rows * copies + 3) / 4; i += threads) {
        memory[i] = {};
      }
      join_stream();
      if (gridDim.x == 1) {
        set_to_zero(histogram, levels.bins);
      }
      uint4* const staged = memory + (rows * copies + 3) / 4;
      stage(levels, staged);
      __syncthreads();
      const unsigned stride = copies * sizeof(unsigned);
      char* const mine = reinterpret_cast<char*>(memory) + (threadIdx.x & (copies - 1)) * sizeof(unsigned);
      auto count_in = [=](unsigned row) { atomicAdd(reinterpret_cast<unsigned*>(mine + row * stride), 1u); };
      if constexpr (is_byte) {
        for_each_sample_of_vectors(samples, num_samples,
                                   [=](sample_t sample) { count_in(static_cast<unsigned char>(sample)); });
        __syncthreads();
        with_scale(levels, [=](auto scale) {
          for_each_count(rows, copies, [=](unsigned value, unsigned count) {
            const unsigned bin = scale(static_cast<sample_t>(value));
            if (bin < levels.bins) {
              add(histogram + bin, count);
            }
          });
        });
      } else {
        with_staged_scale(levels, staged, [=](auto scale) {
          for_each_sample_of_vectors(samples, num_samples, [=](sample_t sample) { count_in(scale(sample)); });
        });
        __syncthreads();
        for_each_count(levels.bins, copies,
                       [=](unsigned bin, unsigned count) { add(histogram + bin, count); });
      }
    }
  };

  // Adds one for each lane of a warp that is here together.
  static __device__ __forceinline__ void count_together(count_t* counters, unsigned bin) {
    const unsigned same = __match_any_sync(__activemask(), bin);
    if (threadIdx.x % 32 == __ffs(same) - 1) {
      add(counters + bin, __popc(same));
    }
  }

  // Counts in a cache of 2^k slots, and in the output. For the cache, each block reads as many samples as
  // there are slots, `step` apart.
  struct cupar_histogram_cached : kernel<threads, resident> {
    static __device__ __forceinline__ void run(d_samples_t samples, u64 num_samples, d_histogram_t histogram,
                                               unsigned slots, u64 step, levels_t levels) {
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
  };

  static constexpr auto properties =
      properties_of(threads, vector_items, is_spread, sizeof(sample_t), cuda::std::is_signed_v<sample_t>,
                    narrow_bits, has_ranges ? 2 : has_float_levels, is_byte ? 0 : sizeof(level_t));
};
}  // namespace cupar
