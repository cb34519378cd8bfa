// The exclusive prefix of a tile of a scan, from the aggregates that earlier tiles have published.
//
// A block keeps what all tiles up to one reduce to, and adds those up to its next tile: each tile publishes
// what it reduces to by itself, so none waits for the tiles before another's. Tiles are combined in
// the same order whatever the timing: groups of 128 from left to right, or of 32 if values are large; those
// of a group as a tree.
//
// Source: CUB's kernel_scan_lookahead.cuh ("warpspeed").
#pragma once

#include "common/combining.cuh"
#include "common/published.cuh"

namespace cupar {
// For a warp: all lanes call its functions.
template <class V, class Op, bool has_init>
struct lookahead {
  using known = published<V>;

  static constexpr int each  = sizeof(V) <= 8 ? 4 : sizeof(V) <= 16 ? 2 : 1;  // tiles of a lane in a group
  static constexpr int group = 32 * each;

  V up_to;
  unsigned seen = 0;         // tiles that `up_to` is made of
  bool has_any  = has_init;  // whether it is anything

  __device__ __forceinline__ explicit lookahead(const V& init) : up_to(init) {}

  // Returns a tile's exclusive prefix, if it has one. Tiles must be requested in increasing order.
  __device__ __forceinline__ V before(const known* of_tiles, unsigned tile, const Op& op) {
    V sum        = up_to;
    bool has_sum = has_any;
    while (seen < tile) {
      const int left = tile - seen < 2 * group ? static_cast<int>(tile - seen) : 2 * group;
      V value[2 * each];
      read(value, of_tiles + seen, left);
#pragma unroll unrolled < V>
      for (int g = 0; g < 2; ++g) {
        const int count = left - g * group < group ? left - g * group : group;
        if (count > 0) {
          const V all = reduce(&value[g * each], count, op);
          sum         = has_sum ? combine(sum, all, op) : all;
          has_sum     = true;
          if (count == group) {
            up_to   = sum;
            has_any = true;
          }
        }
      }
      seen += left / group * group;
      if (left % group != 0) {
        break;
      }
    }
    return sum;
  }

 private:
  // Of a lane's i-th value of two groups, which tile's it is.
  static __device__ __forceinline__ int place(int i) {
    return i / each * group + static_cast<int>(threadIdx.x % 32) * each + i % each;
  }

  // Waits for the states of a number of tiles. All that is lacking is loaded at once.
  static __device__ __forceinline__ void read(V* value, const known* of_tiles, int count) {
    unsigned lacking = 0;
#pragma unroll
    for (int i = 0; i < 2 * each; ++i) {
      lacking |= static_cast<unsigned>(place(i) < count) << i;
    }
    while (__any_sync(~0u, lacking != 0)) {
      typename known::copy found[2 * each];
#pragma unroll
      for (int i = 0; i < 2 * each; ++i) {
        if (lacking >> i & 1) {
          found[i] = of_tiles[place(i)].read();
        }
      }
#pragma unroll
      for (int i = 0; i < 2 * each; ++i) {
        if (lacking >> i & 1) {
          found[i].arrive();
        }
      }
#pragma unroll
      for (int i = 0; i < 2 * each; ++i) {
        if (lacking >> i & 1 && found[i].is_there()) {
          value[i] = found[i].value();
          lacking &= ~(1u << i);
        }
      }
    }
  }

  // Reduces the first values of a group.
  static __device__ __forceinline__ V reduce(const V* value, int count, const Op& op) {
    V sum = value[0];
#pragma unroll
    for (int i = 1; i < each; ++i) {
      if (static_cast<int>(threadIdx.x % 32) * each + i < count) {
        sum = combine(sum, value[i], op);
      }
    }
    const int lanes = (count + each - 1) / each;
    return shuffle(scan_first_lanes(sum, lanes, op), lanes - 1);
  }
};
}  // namespace cupar
