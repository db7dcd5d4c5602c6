// Dot products of rows with a vector per head, and their gradients; bound by one pass over the rows.
#include "head_dot.cuh"

namespace cohop {
namespace {

constexpr uint64_t ROWS_PER_PART = 64;
constexpr uint64_t MAX_PARTS = 512;

template <class S>
struct DotWriter {
  S* out;
  __device__ void operator()(uint64_t at, S dot) const { out[at] = dot; }
};

/// dx[i, h, :] (= | +=) dout[i, h] · a[h, :]: a thread keeps its N columns and goes through the rows.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) spread_kernel(uint64_t rows, uint64_t heads, uint64_t dim,
                                                       uint64_t rows_at_once, const S* __restrict__ a,
                                                       const S* __restrict__ dout, S* __restrict__ dx, bool add) {
  const uint64_t width = heads * dim, packs = width / N;
  const uint64_t column = grid_thread() % packs * N, head = column / dim;
  const uint64_t first = grid_thread() / packs;
  if (first >= rows_at_once) return;
  const Pack<S, N> vector = load<N>(a + column);
  for (uint64_t i = first; i < rows; i += rows_at_once) {
    const S factor = dout[i * heads + head];
    Pack<S, N> values = {};
    if (add) values = load<N>(dx + i * width + column);
#pragma unroll
    for (int n = 0; n < N; n++) write(values.value[n], factor * vector.value[n], add);
    store<N>(dx + i * width + column, values);
  }
}

template <int N, class S>
int32_t launch_spread(uint64_t rows, uint64_t heads, uint64_t dim, const S* a, const S* dout, S* dx, bool add,
                      void* stream) {
  const uint64_t packs = heads * dim / N;
  // A few rows per thread where there are many.
  const uint64_t most = (uint64_t(1) << 20) / packs + 1, rows_at_once = rows < most ? rows : most;
  const uint64_t blocks = (rows_at_once * packs + BLOCK - 1) / BLOCK;
  COHOP_LAUNCH((spread_kernel<N, S>), static_cast<unsigned>(blocks), BLOCK, 0, stream, rows, heads, dim, rows_at_once,
               a, dout, dx, add);
  return cohop_last_error();
}

/// out[part, h, :] = Σ_i factor[i, h] · x[i, h, :] over a part of the rows (without factors: 1); a block sums 32 · N
/// columns, its warps take turns at the rows.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) sum_kernel(uint64_t rows, uint64_t rows_per_part, uint64_t heads, uint64_t dim,
                                                    const S* __restrict__ x, const S* __restrict__ factor,
                                                    S* __restrict__ out) {
  constexpr int WARPS = BLOCK / 32;
  COHOP_SHARED(S, sums, [WARPS][32 * N]);
  const uint64_t width = heads * dim, part = blockIdx.y;
  const uint64_t first = part * rows_per_part, end = first + rows_per_part < rows ? first + rows_per_part : rows;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint64_t column = (static_cast<uint64_t>(blockIdx.x) * 32 + lane) * N;
  S sum[N] = {};
  if (column < width) {
    const uint64_t head = column / dim;
#pragma unroll 4
    for (uint64_t i = first + warp; i < end; i += WARPS) {
      const Pack<S, N> values = load<N>(x + i * width + column);
      const S by = factor ? factor[i * heads + head] : S(1);
#pragma unroll
      for (int n = 0; n < N; n++) sum[n] += by * values.value[n];
    }
  }
#pragma unroll
  for (int n = 0; n < N; n++) sums[warp][lane * N + n] = sum[n];
  __syncthreads();
  const uint64_t mine = static_cast<uint64_t>(blockIdx.x) * 32 * N + threadIdx.x;
  if (threadIdx.x >= 32 * N || mine >= width) return;
  S total = 0;
  for (int w = 0; w < WARPS; w++) total += sums[w][threadIdx.x];
  out[part * width + mine] = total;
}

template <int N, class S>
int32_t launch_sum(uint64_t rows, uint64_t heads, uint64_t dim, const S* x, const S* dout, S* scratch, S* da,
                   void* stream) {
  const uint64_t parts = cohop_head_dot_parts(rows), per_part = (rows + parts - 1) / parts;
  const unsigned columns = static_cast<unsigned>((heads * dim + 32 * N - 1) / (32 * N));
  COHOP_LAUNCH((sum_kernel<N, S>), dim3(columns, static_cast<unsigned>(parts)), BLOCK, 0, stream, rows, per_part,
               heads, dim, x, dout, scratch);
  COHOP_LAUNCH((sum_kernel<N, S>), dim3(columns), BLOCK, 0, stream, parts, parts, heads, dim,
               static_cast<const S*>(scratch), static_cast<const S*>(nullptr), da);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_head_dot(cohop_dtype scalar, uint64_t rows, uint64_t heads, uint64_t dim, const void* x, const void* a,
                       void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return with_tile<S>(dim, [&](auto tile) {
      using T = decltype(tile);
      return launch_row_dots<T, false>(head_layout<T>(heads, dim), rows, static_cast<const S*>(x),
                                       static_cast<const S*>(a), DotWriter<S>{static_cast<S*>(out)}, stream);
    }, x, a);
  });)
}

int32_t cohop_head_dot_backward_input(cohop_dtype scalar, uint64_t rows, uint64_t heads, uint64_t dim, const void* a,
                                      const void* dout, void* dx, bool add, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0 || dim == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const S *vector = static_cast<const S*>(a), *factors = static_cast<const S*>(dout);
      S* to = static_cast<S*>(dx);
      if (packs<S>(dim, a, dx)) return launch_spread<PACK<S>>(rows, heads, dim, vector, factors, to, add, stream);
      return launch_spread<1>(rows, heads, dim, vector, factors, to, add, stream);
    });)
}

uint64_t cohop_head_dot_parts(uint64_t rows) {
  const uint64_t parts = (rows + ROWS_PER_PART - 1) / ROWS_PER_PART;
  return parts < 1 ? 1 : parts < MAX_PARTS ? parts : MAX_PARTS;
}

int32_t cohop_head_dot_backward_vector(cohop_dtype scalar, uint64_t rows, uint64_t heads, uint64_t dim, const void* x,
                                       const void* dout, void* scratch, void* da, void* stream) {
  COHOP_LAUNCHER(
    if (dim == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const S *values = static_cast<const S*>(x), *factors = static_cast<const S*>(dout);
      S *sums = static_cast<S*>(scratch), *to = static_cast<S*>(da);
      if (packs<S>(dim, x, scratch)) return launch_sum<PACK<S>>(rows, heads, dim, values, factors, sums, to, stream);
      return launch_sum<1>(rows, heads, dim, values, factors, sums, to, stream);
    });)
}

}  // extern "C"
