// Sets of sorted keys, in which equal keys may be several: what is in either of two ranges, in both, in the
// first alone, or in one alone, in order. Of m keys of the first and n of the second that are equal, min(m,
// n) are pairs, the first with the first and so on; what is left over of one of them comes behind its pairs.
//
// The two ranges are cut where pairs stay together (balanced paths): into tiles by a kernel before, and each
// tile into parts, one a thread. A thread goes through its part as through a merge, and sees by comparing the
// next two keys alone what is a pair and what is not; so it knows what goes out. Places of what does are
// listed in shared memory, and the list is written side by side.
//
// Blocks stay, and take one tile after another, as in compact/compact.cuh: while a tile is worked on, the
// next one is copied into shared memory, and the one before is looked back on, and written.
//
// Of keys that are not sorted, by an operator that is no order, or that are NaN, cuts may be anywhere, and
// parts may go beyond their ends: nothing is read and written for that but what sorted ranges have room for.
//
// Source: S. Baxter, "Modern GPU: Multisets", 2013, by which Thrust's set operations are; the rounds of
// compact/compact.cuh, and the look-back of lookback.cuh.
//
// Traits: d_in_keys1_t, d_in_keys2_t, d_out_keys_t and d_in_keys1_v; the same of items (void: there are
// none); d_out_num_selected_t; op_t; operation; threads; items, of a part; slots, for tiles.
#pragma once

#include "common/kernel.cuh"
#include "common/lookback.cuh"
#include "common/staged.cuh"
#include "common/tiles.cuh"
#include "common/warp.cuh"

namespace cupar {
enum set_operation { set_union, set_intersection, set_difference, set_symmetric_difference };

// Returns how many keys in front of one are not less than `key`, of a range that is sorted. There are few, or
// it would be a long run.
template <class Index, class It, class T, class Op>
__device__ __forceinline__ Index run_before(It keys, Index end, const T& key, Op before) {
  Index found = 0, beyond = 1;  // keys that are not less; keys of which one is
  while (beyond <= end && !before(keys[end - beyond], key)) {
    found = beyond;
    beyond *= 2;
  }
  beyond = beyond <= end ? beyond : end + 1;
  while (found + 1 < beyond) {
    const Index middle = found + (beyond - found) / 2;
    if (before(keys[end - middle], key)) {
      beyond = middle;
    } else {
      found = middle;
    }
  }
  return found;
}

// Returns how many keys from one on are not greater than `key`, but no more than `most`.
template <class Index, class It, class T, class Op>
__device__ __forceinline__ Index run_from(It keys, Index begin, Index most, const T& key, Op before) {
  Index found = 0, beyond = most + 1;
  for (Index step = 1; step < beyond; step *= 2) {
    if (before(key, keys[begin + step - 1])) {
      beyond = step;
    } else {
      found = step;
    }
  }
  while (found + 1 < beyond) {
    const Index middle = found + (beyond - found) / 2;
    if (before(key, keys[begin + middle - 1])) {
      beyond = middle;
    } else {
      found = middle;
    }
  }
  return found;
}

// Where two ranges are cut: the number of keys of each that are in front.
template <class Index>
struct cut {
  Index first, second;
};

// Where two ranges are cut in a merge, so that `before_it` keys are in front: how many of the first are. They
// are in global memory, so three keys of each are on their way at once.
template <class It1, class It2, class Op>
__device__ __forceinline__ u64 cut_of_merge(It1 keys1, It2 keys2, u64 count1, u64 count2, u64 before_it,
                                            Op before) {
  u64 low = before_it > count2 ? before_it - count2 : 0, high = before_it < count1 ? before_it : count1;
  const auto is_beyond = [&](u64 at) {
    return static_cast<bool>(before(keys2[before_it - 1 - at], keys1[at]));
  };
  while (low + 4 <= high) {
    const u64 step = (high - low) / 4;
    const bool one = is_beyond(low + step), two = is_beyond(low + 2 * step),
               three = is_beyond(low + 3 * step);
    high             = one ? low + step : two ? low + 2 * step : three ? low + 3 * step : high;
    low += one ? 0 : two ? step + 1 : three ? 2 * step + 1 : 3 * step + 1;
  }
  while (low < high) {
    const u64 middle = low + (high - low) / 2;
    if (is_beyond(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Moves a cut of a merge to where it parts no pair: there, keys of one run of equal ones take turns, while in
// a merge those of the first range come first. One more key may then be in front.
template <class Index, class It1, class It2, class Op>
__device__ __forceinline__ cut<Index> between_pairs(It1 keys1, It2 keys2, Index count2, cut<Index> at,
                                                    Op before) {
  const Index first = at.first, second = at.second;
  if (first == 0 || second == count2) {
    return at;
  }
  const auto key = keys2[second];
  if (before(keys1[first - 1], key)) {
    return at;
  }
  const Index run1 = run_before<Index>(keys1, first, key, before),
              run2 = run_before<Index>(keys2, second, key, before), all = run1 + run2;
  if (run2 > run1) {
    return at;
  }
  const Index wanted = all / 2, left = count2 - second, more = wanted - run2 + 1;
  const Index there  = run2 + run_from<Index>(keys2, second, more < left ? more : left, key, before);
  const Index taken2 = wanted < there ? wanted : there, taken1 = all - taken2;
  const Index parts_pair = taken1 == taken2 + 1 && taken2 < there ? 1 : 0;
  return {first - run1 + taken1, second - run2 + taken2 + parts_pair};
}

template <class Traits>
struct sets_kernels {
  using keys1_t    = typename Traits::d_in_keys1_t;
  using keys2_t    = typename Traits::d_in_keys2_t;
  using keys_out_t = typename Traits::d_out_keys_t;
  using key_t      = typename Traits::d_in_keys1_v;
  using num_out_t  = typename Traits::d_out_num_selected_t;
  using num_out_v  = typename Traits::d_out_num_selected_v;
  using op_t       = typename Traits::op_t;

  static constexpr set_operation operation = Traits::operation;
  static constexpr int threads             = Traits::threads;
  static constexpr int part                = Traits::items;
  static constexpr int warps               = threads / 32;
  static constexpr int tile_items = threads * part - 1;  // one more may be, which a cut kept in a pair
  static constexpr int slots      = Traits::slots;       // for tiles in shared memory
  // A power of two, not more than half of the keys: a cut is so far at most from where it may be.
  static constexpr int largest_step = [] {
    int step = 1;
    while (4 * step <= tile_items + 1) step *= 2;
    return step;
  }();
  static_assert(threads % 32 == 0 && part <= 32 && tile_items < 32768 && (slots == 2 || slots == 3));

  template <class Items>
  using items_or_none             = cuda::std::conditional_t<cuda::std::is_void_v<Items>, const char*, Items>;
  static constexpr bool has_items = !cuda::std::is_void_v<typename Traits::d_in_items1_t>;
  using items1_t                  = items_or_none<typename Traits::d_in_items1_t>;
  using items2_t                  = items_or_none<typename Traits::d_in_items2_t>;
  using items_out_t               = items_or_none<typename Traits::d_out_items_t>;
  using item_t                    = items_or_none<typename Traits::d_in_items1_v>;
  static constexpr bool takes_second = operation == set_union || operation == set_symmetric_difference;

  using place_t = unsigned short;  // of a key: its address in shared memory, modulo 2^16

  static constexpr unsigned size = sizeof(key_t);
  static constexpr int nowhere   = 0x7fffffff;

  // Appends a place, if it is below a limit, to a list of some, which ends at an address. No branch.
  static __device__ __forceinline__ void append(int place, int limit, unsigned& end) {
    asm volatile(
        "{\n"
        "  .reg .pred is_place;\n"
        "  setp.lt.s32 is_place, %1, %2;\n"
        "  @is_place st.shared.u16 [%0], %3;\n"
        "  @is_place add.u32 %0, %0, 2;\n"
        "}"
        : "+r"(end)
        : "r"(place), "r"(limit), "h"(static_cast<place_t>(place))
        : "memory");
  }

  static __device__ __forceinline__ void move_if(bool condition, int& to, int from) {
    asm volatile(
        "{\n"
        "  .reg .pred holds;\n"
        "  setp.ne.u32 holds, %1, 0;\n"
        "  @holds mov.s32 %0, %2;\n"
        "}"
        : "+r"(to)
        : "r"(unsigned{condition}), "r"(from));
  }

  // Adds to a number, if a condition holds. No branch, and no copy.
  static __device__ __forceinline__ void add_if(bool condition, int& number, int more) {
    asm volatile(
        "{\n"
        "  .reg .pred holds;\n"
        "  setp.ne.u32 holds, %1, 0;\n"
        "  @holds add.s32 %0, %0, %2;\n"
        "}"
        : "+r"(number)
        : "r"(unsigned{condition}), "r"(more));
  }

  static constexpr int ticket_words = 16;  // the counter of tiles has 128 bytes of its own

  // Parts of two ranges, side by side in shared memory.
  template <class In1, class In2, class T>
  struct both {
    using column1 = column<In1, T, threads, tile_items + 3>;
    using column2 = column<In2, T, threads, tile_items + 3>;

    static constexpr bool is_bulk = column1::is_bulk || column2::is_bulk;
    static constexpr int bytes    = ((tile_items + 3) * int{sizeof(T)} + 15) / 16 * 16 + 48;

    column1 first;
    column2 second;

    // Where the parts begin that a bulk copy or threads bring.
    template <class Column>
    static __device__ __forceinline__ int shift(const Column& of, i64 begin) {
      if constexpr (Column::is_bulk) {
        return static_cast<int>(of.address(begin) & 15);
      }
      return 0;
    }
    __device__ __forceinline__ char* behind(char* slot, i64 begin, int count) const {
      return slot + ((shift(first, begin) + count * int{sizeof(T)} + 15) & ~15);
    }

    __device__ __forceinline__ unsigned bulk_bytes(i64 begin1, int count1, i64 begin2, int count2) const {
      return first.bulk_bytes(begin1, count1) + second.bulk_bytes(begin2, count2);
    }
    __device__ __forceinline__ void begin(char* slot, i64 begin1, int count1, i64 begin2, int count2,
                                          barrier& arrived) const {
      first.begin(slot, begin1, count1, arrived);
      second.begin(behind(slot, begin1, count1), begin2, count2, arrived);
    }
    __device__ __forceinline__ bool is_whole(i64 begin1, int count1, i64 begin2, int count2) const {
      return first.is_whole(begin1, count1) && second.is_whole(begin2, count2);
    }
    __device__ __forceinline__ void complete(char* slot, i64 begin1, int count1, i64 begin2,
                                             int count2) const {
      first.complete(slot, begin1, count1);
      second.complete(behind(slot, begin1, count1), begin2, count2);
    }

    // Where the first item of each is.
    __device__ __forceinline__ char* items1(char* slot, i64 begin1) const {
      return slot + shift(first, begin1);
    }
    __device__ __forceinline__ char* items2(char* slot, i64 begin1, int count1, i64 begin2) const {
      return behind(slot, begin1, count1) + shift(second, begin2);
    }
  };
  struct none {
    static constexpr bool is_bulk = false;
    static constexpr int bytes    = 0;
  };
  using keys_t = both<keys1_t, keys2_t, key_t>;
  // Of what comes from one range only, the other has no items.
  using items_t = cuda::std::conditional_t<
      has_items, both<items1_t, cuda::std::conditional_t<takes_second, items2_t, items1_t>, item_t>, none>;
  static_assert(keys_t::bytes <= 65536);
  static constexpr int slot_bytes = keys_t::bytes + items_t::bytes;
  // Two lists, and as many keys as a part may go beyond its end.
  static constexpr int list_bytes = 2 * (tile_items + 1) * int{sizeof(place_t)};
  static constexpr int memory =
      slots * slot_bytes + (list_bytes > part * int{size} ? list_bytes : part * int{size});

  struct cupar_sets_cut : kernel<1024> {
    static __device__ __forceinline__ void run(keys1_t keys1, u64 count1, keys2_t keys2, u64 count2,
                                               u64 tiles, u64* storage, u64* cuts, op_t op) {
      join_stream();
      const u64 at = u64{blockIdx.x} * blockDim.x + threadIdx.x;
      if (at <= tiles) {
        const u64 before = at * tile_items, all = count1 + count2;
        const u64 wanted           = before < all ? before : all;
        const u64 first            = cut_of_merge(keys1, keys2, count1, count2, wanted, op);
        const cut<u64> found       = between_pairs<u64>(keys1, keys2, count2, {first, wanted - first}, op);
        cuts[2 * at]               = found.first;
        cuts[2 * at + 1]           = found.second;
        storage[ticket_words + at] = 0;
        if (at == 0) {
          storage[0] = 0;
        }
      }
    }
  };

  // A tile: where it begins in each range, and what it has of them; and where that is in shared memory.
  struct tile_t {
    i64 number, begin1, begin2;
    int count1, count2;
    int keys1, keys2, items1, items2;
    bool is_open;   // whether there are keys behind it in both ranges, of which it has the next
    bool is_whole;  // whether bulk copies bring all of it
  };

  // Where a tile is cut so that `before_it` of its keys are in front, or one more. A search by halves, whose
  // steps are known: so an address is a register and a number.
  static __device__ __forceinline__ cut<int> cut_in(const tile_t& tile, const char* shared, int before_it,
                                                    const op_t& op) {
    const auto key_at = [&](int at) -> const key_t& { return *reinterpret_cast<const key_t*>(shared + at); };
    const int low = max(0, before_it - tile.count2), high = min(before_it, tile.count1);
    const int last = tile.keys1 + high * int{size};
    int at1 = tile.keys1 + low * int{size}, at2 = tile.keys2 + (before_it - low) * int{size};
#pragma unroll
    for (int step = largest_step; step > 0; step /= 2) {
      const int bytes = step * int{size};
      const bool is_before =
          at1 + bytes <= last && !static_cast<bool>(op(key_at(at2 - bytes), key_at(at1 + bytes - int{size})));
      add_if(is_before, at1, bytes);
      add_if(is_before, at2, -bytes);
    }
    const int first = static_cast<int>(static_cast<unsigned>(at1 - tile.keys1) / size);
    return between_pairs<int>(reinterpret_cast<const key_t*>(shared + tile.keys1),
                              reinterpret_cast<const key_t*>(shared + tile.keys2), tile.count2,
                              {first, before_it - first}, op);
  }

  // How many keys the output has room for.
  static __device__ __forceinline__ u64 capacity(u64 count1, u64 count2) {
    if constexpr (operation == set_intersection) {
      return min(count1, count2);
    }
    return takes_second ? count1 + count2 : count1;
  }

  // Goes through a part of a tile, which begins and ends somewhere in both ranges, and finds the places of
  // the keys that go out; others are not below the end of the range that they would be of. If a tile is open,
  // there are keys at the ends, too; so the next two are compared before it is known that the part has both.
  template <bool is_open>
  static __device__ __forceinline__ void go_through(int (&place)[part], const char* shared, int at1, int at2,
                                                    int end1, int end2, const op_t& op) {
    const auto key_at = [&](int at) -> const key_t& { return *reinterpret_cast<const key_t*>(shared + at); };
    key_t key1 = key_at(at1), key2 = key_at(at2);
    const int ends = end1 + end2;
#pragma unroll
    for (int i = 0; i < part; ++i) {
      bool takes1, takes2;
      if constexpr (is_open) {
        const bool goes_on = at1 + at2 < ends;
        takes1             = goes_on & !static_cast<bool>(op(key2, key1));
        takes2             = goes_on & !static_cast<bool>(op(key1, key2));
      } else {
        const bool is_in1 = at1 < end1, is_in2 = at2 < end2;
        takes1 = is_in1 && !(is_in2 && static_cast<bool>(op(key2, key1)));
        takes2 = is_in2 && !(is_in1 && static_cast<bool>(op(key1, key2)));
      }
      if constexpr (operation == set_union) {
        place[i] = takes1 ? at1 : at2;  // the end if there is none
      } else if constexpr (operation == set_symmetric_difference) {
        place[i] = nowhere;
        move_if(takes1 && !takes2, place[i], at1);
        move_if(takes2 && !takes1, place[i], at2);
      } else {
        place[i] = takes1 && takes2 == (operation == set_intersection) ? at1 : nowhere;
      }
      asm volatile("" : "+r"(place[i]));  // here: else what it is made of is kept for later
      add_if(takes1, at1, size);
      add_if(takes2, at2, size);
      if (takes1) key1 = key_at(at1);
      if (takes2) key2 = key_at(at2);
    }
  }

  // Writes what goes out of a tile, listed by its places, side by side.
  static __device__ __forceinline__ void write(const tile_t& tile, int count, const place_t* list,
                                               const char* shared, unsigned slot_at, keys_out_t to,
                                               items_out_t items_out, u64 before) {
    const char* const memory = shared + slot_at;
    if constexpr (has_items) {
      const items_out_t items_to = items_out + static_cast<i64>(before);
      const item_t* const one    = reinterpret_cast<const item_t*>(shared + tile.items1);
      const item_t* const two    = reinterpret_cast<const item_t*>(shared + tile.items2);
      const int from1            = tile.keys1 - static_cast<int>(slot_at),
                from2            = tile.keys2 - static_cast<int>(slot_at);
#pragma unroll 4
      for (int i = threadIdx.x; i < count; i += threads) {
        const int from = static_cast<place_t>(list[i] - slot_at);
        to[i]          = *reinterpret_cast<const key_t*>(memory + from);
        // Between the ranges is a gap.
        items_to[i] = takes_second && from >= from2
                          ? two[static_cast<unsigned>(from - from2) / size]
                          : one[min(static_cast<unsigned>(from - from1) / size, unsigned{tile_items})];
      }
    } else {
#pragma unroll 4
      for (int i = threadIdx.x; i < count; i += threads) {
        to[i] = *reinterpret_cast<const key_t*>(memory + static_cast<place_t>(list[i] - slot_at));
      }
    }
  }

  // Registers are for as many resident blocks as shared memory allows, up to 1,024 threads.
  static constexpr int in_shared    = (shared_limit + 1024) / (memory + 4 * threads + 1536),
                       in_registers = 1024 / threads;
  static constexpr int resident     = in_shared < in_registers ? in_shared : in_registers;

  struct cupar_sets : kernel<threads, size <= 8 ? resident : 0> {
    static __device__ __forceinline__ void run(keys1_t keys1, items1_t items1, u64 count1, keys2_t keys2,
                                               items2_t items2, u64 count2, keys_out_t keys_out,
                                               items_out_t items_out, num_out_t num_out, u64* storage,
                                               const u64* cuts, op_t op) {
      constexpr bool is_bulk    = keys_t::is_bulk || items_t::is_bulk;
      constexpr unsigned loader = warps > 1 ? 32 : 0;
      using states_t            = tile_states<1>;
      using sums_t              = typename states_t::sums;

      extern __shared__ __align__(16) char shared[];
      __shared__ barrier arrived[slots];
      __shared__ tile_t tiles_of_rounds[3];
      __shared__ unsigned starts[threads + 1];
      __shared__ unsigned warp_counts[warps];
      __shared__ u64 before_previous;
      place_t* const lists = reinterpret_cast<place_t*>(shared + slots * slot_bytes);

      join_stream();
      const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
      const bool is_alone = cuts == nullptr;
      const i64 tiles     = is_alone ? 1 : static_cast<i64>((count1 + count2 + tile_items - 1) / tile_items);
      const states_t states{storage + ticket_words};
      const keys_t keys{{keys1, static_cast<i64>(count1)}, {keys2, static_cast<i64>(count2)}};
      const auto items = [&] {
        if constexpr (!has_items) {
          return none{};
        } else if constexpr (takes_second) {
          return items_t{{items1, static_cast<i64>(count1)}, {items2, static_cast<i64>(count2)}};
        } else {
          return items_t{{items1, static_cast<i64>(count1)}, {items1, 0}};
        }
      }();

      const auto tile_of_round = [&](unsigned round) -> i64 {
        if (is_alone || tiles <= gridDim.x) {
          return round == 0 ? blockIdx.x : tiles;
        }
        return static_cast<i64>(atomicAdd(storage, u64{1}));
      };
      // Finds out about the tile of a round, and later begins to copy it.
      const auto find = [&](unsigned round, i64 number) {
        char* const memory = shared + round % slots * slot_bytes;
        tile_t tile{};
        tile.number = number;
        if (number < tiles) {
          if (is_alone) {
            tile.count1 = static_cast<int>(count1);
            tile.count2 = static_cast<int>(count2);
          } else {
            const ulonglong2 begin = reinterpret_cast<const ulonglong2*>(cuts)[number],
                             end   = reinterpret_cast<const ulonglong2*>(cuts)[number + 1];
            // Of ranges that are not sorted, cuts may be anywhere: nothing else is read then, either.
            const i64 most = tile_items + 1;
            tile.begin1    = static_cast<i64>(begin.x);
            tile.begin2    = static_cast<i64>(begin.y);
            tile.count1    = static_cast<int>(max(i64{0}, min(static_cast<i64>(end.x - begin.x), most)));
            tile.count2 =
                static_cast<int>(max(i64{0}, min(static_cast<i64>(end.y - begin.y), most - tile.count1)));
          }
          tile.is_open  = tile.begin1 + tile.count1 < static_cast<i64>(count1) &&
                          tile.begin2 + tile.count2 < static_cast<i64>(count2);
          const int its = tile.count1 + tile.is_open, others = tile.count2 + tile.is_open;
          tile.keys1    = static_cast<int>(keys.items1(memory, tile.begin1) - shared);
          tile.keys2    = static_cast<int>(keys.items2(memory, tile.begin1, its, tile.begin2) - shared);
          tile.is_whole = keys.is_whole(tile.begin1, its, tile.begin2, others);
          if constexpr (has_items) {
            char* const beside = memory + keys_t::bytes;
            const i64 begin2   = takes_second ? tile.begin2 : 0;
            const int its2     = takes_second ? tile.count2 : 0;
            tile.items1        = static_cast<int>(items.items1(beside, tile.begin1) - shared);
            tile.items2 = static_cast<int>(items.items2(beside, tile.begin1, tile.count1, begin2) - shared);
            tile.is_whole &= items.is_whole(tile.begin1, tile.count1, begin2, its2);
          }
        }
        tiles_of_rounds[round % 3] = tile;
      };
      const auto fetch = [&](unsigned round) {
        if constexpr (is_bulk) {
          const tile_t tile   = tiles_of_rounds[round % 3];
          const unsigned slot = round % slots;
          char* const memory  = shared + slot * slot_bytes;
          if (tile.number < tiles) {
            const int its = tile.count1 + tile.is_open, others = tile.count2 + tile.is_open;
            unsigned bytes = keys.bulk_bytes(tile.begin1, its, tile.begin2, others);
            if constexpr (has_items) {
              bytes += items.bulk_bytes(tile.begin1, tile.count1, takes_second ? tile.begin2 : 0,
                                        takes_second ? tile.count2 : 0);
            }
            arrived[slot].arrive_expecting(bytes);
            keys.begin(memory, tile.begin1, its, tile.begin2, others, arrived[slot]);
            if constexpr (has_items) {
              items.begin(memory + keys_t::bytes, tile.begin1, tile.count1, takes_second ? tile.begin2 : 0,
                          takes_second ? tile.count2 : 0, arrived[slot]);
            }
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
        find(0, tile_of_round(0));
        fetch(0);
      }
      __syncthreads();

      i64 previous            = -1;  // the tile of the round before, and how many go out of it
      unsigned previous_count = 0;
      for (unsigned round = 0;; ++round) {
        const unsigned slot = round % slots;
        char* const memory  = shared + slot * slot_bytes;
        const tile_t tile   = tiles_of_rounds[round % 3];
        const bool is_tile  = tile.number < tiles;
        const i64 next      = thread == loader && is_tile ? tile_of_round(round + 1) : tiles;
        const int n1 = tile.count1, all = n1 + tile.count2;

        cut<int> start{0, 0};
        if (is_tile) {
          if (!tile.is_whole) {
            keys.complete(memory, tile.begin1, n1 + tile.is_open, tile.begin2, tile.count2 + tile.is_open);
            if constexpr (has_items) {
              items.complete(memory + keys_t::bytes, tile.begin1, n1, takes_second ? tile.begin2 : 0,
                             takes_second ? tile.count2 : 0);
            }
          }
          if constexpr (is_bulk) {
            arrived[slot].wait(round / slots & 1);
          }
          if (!tile.is_whole) {
            __syncthreads();
          }
          start          = cut_in(tile, shared, min(thread * part, all), op);
          starts[thread] = static_cast<unsigned>(start.first) << 16 | static_cast<unsigned>(start.second);
          if (thread == 0) {
            starts[threads] = static_cast<unsigned>(n1) << 16 | static_cast<unsigned>(tile.count2);
          }
        }
        __syncthreads();  // all parts are known, and the tile of two rounds before is written
        if (thread == loader && is_tile) {
          find(round + 1, next);
          if constexpr (slots > 2) {
            fetch(round + 1);
          }
        }

        // Goes through a part. What does not go out has no place.
        int place[part];
        unsigned count = 0;
        int limit      = 0;
        if (is_tile) {
          const unsigned end = starts[thread + 1];
          const int end1     = tile.keys1 + int{size} * static_cast<int>(end >> 16),
                    end2     = tile.keys2 + int{size} * static_cast<int>(end & 0xffff);
          limit              = takes_second ? end2 : end1;
          int at1 = tile.keys1 + int{size} * start.first, at2 = tile.keys2 + int{size} * start.second;
          if (tile.is_open) {
            go_through<true>(place, shared, at1, at2, end1, end2, op);
          } else {
            go_through<false>(place, shared, at1, at2, end1, end2, op);
          }
#pragma unroll
          for (int i = 0; i < part; ++i) {
            count += place[i] < limit;
          }
        }
        const unsigned up_to = sum_up_to_lane(count);
        if (lane == 31) {
          warp_counts[warp] = up_to;
        }
        __syncthreads();  // all warps have counted

        unsigned tile_count = 0, rank = up_to - count;
#pragma unroll
        for (int w = 0; w < warps; ++w) {
          rank += w < warp ? warp_counts[w] : 0;
          tile_count += warp_counts[w];
        }
        if (thread == 0 && is_tile && !is_alone) {
          states.publish(tile.number, tile.number == 0 ? states.up_to_tile : states.of_tile,
                         sums_t{{tile_count}});
        }
        if (is_tile) {
          place_t* const list = lists + (round & 1) * (tile_items + 1);
          unsigned list_end   = static_cast<unsigned>(__cvta_generic_to_shared(list + rank));
#pragma unroll
          for (int i = 0; i < part; ++i) {
            append(place[i], limit, list_end);
          }
        }
        if (warp == 0 && previous >= 0) {
          const u64 before = is_alone ? 0 : states.before(previous).count[0];
          if (lane == 0) {
            before_previous = before;
            if (!is_alone) {
              states.publish(previous, states.up_to_tile, sums_t{{before + previous_count}});
            }
            if (previous == tiles - 1) {
              num_out[0] = static_cast<num_out_v>(min(before + previous_count, capacity(count1, count2)));
            }
          }
        }
        __syncthreads();  // the list and what comes before the previous tile are known

        if (previous >= 0) {
          const u64 before = before_previous, all = capacity(count1, count2);
          const u64 count = min(u64{previous_count}, all - min(all, before));
          write(tiles_of_rounds[(round + 2) % 3], static_cast<int>(count),
                lists + (~round & 1) * (tile_items + 1), shared, (round + slots - 1) % slots * slot_bytes,
                keys_out + static_cast<i64>(before), items_out, before);
        }
        if (!is_tile) {
          return;
        }
        if constexpr (slots == 2) {
          __syncthreads();
          if (thread == loader) {
            fetch(round + 1);
          }
        }
        previous       = tile.number;
        previous_count = tile_count;
      }
    }
  };

  static constexpr auto properties = properties_of(threads, tile_items, memory);
};
}  // namespace cupar
