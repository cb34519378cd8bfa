// A warp's tile of items, in which segments begin anywhere: it is loaded, scanned, and stored.
//
// A tile has rows of vectors, of which each lane has one in each row. A bit for each item tells whether a
// segment begins with it. Out-of-range items are padded with copies, so that the operator sees only items
// of the caller's; their results are not stored.
//
// Source: scans by head flags are those of S. Sengupta et al., "Scan Primitives for GPU Computing", Graphics
// Hardware 2007.
//
// Traits: d_in_t, d_out_t, op_t, accum_t, is_inclusive, init_is_value, init_is_on_device; policy_words.
#pragma once

#include "common/combining.cuh"
#include "common/initial.cuh"
#include "common/vectors.cuh"

namespace cupar {
constexpr int tile_rows(int most) {
  return most < 1 ? 1 : most < 8 ? most : 8;
}

constexpr int larger(int a, int b) {
  return a > b ? a : b;
}

// Items of a vector. Those of several arrays are no more than a word together, so that lanes meet in no bank
// where they are in shared memory.
template <class In, class Out>
constexpr int lane_items(int bytes) {
  constexpr int most = vector_items<In, Out>();
  return (is_array<In> && is_array<Out>) || most * bytes <= widest ? most : larger(widest / bytes, 1);
}

template <class Traits>
struct scan_tile {
  using d_in_t                            = typename Traits::d_in_t;
  using d_in_v                            = typename Traits::d_in_v;
  using d_out_t                           = typename Traits::d_out_t;
  using d_out_v                           = typename Traits::d_out_v;
  using op_t                              = typename Traits::op_t;
  using accum_t                           = typename Traits::accum_t;
  static constexpr bool is_inclusive      = Traits::is_inclusive;
  static constexpr bool init_is_value     = Traits::init_is_value;
  static constexpr bool init_is_on_device = Traits::init_is_on_device;
  static constexpr int policy_words       = Traits::policy_words;

  using value_t                  = combined<op_t, accum_t>;
  static constexpr bool has_init = init_is_value || init_is_on_device;
  using init_t                   = init_parameter<accum_t, init_is_value, init_is_on_device>;

  static constexpr int items      = lane_items<d_in_t, d_out_t>(sizeof(d_in_v));  // of a vector
  static constexpr int item_words = sizeof(value_t) > 4 ? static_cast<int>(sizeof(value_t)) / 4 : 1;

  static constexpr int rows       = tile_rows(policy_words / (items * item_words));
  static constexpr int row_items  = 32 * items;
  static constexpr int tile_items = rows * row_items;

  // An inclusive scan of the lanes' values, from lane `first` on.
  static __device__ __forceinline__ value_t scan_lanes(value_t value, int first, const op_t& op) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const value_t other = shuffle_up(value, distance);
      if (lane - distance >= first) {
        value = combine(other, value, op);
      }
    }
    return value;
  }

  // Items one after another, in input and output. Their positions count from where a vector begins.
  struct span {
    d_in_t in;
    d_out_t out;
    i64 low, high;           // the first one's position, and that behind the last
    bool is_wide, is_wider;  // whether there are vectors in the input, and in the output
  };

  template <class In, class Out>
  static __device__ __forceinline__ span span_of(In in, Out out, i64 length) {
    if constexpr (arrays_of<In>::widest > 0 || arrays_of<Out>::widest > 0) {
      int beyond;
      if constexpr (arrays_of<In>::widest > 0) {
        beyond = beyond_vector<items>(in);
      } else {
        beyond = beyond_vector<items>(out);
      }
      in  = in - beyond;
      out = out - beyond;
      return {in, out, beyond, beyond + length, is_aligned<items>(in), is_aligned<items>(out)};
    } else {
      return {in, out, 0, length, true, true};
    }
  }

  struct tile {
    value_t item[rows][items];
    unsigned heads[rows];  // a bit for each item of a vector: whether a segment begins with it
    int low, high;         // positions of the first item that is there, and behind the last

    __device__ tile() {}

    __device__ __forceinline__ static int position(int row) {
      return row * row_items + static_cast<int>(threadIdx.x % 32) * items;
    }
    __device__ __forceinline__ bool has_row(int row) const { return row * row_items < high; }
    __device__ __forceinline__ bool has_vector(int row) const {
      return position(row) >= low && position(row) + items <= high;
    }
    __device__ __forceinline__ bool is_whole() const { return low == 0 && high == tile_items; }

    // The tile of a span that begins at a position.
    template <class Place>
    __device__ __forceinline__ void place(Place low_of_span, Place high_of_span, Place first) {
      low  = first == 0 ? static_cast<int>(low_of_span) : 0;
      high = high_of_span - first < tile_items ? static_cast<int>(high_of_span - first) : tile_items;
    }

    // One segment begins at position `low`, or none.
    __device__ __forceinline__ void mark_first(bool is_first) {
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        heads[r] = r == 0 && is_first && threadIdx.x % 32 == 0 ? 1u << low : 0;
      }
    }

    // Loads items from there on. Vectors that are there as a whole are loaded by `vector_of(row, to)`.
    template <class Vector>
    __device__ __forceinline__ void load_by(d_in_t from, bool is_wide, Vector vector_of) {
      vector<d_in_v, items> loaded[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (is_wide && has_vector(r)) {
          vector_of(r, loaded[r]);
        }
      }
      if (!is_wide || !is_whole()) {
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          if (has_row(r) && !(is_wide && has_vector(r))) {
#pragma unroll
            for (int i = 0; i < items; ++i) {
              const int at      = position(r) + i;
              loaded[r].item[i] = from[at < low ? low : at < high ? at : high - 1];
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (has_row(r)) {
#pragma unroll
          for (int i = 0; i < items; ++i) {
            item[r][i] = static_cast<accum_t>(loaded[r].item[i]);
          }
        }
      }
    }

    __device__ __forceinline__ void load_items(d_in_t from, bool is_wide) {
      load_by(from, is_wide, [&](int r, vector<d_in_v, items>& to) { load<true>(to, from + position(r)); });
    }

    // Scans a lane's vector.
    __device__ __forceinline__ void scan_vector(int r, const value_t& first, const op_t& op) {
      if constexpr (has_init) {
        if (heads[r] != 0) {
#pragma unroll
          for (int i = 0; i < items; ++i) {
            if (heads[r] >> i & 1) {
              item[r][i] = combine(first, item[r][i], op);
            }
          }
        }
      }
#pragma unroll
      for (int i = 1; i < items; ++i) {
        if (!(heads[r] >> i & 1)) {
          item[r][i] = combine(item[r][i - 1], item[r][i], op);
        }
      }
    }

    // Scans segments that begin anywhere. `last` is the tile's prefix, if it has one, and becomes the
    // aggregate of the last segment.
    __device__ __forceinline__ void scan(value_t& last, bool has_last, const value_t& first, const op_t& op) {
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (!has_row(r)) {
          break;
        }
        scan_vector(r, first, op);
        const unsigned own  = heads[r];
        const unsigned with = __ballot_sync(~0u, own != 0), earlier = with & ((1u << lane) - 1);
        const unsigned up_to = own != 0 ? 1u << lane : earlier;
        const value_t all    = scan_lanes(item[r][items - 1], up_to == 0 ? 0 : 31 - __clz(up_to), op);
        value_t before       = shuffle_up(all, 1);
        if (r > 0 || has_last) {
          if (lane == 0) {
            before = last;
          } else if (earlier == 0) {
            before = combine(last, before, op);
          }
        }
        if (r > 0 || lane > 0 || has_last) {
          prepend(r, before, op);
        }
        last = shuffle(item[r][items - 1], 31);
      }
    }

    // Combines the prefix of a lane's vector with the items of its open segment.
    __device__ __forceinline__ void prepend(int row, const value_t& before, const op_t& op) {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        if (!(heads[row] & ((2u << i) - 1))) {
          item[row][i] = combine(before, item[row][i], op);
        }
      }
    }

    // Combines the tile's prefix with all items; no segment begins in the tile.
    __device__ __forceinline__ void prepend_to_all(const value_t& before, const op_t& op) {
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (has_row(r)) {
          prepend(r, before, op);
        }
      }
    }

    // Calls `write` with each vector: its row, and its items. `before` is the tile's prefix.
    template <class Write>
    __device__ __forceinline__ void store_by(const value_t& before, const value_t& first, Write write) const {
      value_t last = before;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (!has_row(r)) {
          break;
        }
        vector<d_out_v, items> stored;
        value_t previous = last;
        if constexpr (!is_inclusive) {
          const value_t other = shuffle_up(item[r][items - 1], 1);
          previous            = threadIdx.x % 32 == 0 ? last : other;
          last                = shuffle(item[r][items - 1], 31);
        }
#pragma unroll
        for (int i = 0; i < items; ++i) {
          value_t value = item[r][i];
          if constexpr (!is_inclusive) {
            value = heads[r] >> i & 1 ? first : i == 0 ? previous : item[r][i == 0 ? 0 : i - 1];
          }
          stored.item[i] = static_cast<d_out_v>(static_cast<accum_t>(value));
        }
        write(r, stored);
      }
    }

    __device__ __forceinline__ void store_items(d_out_t to, bool is_wide, const value_t& before,
                                                const value_t& first) const {
      store_by(before, first, [&](int r, const vector<d_out_v, items>& stored) {
        if (is_wide && has_vector(r)) {
          store<true>(to + position(r), stored);
        } else {
#pragma unroll
          for (int i = 0; i < items; ++i) {
            if (position(r) + i >= low && position(r) + i < high) {
              to[position(r) + i] = stored.item[i];
            }
          }
        }
      });
    }
  };
};
}  // namespace cupar
