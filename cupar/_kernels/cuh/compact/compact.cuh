// Compaction: items sent, in their order, to the part of the output that a functor chooses for them.
//
// Blocks stay, and take one tile after another. A tile comes into one of three or four buffers in shared
// memory, by bulk copies where there are such and the input is an array. There its items are marked, counted
// and ranked: each warp reads rows of 32 times `width` items, and the counts of a thread's rows are scanned
// together, as parts of one word. The tile's counts are published, and the items that go out are packed where
// the tile lay, part by part, from the registers of the threads that marked them, while one warp looks back
// on the tile before. Then that one, which was packed in the round before, is written, in words of 16 bytes:
// so the look-back of a tile has had a round to be answered in, and the copy of another tile is under way.
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

  static constexpr int row_items  = 32 * width;  // of a warp
  static constexpr int lane_items = rows * width;
  static constexpr int tile_items = threads * lane_items;

  static_assert(threads % 32 == 0 && lane_items <= 32 && tile_items < 65536 &&
                (buffers == 3 || buffers == 4));

  // Blocks that a multiprocessor is to run at once: before bulk copies, ptxas spills unless it is told.
  static constexpr int resident = target >= 90 ? 0 : 1;

  static constexpr int ticket_words =
      16;  // the counter of tiles has a separate line of 128 bytes, before their states

  template <class First, class Second>
  static constexpr int memory_bytes = buffers * (First::bytes + Second::bytes);

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

  // Loads a thread's items of a tile that begins at `tile`, as words if they are such and begin at multiples
  // of them. Where there are none, it reads whatever lies there.
  template <class T>
  static __device__ __forceinline__ void load_items(T (&item)[rows][width], const T* tile, int place,
                                                    bool is_aligned) {
    constexpr int bytes    = width * sizeof(T);
    constexpr bool is_word = bytes == 4 || bytes == 8 || bytes == 16;
    if constexpr (is_word) {
      if (is_aligned) {
        using word_t = cuda::std::conditional_t<bytes == 16, uint4,
                                                cuda::std::conditional_t<bytes == 8, uint2, unsigned>>;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const word_t word = *reinterpret_cast<const word_t*>(tile + place + r * row_items);
          memcpy(item[r], &word, bytes);
        }
        return;
      }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
#pragma unroll
      for (int c = 0; c < width; ++c) {
        item[r][c] = tile[place + r * row_items + c];
      }
    }
  }

  // Marks a thread's items: one bit for each of them that goes to the first part, and where there are more,
  // to the second. Those beyond `count` are none, and not asked for.
  template <int before, int counts, class PartOf>
  static __device__ __forceinline__ void mark(unsigned (&marks)[counts], const item_t (&item)[rows][width],
                                              const item_t* items, int place, bool is_first_tile, int count,
                                              PartOf part_of) {
    const auto set = [&](int i, int part) {
#pragma unroll
      for (int c = 0; c < counts; ++c) {
        marks[c] |= unsigned{part == c + 1} << i;
      }
    };
    if (count == tile_items && !(before > 0 && is_first_tile)) {
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
    } else {  // row by row: there are few such tiles, and a functor may be long
#pragma unroll 1
      for (int r = 0; r < rows; ++r) {
#pragma unroll
        for (int c = 0; c < width; ++c) {
          const int at = place + r * row_items + c;
          if (at < count) {
            const bool is_first = before > 0 && is_first_tile && at == 0;
            set(r * width + c, is_first ? 1 : int{part_of(items[at - before], items[at])});
          }
        }
      }
    }
  }

  // Two counts of items of a tile in one word; if there is one only, it is the word.
  static __device__ __forceinline__ unsigned lower(unsigned counts) { return counts & 0xffff; }
  static __device__ __forceinline__ unsigned upper(unsigned counts) { return counts >> 16; }

  // Appends an item to packed ones, which end at an address in shared memory, if a condition holds. That is
  // no branch where items are words.
  template <class T>
  static __device__ __forceinline__ void append_if(unsigned condition, unsigned& end, const T& item) {
    if constexpr (sizeof(T) == 8) {
      u64 bits;
      memcpy(&bits, &item, 8);
      asm volatile(
          "{\n"
          "  .reg .pred holds;\n"
          "  setp.ne.u32 holds, %1, 0;\n"
          "  @holds st.shared.b64 [%0], %2;\n"
          "  @holds add.u32 %0, %0, 8;\n"
          "}"
          : "+r"(end)
          : "r"(condition), "l"(bits)
          : "memory");
    } else if constexpr (sizeof(T) == 4) {
      unsigned bits;
      memcpy(&bits, &item, 4);
      asm volatile(
          "{\n"
          "  .reg .pred holds;\n"
          "  setp.ne.u32 holds, %1, 0;\n"
          "  @holds st.shared.b32 [%0], %2;\n"
          "  @holds add.u32 %0, %0, 4;\n"
          "}"
          : "+r"(end)
          : "r"(condition), "r"(bits)
          : "memory");
    } else if constexpr (sizeof(T) == 2) {
      unsigned short bits;
      memcpy(&bits, &item, 2);
      asm volatile(
          "{\n"
          "  .reg .pred holds;\n"
          "  setp.ne.u32 holds, %1, 0;\n"
          "  @holds st.shared.b16 [%0], %2;\n"
          "  @holds add.u32 %0, %0, 2;\n"
          "}"
          : "+r"(end)
          : "r"(condition), "h"(bits)
          : "memory");
    } else if constexpr (sizeof(T) == 1) {
      unsigned char byte;
      memcpy(&byte, &item, 1);
      asm volatile(
          "{\n"
          "  .reg .pred holds;\n"
          "  setp.ne.u32 holds, %1, 0;\n"
          "  @holds st.shared.b8 [%0], %2;\n"
          "  @holds add.u32 %0, %0, 1;\n"
          "}"
          : "+r"(end)
          : "r"(condition), "r"(unsigned{byte})
          : "memory");
    } else if (condition) {
      *static_cast<T*>(__cvta_shared_to_generic(end)) = item;
      end += sizeof(T);
    }
  }

  // Packs a thread's items, part by part. `before_warp` are the counts of all warps before, `all` those of
  // the tile.
  template <int parts, class T>
  static __device__ __forceinline__ void pack(void* to, const T (&item)[rows][width], const unsigned* marks,
                                              const warp_ranks* ranks, int place, unsigned before_warp,
                                              unsigned all, int count) {
    constexpr unsigned size = sizeof(T);
    const unsigned start    = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (parts == 1) {
      unsigned row_start = start + size * before_warp;
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        unsigned end = row_start + size * ranks[0].in_lanes_before(r);
#pragma unroll
        for (int c = 0; c < width; ++c) {
          append_if(marks[0] & 1u << (r * width + c), end, item[r][c]);
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
          const bool is_first = marks[0] & mark, is_second = marks[1] & mark;
          const unsigned third_end = ends + size * c - first_end - second_end;

          unsigned end = is_first ? first_end : is_second ? second_end : third_end;
          append_if(place + r * row_items + c < count, end, item[r][c]);
          first_end += is_first ? size : 0;
          second_end += is_second ? size : 0;
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

  // 16 bytes that begin some bytes after a word of 16, a multiple of an item's `size`.
  template <int size>
  static __device__ __forceinline__ uint4 load_after(const uint4* word, unsigned bytes) {
    if constexpr (size == 16) {
      return word[0];
    } else {
      const uint4 one = word[0], other = word[1];
      unsigned part[8] = {one.x, one.y, one.z, one.w, other.x, other.y, other.z, other.w};
      if (bytes & 8) {
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          part[i] = part[i + 2];
        }
      }
      if (size <= 4 && bytes & 4) {
#pragma unroll
        for (int i = 0; i < 5; ++i) {
          part[i] = part[i + 1];
        }
      }
      if constexpr (size < 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          part[i] = __funnelshift_r(part[i], part[i + 1], bytes % 4 * 8);
        }
      }
      return {part[0], part[1], part[2], part[3]};
    }
  }

  // Writes packed items. Those that go to an array are written as its words of 16 bytes, if they are parts of
  // words; they may be packed at other places in such words.
  template <class Out, class T>
  static __device__ __forceinline__ void write_items(Out out, int count, const T* items) {
    constexpr int size = sizeof(T), in_word = 16 % size == 0 ? 16 / size : 0;
    if constexpr (in_word > 0 && cuda::std::is_same_v<Out, T*>) {
      // Items whose parts are smaller, such as complex numbers, may begin within a word of their size.
      if (sizeof(T) == alignof(T) || reinterpret_cast<u64>(out) % size == 0) {
        const int thread = threadIdx.x;
        const int to_begin =
            static_cast<int>(-reinterpret_cast<u64>(out) & 15) / size;  // of the first whole word
        const int begin = min(to_begin, count);
        const int words = (count - begin) / in_word, end = begin + words * in_word;
        if (thread < begin) {
          out[thread] = items[thread];
        }
        if (thread < count - end) {
          out[end + thread] = items[end + thread];
        }
        const u64 from       = reinterpret_cast<u64>(items + begin);
        const uint4* const w = reinterpret_cast<const uint4*>(from & ~u64{15});
        uint4* const to      = reinterpret_cast<uint4*>(out + begin);
#pragma unroll 2
        for (int i = thread; i < words; i += threads) {
          to[i] = load_after<size>(w + i, static_cast<unsigned>(from) & 15);
        }
        return;
      }
    }
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += threads) {
      out[i] = items[i];
    }
  }

  // Writes the items of an input that have some places in a tile.
  template <class Out, class In>
  static __device__ __forceinline__ void write_from(Out out, int count, In tile,
                                                    const unsigned short* places) {
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += threads) {
      out[i] = tile[places[i]];
    }
  }

  // Sends items to `parts` parts: 1, which takes those that are marked; or 3, of which the third takes those
  // that are not. The counter and the states of tiles in `storage` are 0; a grid of one block needs none.
  //
  // part_of(previous, item): whether the item is marked; or 1, 2 and 0 for the three parts. `previous` is the
  // item before, if the column brings it; then the first item of all is marked, and not asked for.
  // write(first, count, before, counts, items, others): writes the tile of `count` items that begins with
  // item `first`. `counts` are those of its items that are marked, `before` those of all tiles before, and
  // `items` are packed, part by part, as are those that go with them. finish(counts): is told the counts of
  // all.
  template <int parts, class First, class Second, class PartOf, class Write, class Finish>
  static __device__ __forceinline__ void compact(First first, Second second, i64 num_items, u64* storage,
                                                 PartOf part_of, Write write, Finish finish) {
    constexpr int counts = parts == 1 ? 1 : 2, warps = threads / 32,
                  buffer_bytes = First::bytes + Second::bytes;
    constexpr bool is_bulk     = First::is_bulk || Second::is_bulk;
    constexpr bool has_second  = Second::bytes > 0;
    constexpr unsigned loader  = warps > 1 ? 32 : 0;  // the thread that gets tiles; the first warp looks back
    constexpr unsigned ahead   = buffers - 2;         // rounds from the one in which a tile is got to its own
    using states_t             = tile_states<counts>;
    using sums_t               = typename states_t::sums;

    extern __shared__ __align__(16) char memory[];
    __shared__ barrier arrived[buffers];
    __shared__ i64 tile_in[buffers];
    __shared__ unsigned warp_counts[warps];
    __shared__ sums_t before_due;

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

    const int place      = warp * 32 * lane_items + lane * width;  // of this thread's first item
    const bool is_single = tiles <= gridDim.x;                     // whether each block has one tile
    i64 due = -1;  // the tile that is written: that of the round before, or a single one; its counts
    unsigned due_counts = 0;
    sums_t so_far{};  // the counts of all tiles before it, in a block that is alone
    for (unsigned round = 0;; ++round) {
      const unsigned slot = round % buffers;
      char* const buffer  = memory + slot * buffer_bytes;
      const i64 tile      = tile_in[slot];
      const bool is_tile  = tile < tiles;
      const i64 next      = thread == loader && is_tile ? tile_of_round(round + ahead) : tiles;

      unsigned marks[counts] = {};
      warp_ranks ranks[counts];
      item_t item[rows][width];
      typename Second::value_type other[rows][width];
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
        load_items(item, first.items(buffer), place, first.shift() == 0);
        if constexpr (are_places<Second>) {
#pragma unroll
          for (int i = 0; i < lane_items; ++i) {
            other[i / width][i % width] =
                static_cast<unsigned short>(place + i / width * row_items + i % width);
          }
        } else if constexpr (has_second) {
          load_items(other, second.items(buffer + First::bytes), place, second.shift() == 0);
        }
        mark<First::before>(marks, item, first.items(buffer), place, tile == 0, count, part_of);
#pragma unroll
        for (int c = 0; c < counts; ++c) {
          ranks[c].rank(marks[c]);
        }
        if (lane == 0) {
          warp_counts[warp] =
              counts == 1 ? ranks[0].total() : ranks[0].total() | ranks[counts - 1].total() << 16;
        }
      }
      __syncthreads();  // all warps have loaded and counted, and the tile of two rounds before is written

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
      if (is_single && is_tile) {
        due        = tile;
        due_counts = all;
      }
      if (is_tile) {
        pack<parts>(first.packed(buffer), item, marks, ranks, place, before_warp, all, items_in(tile));
        if constexpr (has_second) {
          pack<parts>(second.packed(buffer + First::bytes), other, marks, ranks, place, before_warp, all,
                      items_in(tile));
        }
        if constexpr (is_bulk) {
          if (!is_single) {
            publish_to_bulk();
          }
        }
      }
      if (warp == 0 && due >= 0) {
        const sums_t before = is_alone ? so_far : states.before(due);
        so_far              = sums_of<sums_t>(due_counts);
#pragma unroll
        for (int c = 0; c < counts; ++c) {
          so_far.count[c] += before.count[c];
        }
        if (lane == 0) {
          before_due = before;
          if (!is_alone) {
            states.publish(due, states.up_to_tile, so_far);
          }
          if (due == tiles - 1) {
            finish(so_far);
          }
        }
      }
      __syncthreads();  // the tile is packed, and the prefix of the tile that is due is known

      if (due >= 0) {
        char* const there = is_single ? buffer : memory + (round + buffers - 1) % buffers * buffer_bytes;
        write(due * tile_items, items_in(due), before_due, due_counts, first.packed(there),
              second.packed(there + First::bytes));
      }
      if (!is_tile || is_single) {
        return;
      }
      due        = tile;
      due_counts = all;
    }
  }

  struct cupar_compact_init : zero<u64> {};
};
}  // namespace cupar
