// Compaction: items sent, in their order, to the part of the output that a functor chooses for them.
//
// Blocks stay, and take one tile after another. A tile comes into one of three or four buffers in shared
// memory, by bulk copies where there are such and the input is an array. There its items are marked, counted
// and ranked: each warp reads rows of 32 times `width` items, and the counts of a thread's rows are scanned
// together, as parts of one word. The tile's counts are published, and the places of the items that go out
// are listed in the order in which they do, while one warp looks back on the tile before. Then that one,
// whose list is from the round before, is written: so the look-back of a tile has had a round to be answered
// in, and the copy of another tile is under way.
//
// A block that waits for another's count must not keep that one from running. Where there are more tiles than
// blocks, they are handed out by a counter, and only blocks that run have any. Else each block has its own
// one, and waits for blocks with lower numbers, which began before it.
//
// Source: our own, after M. Billeter, O. Olsson and U. Assarsson, "Efficient Stream Compaction on Wide SIMD
// Many-Core Architectures", HPG 2009 (ranks), and the look-back of lookback.cuh.
//
// Traits: item_t, of which items are chosen; threads, rows, width and buffers.
#pragma once

#include "common/bulk.cuh"
#include "common/kernel.cuh"
#include "common/lookback.cuh"
#include "common/tiles.cuh"
#include "common/warp.cuh"
#include "common/zero.cuh"

namespace cupar {
template <class Traits>
struct compaction {
  using item_t                 = typename Traits::item_t;
  static constexpr int threads = Traits::threads;
  static constexpr int rows    = Traits::rows;
  static constexpr int width   = Traits::width;
  static constexpr int buffers = Traits::buffers;

  static constexpr int row_items  = 32 * width;              // of a warp
  static constexpr int row_bytes  = width * sizeof(item_t);  // of a thread
  static constexpr int lane_items = rows * width;
  static constexpr int tile_items = threads * lane_items;

  static_assert(threads % 32 == 0 && lane_items <= 32 && tile_items < 65536 &&
                (buffers == 3 || buffers == 4));

  using place_t = unsigned short;  // of an item in its tile

  static constexpr int ticket_words =
      16;  // the counter of tiles has a separate line of 128 bytes, before their states

  template <class First, class Second>
  static constexpr int memory_bytes =
      buffers * (First::bytes + Second::bytes) + 2 * tile_items * int{sizeof(place_t)};

  // Ranks of items that are marked, among those of their warp.
  struct warp_ranks {
    // The count in a row of a warp, and so in a field of a word, is at most its items.
    static constexpr int bits = row_items < 256 ? 8 : 16, in_word = 32 / bits,
                         words = (rows + in_word - 1) / in_word;

    unsigned before[words], all[words];

    // Ranks a warp's items; a thread has one flag bit for each of its items.
    __device__ __forceinline__ void rank(unsigned marks) {
      constexpr unsigned of_row = width == 32 ? ~0u : (1u << width % 32) - 1;
#pragma unroll
      for (int w = 0; w < words; ++w) {
        unsigned counts = 0;
#pragma unroll
        for (int r = w * in_word; r < min((w + 1) * in_word, rows); ++r) {
          counts |= __popc(marks >> (r * width) & of_row) << (r % in_word * bits);
        }
        const unsigned sums = sum_up_to_lane(counts);
        before[w]           = sums - counts;
        all[w]              = __shfl_sync(~0u, sums, 31);
      }
    }

    // How many are marked in a row, and in the lanes of it that come before.
    __device__ __forceinline__ unsigned in_row(int row) const { return part(all, row); }
    __device__ __forceinline__ unsigned in_lanes_before(int row) const { return part(before, row); }

    __device__ __forceinline__ unsigned total() const {
      unsigned sum = 0;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        sum += in_row(r);
      }
      return sum;
    }

   private:
    __device__ __forceinline__ static unsigned part(const unsigned (&from)[words], int row) {
      return from[row / in_word] >> (row % in_word * bits) & ((1u << bits) - 1);
    }
  };

  // Whether a thread's items in a row are loaded as one word, which they must begin at a multiple of.
  static constexpr bool is_word = row_bytes == 4 || row_bytes == 8 || row_bytes == 16;

  // Loads a thread's items, which begin at `from` in the first row of its warp.
  static __device__ __forceinline__ void load_items(item_t (&item)[rows][width], const item_t* from) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if constexpr (is_word) {
        using word_t = cuda::std::conditional_t<row_bytes == 16, uint4,
                                                cuda::std::conditional_t<row_bytes == 8, uint2, unsigned>>;
        const word_t word = *reinterpret_cast<const word_t*>(from + r * row_items);
        memcpy(item[r], &word, row_bytes);
      } else {
#pragma unroll
        for (int c = 0; c < width; ++c) {
          item[r][c] = from[r * row_items + c];
        }
      }
    }
  }

  // Marks a thread's items: one bit for each of them that goes to the first part, and where there are more,
  // to the second. Those beyond `count` are none, and not asked for.
  template <int before, int counts, class PartOf>
  static __device__ __forceinline__ void mark(unsigned (&marks)[counts], const item_t* items, bool is_aligned,
                                              int place, bool is_first_tile, int count, PartOf part_of) {
    const auto set = [&](int i, int part) {
#pragma unroll
      for (int c = 0; c < counts; ++c) {
        marks[c] |= unsigned{part == c + 1} << i;
      }
    };
    if (count == tile_items && (is_aligned || !is_word) && !(before > 0 && is_first_tile)) {
      item_t item[rows][width];
      load_items(item, items + place);
#pragma unroll
      for (int i = 0; i < lane_items; ++i) {
        const int r = i / width, c = i % width;
        const item_t one = item[r][c];
        item_t other     = one;
        if constexpr (before > 0) {
          other = c > 0 ? item[r][c - 1] : items[place + r * row_items - 1];
        }
        set(i, part_of(other, one));
      }
    } else {  // a loop: there are few such tiles, but of arrays that begin at odd addresses, and a functor
              // may be long
#pragma unroll 1
      for (int i = 0; i < lane_items; ++i) {
        const int at = place + i / width * row_items + i % width;
        if (at < count) {
          const bool is_first = before > 0 && is_first_tile && at == 0;
          set(i, is_first ? 1 : int{part_of(items[at - before], items[at])});
        }
      }
    }
  }

  // Two counts of items of a tile in one word; if there is one only, it is the word.
  static __device__ __forceinline__ unsigned lower(unsigned counts) { return counts & 0xffff; }
  static __device__ __forceinline__ unsigned upper(unsigned counts) { return counts >> 16; }

  // Appends a number to a list of some, which ends at an address, if a condition holds. No branch.
  static __device__ __forceinline__ void append_if(unsigned condition, unsigned& end, unsigned short number) {
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

  // Appends a number to one of three lists, of which the third is the caller's to lengthen, unless it counts
  // for nothing.
  static __device__ __forceinline__ void append_to(unsigned is_first, unsigned is_second, unsigned& first_end,
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

  // Lists the places of a thread's items, part by part. `before_warp` are the counts of all warps before,
  // `all` those of the tile.
  template <int parts>
  static __device__ __forceinline__ void list_places(place_t* list, const unsigned* marks,
                                                     const warp_ranks* ranks, int place, unsigned before_warp,
                                                     unsigned all, int count) {
    constexpr unsigned size = sizeof(place_t);
    const unsigned start    = static_cast<unsigned>(__cvta_generic_to_shared(list));
    if constexpr (parts == 1) {
      unsigned row_start = start + size * before_warp;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        unsigned end = row_start + size * ranks[0].in_lanes_before(r);
#pragma unroll
        for (int c = 0; c < width; ++c) {
          append_if(marks[0] & 1u << (r * width + c), end, static_cast<place_t>(place + r * row_items + c));
        }
        row_start += size * ranks[0].in_row(r);
      }
    } else {
      const int before = place / (32 * lane_items) * (32 * lane_items), lane_before = place - before;
      unsigned first  = start + size * lower(before_warp),
               second = start + size * (lower(all) + upper(before_warp));
      unsigned third =
          start + size * (lower(all) + upper(all) + before - lower(before_warp) - upper(before_warp));
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const unsigned firsts  = size * ranks[0].in_lanes_before(r),
                       seconds = size * ranks[1].in_lanes_before(r);
        unsigned first_end = first + firsts, second_end = second + seconds;
        const unsigned ends =
            first + second + third + size * lane_before;  // of all three, which each item adds to
#pragma unroll
        for (int c = 0; c < width; ++c) {
          const unsigned mark = 1u << (r * width + c);
          const int here      = place + r * row_items + c;
          append_to(marks[0] & mark, marks[1] & mark, first_end, second_end,
                    ends + size * c - first_end - second_end, here < count, static_cast<place_t>(here));
        }
        first += size * ranks[0].in_row(r);
        second += size * ranks[1].in_row(r);
        third += size * (row_items - ranks[0].in_row(r) - ranks[1].in_row(r));
      }
    }
  }

  template <class Sums>
  static __device__ __forceinline__ Sums sums_of(unsigned counts) {
    if constexpr (sizeof(Sums) == sizeof(u64)) {
      return {counts};
    } else {
      return {lower(counts), upper(counts)};
    }
  }

  // Writes items, listed by their places, side by side.
  template <class Out, class T>
  static __device__ __forceinline__ void write_items(Out out, int count, const place_t* list,
                                                     const T* items) {
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += threads) {
      out[i] = items[list[i]];
    }
  }

  // Sends items to `parts` parts: 1, which takes those that are marked; or 3, of which the third takes those
  // that are not. The counter and the states of tiles in `storage` are 0; a grid of one block needs none.
  //
  // part_of(previous, item): whether the item is marked; or 1, 2 and 0 for the three parts. `previous` is the
  // item before, if the column brings it; then the first item of all is marked, and not asked for.
  // write(first, count, before, counts, places, items, others): writes the tile of `count` items that begins
  // with item `first`. `counts` are those of its items that are marked, `before` those of all tiles before,
  // and `places` lists the places of items, part by part. finish(counts): is told the counts of all.
  template <int parts, class First, class Second, class PartOf, class Write, class Finish>
  static __device__ __forceinline__ void compact(First first, Second second, i64 num_items, u64* storage,
                                                 PartOf part_of, Write write, Finish finish) {
    constexpr int counts = parts == 1 ? 1 : 2, warps = threads / 32,
                  buffer_bytes = First::bytes + Second::bytes;
    constexpr bool is_bulk     = First::is_bulk || Second::is_bulk;
    constexpr unsigned loader  = warps > 1 ? 32 : 0;  // the thread that gets tiles; the first warp looks back
    constexpr unsigned ahead   = buffers - 2;         // rounds from the one in which a tile is got to its own
    using states_t             = tile_states<counts>;
    using sums_t               = typename states_t::sums;

    extern __shared__ __align__(16) char memory[];
    __shared__ barrier arrived[buffers];
    __shared__ i64 tile_in[buffers];
    __shared__ unsigned warp_counts[warps];
    __shared__ sums_t before_previous;
    place_t* const lists = reinterpret_cast<place_t*>(memory + buffers * buffer_bytes);

    join_stream();
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i64 tiles     = (num_items + tile_items - 1) / tile_items;
    const bool is_alone = gridDim.x == 1;
    const states_t states{storage + ticket_words};

    const auto items_in = [&](i64 tile) {
      return static_cast<int>(min(i64{tile_items}, num_items - tile * tile_items));
    };
    // The tile of a round; after the last one, some number from `tiles` on.
    const auto tile_of_round = [&](unsigned round) -> i64 {
      if (is_alone) {
        return round;
      }
      if (tiles <= gridDim.x) {
        return round == 0 ? blockIdx.x : tiles;
      }
      return static_cast<i64>(atomicAdd(storage, u64{1}));
    };
    const auto get = [&](unsigned round, i64 tile) {
      const unsigned slot = round % buffers;
      tile_in[slot]       = tile;
      if constexpr (is_bulk) {
        if (tile < tiles) {
          char* const buffer = memory + slot * buffer_bytes;
          const i64 begin    = tile * tile_items;
          const int count    = items_in(tile);
          arrived[slot].arrive_expecting(first.bulk_bytes(begin, count) + second.bulk_bytes(begin, count));
          first.begin(buffer, begin, count, arrived[slot]);
          second.begin(buffer + First::bytes, begin, count, arrived[slot]);
        }
      }
    };

    if (thread == loader) {
      if constexpr (is_bulk) {
        for (barrier& each : arrived) {
          each.init(1);
        }
        publish_barriers();
      }
      i64 tile[ahead];
#pragma unroll
      for (unsigned round = 0; round < ahead; ++round) {
        tile[round] = tile_of_round(round);
      }
#pragma unroll
      for (unsigned round = 0; round < ahead; ++round) {
        get(round, tile[round]);
      }
    }
    if (tiles == 0 && thread == 0) {
      finish(sums_t{});
    }
    __syncthreads();

    const int place          = warp * 32 * lane_items + lane * width;  // of this thread's first item
    i64 previous             = -1;  // the tile of the round before, and its counts
    unsigned previous_counts = 0;
    sums_t so_far{};  // the counts of all tiles before it, in a block that is alone
    for (unsigned round = 0;; ++round) {
      const unsigned slot = round % buffers;
      char* const buffer  = memory + slot * buffer_bytes;
      place_t* const list = lists + (round & 1) * tile_items;
      const i64 tile      = tile_in[slot];
      const bool is_tile  = tile < tiles;
      const i64 next      = thread == loader && is_tile ? tile_of_round(round + ahead) : tiles;

      unsigned marks[counts] = {};
      warp_ranks ranks[counts];
      if (is_tile) {
        const i64 begin = tile * tile_items;
        const int count = items_in(tile);
        const bool is_written =
            first.complete(buffer, begin, count) | second.complete(buffer + First::bytes, begin, count);
        if constexpr (is_bulk) {
          arrived[slot].wait(round / buffers & 1);
        }
        if (is_written) {
          __syncthreads();
        }
        mark<First::before>(marks, first.items(buffer), first.shift() == 0, place, tile == 0, count, part_of);
#pragma unroll
        for (int c = 0; c < counts; ++c) {
          ranks[c].rank(marks[c]);
        }
        if (lane == 0) {
          warp_counts[warp] =
              counts == 1 ? ranks[0].total() : ranks[0].total() | ranks[counts - 1].total() << 16;
        }
      }
      __syncthreads();  // all warps have counted, and the tile of two rounds before is written

      if (thread == loader) {
        get(round + ahead, next);
      }
      unsigned all = 0, before_warp = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) {
        before_warp += w < warp ? warp_counts[w] : 0;
        all += warp_counts[w];
      }
      if (thread == 0 && is_tile && !is_alone) {
        states.publish(tile, tile == 0 ? states.up_to_tile : states.of_tile, sums_of<sums_t>(all));
      }
      if (warp == 0 && previous >= 0) {
        const sums_t before = is_alone ? so_far : states.before(previous);
        so_far              = sums_of<sums_t>(previous_counts);
#pragma unroll
        for (int c = 0; c < counts; ++c) {
          so_far.count[c] += before.count[c];
        }
        if (lane == 0) {
          before_previous = before;
          if (!is_alone) {
            states.publish(previous, states.up_to_tile, so_far);
          }
          if (previous == tiles - 1) {
            finish(so_far);
          }
        }
      }
      if (is_tile) {
        list_places<parts>(list, marks, ranks, place, before_warp, all, items_in(tile));
      }
      __syncthreads();  // the list and the prefix of the previous tile are known

      if (previous >= 0) {
        const char* const there = memory + (round + buffers - 1) % buffers * buffer_bytes;
        write(previous * tile_items, items_in(previous), before_previous, previous_counts,
              lists + (~round & 1) * tile_items, first.items(there), second.items(there + First::bytes));
      }
      if (!is_tile) {
        return;
      }
      previous        = tile;
      previous_counts = all;
    }
  }

  struct cupar_compact_init : zero<u64> {};
};
}  // namespace cupar
