// Optimiser steps: parameter, gradient and state are read once and written once; bound by memory.
#include "columns.cuh"

namespace cohop {
namespace {

/// The numbers that a step uses, rounded once.
template <class S>
struct Adam {
  S decay, shrink, epsilon, beta1, rest1, beta2, rest2, rate, correction2;

  explicit Adam(const cohop_adam& step)
      : decay(S(step.decay)), shrink(S(step.shrink)), epsilon(S(step.epsilon)), beta1(S(step.beta1)),
        rest1(S(step.rest1)), beta2(S(step.beta2)), rest2(S(step.rest2)), rate(S(step.rate)),
        correction2(S(step.correction2)) {}

  /// The same for dense steps and for rows, so that both give the same bits.
  template <int N>
  __device__ __forceinline__ void update(const S* grad, S* first_moment, S* second_moment, S* parameter) const {
    const Pack<S, N> gradient = load<N>(grad);
    Pack<S, N> m = load<N>(first_moment), v = load<N>(second_moment), p = load<N>(parameter);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const S g = gradient.value[k] + decay * p.value[k];
      m.value[k] = beta1 * m.value[k] + rest1 * g;
      v.value[k] = beta2 * v.value[k] + rest2 * (g * g);
      const S change = rate * m.value[k] / (square_root(v.value[k] * correction2) + epsilon);
      p.value[k] = shrink * p.value[k] - change;
    }
    store<N>(first_moment, m);
    store<N>(second_moment, v);
    store<N>(parameter, p);
  }
};

template <int N, class S>
__global__ void __launch_bounds__(BLOCK) adam_kernel(uint64_t n, Adam<S> adam, const S* __restrict__ grad,
                                                     S* __restrict__ m, S* __restrict__ v, S* __restrict__ parameter) {
  for (uint64_t i = grid_thread() * N; i < n; i += grid_threads() * N) {
    adam.template update<N>(grad + i, m + i, v + i, parameter + i);
  }
}

/// Steps the row of the parameter that a row of the gradient is for.
template <class S>
struct AdamRows {
  uint64_t rows;
  uint64_t dim;
  Adam<S> adam;
  const uint32_t* index;
  const S* grad;
  S* m;
  S* v;
  S* parameter;
  cohop_status* status;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [self = *this, column](uint64_t i) {
      const uint64_t row = self.index[i];
      if (row >= self.rows) {
        if (column == 0) report(self.status, COHOP_ARRAY_INDEX, i, row, self.rows);
        return;
      }
      if (i > 0 && self.index[i - 1] >= row) {
        if (column == 0) report(self.status, COHOP_ARRAY_ASCENDING, i, row, self.index[i - 1]);
        return;
      }
      const uint64_t at = row * self.dim + column;
      self.adam.template update<N>(self.grad + i * self.dim + column, self.m + at, self.v + at, self.parameter + at);
    };
  }
};

template <int N, class S>
__global__ void __launch_bounds__(BLOCK) sgd_kernel(uint64_t n, S lr, S momentum, S decay, bool is_plain,
                                                    const S* __restrict__ grad, S* __restrict__ velocity,
                                                    S* __restrict__ parameter) {
  for (uint64_t i = grid_thread() * N; i < n; i += grid_threads() * N) {
    const Pack<S, N> gradient = load<N>(grad + i);
    Pack<S, N> step = {}, p = load<N>(parameter + i);
    if (!is_plain) step = load<N>(velocity + i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const S g = gradient.value[k] + decay * p.value[k];
      step.value[k] = is_plain ? g : momentum * step.value[k] + g;
      p.value[k] -= lr * step.value[k];
    }
    if (!is_plain) store<N>(velocity + i, step);
    store<N>(parameter + i, p);
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_adam_step(cohop_dtype scalar, uint64_t n, const cohop_adam* step, const void* grad, void* first_moment,
                        void* second_moment, void* parameter, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Adam<S> adam(*step);
      const S* g = static_cast<const S*>(grad);
      S *m = static_cast<S*>(first_moment), *v = static_cast<S*>(second_moment), *p = static_cast<S*>(parameter);
      if (packs<S>(n, grad, m, v, p)) {
        COHOP_LAUNCH((adam_kernel<PACK<S>, S>), grid_for(n / PACK<S>), BLOCK, 0, stream, n, adam, g, m, v, p);
      } else {
        COHOP_LAUNCH((adam_kernel<1, S>), grid_for(n), BLOCK, 0, stream, n, adam, g, m, v, p);
      }
      return cohop_last_error();
    });)
}

int32_t cohop_adam_rows(cohop_dtype scalar, uint64_t n, uint64_t rows, uint64_t dim, const cohop_adam* step,
                        const uint32_t* index, const void* grad, void* first_moment, void* second_moment,
                        void* parameter, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const AdamRows<S> body = {rows, dim, Adam<S>(*step), index, static_cast<const S*>(grad),
                              static_cast<S*>(first_moment), static_cast<S*>(second_moment),
                              static_cast<S*>(parameter), status};
    return for_columns<S>(n, dim, packs<S>(dim, grad, first_moment, second_moment, parameter), body, stream);
  });)
}

int32_t cohop_sgd_step(cohop_dtype scalar, uint64_t n, double lr, double momentum, double weight_decay,
                       const void* grad, void* velocity, void* parameter, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const bool is_plain = momentum == 0;
      const S* g = static_cast<const S*>(grad);
      S *v = static_cast<S*>(velocity), *p = static_cast<S*>(parameter);
      if (packs<S>(n, grad, velocity, parameter)) {
        COHOP_LAUNCH((sgd_kernel<PACK<S>, S>), grid_for(n / PACK<S>), BLOCK, 0, stream, n, S(lr), S(momentum),
                     S(weight_decay), is_plain, g, v, p);
      } else {
        COHOP_LAUNCH((sgd_kernel<1, S>), grid_for(n), BLOCK, 0, stream, n, S(lr), S(momentum), S(weight_decay),
                     is_plain, g, v, p);
      }
      return cohop_last_error();
    });)
}

}  // extern "C"
