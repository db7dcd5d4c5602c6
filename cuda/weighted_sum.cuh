// Σ softmax(score) · row over the messages of a row, in one pass: what GAT and GATv2 share of their forward pass.
#pragma once
#include "messages.cuh"
#include "softmax.cuh"

namespace cohop {

/// Where the sums go, and where those of pieces are kept.
template <class S>
struct WeightedSum {
  S* out;  // [n_dst, heads · dim]
  S* max;  // [n_dst, heads]
  S* sum;  // [n_dst, heads]
  /// [2 · segments, 2 · heads + heads · dim]: of each piece its max, its sum, and its columns before the division.
  S* records;
  uint64_t heads, dim;
  /// Dropout's factor, 1 / (1 − p).
  S scale;

  __device__ S* record(uint64_t i) const { return records + i * (heads * 2 + heads * dim); }

  // A hub's pieces, by column; heads without columns count as having one.
  struct Part {
    Softmax<S> softmax;
    S value;
  };
  __device__ uint64_t per_head() const { return dim > 0 ? dim : 1; }
  __device__ Part nothing() const { return {Softmax<S>::nothing(), S(0)}; }
  __device__ Part part(uint64_t i, uint64_t column) const {
    const S* from = record(i);
    const uint64_t head = column / per_head();
    return {{from[head], from[heads + head]}, dim > 0 ? from[2 * heads + column] : S(0)};
  }
  __device__ Part merge(const Part& a, const Part& b) const {
    S scale_a, scale_b;
    const Softmax<S> softmax = Softmax<S>::merge(a.softmax, b.softmax, scale_a, scale_b);
    return {softmax, a.value * scale_a + b.value * scale_b};
  }
  __device__ void finish(uint64_t row, uint32_t, uint64_t column, const Part& part) const {
    if (dim > 0) out[row * heads * dim + column] = part.value * scale / part.softmax.sum;
    if (column % per_head() == 0) {
      max[row * heads + column / per_head()] = part.softmax.max;
      sum[row * heads + column / per_head()] = part.softmax.sum;
    }
  }
};

/// A warp's sums. The maximum is the same in all lanes of a head and part; `sum` is that of a lane's turn.
template <class T, class S>
struct RunningSum {
  Softmax<S> softmax = Softmax<S>::nothing();
  S values[T::COLUMNS] = {};

  /// Takes in this lane's score of a batch (−∞: none) and returns its weight so far.
  __device__ __forceinline__ S add(const Lane& lane, S score) {
    S best = larger(lowest<S>(), score);
    for (uint32_t offset = 1; offset < lane.layout.steps; offset *= 2)
      best = larger(best, __shfl_xor_sync(FULL, best, offset));
    const S top = larger(softmax.max, best), from = Softmax<S>::reference(top);
    const S scale = exponential(softmax.max - from), weight = exponential(score - from);
    softmax = {top, softmax.sum * scale + weight};
#pragma unroll
    for (int k = 0; k < T::COLUMNS; k++) values[k] *= scale;
    return weight;
  }

  /// Adds what a batch gathered, by the weights after dropout.
  __device__ __forceinline__ void add_rows(const Lane& lane, S weight, const S (&x)[T::STEPS][T::COLUMNS]) {
    for_steps<T>(lane, [&](int u, int from) {
      const S w = __shfl_sync(FULL, weight, from);
#pragma unroll
      for (int k = 0; k < T::COLUMNS; k++) values[k] += w * x[u][k];
    });
  }

  /// Joins the parts of the warp, and writes a row or a piece.
  __device__ __forceinline__ void write(const Lane& lane, const WeightedSum<S>& to, const Piece& piece,
                                        uint32_t chunk) {
    const bool has_messages = piece.count > 0;
    softmax.sum = lane.sum_turns(softmax.sum);
    if (lane.layout.parts > 1) {
      S top = softmax.max;
      for (uint32_t offset = lane.layout.lanes * lane.layout.slots; offset < 32; offset *= 2) {
        top = larger(top, __shfl_xor_sync(FULL, top, offset));
      }
      const S scale = exponential(softmax.max - Softmax<S>::reference(top));
      softmax = {top, lane.sum_parts(softmax.sum * scale)};
#pragma unroll
      for (int k = 0; k < T::COLUMNS; k++) values[k] = lane.sum_parts(values[k] * scale);
    }
    if (lane.part != 0 || !lane.has_head) return;
    if (piece.record != WHOLE) {
      S* record = to.record(piece.record);
      if (lane.column == 0) {
        record[lane.head] = softmax.max;
        record[to.heads + lane.head] = softmax.sum;
      }
      lane.store_unaligned<T>(record + 2 * to.heads + uint64_t(lane.head) * to.dim, chunk, values);
      return;
    }
    const uint64_t at = uint64_t(piece.row) * to.heads + lane.head;
    if (lane.column == 0) {
      to.max[at] = has_messages ? softmax.max : S(0);
      to.sum[at] = softmax.sum;
    }
    const S factor = has_messages ? to.scale / softmax.sum : S(0);
#pragma unroll
    for (int k = 0; k < T::COLUMNS; k++) values[k] *= factor;
    lane.store_columns<T>(to.out + at * to.dim, chunk, values);
  }
};

/// The rows, then the hubs among them.
template <class S, class Op>
int32_t launch_weighted_sum(const Rows& rows, const HeadLayout& layout, const Op& op, const WeightedSum<S>& to,
                            void* stream) {
  if (const int32_t code = launch_pieces(rows, rows.n_rows, layout.groups, op, stream)) return code;
  return launch_merge(rows, layout.heads * (layout.dim > 0 ? layout.dim : 1), to, stream);
}

}  // namespace cohop
