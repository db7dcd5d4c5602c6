// Sums over rows and over all elements, in two passes of a fixed shape: the same result on every run.
#include "columns.cuh"

namespace cohop {
namespace {

constexpr uint64_t DOT_PART = BLOCK * 16;

/// sum[0] += x
template <class S>
struct Plain {
  const S* x;
  template <int N>
  __device__ auto columns(uint64_t) const {
    return [x = x](uint64_t at, S (&sum)[1][N]) {
      const Pack<S, N> in = load<N>(x + at);
#pragma unroll
      for (int k = 0; k < N; k++) sum[0][k] += in.value[k];
    };
  }
};

template <class S>
__global__ void __launch_bounds__(BLOCK) dot_kernel(uint64_t n, const S* x, const S* y,
                                                    double* __restrict__ out) {
  COHOP_SHARED(double, part, [BLOCK / 32]);
  const uint64_t first = blockIdx.x * DOT_PART, end = first + DOT_PART < n ? first + DOT_PART : n;
  double sum = 0;
  for (uint64_t i = first + threadIdx.x; i < end; i += BLOCK) {
    sum += static_cast<double>(x[i]) * (y ? static_cast<double>(y[i]) : 1.0);
  }
  sum = block_sum<BLOCK>(sum, part);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

template <class S>
__global__ void __launch_bounds__(BLOCK) dot_total_kernel(uint64_t n_parts, const double* __restrict__ parts, S* out) {
  COHOP_SHARED(double, part, [BLOCK / 32]);
  double sum = 0;
  for (uint64_t i = threadIdx.x; i < n_parts; i += BLOCK) sum += parts[i];
  sum = block_sum<BLOCK>(sum, part);
  if (threadIdx.x == 0) out[0] = static_cast<S>(sum);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_sum_rows_parts(uint64_t rows, uint64_t cols) { return sum_parts(rows, cols); }

int32_t cohop_sum_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, void* scratch, void* out,
                       bool add, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Plain<S> body = {static_cast<const S*>(x)};
    const Outputs<S, 1> to = {{static_cast<S*>(out)}};
    return sum_columns(rows, cols, packs<S>(cols, x), body, static_cast<S*>(scratch), to, add, stream);
  });)
}

uint64_t cohop_dot_parts(uint64_t n) { return (n + DOT_PART - 1) / DOT_PART; }

int32_t cohop_dot(cohop_dtype scalar, uint64_t n, const void* x, const void* y, double* scratch, void* out,
                  void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const uint64_t parts = cohop_dot_parts(n);
    if (parts > 0) {
      COHOP_LAUNCH((dot_kernel<S>), static_cast<unsigned>(parts), BLOCK, 0, stream, n, static_cast<const S*>(x),
                   static_cast<const S*>(y), scratch);
    }
    COHOP_LAUNCH((dot_total_kernel<S>), 1, BLOCK, 0, stream, parts, static_cast<const double*>(scratch),
                 static_cast<S*>(out));
    return cohop_last_error();
  });)
}

}  // extern "C"
