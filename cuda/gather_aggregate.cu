// Rows of a table by index, aggregated without being copied: a gather and a sparse product in one.
//
// Bound by memory: reads one row of the table per entry and per row of the pattern, and writes the latter, with the sum
// added to it or after it. Sums are those of spmm.cu to the bit, by the same code. An index out of range is reported,
// as by a gather, and another row taken for its.
#include "indexed.cuh"
#include "product.cuh"

namespace cohop {
namespace {

template <class S, class E, int N, bool WEIGHTED>
struct GatherAggregate : Product<S, N, WEIGHTED, TableRows<E>> {
  const S* own;  // [n_rows] or null

  /// A destination's own row of the table.
  __device__ Pack<S, N> own_row(uint64_t row, uint64_t column) const {
    const auto narrow = this->x.template load<N>(this->x.place(row), this->cols, column);
    Pack<S, N> wide;
#pragma unroll
    for (int k = 0; k < N; k++) wide.value[k] = widen<S>(narrow.value[k]);
    return wide;
  }
  /// Hides Product::finish, which writes sums only.
  __device__ void finish(uint64_t row, uint64_t column, Pack<S, N> sum, bool is_empty) const {
    Pack<S, N> value = own_row(row, column);
    if (!is_empty) this->scale(row, sum);
    if (!own) {
      S* to = this->out + 2 * row * this->cols + column;
      store<N>(to, value);
      store<N>(to + this->cols, sum);
      return;
    }
    const S factor = own[row];
#pragma unroll
    for (int k = 0; k < N; k++) {
      value.value[k] = rounded_product(factor, value.value[k]);
      if (!is_empty) value.value[k] += sum.value[k];
    }
    store<N>(this->out + row * this->cols + column, value);
  }
};

template <class S, class E, int N, bool WEIGHTED>
int32_t gather_aggregate(const Rows& rows, uint64_t cols, const TableRows<E>& x, const uint32_t* indices,
                         const Factors<S>& factors, const S* own, void* scratch, S* out, void* stream) {
  const SumScratch<S> parts(scratch, rows, cols);
  GatherAggregate<S, E, N, WEIGHTED> op;
  op.cols = cols;
  op.sums = parts.sums;
  op.out = out;
  op.add_to_out = false;
  op.indices = indices;
  op.x = x;
  op.factors = factors;
  op.own = own;
  return launch_csr_rows(op, rows, cols, parts.hubs, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_gather_aggregate(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_cols,
                               uint64_t n_edge, uint64_t longest_row, uint64_t cols, const void* table,
                               uint64_t n_table, const uint32_t* index, const uint32_t* indptr,
                               const uint32_t* indices, const void* edge, const void* row, const void* column,
                               const void* own, void* scratch, void* out, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (n_cols == 0) return 0;
    check_index(n_cols, index, n_table, status, stream);
    // Of an empty table every index is out of range.
    if (n_rows == 0 || cols == 0 || n_table == 0) return cohop_last_error();
    return with_scalar(scalar, [&](auto zero) {
      return with_element(element, [&](auto narrow) {
        using S = decltype(zero);
        using E = decltype(narrow);
        const Rows rows = {n_rows, n_edge, indptr, longest_row};
        const TableRows<E> x = {static_cast<const E*>(table), n_table, index};
        const Factors<S> factors = {nullptr, static_cast<const S*>(edge), static_cast<const S*>(row),
                                    static_cast<const S*>(column)};
        const S* scale = static_cast<const S*>(own);
        S* to = static_cast<S*>(out);
        const bool is_weighted = edge || column;
        constexpr int N = PACK<S>;
        if (packs<S>(cols, to) && is_aligned(x.table, N * sizeof(E))) {
          return is_weighted
            ? gather_aggregate<S, E, N, true>(rows, cols, x, indices, factors, scale, scratch, to, stream)
            : gather_aggregate<S, E, N, false>(rows, cols, x, indices, factors, scale, scratch, to, stream);
        }
        return is_weighted
          ? gather_aggregate<S, E, 1, true>(rows, cols, x, indices, factors, scale, scratch, to, stream)
          : gather_aggregate<S, E, 1, false>(rows, cols, x, indices, factors, scale, scratch, to, stream);
      });
    });)
}

}  // extern "C"
