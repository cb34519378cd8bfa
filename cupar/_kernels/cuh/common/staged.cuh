// Tiles of the arrays that an iterator goes through, in shared memory.
//
// A bulk copy takes multiples of 16 bytes at multiples of 16. So in shared memory a tile begins as many bytes
// after such a place as it does in the array, and words of 16 bytes at its ends are copied as a whole if they
// are in the array, or else by lanes. Where it is written, lanes write what is not a whole word.
//
// An item has one place in all tiles, in a tile with fewer items than others, too: backwards, too, where what
// comes first lies last. So a warp that has the same part of each tile meets no other's.
#pragma once

#include "common/arrays.cuh"
#include "common/bulk.cuh"

namespace cupar {
// Bytes of shared memory that a block may have, but for what the driver and barriers take.
constexpr int shared_limit = (target == 90 || target == 100 || target == 103 || target == 110 ? 227 : 99)
                             << 10;

template <class It>
struct staged : arrays_of<It> {
  using arrays_of<It>::count;
  using arrays_of<It>::each;
  using arrays_of<It>::item_bytes;

  static constexpr int rounded(int bytes) { return (bytes + 127) / 128 * 128; }

  // Shared memory of a tile: `rounded(tile_items * bytes of an item + 16)` for each array.
  template <int tile_items>
  static constexpr int bytes_of() {
    return count * 256 + tile_items * item_bytes;
  }

  // Copies a tile of the input, which a warp does: all lanes arrive when it is there.
  template <int tile_items>
  static __device__ __forceinline__ void load(It in, u64 first, int items, u64 num_items, char* memory,
                                              barrier& there) {
    const int lane = threadIdx.x % 32;
    unsigned bytes = 0;
    each(in, [&](auto* p, auto step) {
      const range its   = range::of_all(p, step, num_items);
      const range held  = range::of(p, step, first, items).held_in(its, step);
      const range words = held.words_in(its);
      char* const to    = memory - origin<tile_items>(p, step, first);
      for (u64 byte = held.begin + lane; byte < words.begin; byte += 32) {
        to[byte] = *reinterpret_cast<const char*>(byte);
      }
      for (u64 byte = words.end + lane; byte < held.end; byte += 32) {
        to[byte] = *reinterpret_cast<const char*>(byte);
      }
      bytes += static_cast<unsigned>(words.end - words.begin);
      memory += rounded(tile_items * static_cast<int>(sizeof(*p)) + 16);
    });
    if (lane > 0) {
      there.arrive();
      return;
    }
    there.arrive_expecting(bytes);
    memory -= offset_of_all<tile_items>(in);
    each(in, [&](auto* p, auto step) {
      const range its   = range::of_all(p, step, num_items);
      const range words = range::of(p, step, first, items).held_in(its, step).words_in(its);
      if (words.begin < words.end) {
        bulk_load(memory + (words.begin - origin<tile_items>(p, step, first)),
                  reinterpret_cast<const void*>(words.begin), static_cast<unsigned>(words.end - words.begin),
                  there);
      }
      memory += rounded(tile_items * static_cast<int>(sizeof(*p)) + 16);
    });
  }

  // The iterator at an item of a tile, in shared memory.
  template <int tile_items>
  static __device__ __forceinline__ It at(It it, u64 first, int item, char* memory) {
    it += static_cast<i64>(first + item);
    each(it, [&](auto*& p, auto step) {
      using T          = cuda::std::remove_reference_t<decltype(*p)>;
      const u64 place  = reinterpret_cast<u64>(p);
      const u64 offset = sizeof(T) * static_cast<u64>(step > 0 ? item : tile_items - 1 - item);
      p                = reinterpret_cast<T*>(memory + offset + (place - offset) % 16);
      memory += rounded(tile_items * static_cast<int>(sizeof(T)) + 16);
    });
    return it;
  }

  // Begins to write items of a tile of the output, which a warp does, and its first lane waits for.
  template <int tile_items>
  static __device__ __forceinline__ void store(It out, u64 first, int begin, int end, char* memory) {
    const int lane = threadIdx.x % 32;
    each(out, [&](auto* p, auto step) {
      const range slice      = range::of(p, step, first + begin, end - begin);
      const char* const from = memory - origin<tile_items>(p, step, first);
      u64 low = (slice.begin + 15) & ~u64{15}, high = slice.end & ~u64{15};
      if (low >= high) {
        low = high = slice.end;
      }
      for (u64 byte = slice.begin + lane; byte < low; byte += 32) {
        *reinterpret_cast<char*>(byte) = from[byte];
      }
      for (u64 byte = high + lane; byte < slice.end; byte += 32) {
        *reinterpret_cast<char*>(byte) = from[byte];
      }
      if (lane == 0 && low < high) {
        bulk_store(reinterpret_cast<void*>(low), from + low, static_cast<unsigned>(high - low));
      }
      memory += rounded(tile_items * static_cast<int>(sizeof(*p)) + 16);
    });
  }

 private:
  template <int tile_items>
  static __device__ __forceinline__ int offset_of_all(It& it) {
    int bytes = 0;
    each(it, [&](auto* p, auto) { bytes += rounded(tile_items * static_cast<int>(sizeof(*p)) + 16); });
    return bytes;
  }

  // The address that the beginning of shared memory stands for: a multiple of 16.
  template <int tile_items, class T, class Step>
  static __device__ __forceinline__ u64 origin(T* p, Step step, u64 first) {
    return range::of(p, step, first, tile_items).begin & ~u64{15};
  }

  // Addresses of an array's items.
  struct range {
    u64 begin, end;

    template <class T, class Step>
    static __device__ __forceinline__ range of(T* p, Step, u64 first, u64 count) {
      const i64 lowest = Step::value > 0 ? static_cast<i64>(first) : -static_cast<i64>(first + count - 1);
      const u64 begin  = reinterpret_cast<u64>(p + lowest);
      return {begin, begin + count * sizeof(T)};
    }
    // All of an array's items that there are.
    template <class T, class Step>
    static __device__ __forceinline__ range of_all(T* p, Step step, u64 num_items) {
      if constexpr (is_shifted<Step>) {
        return {reinterpret_cast<u64>(step.begin), reinterpret_cast<u64>(step.end)};
      } else {
        return of(p, step, 0, num_items);
      }
    }
    // What of it is in the array.
    template <class Step>
    __device__ __forceinline__ range held_in(const range& array, Step) const {
      range held = *this;
      if constexpr (is_shifted<Step>) {
        held.begin = begin < array.begin ? array.begin : begin;
        held.end   = end > array.end ? array.end : end;
        if (held.begin >= held.end) {
          held = {array.begin, array.begin};
        }
      }
      return held;
    }
    // The words of 16 bytes that have some of it, and are in the array as a whole.
    __device__ __forceinline__ range words_in(const range& array) const {
      u64 from = begin & ~u64{15}, to = (end + 15) & ~u64{15};
      from += from < array.begin ? 16 : 0;
      to -= to > array.end ? 16 : 0;
      return from < to ? range{from, to} : range{end, end};
    }
  };
};
}  // namespace cupar
