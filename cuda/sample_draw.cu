// Draws into an array: how a test compares rng.cuh with src/rng bit for bit.
#include "rng.cuh"

namespace cohop {
namespace {

__global__ void __launch_bounds__(BLOCK) draw_kernel(cohop_draw draw, cohop_variates variates, uint64_t stream,
                                                     uint64_t n, const uint64_t* __restrict__ parameter,
                                                     uint64_t* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    const uint64_t p = parameter[i];
    uint64_t result = 0;
    switch (draw) {
      case COHOP_DRAW_UNIFORM: result = bits_of(uniform(variates.first, stream, p)); break;
      case COHOP_DRAW_UNIFORM_OPEN: result = bits_of(uniform_open(variates.first, stream, p)); break;
      case COHOP_DRAW_BOUNDED: result = bounded(variates.first, stream, i, p); break;
      case COHOP_DRAW_VARIATE: result = variate(variates, stream, p); break;
      case COHOP_DRAW_LN: result = bits_of(ln(from_bits(p))); break;
      case COHOP_DRAW_EXP: result = bits_of(exp_of(from_bits(p))); break;
      case COHOP_DRAW_NORMAL_CDF: result = bits_of(normal_cdf(from_bits(p))); break;
      case COHOP_DRAW_NORMAL_QUANTILE: result = bits_of(normal_quantile(from_bits(p))); break;
    }
    out[i] = result;
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" int32_t cohop_sample_draw(cohop_draw draw, cohop_variates variates, uint64_t stream_number, uint64_t n,
                                     const uint64_t* parameter, uint64_t* out, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    COHOP_LAUNCH(draw_kernel, grid_for(n), BLOCK, 0, stream, draw, variates, stream_number, n, parameter, out);
    return cohop_last_error();)
}
