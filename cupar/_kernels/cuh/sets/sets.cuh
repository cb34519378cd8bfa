// Sets of sorted keys, in which equal keys may be several: what is in either of two ranges, in both, in the
// first alone, or in one alone, in order. Of m keys of the first and n of the second that are equal, min(m,
// n) are pairs, the first with the first and so on; what is left over of one of them comes behind its pairs.
//
// The two ranges are cut where pairs stay together (balanced paths): into tiles by a kernel before, and each
// tile into parts, one a thread. A thread goes through its part as through a merge, and sees by comparing the
// next two keys alone what is a pair and what is not; so it knows what goes out. That waits in shared memory,
// side by side, until it is written: small keys themselves, of others their places.
//
// Blocks stay, and take one tile after another, as in compact/compact.cuh: while a tile is worked on, the
// next one is copied into shared memory, and the one before is looked back on, and written. A warp of its own
// finds the next tile, has it copied, and looks back.
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
  static constexpr int nearby     = 64;  // keys around a cut's likely place that are searched first
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
  // Small keys without items that go out wait where their tile was; others stay where they are.
  static constexpr bool is_staged  = !has_items && size <= 8;
  static constexpr int all_threads = threads + 32;  // with the warp that works on no part

  static __device__ __forceinline__ const key_t& key_at(int at) {
    return *static_cast<const key_t*>(__cvta_shared_to_generic(static_cast<unsigned>(at)));
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
  static constexpr int list_bytes = is_staged ? 0 : 2 * (tile_items + 1) * int{sizeof(place_t)};
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
    float share1;   // of the first range in it
    bool is_open;   // whether there are keys behind it in both ranges, of which it has the next
    bool is_whole;  // whether bulk copies bring all of it
  };

  // Where a tile is cut so that `before_it` of its keys are in front, or one more. Keys of both ranges are
  // mostly mixed as everywhere in the tile: so the search is near that place first.
  static __device__ __forceinline__ cut<int> cut_in(const tile_t& tile, int before_it, const op_t& op) {
    int low = max(0, before_it - tile.count2), high = min(before_it, tile.count1);
    const int last1 = tile.keys1, last2 = tile.keys2 + (before_it - 1) * int{size};
    // Whether a key of the first range is in front.
    const auto is_before = [&](int at) {
      return !static_cast<bool>(op(key_at(last2 - at * int{size}), key_at(last1 + at * int{size})));
    };
    const int guess = static_cast<int>(static_cast<float>(before_it) * tile.share1);
    const int least = min(max(low, guess - nearby), high), most = max(min(high, guess + nearby), low);
    const bool is_above = least == low || is_before(least - 1), is_below = most == high || !is_before(most);
    high = !is_above ? least - 1 : is_below ? most : high;
    low  = !is_below ? max(low, most + 1) : is_above ? least : low;
    while (low < high) {
      const int middle = (low + high) >> 1;
      if (is_before(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const key_t* const keys1 = &key_at(tile.keys1);
    const key_t* const keys2 = &key_at(tile.keys2);
    return between_few(keys1, keys2, tile.count2, {low, before_it - low}, op);
  }

  // Moves a cut of a merge as `between_pairs` does. Of short runs, all keys are on their way at once.
  static __device__ __forceinline__ cut<int> between_few(const key_t* keys1, const key_t* keys2, int count2,
                                                         cut<int> at, const op_t& op) {
    const int first = at.first, second = at.second;
    if (first == 0 || second == count2) {
      return at;
    }
    const key_t key = keys2[second];
    if (op(keys1[first - 1], key)) {
      return at;
    }
    const auto is_in = [&](const key_t* keys, int i) {
      return i >= 0 && !static_cast<bool>(op(keys[i], key));
    };
    const bool one2 = is_in(keys1, first - 2), one3 = is_in(keys1, first - 3), one4 = is_in(keys1, first - 4);
    const bool two1 = is_in(keys2, second - 1), two2 = is_in(keys2, second - 2),
               two3    = is_in(keys2, second - 3);
    const bool is_next = second + 1 < count2 && !static_cast<bool>(op(key, keys2[second + 1]));
    if ((one2 && one3 && one4) || (two1 && two2 && two3)) {
      return between_pairs<int>(keys1, keys2, count2, at, op);
    }
    const int run1 = one2 ? one3 ? 3 : 2 : 1, run2 = two1 ? two2 ? 2 : 1 : 0;
    if (run2 > run1) {
      return at;
    }
    const int all = run1 + run2, taken2 = all / 2, taken1 = all - taken2, there = run2 + 1 + is_next;
    return {first - run1 + taken1, second - run2 + taken2 + (taken1 == taken2 + 1 && taken2 < there)};
  }

  // How many keys the output has room for.
  static __device__ __forceinline__ u64 capacity(u64 count1, u64 count2) {
    if constexpr (operation == set_intersection) {
      return min(count1, count2);
    }
    return takes_second ? count1 + count2 : count1;
  }

  // What goes out of a part: a bit for each step at which a key does, the keys, and where they are.
  struct found_t {
    unsigned out;
    key_t key[is_staged ? part : 1];
    int place[is_staged ? 1 : part];
  };

  // Goes through a part of a tile, which begins and ends somewhere in both ranges. If a tile is open, there
  // are keys at the ends, too; so the next two are compared before it is known that the part has both.
  template <bool is_open>
  static __device__ __forceinline__ void go_through(found_t& found, int at1, int at2, int end1, int end2,
                                                    const op_t& op) {
    key_t key1 = key_at(at1), key2 = key_at(at2);
    const int ends = end1 + end2;
    found.out      = 0;
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
      bool goes_out;
      if constexpr (operation == set_union) {
        goes_out = takes1 || takes2;
      } else if constexpr (operation == set_intersection) {
        goes_out = takes1 && takes2;
      } else if constexpr (operation == set_difference) {
        goes_out = takes1 && !takes2;
      } else {
        goes_out = takes1 != takes2;
      }
      const bool is_from1 = !takes_second || takes1;
      if constexpr (is_staged) {
        found.key[i] = is_from1 ? key1 : key2;
      }
      if constexpr (!is_staged) {
        found.place[i] = is_from1 ? at1 : at2;
      }
      found.out |= goes_out ? 1u << i : 0u;
      add_if(takes1, at1, size);
      add_if(takes2, at2, size);
      if (takes1) key1 = key_at(at1);
      if (takes2) key2 = key_at(at2);
    }
  }

  // Keeps what goes out of a part until it is written, side by side.
  static __device__ __forceinline__ void keep(const found_t& found, char* memory, place_t* list,
                                              unsigned rank) {
    key_t* key     = reinterpret_cast<key_t*>(memory) + rank;
    place_t* place = list + rank;
#pragma unroll
    for (int i = 0; i < part; ++i) {
      if (found.out >> i & 1) {
        if constexpr (is_staged) {
          *key++ = found.key[i];
        }
        if constexpr (!is_staged) {
          *place++ = static_cast<place_t>(found.place[i]);
        }
      }
    }
  }

  // Writes what goes out of a tile, side by side.
  static __device__ __forceinline__ void write(const tile_t& tile, int count, const char* memory,
                                               const place_t* list, keys_out_t to, items_out_t items_to) {
    const int slot = static_cast<int>(__cvta_generic_to_shared(memory));
    if constexpr (is_staged) {
      const key_t* const staged = reinterpret_cast<const key_t*>(memory);
#pragma unroll 4
      for (int i = threadIdx.x; i < count; i += threads) {
        to[i] = staged[i];
      }
    } else {
      const int from1 = tile.keys1 - slot, from2 = tile.keys2 - slot;
      const item_t* const one = reinterpret_cast<const item_t*>(memory + (tile.items1 - slot));
      const item_t* const two = reinterpret_cast<const item_t*>(memory + (tile.items2 - slot));
#pragma unroll 4
      for (int i = threadIdx.x; i < count; i += threads) {
        const int from = static_cast<place_t>(list[i] - slot);
        to[i]          = *reinterpret_cast<const key_t*>(memory + from);
        if constexpr (has_items) {
          // Between the ranges is a gap.
          items_to[i] = takes_second && from >= from2
                            ? two[static_cast<unsigned>(from - from2) / size]
                            : one[min(static_cast<unsigned>(from - from1) / size, unsigned{tile_items})];
        }
      }
    }
  }

  // Registers are for as many resident blocks as shared memory allows, up to 900 threads.
  static constexpr int in_shared    = (shared_limit + 1024) / (memory + 4 * threads + 1536),
                       in_registers = 900 / all_threads;
  static constexpr int resident     = in_shared < in_registers ? in_shared : in_registers;

  struct cupar_sets : kernel<all_threads, size <= 8 ? resident : 0> {
    static __device__ __forceinline__ void run(keys1_t keys1, items1_t items1, u64 count1, keys2_t keys2,
                                               items2_t items2, u64 count2, keys_out_t keys_out,
                                               items_out_t items_out, num_out_t num_out, u64* storage,
                                               const u64* cuts, op_t op) {
      constexpr bool is_bulk    = keys_t::is_bulk || items_t::is_bulk;
      constexpr unsigned loader = threads;
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
      const bool is_worker = thread < threads, is_alone = cuts == nullptr;
      const i64 tiles = is_alone ? 1 : static_cast<i64>((count1 + count2 + tile_items - 1) / tile_items);
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
      const auto address = [](const char* of) { return static_cast<int>(__cvta_generic_to_shared(of)); };
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
          tile.share1   = __fdividef(static_cast<float>(tile.count1),
                                     static_cast<float>(max(tile.count1 + tile.count2, 1)));
          tile.keys1    = address(keys.items1(memory, tile.begin1));
          tile.keys2    = address(keys.items2(memory, tile.begin1, its, tile.begin2));
          tile.is_whole = keys.is_whole(tile.begin1, its, tile.begin2, others);
          if constexpr (has_items) {
            char* const beside = memory + keys_t::bytes;
            const i64 begin2   = takes_second ? tile.begin2 : 0;
            const int its2     = takes_second ? tile.count2 : 0;
            tile.items1        = address(items.items1(beside, tile.begin1));
            tile.items2        = address(items.items2(beside, tile.begin1, tile.count1, begin2));
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
      // Finds out how many go out before that, which a warp does.
      const auto look_back = [&] {
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
      };
      for (unsigned round = 0;; ++round) {
        const unsigned slot = round % slots;
        char* const memory  = shared + slot * slot_bytes;
        const tile_t tile   = tiles_of_rounds[round % 3];
        const bool is_tile  = tile.number < tiles;
        const i64 next      = thread == loader && is_tile ? tile_of_round(round + 1) : tiles;
        const int n1 = tile.count1, all = n1 + tile.count2;

        cut<int> start{0, 0};
        if (is_tile) {
          if (is_worker) {
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
          }
          if (!tile.is_whole) {
            __syncthreads();
          }
          if (is_worker) {
            start          = cut_in(tile, min(thread * part, all), op);
            starts[thread] = static_cast<unsigned>(start.first) << 16 | static_cast<unsigned>(start.second);
          }
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
        if (warp == warps && previous >= 0) {
          look_back();
        }

        found_t found;
        found.out = 0;
        if (is_tile && is_worker) {
          const unsigned end = starts[thread + 1];
          const int end1     = tile.keys1 + int{size} * static_cast<int>(end >> 16),
                    end2     = tile.keys2 + int{size} * static_cast<int>(end & 0xffff);
          const int at1 = tile.keys1 + int{size} * start.first, at2 = tile.keys2 + int{size} * start.second;
          if (tile.is_open) {
            go_through<true>(found, at1, at2, end1, end2, op);
          } else {
            go_through<false>(found, at1, at2, end1, end2, op);
          }
        }
        const unsigned count = __popc(found.out), up_to = sum_up_to_lane(count);
        if (lane == 31 && is_worker) {
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
        if (is_tile && is_worker) {
          keep(found, memory, lists + (round & 1) * (tile_items + 1), rank);
          if constexpr (is_bulk && is_staged) {
            publish_to_bulk();
          }
        }
        __syncthreads();  // what goes out is kept, and what comes before the previous tile is known

        if (previous >= 0 && is_worker) {
          const u64 before = before_previous, all = capacity(count1, count2);
          const u64 count = min(u64{previous_count}, all - min(all, before));
          write(tiles_of_rounds[(round + 2) % 3], static_cast<int>(count),
                shared + (round + slots - 1) % slots * slot_bytes, lists + (~round & 1) * (tile_items + 1),
                keys_out + static_cast<i64>(before), items_out + static_cast<i64>(before));
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

  static constexpr auto properties = properties_of(all_threads, tile_items, memory);
};
}  // namespace cupar
