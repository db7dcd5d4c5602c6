// CUDA's atomic functions, for the types for which CUDA has them: 64-bit integers are `unsigned long long`, not
// `uint64_t`, which is `unsigned long` here and there.
#pragma once
#include <type_traits>

#include "intrinsics.h"
#include "runtime.h"

#define EMULATE_ATOMIC(name, expression, ...)                                                                  \
  template <class T>                                                                                           \
  T name(T* address, std::common_type_t<T> value) {                                                            \
    static_assert(emulate::IS_ONE_OF<T, __VA_ARGS__>, "CUDA's " #name " does not take this");                  \
    const emulate::Modify modify = [](uint64_t old_bits, uint64_t value_bits, uint64_t) -> uint64_t {          \
      [[maybe_unused]] const T old = emulate::from_bits<T>(old_bits), value = emulate::from_bits<T>(value_bits); \
      return emulate::to_bits<T>(static_cast<T>(expression));                                                  \
    };                                                                                                         \
    return emulate::from_bits<T>(emulate::atomic(address, sizeof(T), modify, emulate::to_bits<T>(value), 0));  \
  }
EMULATE_ATOMIC(atomicAdd, old + value, int, unsigned, unsigned long long, float, double, __half, __nv_bfloat16)
EMULATE_ATOMIC(atomicSub, old - value, int, unsigned)
EMULATE_ATOMIC(atomicExch, value, int, unsigned, unsigned long long, float)
EMULATE_ATOMIC(atomicMin, value < old ? value : old, int, unsigned, long long, unsigned long long)
EMULATE_ATOMIC(atomicMax, old < value ? value : old, int, unsigned, long long, unsigned long long)
EMULATE_ATOMIC(atomicAnd, old & value, int, unsigned, unsigned long long)
EMULATE_ATOMIC(atomicOr, old | value, int, unsigned, unsigned long long)
EMULATE_ATOMIC(atomicXor, old ^ value, int, unsigned, unsigned long long)
EMULATE_ATOMIC(atomicInc, old >= value ? 0 : old + 1, unsigned)
EMULATE_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1, unsigned)
#undef EMULATE_ATOMIC

template <class T>
T atomicCAS(T* address, std::common_type_t<T> expected, std::common_type_t<T> value) {
  static_assert(emulate::IS_ONE_OF<T, int, unsigned, unsigned long long, unsigned short>,
                "CUDA's atomicCAS does not take this");
  const emulate::Modify modify = [](uint64_t old, uint64_t expected_bits, uint64_t value_bits) {
    return old == expected_bits ? value_bits : old;
  };
  return emulate::from_bits<T>(
      emulate::atomic(address, sizeof(T), modify, emulate::to_bits<T>(expected), emulate::to_bits<T>(value)));
}
