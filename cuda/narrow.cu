// Rows rounded to 16 bits, and back.
//
// Bound by memory: each element is read and written once, as a pack of up to 16 bytes of the wide side. With factors a
// warp takes a row, and reads it twice: for its largest value, and, from cache, to round it. The same result on every
// run.
#include "scalar.cuh"
#include "warp.cuh"

namespace cohop {
namespace {

template <int N, class E, class S>
__device__ __forceinline__ Pack<E, N> narrowed(const Pack<S, N>& wide, S scale) {
  Pack<E, N> out;
#pragma unroll
  for (int k = 0; k < N; k++) narrow(static_cast<float>(wide.value[k] * scale), out.value[k]);
  return out;
}

/// out[i] = x[i]. A thread takes packs of N, and one element of those that are left.
template <int N, class S, class E>
__global__ void __launch_bounds__(BLOCK) narrow_kernel(uint64_t n, const S* __restrict__ x, E* __restrict__ out) {
  const uint64_t packs = n / N;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    store<N>(out + i * N, narrowed<N, E>(load<N>(x + i * N), S(1)));
  }
  const uint64_t i = packs * N + grid_thread();
  if (N > 1 && i < n) store<1>(out + i, narrowed<1, E>(load<1>(x + i), S(1)));
}

/// out[i, :] = x[i, :] / factor[i]; a warp takes a row.
template <int N, class S, class E>
__global__ void __launch_bounds__(BLOCK) narrow_rows_kernel(uint64_t rows, uint64_t cols, const S* __restrict__ x,
                                                            E* __restrict__ out, S* __restrict__ factor) {
  const uint64_t packs = cols / N;
  const unsigned lane = threadIdx.x % 32;
  for (uint64_t row = grid_thread() / 32; row < rows; row += grid_threads() / 32) {
    S largest = 0;
    for (uint64_t pack = lane; pack < packs; pack += 32) {
      const Pack<S, N> values = load<N>(x + row * cols + pack * N);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const S magnitude = absolute(values.value[k]);
        if (magnitude > largest && magnitude - magnitude == S(0)) largest = magnitude;  // neither infinite nor NaN
      }
    }
    largest = warp_max(largest);
    int exponent = 0;
    if (largest > S(0)) {
      exponent = 14 - ilogb(largest);
      if (exponent > 100) exponent = 100;
    }
    const S scale = scalbn(S(1), exponent);
    if (lane == 0) factor[row] = scalbn(S(1), -exponent);
    for (uint64_t pack = lane; pack < packs; pack += 32) {
      store<N>(out + row * cols + pack * N, narrowed<N, E>(load<N>(x + row * cols + pack * N), scale));
    }
  }
}

/// out[i] = x[i]
template <int N, class S, class E>
__global__ void __launch_bounds__(BLOCK) widen_kernel(uint64_t n, const E* __restrict__ x, S* __restrict__ out) {
  const uint64_t packs = n / N;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) {
    const Pack<E, N> in = load<N>(x + i * N);
    Pack<S, N> wide;
#pragma unroll
    for (int k = 0; k < N; k++) wide.value[k] = widen<S>(in.value[k]);
    store<N>(out + i * N, wide);
  }
  const uint64_t i = packs * N + grid_thread();
  if (N > 1 && i < n) out[i] = widen<S>(x[i]);
}

template <int N, class S, class E>
int32_t narrow_all(uint64_t rows, uint64_t cols, const S* x, E* out, S* factor, void* stream) {
  if (factor) {
    COHOP_LAUNCH((narrow_rows_kernel<N, S, E>), grid_for(rows * 32), BLOCK, 0, stream, rows, cols, x, out, factor);
  } else if (cols > 0) {
    const uint64_t n = rows * cols;
    COHOP_LAUNCH((narrow_kernel<N, S, E>), grid_for((n + N - 1) / N), BLOCK, 0, stream, n, x, out);
  }
  return cohop_last_error();
}

template <int N, class S, class E>
int32_t widen_all(uint64_t n, const E* x, S* out, void* stream) {
  COHOP_LAUNCH((widen_kernel<N, S, E>), grid_for((n + N - 1) / N), BLOCK, 0, stream, n, x, out);
  return cohop_last_error();
}

/// Calls body with a zero of a type of 16 bits.
template <class Body>
int32_t with_half(cohop_dtype element, Body body) {
  switch (element) {
    case COHOP_F16: return body(__half());
    case COHOP_BF16: return body(__nv_bfloat16());
    default: return COHOP_ERROR_INVALID;
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_narrow(cohop_dtype scalar, cohop_dtype element, uint64_t rows, uint64_t cols, const void* x, void* out,
                     void* factor, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      return with_half(element, [&](auto half) {
        using S = decltype(zero);
        using E = decltype(half);
        constexpr int N = PACK<S>;
        const S* from = static_cast<const S*>(x);
        S* factors = static_cast<S*>(factor);
        E* to = static_cast<E*>(out);
        const bool whole = factor == nullptr || cols % N == 0;
        return whole && packs<S>(0, from) && is_aligned(to, N * sizeof(E))
                   ? narrow_all<N>(rows, cols, from, to, factors, stream)
                   : narrow_all<1>(rows, cols, from, to, factors, stream);
      });
    });)
}

int32_t cohop_widen(cohop_dtype scalar, cohop_dtype element, uint64_t n, const void* x, void* out, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      return with_half(element, [&](auto half) {
        using S = decltype(zero);
        using E = decltype(half);
        constexpr int N = PACK<S>;
        const E* from = static_cast<const E*>(x);
        S* to = static_cast<S*>(out);
        return packs<S>(0, to) && is_aligned(from, N * sizeof(E)) ? widen_all<N>(n, from, to, stream)
                                                                  : widen_all<1>(n, from, to, stream);
      });
    });)
}

}  // extern "C"
