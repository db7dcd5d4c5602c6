// What can be computed from a CSR pattern. Its transpose is a stable sort of the entries' positions by column, so that
// the positions of a column ascend.
#include "csr_rows.cuh"
#include "sort.h"

namespace cohop {
namespace {

/// out[e] = the row of entry e
__global__ void __launch_bounds__(BLOCK) entry_rows_kernel(Rows rows, uint32_t* __restrict__ out) {
  for (uint64_t e = grid_thread(); e < rows.n_edge; e += grid_threads())
    out[e] = static_cast<uint32_t>(row_of(rows, e));
}

/// indptr[j] = the number of entries of columns below j
__global__ void __launch_bounds__(BLOCK) column_bounds_kernel(uint64_t n_cols, uint64_t n_edge,
                                                              const uint32_t* __restrict__ columns,
                                                              uint32_t* __restrict__ indptr) {
  for (uint64_t j = grid_thread(); j <= n_cols; j += grid_threads()) {
    uint64_t low = 0, high = n_edge;  // columns before low are below j, those from high on are not
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (columns[middle] < j) low = middle + 1; else high = middle;
    }
    indptr[j] = static_cast<uint32_t>(low);
  }
}

/// out[p] = entry_rows[edge[p]]
__global__ void __launch_bounds__(BLOCK) permute_rows_kernel(uint64_t n_edge, const uint32_t* __restrict__ entry_rows,
                                                             const uint32_t* __restrict__ edge,
                                                             uint32_t* __restrict__ out) {
  for (uint64_t p = grid_thread(); p < n_edge; p += grid_threads()) out[p] = entry_rows[edge[p]];
}

struct TransposeScratch {
  uint32_t* entry_rows;  // [n_edge]
  uint32_t* columns;     // [n_edge], sorted
  void* sort;
  uint64_t bytes;

  TransposeScratch(void* block, uint64_t n_edge) {
    Scratch scratch(block);
    entry_rows = scratch.take<uint32_t>(n_edge);
    columns = scratch.take<uint32_t>(n_edge);
    sort = scratch.take<unsigned char>(sort_bytes<uint32_t>(n_edge));
    bytes = scratch.bytes();
  }
};

int32_t transpose(const Rows& rows, const uint32_t* indices, uint64_t n_cols, void* scratch, uint32_t* out_indptr,
                  uint32_t* out_indices, uint32_t* out_edge, void* stream) {
  const uint64_t n_edge = rows.n_edge;
  const TransposeScratch parts(scratch, n_edge);
  if (n_edge > 0) {
    COHOP_LAUNCH(entry_rows_kernel, grid_for(n_edge), BLOCK, 0, stream, rows, parts.entry_rows);
    const int32_t code = sort_pairs<uint32_t>(n_edge, indices, nullptr, parts.columns, out_edge, 0, bits_below(n_cols),
                                              parts.sort, stream);
    if (code != 0) return code;
    COHOP_LAUNCH(permute_rows_kernel, grid_for(n_edge), BLOCK, 0, stream, n_edge, parts.entry_rows, out_edge,
                 out_indices);
  }
  COHOP_LAUNCH(column_bounds_kernel, grid_for(n_cols + 1), BLOCK, 0, stream, n_cols, n_edge, parts.columns, out_indptr);
  return cohop_last_error();
}

template <class S>
__global__ void __launch_bounds__(BLOCK) inverse_degree_kernel(uint64_t n, const uint32_t* __restrict__ indptr,
                                                               double offset, S* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    const double degree = static_cast<double>(indptr[i + 1] - indptr[i]) + offset;
    out[i] = static_cast<S>(degree == 0.0 ? 0.0 : 1.0 / degree);
  }
}

/// One thread per row, which adds up in order.
template <class S>
__global__ void __launch_bounds__(BLOCK) inverse_weight_sum_kernel(uint64_t n, const uint32_t* __restrict__ indptr,
                                                                   const S* __restrict__ weight, double offset,
                                                                   S* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    double sum = 0.0;
    for (uint64_t e = indptr[i]; e < indptr[i + 1]; ++e) sum += static_cast<double>(weight[e]);
    sum += offset;
    out[i] = static_cast<S>(sum == 0.0 ? 0.0 : 1.0 / sum);
  }
}

__global__ void __launch_bounds__(BLOCK) invert_permutation_kernel(uint64_t n, const uint32_t* __restrict__ permutation,
                                                                   uint32_t* __restrict__ out, cohop_status* status) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    const uint32_t position = permutation[i];
    if (position < n) {
      out[position] = static_cast<uint32_t>(i);
    } else {
      report(status, COHOP_ARRAY_PERMUTATION, i, position, n);
    }
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_transpose_bytes(uint64_t n_edge) { return TransposeScratch(nullptr, n_edge).bytes; }

int32_t cohop_transpose(uint64_t n_rows, uint64_t n_cols, uint64_t n_edge, const uint32_t* indptr,
                        const uint32_t* indices, void* scratch, uint32_t* out_indptr, uint32_t* out_indices,
                        uint32_t* out_edge, void* stream) {
  COHOP_LAUNCHER(
    return transpose({n_rows, n_edge, indptr}, indices, n_cols, scratch, out_indptr, out_indices, out_edge, stream);)
}

int32_t cohop_inverse_degree(cohop_dtype scalar, uint64_t n, const uint32_t* indptr, double offset, void* out,
                             void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((inverse_degree_kernel<S>), grid_for(n), BLOCK, 0, stream, n, indptr, offset, static_cast<S*>(out));
      return cohop_last_error();
    });)
}

int32_t cohop_inverse_weight_sum(cohop_dtype scalar, uint64_t n, const uint32_t* indptr, const void* weight,
                                 double offset, void* out, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((inverse_weight_sum_kernel<S>), grid_for(n), BLOCK, 0, stream, n, indptr,
                   static_cast<const S*>(weight), offset, static_cast<S*>(out));
      return cohop_last_error();
    });)
}

int32_t cohop_invert_permutation(uint64_t n, const uint32_t* permutation, uint32_t* out, cohop_status* status,
                                 void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    COHOP_LAUNCH(invert_permutation_kernel, grid_for(n), BLOCK, 0, stream, n, permutation, out, status);
    return cohop_last_error();)
}

}  // extern "C"
