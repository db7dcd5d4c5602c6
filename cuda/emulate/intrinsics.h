// CUDA's functions on bits, its loads and stores with hints, and its approximate mathematics.
#pragma once
#include <math.h>

#include <algorithm>
#include <type_traits>

#include "half.h"
#include "runtime.h"

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }

inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

inline unsigned __float_as_uint(float x) { return emulate::from_bits<unsigned>(emulate::to_bits(x)); }
inline float __uint_as_float(unsigned x) { return emulate::from_bits<float>(x); }
inline int __float_as_int(float x) { return emulate::from_bits<int>(emulate::to_bits(x)); }
inline float __int_as_float(int x) { return emulate::from_bits<float>(emulate::to_bits(x)); }
inline long long __double_as_longlong(double x) { return emulate::from_bits<long long>(emulate::to_bits(x)); }
inline double __longlong_as_double(long long x) { return emulate::from_bits<double>(emulate::to_bits(x)); }

namespace emulate {

/// Types that CUDA's loads and stores with hints take; a program's own structures are not among them.
template <class T, class... Types>
inline constexpr bool IS_ONE_OF = (std::is_same_v<T, Types> || ...);
template <class T>
inline constexpr bool IS_LOADABLE =
    std::is_arithmetic_v<T> || IS_ONE_OF<T, float2, float4, int2, int4, uint2, uint4, double2, __half, __half2,
                                         __nv_bfloat16, __nv_bfloat162>;

}  // namespace emulate

#define EMULATE_LOAD(name)                                                         \
  template <class T>                                                               \
  T name(const T* address) {                                                       \
    static_assert(emulate::IS_LOADABLE<T>, "CUDA's " #name " does not take this"); \
    return *address;                                                               \
  }
EMULATE_LOAD(__ldg)
EMULATE_LOAD(__ldcs)
EMULATE_LOAD(__ldcg)
#undef EMULATE_LOAD

#define EMULATE_STORE(name)                                                        \
  template <class T>                                                               \
  void name(T* address, T value) {                                                 \
    static_assert(emulate::IS_LOADABLE<T>, "CUDA's " #name " does not take this"); \
    *address = value;                                                              \
  }
EMULATE_STORE(__stcs)
EMULATE_STORE(__stcg)
#undef EMULATE_STORE

// Macros, because glibc declares functions of these names.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }

// Operations that nvcc never fuses; kernels are built with -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

inline void __trap() { emulate::fail(emulate::LAUNCH_FAILURE, "__trap()"); }
