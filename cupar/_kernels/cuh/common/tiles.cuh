// Tiles of an input in shared memory, copied in bulk where they can be, while others are worked on.
#pragma once

#include "common/bulk.cuh"

namespace cupar {
// An input: where its tiles lie in shared memory, and how they come there.
//
// A bulk copy takes multiples of 16 bytes at multiples of 16. So in a buffer a tile begins as many bytes
// after such a place as it does in the array, and what is copied begins and ends with words of 16 bytes that
// are the tile's in part only. If such a word is not all in the array, threads copy the part of it that is.
//
// All `threads` of a block bring a tile of `tile_items`. `before` is how many items before a tile are needed,
// too: 0 or 1.
template <class In, class T, int threads, int tile_items, int before_ = 0>
struct column {
  static constexpr bool is_bulk = target >= 90 && is_array<In>;
  static constexpr int before   = before_;
  static constexpr int front    = (before * int{sizeof(T)} + 15) / 16 * 16;
  static constexpr int bytes    = front + tile_items * int{sizeof(T)} + 16;

  using value_type = T;

  In in;
  i64 num_items;

  // Addresses: of the needed items, and of the aligned range that a bulk copy brings.
  struct span {
    u64 begin, from, to, end;
  };

  __device__ __forceinline__ u64 address(i64 item) const {
    return reinterpret_cast<u64>(in) + item * sizeof(T);
  }

  __device__ __forceinline__ span span_of(i64 first, int count) const {
    const u64 begin = address(first - (first > 0 ? before : 0)), end = address(first + count);
    u64 from = begin & ~u64{15}, to = (end + 15) & ~u64{15};
    from += from < address(0) ? 16 : 0;
    to -= to > address(num_items) ? 16 : 0;
    return from < to ? span{begin, from, to, end} : span{begin, end, end, end};
  }

  // How many bytes after a multiple of 16 a tile begins.
  __device__ __forceinline__ unsigned shift() const {
    if constexpr (is_bulk) {
      return address(0) & 15;
    }
    return 0;
  }

  __device__ __forceinline__ const T* items(const char* buffer) const {
    return reinterpret_cast<const T*>(buffer + front + shift());
  }

  // Where items that stay are packed: a multiple of 16.
  __device__ __forceinline__ T* packed(char* buffer) const { return reinterpret_cast<T*>(buffer + front); }

  __device__ __forceinline__ unsigned bulk_bytes(i64 first, int count) const {
    if constexpr (is_bulk) {
      const span all = span_of(first, count);
      return static_cast<unsigned>(all.to - all.from);
    }
    return 0;
  }

  // Begins the bulk copy of a tile, which one thread does.
  __device__ __forceinline__ void begin(char* buffer, i64 first, int count, barrier& arrived) const {
    if constexpr (is_bulk) {
      const span all = span_of(first, count);
      if (all.from < all.to) {
        bulk_load(place(buffer, first, all.from), reinterpret_cast<const void*>(all.from),
                  static_cast<unsigned>(all.to - all.from), arrived);
      }
    }
  }

  // Whether a bulk copy brings all of a tile.
  __device__ __forceinline__ bool is_whole(i64 first, int count) const {
    if constexpr (is_bulk) {
      const span all = span_of(first, count);
      return all.begin >= all.from && all.to >= all.end;
    }
    return false;
  }

  // Brings what bulk copies do not, which all threads do; returns whether that is anything.
  __device__ __forceinline__ bool complete(char* buffer, i64 first, int count) const {
    if constexpr (is_bulk) {
      if (is_whole(first, count)) {
        return false;
      }
      const span all = span_of(first, count);
      copy_bytes(buffer, first, all.begin, all.from);
      copy_bytes(buffer, first, all.to, all.end);
      publish_to_bulk();
    } else {
      constexpr int batch = 4;
      const In from       = in + first;
      T* const to         = reinterpret_cast<T*>(buffer + front);
      if (before > 0 && first > 0 && threadIdx.x == 0) {
        to[-1] = from[-1];
      }
      for (int i = threadIdx.x; i < count; i += batch * threads) {
        T item[batch];
#pragma unroll
        for (int j = 0; j < batch; ++j) {
          if (i + j * threads < count) {
            item[j] = from[i + j * threads];
          }
        }
#pragma unroll
        for (int j = 0; j < batch; ++j) {
          if (i + j * threads < count) {
            to[i + j * threads] = item[j];
          }
        }
      }
    }
    return true;
  }

 private:
  __device__ __forceinline__ char* place(char* buffer, i64 first, u64 byte) const {
    return buffer + front + static_cast<i64>(byte - (address(first) & ~u64{15}));
  }

  __device__ __forceinline__ void copy_bytes(char* buffer, i64 first, u64 begin, u64 end) const {
    for (u64 byte = begin + threadIdx.x; byte < end; byte += threads) {
      *place(buffer, first, byte) = *reinterpret_cast<const char*>(byte);
    }
  }
};

// The places of a tile's items, with which those that stay are read from an input where they are written.
template <int tile_items>
struct places {
  static_assert(tile_items < 65536);

  static constexpr bool is_bulk = false;
  static constexpr int bytes    = (tile_items * 2 + 15) / 16 * 16;

  using value_type = unsigned short;

  template <class In>
  __device__ __forceinline__ places(In, i64) {}

  __device__ __forceinline__ unsigned short* packed(char* buffer) const {
    return reinterpret_cast<unsigned short*>(buffer);
  }
  __device__ __forceinline__ unsigned bulk_bytes(i64, int) const { return 0; }
  __device__ __forceinline__ void begin(char*, i64, int, barrier&) const {}
  __device__ __forceinline__ bool complete(char*, i64, int) const { return false; }
};
template <class Column>
constexpr bool are_places = false;
template <int tile_items>
constexpr bool are_places<places<tile_items>> = true;

// No input.
struct no_column {
  using value_type = char;

  static constexpr bool is_bulk = false;
  static constexpr int bytes    = 0;

  template <class In>
  __device__ __forceinline__ no_column(In, i64) {}

  __device__ __forceinline__ const char* items(const char* buffer) const { return buffer; }
  __device__ __forceinline__ char* packed(char* buffer) const { return buffer; }
  __device__ __forceinline__ unsigned bulk_bytes(i64, int) const { return 0; }
  __device__ __forceinline__ void begin(char*, i64, int, barrier&) const {}
  __device__ __forceinline__ bool complete(char*, i64, int) const { return false; }
};
}  // namespace cupar
