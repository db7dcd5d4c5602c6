// Rows by index: what the kernels of the family share.
#pragma once
#include "scalar.cuh"

namespace cohop {
namespace {

/// out[i] = index[i], or `limit` where it is out of range, which is reported.
__global__ void __launch_bounds__(BLOCK) clamp_index_kernel(uint64_t n, const uint32_t* __restrict__ index,
                                                            uint32_t limit, uint32_t* out, cohop_status* status) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    const uint32_t value = index[i];
    if (value >= limit) report(status, COHOP_ARRAY_INDEX, i, value, limit);
    if (out) out[i] = value < limit ? value : limit;
  }
}

/// The limit that an index into n rows must be below.
inline uint32_t index_limit(uint64_t n) { return static_cast<uint32_t>(n < 0xffffffffu ? n : 0xffffffffu); }

/// Reports an index that is out of range.
inline void check_index(uint64_t n, const uint32_t* index, uint64_t n_table, cohop_status* status, void* stream) {
  COHOP_LAUNCH(clamp_index_kernel, grid_for(n), BLOCK, 0, stream, n, index, index_limit(n_table), nullptr, status);
}

/// Stores N values, 16 bytes at a time.
template <int N, class S, class E>
__device__ __forceinline__ void store_widened(S* out, const Pack<E, N>& values) {
  constexpr int M = N < PACK<S> ? N : PACK<S>;
#pragma unroll
  for (int first = 0; first < N; first += M) {
    Pack<S, M> wide;
#pragma unroll
    for (int k = 0; k < M; k++) wide.value[k] = widen<S>(values.value[first + k]);
    store<M>(out + first, wide);
  }
}

/// Calls body with a zero of the type that a table's elements have.
template <class Body>
int32_t with_element(cohop_dtype dtype, Body body) {
  switch (dtype) {
    case COHOP_F16: return body(__half());
    case COHOP_BF16: return body(__nv_bfloat16());
    default: return with_scalar(dtype, body);
  }
}

}  // namespace
}  // namespace cohop
