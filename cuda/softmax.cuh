// Softmax that is updated as scores come in.
#pragma once
#include "scalar.cuh"

namespace cohop {

/// b if it is larger: a NaN never is.
template <class S>
__device__ __forceinline__ S larger(S a, S b) {
  return b > a ? b : a;
}

template <class S>
__device__ __forceinline__ S lowest() {
  return -static_cast<S>(INFINITY);
}

/// The largest score so far, and Σ exp(score − max).
template <class S>
struct Softmax {
  S max, sum;

  /// What is subtracted from scores: the largest, if there is one.
  static __device__ __forceinline__ S reference(S max) { return max == lowest<S>() ? S(0) : max; }

  /// Adds one score.
  __device__ __forceinline__ void add(S score) {
    const bool leads = score > max;
    const S top = leads ? score : max, other = leads ? max : score;
    const S e = exponential(other - reference(top));
    sum = leads ? sum * e + S(1) : sum + e;
    max = top;
  }

  static __device__ __forceinline__ Softmax nothing() { return {lowest<S>(), S(0)}; }

  /// Softmax over the scores of both; sums of terms exp(score − max) of `a` and `b` must be scaled by `scale_a` and
  /// `scale_b`.
  static __device__ __forceinline__ Softmax merge(const Softmax& a, const Softmax& b, S& scale_a, S& scale_b) {
    const S top = larger(a.max, b.max), from = reference(top);
    scale_a = exponential(a.max - from);
    scale_b = exponential(b.max - from);
    return {top, a.sum * scale_a + b.sum * scale_b};
  }
};

}  // namespace cohop
