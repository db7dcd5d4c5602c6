// 16-bit floats; conversions agree with those of NVIDIA's headers bit for bit.
#pragma once
#include <math.h>

#include "runtime.h"

namespace emulate {

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31, mantissa = half & 0x3ff;
  if (exponent == 31) return from_bits<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent > 0) return from_bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  return from_bits<float>(sign | to_bits(ldexpf(static_cast<float>(mantissa), -24)));
}

/// Rounds to nearest, ties to even.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = static_cast<uint32_t>(to_bits(value));
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);
  // Subnormal or zero: a multiple of 2^-24, to which the FPU rounds.
  if (magnitude < 0x38800000u) {
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(nearbyintf(ldexpf(fabsf(value), 24))));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

inline float bfloat16_to_float(uint16_t value) { return from_bits<float>(static_cast<uint64_t>(value) << 16); }

/// Rounds to nearest, ties to even.
inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = static_cast<uint32_t>(to_bits(value));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace emulate

#define EMULATE_FLOAT16(T, to_float, from_float)                                                             \
  struct T {                                                                                                 \
    uint16_t bits;                                                                                           \
    T() = default;                                                                                           \
    T(float value) : bits(emulate::from_float(value)) {}                                                     \
    operator float() const { return emulate::to_float(bits); }                                               \
    T& operator+=(T other) { return *this = T(float(*this) + float(other)); }                                \
  };                                                                                                         \
  struct alignas(4) T##2 {                                                                                   \
    T x, y;                                                                                                  \
  };                                                                                                         \
  inline T operator+(T a, T b) { return T(float(a) + float(b)); }                                            \
  inline T operator-(T a, T b) { return T(float(a) - float(b)); }                                            \
  inline T operator*(T a, T b) { return T(float(a) * float(b)); }                                            \
  inline T operator/(T a, T b) { return T(float(a) / float(b)); }
EMULATE_FLOAT16(__half, half_to_float, float_to_half)
EMULATE_FLOAT16(__nv_bfloat16, bfloat16_to_float, float_to_bfloat16)
#undef EMULATE_FLOAT16

using half = __half;
inline float __half2float(__half value) { return value; }
inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline float2 __half22float2(__half2 values) { return {values.x, values.y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline float2 __bfloat1622float2(__nv_bfloat162 values) { return {values.x, values.y}; }
