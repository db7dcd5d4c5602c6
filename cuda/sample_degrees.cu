// The factors of GCN's symmetric normalisation on sampled blocks; see Sample::degree_factors. In f64, so that they are
// the CPU's to the bit.
#include "gpu.h"

namespace cohop {
namespace {

template <class S>
__global__ void __launch_bounds__(BLOCK) degree_factors_kernel(cohop_graph graph, const double* __restrict__ weighted,
                                                               uint64_t n_src, uint64_t n_dst,
                                                               const uint32_t* __restrict__ src,
                                                               const uint32_t* __restrict__ indptr, bool has_estimates,
                                                               S* __restrict__ row, S* __restrict__ column,
                                                               S* __restrict__ own) {
  for (uint64_t i = grid_thread(); i < n_src; i += grid_threads()) {
    const uint32_t v = src[i];
    const double degree = static_cast<double>(graph.indptr[v + 1] - graph.indptr[v]);
    const double with_loop = (weighted ? weighted[v] : degree) + 1.0, root = sqrt(with_loop);
    column[i] = static_cast<S>(1.0 / root);
    if (i >= n_dst) continue;
    own[i] = static_cast<S>(1.0 / with_loop);
    const uint32_t n_edge = indptr[i + 1] - indptr[i];
    const double share = has_estimates ? 1.0 : static_cast<double>(n_edge);
    row[i] = static_cast<S>(n_edge > 0 ? degree / share / root : 0.0);
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" int32_t cohop_sample_degree_factors(cohop_dtype scalar, cohop_graph graph, const double* weighted,
                                               uint64_t n_src, uint64_t n_dst, const uint32_t* src,
                                               const uint32_t* indptr, bool has_estimates, void* row, void* column,
                                               void* own, void* stream) {
  COHOP_LAUNCHER(
    if (n_src == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH(degree_factors_kernel<S>, grid_for(n_src), BLOCK, 0, stream, graph, weighted, n_src, n_dst, src,
                   indptr, has_estimates, static_cast<S*>(row), static_cast<S*>(column), static_cast<S*>(own));
      return cohop_last_error();
    });)
}
