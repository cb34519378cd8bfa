// What comes before a tile, in runs of keys: how many of them begin, and what the last one, which goes on,
// has so far. The blocks of a grid hand that to each other: each combines what the tiles before its own have,
// back to one for which it is known of all up to it.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back",
// NVR-2016-002; the runs as in CUB's DeviceReduce::ReduceByKey.
#pragma once

#include "common/combining.cuh"
#include "common/lookback.cuh"
#include "common/published.cuh"
#include "common/warp.cuh"

namespace cupar {
// Of some items: how many runs begin there, and the value of those items that follow the last beginning, or
// of all if there is none.
template <class Count, class V>
struct runs {
  Count count;
  V value;
};

// Combines two neighbours.
template <class Count, class V, class Op>
__device__ __forceinline__ runs<Count, V> combine(const runs<Count, V>& a, const runs<Count, V>& b,
                                                  const Op& op) {
  runs<Count, V> both{a.count + b.count, b.value};
  if (b.count == 0) {
    both.value = combine(a.value, b.value, op);
  }
  return both;
}

template <class Count, class V>
__device__ __forceinline__ runs<Count, V> shuffle_up(const runs<Count, V>& part, int lanes) {
  return {__shfl_up_sync(~0u, part.count, lanes), shuffle_up(part.value, lanes)};
}
template <class Count, class V>
__device__ __forceinline__ runs<Count, V> shuffle(const runs<Count, V>& part, int lane) {
  return {__shfl_sync(~0u, part.count, lane), shuffle(part.value, lane)};
}

// States of tiles. The highest bits of a word are the status, the others count how many runs
// begin. A value of at most 8 bytes is in the same 16 bytes as the word, which are written and read as a
// whole; a larger one tells by flags of its own whether it is there. All are zero at first.
template <class V>
struct run_states {
  static constexpr u64 of_tile = u64{1} << 62, up_to_tile = u64{2} << 62, count_bits = of_tile - 1;
  static constexpr bool is_small = sizeof(V) <= sizeof(u64);
  static constexpr int windows   = is_small ? 2 : 1;  // of 32 tiles, whose states are on their way together

  struct large {
    alignas(16) u64 word;
    published<V> value[2];
  };
  using state_t = cuda::std::conditional_t<is_small, ulonglong2, large>;
  using runs_t  = runs<u64, V>;

  // What is loaded of a state; of a small one, before it has arrived, so that several are under way together.
  using loaded_t = cuda::std::conditional_t<is_small, ulonglong2, runs_t>;

  state_t* states;

  __device__ __forceinline__ void publish(i64 tile, u64 kind, const runs_t& of) const {
    if constexpr (is_small) {
      ulonglong2 both{kind | of.count, 0};
      memcpy(&both.y, &of.value, sizeof(V));
      store_whole(states + tile, both);
    } else {
      states[tile].value[kind == up_to_tile].publish(of.value);
      store_relaxed(&states[tile].word, kind | of.count);
    }
  }

  // Returns what all tiles before one have, to each thread of a warp.
  template <class Op>
  __device__ __forceinline__ runs_t before(i64 tile, const Op& op) const {
    const int lane = threadIdx.x % 32;
    runs_t sum;
    sum.count     = 0;
    bool is_first = true, is_open = true;  // whether the value lacks some tile's
    for (i64 nearest = tile - 1;; nearest -= 32 * windows) {
      loaded_t loaded[windows];
#pragma unroll
      for (int w = 0; w < windows; ++w) {
        loaded[w] = load(nearest - 32 * w - lane);
      }
#pragma unroll
      for (int w = 0; w < windows; ++w) {
        runs_t state = arrived(loaded[w]);
        unsigned ends, needed;
        while (true) {
          ends   = __ballot_sync(~0u, kind(state) == up_to_tile);
          needed = ends ? ends ^ (ends - 1) : ~0u;  // the lanes up to the first of those
          if (!(__ballot_sync(~0u, kind(state) == 0) & needed)) {
            break;
          }
          state = arrived(load(nearest - 32 * w - lane));
        }
        const u64 count = state.count & count_bits;
        if (is_open) {
          const unsigned closing = __ballot_sync(~0u, count > 0) & needed;
          const int last         = closing ? __ffs(closing) - 1 : 31;  // the lane of the earliest that counts
          V value                = state.value;
#pragma unroll 1
          for (int lanes = 1; lanes <= last; lanes *= 2) {
            const V earlier = shuffle_down(value, lanes);
            if (lane + lanes <= last) {
              value = combine(earlier, value, op);
            }
          }
          value = shuffle(value, 0);
          if (is_first) {
            sum.value = value;
          } else {
            sum.value = combine(value, sum.value, op);
          }
          is_first = false;
          is_open  = closing == 0;
        }
        const bool is_added = kind(state) == of_tile && needed >> lane & 1;
        sum.count += sum_of_lanes(is_added ? static_cast<unsigned>(count) : 0);  // of a tile, it is small
        if (ends) {
          sum.count += __shfl_sync(~0u, count, __ffs(ends) - 1);
          return sum;
        }
      }
    }
  }

 private:
  // Before the first tile there is nothing, and its state is not used.
  __device__ __forceinline__ loaded_t load(i64 tile) const {
    if constexpr (is_small) {
      return tile >= 0 ? issue_load(states + tile) : ulonglong2{up_to_tile, 0};
    } else {
      runs_t found;
      found.count = up_to_tile;
      if (tile >= 0) {
        found.count = load_relaxed(&states[tile].word);
        if (kind(found) != 0) {
          const auto copy = states[tile].value[kind(found) == up_to_tile].read();
          copy.arrive();
          if (copy.is_there()) {
            found.value = copy.value();
          } else {
            found.count = 0;
          }
        }
      }
      return found;
    }
  }

  __device__ __forceinline__ static runs_t arrived(const loaded_t& loaded) {
    if constexpr (is_small) {
      use_whole(loaded);
      runs_t found;
      found.count = loaded.x;
      memcpy(&found.value, &loaded.y, sizeof(V));
      return found;
    } else {
      return loaded;
    }
  }

  __device__ __forceinline__ static u64 kind(const runs_t& state) { return state.count & ~count_bits; }
};
}  // namespace cupar
