// Sparse times dense: out (= | +=) A x.
//
// Bound by memory: reads a row of x an entry and writes a row of out a row. See csr_rows.cuh for who does what. Sums
// run in the entries' order, those of hubs in chunks of it: the same result on every run.
#include "product.cuh"

namespace cohop {
namespace {

template <class S, int N, bool WEIGHTED>
int32_t spmm(const Rows& rows, uint64_t cols, const uint32_t* indices, const Factors<S>& factors, const S* x,
             void* scratch, S* out, bool add, void* stream) {
  const SumScratch<S> parts(scratch, rows.n_edge, cols);
  Product<S, N, WEIGHTED, DenseRows<S>> op;
  op.cols = cols;
  op.sums = parts.sums;
  op.out = out;
  op.add_to_out = add;
  op.indices = indices;
  op.x = {x};
  op.factors = factors;
  return launch_csr_rows(op, rows, cols, parts.hubs, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_spmm_bytes(cohop_dtype scalar, uint64_t n_edge, uint64_t cols) {
  return scalar == COHOP_F64 ? SumScratch<double>(nullptr, n_edge, cols).bytes
                             : SumScratch<float>(nullptr, n_edge, cols).bytes;
}

int32_t cohop_spmm(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t cols, const uint32_t* indptr,
                   const uint32_t* indices, const uint32_t* positions, const void* edge, const void* row,
                   const void* column, const void* x, void* scratch, void* out, bool add, void* stream) {
  COHOP_LAUNCHER(
    if (n_rows == 0 || cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Rows rows = {n_rows, n_edge, indptr};
      const Factors<S> factors = {positions, static_cast<const S*>(edge), static_cast<const S*>(row),
                                  static_cast<const S*>(column)};
      const S* from = static_cast<const S*>(x);
      S* to = static_cast<S*>(out);
      const bool is_weighted = edge || column;
      if (packs<S>(cols, from, to)) {
        return is_weighted ? spmm<S, PACK<S>, true>(rows, cols, indices, factors, from, scratch, to, add, stream)
                           : spmm<S, PACK<S>, false>(rows, cols, indices, factors, from, scratch, to, add, stream);
      }
      return is_weighted ? spmm<S, 1, true>(rows, cols, indices, factors, from, scratch, to, add, stream)
                         : spmm<S, 1, false>(rows, cols, indices, factors, from, scratch, to, add, stream);
    });)
}

}  // extern "C"
