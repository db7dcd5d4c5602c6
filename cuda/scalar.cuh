// Scalars, their vectors, and the conversions between them.
#pragma once
#include "gpu.h"

namespace cohop {

/// N values that are loaded and stored at once; addresses must be multiples of its size.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T value[N];
};

/// Number of values in a 16-byte access.
template <class T>
constexpr int PACK = 16 / sizeof(T);

template <int N, class T>
__device__ __forceinline__ Pack<T, N> load(const T* x) {
  return *reinterpret_cast<const Pack<T, N>*>(x);
}

template <int N, class T>
__device__ __forceinline__ void store(T* out, const Pack<T, N>& values) {
  *reinterpret_cast<Pack<T, N>*>(out) = values;
}

/// Keeps the compiler from moving loads that stand before this behind it, to where their values are used: for loads
/// whose memory the kernel may write as far as the compiler knows (not __restrict__).
__device__ __forceinline__ void finish_loads() { asm volatile("" ::: "memory"); }

/// Whether rows of `cols` elements that start at these addresses can be read 16 bytes at a time.
template <class T, class... Pointers>
bool packs(uint64_t cols, Pointers... pointers) {
  return cols % PACK<T> == 0 && ((reinterpret_cast<uintptr_t>(pointers) | ...) % 16 == 0);
}

template <class T>
bool is_aligned(const T* pointer, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

/// out (= | +=) value
template <class T>
__device__ __forceinline__ void write(T& out, T value, bool add) {
  out = add ? out + value : value;
}

// Stored feature elements, widened to what the device computes in.
template <class S> __device__ __forceinline__ S widen(float x) { return static_cast<S>(x); }
template <class S> __device__ __forceinline__ S widen(double x) { return static_cast<S>(x); }
template <class S> __device__ __forceinline__ S widen(__half x) { return static_cast<S>(__half2float(x)); }
template <class S> __device__ __forceinline__ S widen(__nv_bfloat16 x) { return static_cast<S>(__bfloat162float(x)); }

/// Rounds to nearest, of two to the even one.
__device__ __forceinline__ void narrow(float x, __half& out) { out = __float2half_rn(x); }
__device__ __forceinline__ void narrow(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }

/// Calls body with a zero of the type that the rows of a sparse product's operand have: 16 bits, or the scalar S.
template <class S, class Body>
int32_t with_rows(cohop_dtype element, Body body) {
  switch (element) {
    case COHOP_F16: return body(__half());
    case COHOP_BF16: return body(__nv_bfloat16());
    case COHOP_F32: return sizeof(S) == sizeof(float) ? body(S(0)) : COHOP_ERROR_INVALID;
    case COHOP_F64: return sizeof(S) == sizeof(double) ? body(S(0)) : COHOP_ERROR_INVALID;
    default: return COHOP_ERROR_INVALID;
  }
}

// Functions of the scalar's own precision.
__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float exponential_minus_one(float x) { return expm1f(x); }
__device__ __forceinline__ double exponential_minus_one(double x) { return expm1(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float logarithm_one_plus(float x) { return log1pf(x); }
__device__ __forceinline__ double logarithm_one_plus(double x) { return log1p(x); }
__device__ __forceinline__ float absolute(float x) { return fabsf(x); }
__device__ __forceinline__ double absolute(double x) { return fabs(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
__device__ __forceinline__ double square_root(double x) { return sqrt(x); }
/// a b + c in one rounding, on the emulator too, whose compiler does not fuse: for dense products.
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
/// a b, never fused with an addition.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

}  // namespace cohop
