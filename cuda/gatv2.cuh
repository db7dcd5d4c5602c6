// GATv2's score: ⟨attention[h, :], LR(z_src[s, h, :] + z_dst[t, h, :])⟩.
#pragma once
#include "messages.cuh"

namespace cohop {

/// Scores of a destination's messages, with its row and the attention vector in registers.
template <class T, class S>
struct Scorer {
  const S *z_src, *row, *vector;
  S slope;
  S own[T::COLUMNS], attention[T::COLUMNS];

  __device__ __forceinline__ Scorer(const Lane& lane, const S* z_src, const S* z_dst, const S* attention_vector,
                                    uint64_t t, uint32_t chunk, S slope)
      : z_src(z_src), row(lane.row(z_dst, t)), vector(lane.row(attention_vector, 0)), slope(slope) {
    lane.load_columns<T>(row, chunk, true, own);
    lane.load_columns<T>(vector, chunk, true, attention);
  }

  /// Of this lane's message of a batch, from the rows that the batch has gathered.
  __device__ __forceinline__ S score(const Lane& lane, const Batch& batch, const S (&x)[T::STEPS][T::COLUMNS]) const {
    return head_sums<T>(
        lane, batch, z_src, x, [&](S value, int k) { return attention[k] * leaky(value + own[k], slope); },
        [&](S value, uint64_t c) { return vector[c] * leaky(value + row[c], slope); });
  }
};

}  // namespace cohop
