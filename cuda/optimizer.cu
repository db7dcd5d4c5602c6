// Optimiser steps: parameter, gradient and state are read once and written once; bound by memory.
#include "columns.cuh"

namespace cohop {
namespace {

/// The numbers that a step uses, rounded once.
template <class S>
struct Adam {
  S decay, shrink, epsilon, beta1, rest1, beta2, rest2, rate, correction2;

  Adam() = default;
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

template <class S>
struct Sgd {
  S lr, momentum, decay;
  bool is_plain;

  template <int N>
  __device__ __forceinline__ void update(const S* grad, S* velocity, S*, S* parameter) const {
    const Pack<S, N> gradient = load<N>(grad);
    Pack<S, N> step = {}, p = load<N>(parameter);
    if (!is_plain) step = load<N>(velocity);
#pragma unroll
    for (int k = 0; k < N; k++) {
      const S g = gradient.value[k] + decay * p.value[k];
      step.value[k] = is_plain ? g : momentum * step.value[k] + g;
      p.value[k] -= lr * step.value[k];
    }
    if (!is_plain) store<N>(velocity, step);
    store<N>(parameter, p);
  }
};

/// The most parameters of a launch: as many as its arguments, of 4 KB, have room for. A power of two.
constexpr uint32_t MOST_PARAMETERS = 32;

/// A parameter, and how it is stepped.
template <class S, class Step>
struct Stepped {
  Step step;
  uint64_t n;
  const S* grad;
  S *first_moment, *second_moment, *value;
  bool is_packed;  // all can be accessed 16 bytes at a time
};

/// The parameters of a launch. A thread takes a pack of one of them.
template <class S, class Step>
struct Launch {
  Stepped<S, Step> parameters[MOST_PARAMETERS];
  uint32_t first_block[MOST_PARAMETERS];  // ascending; those of parameters that there are not are beyond all blocks
};

template <class S, class Step>
__global__ void __launch_bounds__(BLOCK) step_kernel(const Launch<S, Step> launch) {
  // The last parameter that begins with this block or before: those without elements have no blocks.
  uint32_t own = 0;
#pragma unroll
  for (uint32_t half = MOST_PARAMETERS / 2; half > 0; half /= 2) {
    if (launch.first_block[own + half] <= blockIdx.x) own += half;
  }
  const Stepped<S, Step>& of = launch.parameters[own];
  const uint64_t i = (static_cast<uint64_t>(blockIdx.x - launch.first_block[own]) * BLOCK + threadIdx.x) * PACK<S>;
  const uint64_t end = i + PACK<S> < of.n ? i + PACK<S> : of.n;
  if (of.is_packed && i + PACK<S> <= of.n) {
    of.step.template update<PACK<S>>(of.grad + i, of.first_moment + i, of.second_moment + i, of.value + i);
    return;
  }
  for (uint64_t k = i; k < end; k++) {
    of.step.template update<1>(of.grad + k, of.first_moment + k, of.second_moment + k, of.value + k);
  }
}

/// Steps all parameters; step(p) is how number p is stepped.
template <class S, class StepOf>
int32_t step_all(uint64_t n_parameters, const cohop_parameter* parameters, StepOf step_of, void* stream) {
  using Step = decltype(step_of(0));
  static_assert(sizeof(Launch<S, Step>) <= 4096, "a launch's arguments");
  for (uint64_t first = 0; first < n_parameters; first += MOST_PARAMETERS) {
    Launch<S, Step> launch = {};
    uint64_t n_blocks = 0;
    for (uint64_t k = 0; k < MOST_PARAMETERS; k++) {
      const uint64_t p = first + k;
      launch.first_block[k] = p < n_parameters ? grid_of(n_blocks) : 0xffffffffu;
      if (p >= n_parameters) continue;
      const cohop_parameter& of = parameters[p];
      launch.parameters[k] = {step_of(p), of.n, static_cast<const S*>(of.grad), static_cast<S*>(of.first_moment),
                              static_cast<S*>(of.second_moment), static_cast<S*>(of.value),
                              packs<S>(0, of.grad, of.first_moment, of.second_moment, of.value)};
      n_blocks += (of.n + BLOCK * PACK<S> - 1) / (BLOCK * PACK<S>);
    }
    if (n_blocks == 0) continue;
    COHOP_LAUNCH((step_kernel<S, Step>), grid_of(n_blocks), BLOCK, 0, stream, launch);
    const int32_t code = cohop_last_error();
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_adam_step(cohop_dtype scalar, uint64_t n_parameters, const cohop_parameter* parameters,
                        const cohop_adam* steps, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return step_all<S>(n_parameters, parameters, [&](uint64_t p) { return Adam<S>(steps[p]); }, stream);
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

int32_t cohop_sgd_step(cohop_dtype scalar, uint64_t n_parameters, const cohop_parameter* parameters, double lr,
                       double momentum, double weight_decay, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Sgd<S> step = {S(lr), S(momentum), S(weight_decay), momentum == 0};
    return step_all<S>(n_parameters, parameters, [&](uint64_t) { return step; }, stream);
  });)
}

}  // extern "C"
