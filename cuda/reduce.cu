// Sums over rows and over all elements, in two passes of a fixed shape: the same result on every run.
#include "scalar.cuh"
#include "warp.cuh"

namespace cohop {
namespace {

constexpr uint64_t ROWS_PER_PART = 256;
constexpr uint64_t MAX_PARTS = 1024;
constexpr uint64_t DOT_PART = BLOCK * 16;

/// A thread sums one column over one part of the rows.
template <class S>
__global__ void __launch_bounds__(BLOCK) sum_rows_kernel(uint64_t rows, uint64_t cols, uint64_t rows_per_part,
                                                         const S* __restrict__ x, S* __restrict__ out, bool add) {
  const uint64_t column = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const uint64_t part = blockIdx.y, first = part * rows_per_part;
  if (column >= cols) return;
  const uint64_t end = first + rows_per_part < rows ? first + rows_per_part : rows;
  S sum = 0;
  for (uint64_t i = first; i < end; i++) sum += x[i * cols + column];
  write(out[part * cols + column], sum, add);
}

template <class S>
__global__ void __launch_bounds__(BLOCK) dot_kernel(uint64_t n, const S* __restrict__ x, const S* __restrict__ y,
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

uint64_t cohop_sum_rows_parts(uint64_t rows, uint64_t cols) {
  (void)cols;
  const uint64_t parts = (rows + ROWS_PER_PART - 1) / ROWS_PER_PART;
  return parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
}

int32_t cohop_sum_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, void* scratch, void* out,
                       bool add, void* stream) {
  COHOP_LAUNCHER(
    if (cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const uint64_t parts = cohop_sum_rows_parts(rows, cols), per_part = (rows + parts - 1) / parts;
      const unsigned columns = static_cast<unsigned>((cols + BLOCK - 1) / BLOCK);
      COHOP_LAUNCH((sum_rows_kernel<S>), dim3(columns, static_cast<unsigned>(parts)), BLOCK, 0, stream, rows, cols, per_part,
                   static_cast<const S*>(x), static_cast<S*>(scratch), false);
      COHOP_LAUNCH((sum_rows_kernel<S>), dim3(columns, 1), BLOCK, 0, stream, parts, cols, parts,
                   static_cast<const S*>(scratch), static_cast<S*>(out), add);
      return cohop_last_error();
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
    COHOP_LAUNCH((dot_total_kernel<S>), 1, BLOCK, 0, stream, parts, static_cast<const double*>(scratch), static_cast<S*>(out));
    return cohop_last_error();
  });)
}

}  // extern "C"
