// Log-softmax and negative log-likelihood: WIDTH lanes, by the number of classes, have a row. Forward a row is read
// twice, from the first cache the second time, and nothing of its size is written; bound by memory.
#include <type_traits>

#include "scalar.cuh"
#include "warp.cuh"

namespace cohop {
namespace {

constexpr int32_t IGNORED = -1;

/// Whether a label is a class; anything else that is not ignored is reported.
__device__ __forceinline__ bool is_class(int32_t label, uint64_t row, uint64_t n_class, cohop_status* status) {
  if (label == IGNORED) return false;
  if (label >= 0 && static_cast<uint64_t>(label) < n_class) return true;
  report(status, COHOP_ARRAY_LABELS, row, label, n_class);
  return false;
}

/// lse[row] and loss[row]; N classes are loaded at a time. All lanes of a warp go through the shuffles, those beyond
/// the last row with no classes.
template <int WIDTH, int N, class S>
__global__ void __launch_bounds__(BLOCK) log_softmax_nll_kernel(uint64_t rows, uint64_t n_class,
                                                                const S* __restrict__ logits,
                                                                const int32_t* __restrict__ labels,
                                                                S* __restrict__ lse, S* __restrict__ loss,
                                                                cohop_status* status) {
  constexpr uint64_t ROWS = 32 / WIDTH;
  const unsigned lane = threadIdx.x % WIDTH;
  for (uint64_t first = grid_thread() / 32 * ROWS; first < rows; first += grid_threads() / 32 * ROWS) {
    const uint64_t row = first + threadIdx.x % 32 / WIDTH, n = row < rows ? n_class : 0;
    const S* x = logits + row * n_class;
    S most = -static_cast<S>(INFINITY);
    for (uint64_t c = lane * N; c < n; c += WIDTH * N) {
      const Pack<S, N> in = load<N>(x + c);
#pragma unroll
      for (int k = 0; k < N; k++) most = in.value[k] > most ? in.value[k] : most;
    }
    most = warp_max<WIDTH>(most);
    S sum = 0;
    for (uint64_t c = lane * N; c < n; c += WIDTH * N) {
      const Pack<S, N> in = load<N>(x + c);
#pragma unroll
      for (int k = 0; k < N; k++) sum += exponential(in.value[k] - most);
    }
    sum = warp_sum<WIDTH>(sum);
    if (lane == 0 && row < rows) {
      const S log_sum = most + logarithm(sum);
      const int32_t label = labels[row];
      lse[row] = log_sum;
      loss[row] = is_class(label, row, n_class, status) ? log_sum - x[label] : S(0);
    }
  }
}

/// The gradient of a row.
template <int WIDTH, int N, class S>
__global__ void __launch_bounds__(BLOCK) log_softmax_nll_backward_kernel(
    uint64_t rows, uint64_t n_class, const S* __restrict__ logits, const int32_t* __restrict__ labels,
    const S* __restrict__ lse, S constant, const S* __restrict__ dloss, S* __restrict__ dlogits, cohop_status* status) {
  const unsigned lane = threadIdx.x % WIDTH;
  const S factor = constant * dloss[0];
  for (uint64_t row = grid_thread() / WIDTH; row < rows; row += grid_threads() / WIDTH) {
    const int32_t label = labels[row];
    const S log_sum = lse[row];
    const bool is_labelled = label >= 0 && static_cast<uint64_t>(label) < n_class;
    if (lane == 0) is_class(label, row, n_class, status);
    for (uint64_t c = lane * N; c < n_class; c += WIDTH * N) {
      const uint64_t at = row * n_class + c;
      Pack<S, N> values = {};
      if (is_labelled) {
        values = load<N>(logits + at);
#pragma unroll
        for (int k = 0; k < N; k++) {
          values.value[k] = factor * exponential(values.value[k] - log_sum);
          if (c + k == static_cast<uint64_t>(label)) values.value[k] -= factor;
        }
      }
      store<N>(dlogits + at, values);
    }
  }
}

/// Calls body(width, n) with compile-time numbers: the lanes of a row and the classes of a load.
template <class S, class Body>
int32_t with_width(uint64_t n_class, bool is_packed, Body body) {
  using std::integral_constant;
  constexpr int N = PACK<S>;
  const uint64_t loads = is_packed ? n_class / N : n_class;
  const auto with_loads = [&](auto width) {
    return is_packed ? body(width, integral_constant<int, N>()) : body(width, integral_constant<int, 1>());
  };
  return loads <= 4 ? with_loads(integral_constant<int, 4>()) : loads <= 32 ? with_loads(integral_constant<int, 8>())
                                                                         : with_loads(integral_constant<int, 32>());
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_log_softmax_nll(cohop_dtype scalar, uint64_t rows, uint64_t n_class, const void* logits,
                              const int32_t* labels, void* lse, void* loss, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return with_width<S>(n_class, packs<S>(n_class, logits), [&](auto width, auto n) {
        COHOP_LAUNCH((log_softmax_nll_kernel<width(), n(), S>), grid_for(rows * width()), BLOCK, 0, stream, rows,
                     n_class, static_cast<const S*>(logits), labels, static_cast<S*>(lse), static_cast<S*>(loss),
                     status);
        return cohop_last_error();
      });
    });)
}

int32_t cohop_log_softmax_nll_backward(cohop_dtype scalar, uint64_t rows, uint64_t n_class, const void* logits,
                                       const int32_t* labels, const void* lse, double factor, const void* dloss,
                                       void* dlogits, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return with_width<S>(n_class, packs<S>(n_class, logits, dlogits), [&](auto width, auto n) {
        COHOP_LAUNCH((log_softmax_nll_backward_kernel<width(), n(), S>), grid_for(rows * width()), BLOCK, 0, stream,
                     rows, n_class, static_cast<const S*>(logits), labels, static_cast<const S*>(lse), S(factor),
                     static_cast<const S*>(dloss), static_cast<S*>(dlogits), status);
        return cohop_last_error();
      });
    });)
}

}  // extern "C"
