// Sparse times dense: out (= | +=) A x.
//
// Bound by memory: reads one row of x per entry and writes one row of out per row. See csr_rows.cuh for how the work is
// divided. Sums run in the entries' order, those of hubs chunk by chunk: the same result on every run. Rows of 16 bits
// are widened when they have been loaded: the same sums as of wide rows, for half of the bytes.
#include "product.cuh"

namespace cohop {
namespace {

template <int N, bool WEIGHTED, class S, class E>
int32_t spmm(const Rows& rows, uint64_t cols, const uint32_t* indices, const Factors<S>& factors, const E* x,
             void* scratch, S* out, bool add, void* stream) {
  const SumScratch<S> parts(scratch, rows, cols);
  Product<S, N, WEIGHTED, DenseRows<E>> op;
  op.cols = cols;
  op.sums = parts.sums;
  op.out = out;
  op.add_to_out = add;
  op.indices = indices;
  op.x = {x};
  op.factors = factors;
  return launch_csr_rows(op, rows, cols, parts.hubs, stream);
}

/// A weight per entry and head; a pack never spans two heads.
template <class S, int N>
struct HeadProduct : SumRows<S, N> {
  using typename SumRows<S, N>::State;
  const uint32_t* indices;    // [n_edge]
  const uint32_t* positions;  // [n_edge], or null
  const S* weight;            // [n_edge, heads]
  const S* x;                 // [n_cols, heads * dim]
  uint64_t heads, dim;

  struct Entry {
    uint32_t column, position;
  };
  struct Operand {
    Pack<S, N> row;
    S weight;
  };

  __device__ Entry entry(uint64_t e) const {
    return {indices[e], positions ? positions[e] : static_cast<uint32_t>(e)};
  }
  __device__ Entry broadcast(const Entry& own, int lane, int width) const {
    return {__shfl_sync(FULL, own.column, lane, width), __shfl_sync(FULL, own.position, lane, width)};
  }
  __device__ Operand load(const Entry& entry, uint64_t column) const {
    return {cohop::load<N>(x + entry.column * this->cols + column), weight[entry.position * heads + column / dim]};
  }
  __device__ void add(State& state, uint32_t, const Entry&, const Operand& operand) const {
#pragma unroll
    for (int k = 0; k < N; k++) state.value[k] += operand.weight * operand.row.value[k];
  }
  __device__ void finish(uint64_t row, uint64_t column, const State& state, bool is_empty) const {
    if (!is_empty || !this->add_to_out) this->write_row(row, column, state);
  }
};

template <class S, int N>
int32_t spmm_heads(const Rows& rows, uint64_t heads, uint64_t dim, const uint32_t* indices, const uint32_t* positions,
                   const S* weight, const S* x, void* scratch, S* out, bool add, void* stream) {
  const SumScratch<S> parts(scratch, rows, heads * dim);
  HeadProduct<S, N> op;
  op.cols = heads * dim;
  op.sums = parts.sums;
  op.out = out;
  op.add_to_out = add;
  op.indices = indices;
  op.positions = positions;
  op.weight = weight;
  op.x = x;
  op.heads = heads;
  op.dim = dim;
  return launch_csr_rows(op, rows, heads * dim, parts.hubs, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_spmm_bytes(cohop_dtype scalar, uint64_t n_edge, uint64_t longest_row, uint64_t cols) {
  const Rows rows = {0, n_edge, nullptr, longest_row};
  return scalar == COHOP_F64 ? SumScratch<double>(nullptr, rows, cols).bytes
                             : SumScratch<float>(nullptr, rows, cols).bytes;
}

int32_t cohop_spmm(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_edge, uint64_t longest_row,
                   uint64_t cols, const uint32_t* indptr, const uint32_t* indices, const uint32_t* positions,
                   const void* edge, const void* row, const void* column, const void* x, void* scratch, void* out,
                   bool add, void* stream) {
  COHOP_LAUNCHER(
    if (n_rows == 0 || cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return with_rows<S>(element, [&](auto narrow) {
        using E = decltype(narrow);
        const Rows rows = {n_rows, n_edge, indptr, longest_row};
        const Factors<S> factors = {positions, static_cast<const S*>(edge), static_cast<const S*>(row),
                                    static_cast<const S*>(column)};
        const E* from = static_cast<const E*>(x);
        S* to = static_cast<S*>(out);
        const bool is_weighted = edge || column;
        constexpr int N = PACK<S>;
        if (packs<S>(cols, to) && is_aligned(from, N * sizeof(E))) {
          return is_weighted ? spmm<N, true>(rows, cols, indices, factors, from, scratch, to, add, stream)
                             : spmm<N, false>(rows, cols, indices, factors, from, scratch, to, add, stream);
        }
        return is_weighted ? spmm<1, true>(rows, cols, indices, factors, from, scratch, to, add, stream)
                           : spmm<1, false>(rows, cols, indices, factors, from, scratch, to, add, stream);
      });
    });)
}

int32_t cohop_spmm_heads(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t longest_row, uint64_t heads,
                         uint64_t dim, const uint32_t* indptr, const uint32_t* indices, const uint32_t* positions,
                         const void* weight, const void* x, void* scratch, void* out, bool add, void* stream) {
  COHOP_LAUNCHER(
    if (n_rows == 0 || heads == 0 || dim == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Rows rows = {n_rows, n_edge, indptr, longest_row};
      const S *factors = static_cast<const S*>(weight), *from = static_cast<const S*>(x);
      S* to = static_cast<S*>(out);
      return packs<S>(dim, from, to)
                 ? spmm_heads<S, PACK<S>>(rows, heads, dim, indices, positions, factors, from, scratch, to, add, stream)
                 : spmm_heads<S, 1>(rows, heads, dim, indices, positions, factors, from, scratch, to, add, stream);
    });)
}

}  // extern "C"
