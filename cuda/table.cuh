// A hash table from ids to the lowest position at which each occurs: open addressing with linear probing.
#pragma once
#include "gpu.h"

namespace cohop {

// The 64-bit atomics of CUDA are declared for unsigned long long.
__device__ __forceinline__ uint64_t atomic_min(uint64_t* p, uint64_t value) {
  return atomicMin(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
__device__ __forceinline__ uint64_t atomic_max(uint64_t* p, uint64_t value) {
  return atomicMax(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
__device__ __forceinline__ uint64_t atomic_add(uint64_t* p, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
__device__ __forceinline__ uint64_t atomic_compare_and_swap(uint64_t* p, uint64_t expected, uint64_t value) {
  return atomicCAS(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(expected),
                   static_cast<unsigned long long>(value));
}

/// Reads a value that other threads may be changing by atomics; it may be out of date.
template <class T>
__device__ __forceinline__ T peek(T* p) {
#if defined(__CUDACC__)
  return *static_cast<volatile T*>(p);
#else
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  return static_cast<T>(atomicOr(reinterpret_cast<Word*>(p), Word(0)));
#endif
}

/// No id and no position.
constexpr uint32_t NONE = 0xffffffffu;
constexpr uint64_t EMPTY = 0xffffffffffffffffu;

/// Where the search for an id begins (Fibonacci hashing), in a table of any length.
__device__ __forceinline__ uint64_t home(uint32_t id, uint64_t n_slots) {
  return __umul64hi(id * 0x9E3779B97F4A7C15u, n_slots);
}

/// Slots hold `id << 32 | position`. They are EMPTY at first, and there must be more of them than ids.
struct Table {
  uint64_t* slot;
  uint64_t n_slots;

  /// Inserts an id, or lowers its position. Returns the position that it had, or NONE. If that was below `position`, it
  /// may have been lowered further since.
  __device__ uint32_t insert(uint32_t id, uint32_t position) const {
    const uint64_t entry = static_cast<uint64_t>(id) << 32 | position;
    uint64_t at = home(id, n_slots);
    for (;;) {
      uint64_t held = peek(&slot[at]);
      if (held == EMPTY) held = atomic_compare_and_swap(&slot[at], EMPTY, entry);
      if (held == EMPTY) return NONE;
      if (held >> 32 == id) {
        if (held > entry) held = atomic_min(&slot[at], entry);
        return static_cast<uint32_t>(held);
      }
      at = at + 1 == n_slots ? 0 : at + 1;
    }
  }

  /// The position of an id that was inserted before this kernel.
  __device__ uint32_t find(uint32_t id) const {
    uint64_t at = home(id, n_slots);
    while (slot[at] >> 32 != id) at = at + 1 == n_slots ? 0 : at + 1;
    return static_cast<uint32_t>(slot[at]);
  }
};

/// The row that element `at` belongs to, where offsets[0 ..= n] ascend and at < offsets[n].
template <class Offset>
__device__ __forceinline__ uint64_t row_of(const Offset* offsets, uint64_t n, uint64_t at) {
  uint64_t low = 0, high = n;
  while (high - low > 1) {
    const uint64_t middle = (low + high) / 2;
    if (offsets[middle] <= at) low = middle; else high = middle;
  }
  return low;
}

}  // namespace cohop
