// ⟨x[i, h, :], y[h, :]⟩ or ⟨x[i, h, :], y[i, h, :]⟩: each row is read once, by a warp that takes several.
#pragma once
#include "attention.cuh"

namespace cohop {

/// `receive(i · heads + h, dot)` for each of n rows and each head; MATRIX: whether `y` has as many rows as `x`.
template <class T, bool MATRIX, class S, class Receive>
__global__ void __launch_bounds__(ATTENTION_BLOCK) row_dots_kernel(HeadLayout layout, uint64_t n,
                                                                   const S* __restrict__ x, const S* __restrict__ y,
                                                                   Receive receive) {
  const uint64_t batch = layout.steps * layout.parts, tasks = (n + batch - 1) / batch * layout.groups;
  for (uint64_t task = grid_thread() / 32; task < tasks; task += grid_threads() / 32) {
    const Lane lane(layout, static_cast<uint32_t>(task % layout.groups));
    const uint64_t first = task / layout.groups * batch;
    S other[T::COLUMNS], sums[T::STEPS];
    if (!MATRIX && layout.chunks == 1) lane.load_columns<T>(lane.row(y, 0), 0, true, other);
#pragma unroll
    for (int u = 0; u < T::STEPS; u++) {
      const uint64_t row = first + lane.at(u);
      const bool present = u < static_cast<int>(layout.steps) && row < n;
      const S *a = lane.row(x, row), *b = lane.row(y, MATRIX ? row : 0);
      sums[u] = 0;
      if (layout.chunks == 1) {
        S values[T::COLUMNS];
        lane.load_columns<T>(a, 0, present, values);
        if (MATRIX) lane.load_columns<T>(b, 0, present, other);
#pragma unroll
        for (int k = 0; k < T::COLUMNS; k++) sums[u] += values[k] * other[k];
      } else if (present) {
        sums[u] = lane.sum_columns<T, S>([&](uint64_t c) { return a[c] * b[c]; });
      }
    }
    const S dot = lane.sum_steps(sums);
    const uint64_t row = first + lane.mine();
    if (lane.writes && row < n) receive(row * layout.heads + lane.head, dot);
  }
}

template <class T, bool MATRIX, class S, class Receive>
int32_t launch_row_dots(const HeadLayout& layout, uint64_t n, const S* x, const S* y, const Receive& receive,
                        void* stream) {
  const uint64_t batch = layout.steps * layout.parts, tasks = (n + batch - 1) / batch * layout.groups;
  if (tasks == 0) return 0;
  COHOP_LAUNCH((row_dots_kernel<T, MATRIX, S, Receive>), grid_for(tasks * 32, ATTENTION_BLOCK), ATTENTION_BLOCK, 0,
               stream, layout, n, x, y, receive);
  return cohop_last_error();
}

}  // namespace cohop
