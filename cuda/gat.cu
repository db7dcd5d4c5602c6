// GAT, fused: a score is a sum of one number from each end, so only the weighted sum reads rows.
//
// Forward, by destinations: reads n_message · heads · (dim + 1) scalars. Backward, by sources: gathers `dout` of the
// destinations once, and per message and head four scalars that a pass over destinations has stored side by side.
#include "head_dot.cuh"
#include "weighted_sum.cuh"

namespace cohop {
namespace {

template <class T, class S>
struct GatForward {
  Messages<S> messages;
  HeadLayout layout;
  const S* z;          // [n_src, heads · dim]
  const S* score_src;  // [n_src, heads]
  const S* score_dst;  // [n_dst, heads]
  WeightedSum<S> to;

  __device__ void operator()(const Piece& piece, uint32_t group) const {
    const Lane lane(layout, group);
    const S own = lane.has_head ? score_dst[uint64_t(piece.row) * layout.heads + lane.head] : S(0);
    for (uint32_t chunk = 0; chunk < layout.chunks; chunk++) {
      RunningSum<T, S> sums;
      Keeper keeper(lane);
      for_batches(messages, lane, piece, [&](const Batch& batch) {
        S x[T::STEPS][T::COLUMNS];
        gather<T>(lane, batch, z, chunk, x);
        S score = lowest<S>();
        if (batch.present() && lane.has_head) {
          score = leaky(score_src[uint64_t(batch.other) * layout.heads + lane.head] + own, messages.slope);
        }
        S weight = sums.add(lane, score);
        if (messages.dropout.vertices && !keeper.kept(messages, lane, piece, batch.number, batch.at)) weight = S(0);
        sums.add_rows(lane, weight, x);
      });
      sums.write(lane, to, piece, chunk);
    }
  }
};

/// Receives ⟨dout[t, h, :], out[t, h, :]⟩, and stores side by side what a destination contributes to its messages: its
/// score, its max, 1 / sum, and that product.
template <class S>
struct StatsWriter {
  const S *score_dst, *max, *sum;
  S* own;    // [n_dst, heads]: cleared if there are no self-loops
  S* stats;  // [n_dst, heads, 4]
  bool clears;

  __device__ void operator()(uint64_t at, S dot) const {
    const S total = sum[at];
    store<4>(stats + at * 4, Pack<S, 4>{{score_dst[at], max[at], total > S(0) ? S(1) / total : S(0), dot}});
    if (clears) own[at] = S(0);
  }
};

template <class T, class S>
struct GatBackward {
  Messages<S> messages;
  HeadLayout layout;
  const S* z;          // [n_src, heads · dim]
  const S* score_src;  // [n_src, heads]
  const S* stats;      // [n_dst, heads, 4]
  const S* dout;       // [n_dst, heads · dim]
  S* dz;               // [n_src, heads · dim]
  S* dscore;           // [n_src, heads]
  S* dscore_own;       // [n_dst, heads]
  S* dscore_edge;      // [n_edge, heads]
  /// [2 · segments, heads + heads · dim]: of each piece its part of `dscore` and of `dz`.
  S* records;

  __device__ S* record(uint64_t i) const { return records + i * (layout.heads + layout.heads * layout.dim); }

  __device__ void operator()(const Piece& piece, uint32_t group) const {
    const Lane lane(layout, group);
    const uint64_t at = uint64_t(piece.row) * layout.heads + lane.head;
    const S score = lane.has_head ? score_src[at] : S(0);
    for (uint32_t chunk = 0; chunk < layout.chunks; chunk++) {
      const S* z_row = lane.row(z, piece.row);
      S own[T::COLUMNS], sums[T::COLUMNS] = {}, total = 0;
      lane.load_columns<T>(z_row, chunk, true, own);
      Keeper keeper(lane);
      for_batches(messages, lane, piece, [&](const Batch& batch) {
        S x[T::STEPS][T::COLUMNS];
        gather<T>(lane, batch, dout, chunk, x);
        const bool present = batch.present() && lane.has_head;
        S alpha = 0, delta = 0, derivative = 0;
        if (present) {
          const Pack<S, 4> end = load<4>(stats + (uint64_t(batch.other) * layout.heads + lane.head) * 4);
          const S raw = score + end.value[0];
          alpha = exponential(leaky(raw, messages.slope) - end.value[1]) * end.value[2];
          derivative = leaky_slope(raw, messages.slope);
          delta = end.value[3];
        }
        S weight = alpha;
        if (messages.dropout.vertices) {
          weight *= keeper.kept(messages, lane, piece, batch.number, batch.at) ? messages.scale : S(0);
        }
        for_steps<T>(lane, [&](int u, int from) {
          const S w = __shfl_sync(FULL, weight, from);
#pragma unroll
          for (int k = 0; k < T::COLUMNS; k++) sums[k] += w * x[u][k];
        });
        const S dot = head_sums<T>(
            lane, batch, dout, x, [&](S value, int k) { return value * own[k]; },
            [&](S value, uint64_t c) { return value * z_row[c]; });
        if (!present) return;
        const S g = (weight * dot - alpha * delta) * derivative;
        total += g;
        if (!lane.writes || chunk > 0) return;
        if (batch.message < piece.own) {
          dscore_own[at] = g;
        } else {
          dscore_edge[messages.entry(piece, batch.message) * layout.heads + lane.head] = g;
        }
      });
      total = lane.sum_parts(lane.sum_turns(total));
#pragma unroll
      for (int k = 0; k < T::COLUMNS; k++) sums[k] = lane.sum_parts(sums[k]);
      if (lane.part != 0 || !lane.has_head) continue;
      if (piece.record != WHOLE) {
        S* to = record(piece.record);
        if (lane.column == 0) to[lane.head] = total;
        lane.store_unaligned<T>(to + layout.heads + uint64_t(lane.head) * layout.dim, chunk, sums);
      } else {
        if (lane.column == 0) dscore[at] = total;
        lane.store_columns<T>(dz + at * layout.dim, chunk, sums);
      }
    }
  }

  // A hub's pieces: columns `0..heads` are `dscore`, the rest `dz`.
  struct Part {
    S value;
  };
  __device__ Part nothing() const { return {S(0)}; }
  __device__ Part part(uint64_t i, uint64_t column) const { return {record(i)[column]}; }
  __device__ Part merge(const Part& a, const Part& b) const { return {a.value + b.value}; }
  __device__ void finish(uint64_t row, uint32_t, uint64_t column, const Part& part) const {
    const uint64_t heads = layout.heads;
    if (column < heads) {
      dscore[row * heads + column] = part.value;
    } else {
      dz[row * heads * layout.dim + column - heads] = part.value;
    }
  }
};

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_attention_segments(uint64_t n_edge) { return segment_count(n_edge, PIECE); }

int32_t cohop_gat(cohop_dtype scalar, const cohop_messages* a, const void* z, const void* score_src,
                  const void* score_dst, void* out, void* max, void* sum, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return with_tile<S>(a->dim, [&](auto tile) {
      using T = decltype(tile);
      const Messages<S> messages = messages_of<S>(*a, false);
      const HeadLayout layout = head_layout<T>(a->heads, a->dim);
      const WeightedSum<S> to = {static_cast<S*>(out), static_cast<S*>(max), static_cast<S*>(sum),
                                 static_cast<S*>(a->records), a->heads, a->dim, messages.scale};
      const GatForward<T, S> op = {messages, layout, static_cast<const S*>(z), static_cast<const S*>(score_src),
                                   static_cast<const S*>(score_dst), to};
      return launch_weighted_sum(messages.rows, layout, op, to, stream);
    }, z, out);
  });)
}

int32_t cohop_gat_backward(cohop_dtype scalar, const cohop_messages* transpose, uint64_t n_dst,
                           const cohop_gat_saved* saved, void* stats, void* dz, void* dscore_src, void* dscore_dst_own,
                           void* dscore_edge, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const S* dout = static_cast<const S*>(saved->dout);
    return with_tile<S>(transpose->dim, [&](auto tile) {
      using T = decltype(tile);
      const Messages<S> messages = messages_of<S>(*transpose, true);
      const HeadLayout layout = head_layout<T>(transpose->heads, transpose->dim);
      const StatsWriter<S> writer = {static_cast<const S*>(saved->score_dst), static_cast<const S*>(saved->max),
                                     static_cast<const S*>(saved->sum), static_cast<S*>(dscore_dst_own),
                                     static_cast<S*>(stats), messages.rows.n_own == 0};
      const S* out = static_cast<const S*>(saved->out);
      if (const int32_t code = launch_row_dots<T, true>(layout, n_dst, dout, out, writer, stream)) return code;
      const GatBackward<T, S> op = {messages, layout, static_cast<const S*>(saved->z),
                                    static_cast<const S*>(saved->score_src), static_cast<const S*>(stats), dout,
                                    static_cast<S*>(dz), static_cast<S*>(dscore_src), static_cast<S*>(dscore_dst_own),
                                    static_cast<S*>(dscore_edge), static_cast<S*>(transpose->records)};
      if (const int32_t code = launch_pieces(messages.rows, messages.rows.n_rows, layout.groups, op, stream))
        return code;
      return launch_merge(messages.rows, layout.heads + layout.heads * layout.dim, op, stream);
    }, saved->z, saved->out, dout, dz);
  });)
}

}  // extern "C"
