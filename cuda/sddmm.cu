// A value per entry of a CSR pattern, from the rows of x and y at its two ends.
//
// A warp takes 32 consecutive entries, whatever rows they belong to, so that long rows cause no imbalance. Its lanes
// search for the row of the first together, and go on from there. Bound by memory: one row of x per entry; rows of y
// stay in the first-level cache from one entry to the next. The same result on every run.
#include "csr_rows.cuh"

namespace cohop {
namespace {

/// The row that entry e belongs to, one of low.. : all lanes of a warp search together, 32 rows a step.
__device__ inline uint64_t warp_row_of(const Rows& rows, uint64_t low, uint64_t e) {
  const uint32_t lane = threadIdx.x % 32;
  uint64_t high = rows.n_rows;  // indptr[low] <= e < indptr[high]
  while (high - low > 1) {
    const uint64_t step = (high - low + 32) / 33, at = low + (lane + 1) * step;
    const bool is_passed = at < high && rows.indptr[at] <= e;
    const uint64_t next = low + __popc(__ballot_sync(FULL, is_passed)) * step;
    high = next + step < high ? next + step : high;
    low = next;
  }
  return low;
}

/// Entries of a warp, and a lane's own.
struct WarpEntries {
  uint64_t first;
  uint32_t count;
  uint32_t row;
  uint32_t column;

  __device__ WarpEntries(const Rows& rows, const uint32_t* __restrict__ indices) : row(0), column(0) {
    const uint32_t lane = threadIdx.x % 32;
    first = grid_thread() - lane;
    count = first >= rows.n_edge ? 0 : rows.n_edge - first < 32 ? static_cast<uint32_t>(rows.n_edge - first) : 32;
    if (lane < count) column = indices[first + lane];
    // A window of 32 rows mostly has all of the warp's entries. Where empty rows lie between them, the next entry that
    // it does not have is searched for: there may be millions of such rows.
    uint64_t low = 0;
    unsigned open = __ballot_sync(FULL, lane < count);
    while (open != 0) {
      low = warp_row_of(rows, low, first + __ffs(open) - 1);
      const uint64_t next = low + 1 + lane;
      const uint32_t end = next <= rows.n_rows ? rows.indptr[next] : 0xffffffffu;
      // How many of the window's first 31 rows end before the lane's entry.
      uint32_t passed = 0;
#pragma unroll
      for (uint32_t step = 16; step > 0; step /= 2) {
        if (__shfl_sync(FULL, end, passed + step - 1) <= first + lane) passed += step;
      }
      const bool is_inside = first + lane < __shfl_sync(FULL, end, 31);
      if ((open >> lane & 1) != 0 && is_inside) row = static_cast<uint32_t>(low) + passed;
      open &= ~__ballot_sync(FULL, is_inside);
    }
  }
};

/// out[e, h] (= | +=) <x[indices[e], h, :], y[row of e, h, :]>. `lanes` lanes for an entry and head.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) sddmm_dot_kernel(Rows rows, const uint32_t* __restrict__ indices,
                                                          uint32_t heads, uint64_t dim, uint32_t lanes,
                                                          const S* x, const S* y, S* __restrict__ out, bool add) {
  const WarpEntries entries(rows, indices);
  const uint32_t lane = threadIdx.x % lanes, group = threadIdx.x % 32 / lanes, groups = 32 / lanes;
  const uint64_t items = static_cast<uint64_t>(entries.count) * heads, cols = heads * dim;
  for (uint64_t step = 0; step < items; step += groups * IN_FLIGHT) {
    const S *x_row[IN_FLIGHT], *y_row[IN_FLIGHT];
    S sum[IN_FLIGHT] = {};
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      const uint64_t item = step + u * groups + group;
      const uint32_t entry = static_cast<uint32_t>(item < items ? item / heads : 0);
      const uint64_t column = (item - static_cast<uint64_t>(entry) * heads) * dim;
      x_row[u] = x + __shfl_sync(FULL, entries.column, entry) * cols + column;
      y_row[u] = y + __shfl_sync(FULL, entries.row, entry) * cols + column;
    }
    for (uint64_t k = static_cast<uint64_t>(lane) * N; k < dim; k += lanes * N) {
      Pack<S, N> left[IN_FLIGHT], right[IN_FLIGHT];
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) {
        if (step + u * groups + group < items) {
          left[u] = load<N>(x_row[u] + k);
          right[u] = load<N>(y_row[u] + k);
        }
      }
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) {
        if (step + u * groups + group < items) {
#pragma unroll
          for (int n = 0; n < N; n++) sum[u] += left[u].value[n] * right[u].value[n];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      for (uint32_t offset = lanes / 2; offset > 0; offset /= 2) sum[u] += __shfl_xor_sync(FULL, sum[u], offset);
      const uint64_t item = step + u * groups + group;
      if (lane == 0 && item < items) write(out[entries.first * heads + item], sum[u], add);
    }
  }
}

/// out[e, :] (= | +=) x[indices[e], :] + y[row of e, :]. Lanes go through the packs of all entries of the warp.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) sddmm_add_kernel(Rows rows, const uint32_t* __restrict__ indices,
                                                          uint64_t packs, const S* x, const S* y,
                                                          S* __restrict__ out, bool add) {
  const WarpEntries entries(rows, indices);
  const uint64_t items = entries.count * packs, cols = packs * N;
  for (uint64_t step = 0; step < items; step += 32 * IN_FLIGHT) {
    Pack<S, N> left[IN_FLIGHT], right[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      const uint64_t item = step + u * 32 + threadIdx.x % 32;
      const uint32_t entry = static_cast<uint32_t>(item < items ? item / packs : 0);
      const uint64_t column = (item - entry * packs) * N;
      const uint64_t from = __shfl_sync(FULL, entries.column, entry), row = __shfl_sync(FULL, entries.row, entry);
      if (item < items) {
        left[u] = load<N>(x + from * cols + column);
        right[u] = load<N>(y + row * cols + column);
      }
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      const uint64_t item = step + u * 32 + threadIdx.x % 32;
      if (item < items) {
        S* to = out + entries.first * cols + item * N;
        Pack<S, N> values = {};
        if (add) values = load<N>(static_cast<const S*>(to));
#pragma unroll
        for (int n = 0; n < N; n++) {
          const S value = left[u].value[n] + right[u].value[n];
          values.value[n] = add ? values.value[n] + value : value;
        }
        store<N>(to, values);
      }
    }
  }
}

unsigned entry_blocks(uint64_t n_edge) { return grid_of((n_edge + BLOCK - 1) / BLOCK); }

template <int N, class S>
int32_t sddmm_dot(const Rows& rows, uint64_t heads, uint64_t dim, const uint32_t* indices, const S* x, const S* y,
                  S* out, bool add, void* stream) {
  uint32_t lanes = 1;
  while (lanes < 32 && lanes < dim / N) lanes *= 2;
  COHOP_LAUNCH((sddmm_dot_kernel<N, S>), entry_blocks(rows.n_edge), BLOCK, 0, stream, rows, indices,
               static_cast<uint32_t>(heads), dim, lanes, x, y, out, add);
  return cohop_last_error();
}

template <int N, class S>
int32_t sddmm_add(const Rows& rows, uint64_t cols, const uint32_t* indices, const S* x, const S* y, S* out, bool add,
                  void* stream) {
  COHOP_LAUNCH((sddmm_add_kernel<N, S>), entry_blocks(rows.n_edge), BLOCK, 0, stream, rows, indices, cols / N, x, y,
               out, add);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sddmm_dot(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads, uint64_t dim,
                        const uint32_t* indptr, const uint32_t* indices, const void* x, const void* y, void* out,
                        bool add, void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0 || heads == 0) return 0;
    if (heads > 0xffffffffu) return COHOP_ERROR_INVALID;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Rows rows = {n_rows, n_edge, indptr};
      const S *left = static_cast<const S*>(x), *right = static_cast<const S*>(y);
      S* to = static_cast<S*>(out);
      return packs<S>(dim, left, right) ? sddmm_dot<PACK<S>>(rows, heads, dim, indices, left, right, to, add, stream)
                                        : sddmm_dot<1>(rows, heads, dim, indices, left, right, to, add, stream);
    });)
}

int32_t cohop_sddmm_add(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t cols, const uint32_t* indptr,
                        const uint32_t* indices, const void* x, const void* y, void* out, bool add, void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0 || cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Rows rows = {n_rows, n_edge, indptr};
      const S *left = static_cast<const S*>(x), *right = static_cast<const S*>(y);
      S* to = static_cast<S*>(out);
      return packs<S>(cols, left, right, to) ? sddmm_add<PACK<S>>(rows, cols, indices, left, right, to, add, stream)
                                             : sddmm_add<1>(rows, cols, indices, left, right, to, add, stream);
    });)
}

}  // extern "C"
