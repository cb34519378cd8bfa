// Global memory written and read 8 or 16 bytes at once, in no order with other accesses. The 16 bytes are one
// scalar: of a vector, the compiler reads part by part where not all of its parts are used.
//
// ptxas does so with a scalar, too: it drops unused words, and reads the others by several loads, some of
// which may see what another thread wrote, and some what was there before. So all of it is used: for a pause
// that hardly ever happens, and does no harm. That waits for the load; who loads several issues them all
// first.
//
// Source: PTX ISA, "ld" and "st" of type .b128.
#pragma once

#include "common/types.cuh"

namespace cupar {
template <class T>
__device__ __forceinline__ void store_whole(T* to, const T& value) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 16);
  u64 word[sizeof(T) / 8];
  memcpy(word, &value, sizeof(T));
  if constexpr (sizeof(T) == 8) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(word[0]) : "memory");
  } else {
    asm volatile(
        "{\n"
        "  .reg .b128 whole;\n"
        "  mov.b128 whole, {%1, %2};\n"
        "  st.relaxed.gpu.global.b128 [%0], whole;\n"
        "}" ::"l"(to),
        "l"(word[0]), "l"(word[1])
        : "memory");
  }
}
// Issues a load, whose result `use_whole` has to be given before it is used.
template <class T>
__device__ __forceinline__ T issue_load(const T* from) {
  static_assert(sizeof(T) == 8 || sizeof(T) == 16);
  u64 word[sizeof(T) / 8];
  if constexpr (sizeof(T) == 8) {
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(word[0]) : "l"(from) : "memory");
  } else {
    asm volatile(
        "{\n"
        "  .reg .b128 whole;\n"
        "  ld.relaxed.gpu.global.b128 whole, [%2];\n"
        "  mov.b128 {%0, %1}, whole;\n"
        "}"
        : "=l"(word[0]), "=l"(word[1])
        : "l"(from)
        : "memory");
  }
  T value;
  memcpy(&value, word, sizeof(T));
  return value;
}
template <class T>
__device__ __forceinline__ void use_whole(const T& value) {
  if constexpr (sizeof(T) == 16) {
    u64 word[2];
    memcpy(word, &value, 16);
    asm volatile(
        "{\n"
        "  .reg .b64 mixed;\n"
        "  .reg .pred pauses;\n"
        "  xor.b64 mixed, %0, %1;\n"
        "  setp.eq.u64 pauses, mixed, 0x9e3779b97f4a7c15;\n"
        "  @pauses nanosleep.u32 1;\n"
        "}" ::"l"(word[0]),
        "l"(word[1])
        : "memory");
  }
}
}  // namespace cupar
