// Log-softmax and negative log-likelihood: a row is taken by WIDTH lanes, which depends on the number of classes. The
// forward pass reads a row twice, the second time from the first-level cache, and writes nothing of its size; bound by
// memory. Losses of one element each are maps.
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

/// out[0] += rows whose label is the column of their largest score, the first among equals; NaN is never the largest.
/// A warp takes a row; its lanes agree on the largest, then on the smallest column that has it.
template <class S>
__global__ void __launch_bounds__(BLOCK) count_right_kernel(uint64_t rows, uint64_t n_class,
                                                            const S* __restrict__ scores,
                                                            const int32_t* __restrict__ labels,
                                                            uint32_t* __restrict__ out) {
  constexpr uint64_t NONE = ~uint64_t(0);
  COHOP_SHARED(uint32_t, part, [BLOCK / 32]);
  const unsigned lane = threadIdx.x % 32;
  uint32_t right = 0;
  for (uint64_t row = grid_thread() / 32; row < rows; row += grid_threads() / 32) {
    S most = -static_cast<S>(INFINITY);
    uint64_t column = NONE;
    for (uint64_t c = lane; c < n_class; c += 32) {
      const S x = scores[row * n_class + c];
      if (x > most) {
        most = x;
        column = c;
      }
    }
    const S largest = warp_max(most);
    // Complemented, so that the largest number is the smallest column.
    const uint64_t first = ~warp_max(most == largest ? ~column : uint64_t(0));
    const int64_t prediction = first == NONE ? 0 : static_cast<int64_t>(first);
    right += lane == 0 && labels[row] == prediction;
  }
  right = block_sum<BLOCK>(right, part);
  if (threadIdx.x == 0 && right > 0) atomicAdd(out, right);
}

/// The loss of one element; 0 if its target is missing.
template <class S>
struct ElementLoss {
  cohop_element_loss kind;
  __device__ S operator()(S x, S target) const {
    if (target != target) return S(0);
    if (kind == COHOP_SQUARED_ERROR) return (x - target) * (x - target);
    const S positive = x < S(0) ? S(0) : x;  // a comparison that keeps a NaN
    return positive - target * x + logarithm_one_plus(exponential(-absolute(x)));
  }
};

/// Its derivative, times factor * dloss[0].
template <class S>
struct ElementLossGradient {
  cohop_element_loss kind;
  S constant;
  const S* dloss;
  __device__ S operator()(S x, S target) const {
    if (target != target) return S(0);
    const S factor = constant * dloss[0];
    if (kind == COHOP_SQUARED_ERROR) return factor * (x - target + (x - target));
    const S power = exponential(-absolute(x));  // cannot overflow
    const S sigmoid = x < S(0) ? power / (S(1) + power) : S(1) / (S(1) + power);
    return factor * (sigmoid - target);
  }
};

/// out[i] = body(x[i], target[i]), N elements at a time.
template <int N, class S, class Body>
__global__ void __launch_bounds__(BLOCK) pairs_kernel(uint64_t n, const S* x, const S* target,
                                                      S* __restrict__ out, Body body) {
  for (uint64_t i = grid_thread() * N; i < n; i += grid_threads() * N) {
    const Pack<S, N> left = load<N>(x + i), right = load<N>(target + i);
    Pack<S, N> values;
#pragma unroll
    for (int k = 0; k < N; k++) values.value[k] = body(left.value[k], right.value[k]);
    store<N>(out + i, values);
  }
}

template <class S, class Body>
int32_t launch_pairs(uint64_t n, const S* x, const S* target, S* out, Body body, void* stream) {
  if (n == 0) return 0;
  if (packs<S>(n, x, target, out)) {
    COHOP_LAUNCH((pairs_kernel<PACK<S>, S, Body>), grid_for(n / PACK<S>), BLOCK, 0, stream, n, x, target, out, body);
  } else {
    COHOP_LAUNCH((pairs_kernel<1, S, Body>), grid_for(n), BLOCK, 0, stream, n, x, target, out, body);
  }
  return cohop_last_error();
}

/// Calls body(width, n) with compile-time numbers: the lanes per row and the classes per load.
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

int32_t cohop_count_right(cohop_dtype scalar, uint64_t rows, uint64_t n_class, const void* scores,
                          const int32_t* labels, uint32_t* out, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0 || n_class == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH(count_right_kernel<S>, grid_for(rows * 32), BLOCK, 0, stream, rows, n_class,
                   static_cast<const S*>(scores), labels, out);
      return cohop_last_error();
    });)
}

int32_t cohop_element_loss_forward(cohop_dtype scalar, cohop_element_loss kind, uint64_t n, const void* x,
                                   const void* target, void* loss, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return launch_pairs(n, static_cast<const S*>(x), static_cast<const S*>(target), static_cast<S*>(loss),
                        ElementLoss<S>{kind}, stream);
  });)
}

int32_t cohop_element_loss_backward(cohop_dtype scalar, cohop_element_loss kind, uint64_t n, const void* x,
                                    const void* target, double factor, const void* dloss, void* dx, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const ElementLossGradient<S> body = {kind, S(factor), static_cast<const S*>(dloss)};
    return launch_pairs(n, static_cast<const S*>(x), static_cast<const S*>(target), static_cast<S*>(dx), body, stream);
  });)
}

}  // extern "C"
