// Barriers, and the functions that the lanes of a warp call together.
#pragma once
#include <type_traits>

#include "runtime.h"

// Default arguments are evaluated where the function is called.
#define EMULATE_WHERE_PARAMETERS const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define EMULATE_WHERE \
  ::emulate::Where { file_, line_ }

inline void __syncthreads(EMULATE_WHERE_PARAMETERS) { emulate::barrier(emulate::Barrier::PLAIN, 0, EMULATE_WHERE); }
inline int __syncthreads_or(int predicate, EMULATE_WHERE_PARAMETERS) {
  return emulate::barrier(emulate::Barrier::OR, predicate, EMULATE_WHERE);
}
inline int __syncthreads_and(int predicate, EMULATE_WHERE_PARAMETERS) {
  return emulate::barrier(emulate::Barrier::AND, predicate, EMULATE_WHERE);
}
inline int __syncthreads_count(int predicate, EMULATE_WHERE_PARAMETERS) {
  return emulate::barrier(emulate::Barrier::COUNT, predicate, EMULATE_WHERE);
}
inline void __syncwarp(unsigned mask = ~0u, EMULATE_WHERE_PARAMETERS) {
  emulate::collective(emulate::Collective::SYNC, mask, 0, 0, 32, EMULATE_WHERE);
}
inline void __threadfence() { emulate::maybe_yield(); }
inline void __threadfence_block() { emulate::maybe_yield(); }

#define EMULATE_SHUFFLE(name, operation, Argument)                                                         \
  template <class T>                                                                                       \
  T name(unsigned mask, T value, Argument argument, int width = 32, EMULATE_WHERE_PARAMETERS) {            \
    static_assert(std::is_arithmetic_v<T> || sizeof(T) <= 4, "CUDA's " #name " does not take this");       \
    return emulate::from_bits<T>(emulate::collective(emulate::Collective::operation, mask,                 \
                                                     emulate::to_bits(value), static_cast<int>(argument),  \
                                                     width, EMULATE_WHERE));                               \
  }
EMULATE_SHUFFLE(__shfl_sync, SHUFFLE, int)
EMULATE_SHUFFLE(__shfl_up_sync, SHUFFLE_UP, unsigned)
EMULATE_SHUFFLE(__shfl_down_sync, SHUFFLE_DOWN, unsigned)
EMULATE_SHUFFLE(__shfl_xor_sync, SHUFFLE_XOR, int)
#undef EMULATE_SHUFFLE

#define EMULATE_VOTE(Result, name, operation)                                                                \
  inline Result name(unsigned mask, int predicate, EMULATE_WHERE_PARAMETERS) {                               \
    return static_cast<Result>(                                                                              \
        emulate::collective(emulate::Collective::operation, mask, predicate != 0, 0, 32, EMULATE_WHERE));    \
  }
EMULATE_VOTE(unsigned, __ballot_sync, BALLOT)
EMULATE_VOTE(int, __any_sync, ANY)
EMULATE_VOTE(int, __all_sync, ALL)
#undef EMULATE_VOTE

template <class T>
unsigned __match_any_sync(unsigned mask, T value, EMULATE_WHERE_PARAMETERS) {
  return static_cast<unsigned>(
      emulate::collective(emulate::Collective::MATCH_ANY, mask, emulate::to_bits(value), 0, 32, EMULATE_WHERE));
}

// The runtime compares unsigned values: a signed one is moved by 2^31, which keeps the order.
#define EMULATE_REDUCE(T, name, operation, shift)                                                            \
  inline T name(unsigned mask, T value, EMULATE_WHERE_PARAMETERS) {                                          \
    const uint64_t bits = emulate::to_bits(value) ^ (shift);                                                 \
    return emulate::from_bits<T>(                                                                            \
        emulate::collective(emulate::Collective::operation, mask, bits, 0, 32, EMULATE_WHERE) ^ (shift));    \
  }
EMULATE_REDUCE(unsigned, __reduce_add_sync, ADD, 0)
EMULATE_REDUCE(unsigned, __reduce_min_sync, MIN, 0)
EMULATE_REDUCE(unsigned, __reduce_max_sync, MAX, 0)
EMULATE_REDUCE(int, __reduce_add_sync, ADD, 0)
EMULATE_REDUCE(int, __reduce_min_sync, MIN, 0x80000000u)
EMULATE_REDUCE(int, __reduce_max_sync, MAX, 0x80000000u)
EMULATE_REDUCE(unsigned, __reduce_and_sync, AND, 0)
EMULATE_REDUCE(unsigned, __reduce_or_sync, OR, 0)
EMULATE_REDUCE(unsigned, __reduce_xor_sync, XOR, 0)
#undef EMULATE_REDUCE
