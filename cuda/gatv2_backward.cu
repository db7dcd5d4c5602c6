// GATv2's backward pass, fused: a half by destinations and a half by sources.
//
// By destinations, a source's row is read once, for its score, for ⟨dout, z_src⟩ and for the sums, although g needs a
// total over the destination's messages: with p = α̃ · ⟨dout, z_src⟩ and total = Σ p,
//
//   Σ g · LR'(u) = Σ p · LR'(u) − total · Σ α · LR'(u),   and the same with LR(u) in place of LR'(u).
//
// `messages` first gets α, negated for what dropout dropped, and p; once the row's total is known, each lane turns what
// it has written into α̃ and g. By sources, two rows are gathered for each message.
#include "gatv2.cuh"

namespace cohop {
namespace {

/// α and p of a message become α̃ and g.
template <class S>
__device__ __forceinline__ void settle(S* message, uint64_t heads, uint64_t head, S total, S scale) {
  const S marked = message[head], alpha = marked < S(0) ? -marked : marked;
  message[head] = marked < S(0) ? S(0) : marked * scale;
  message[heads + head] -= alpha * total;
}

template <class T, class S>
struct Destinations {
  Messages<S> messages;
  HeadLayout layout;
  const S* z_src;      // [n_src, heads · dim]
  const S* z_dst;      // [n_dst, heads · dim]
  const S* attention;  // [heads · dim]
  const S* max;        // [n_dst, heads]
  const S* sum;        // [n_dst, heads]
  const S* dout;       // [n_dst, heads · dim]
  S* totals;           // [segments, heads]: totals of the hub that begins in a segment
  S* dz;               // [n_dst, heads · dim]
  S* dattention;       // [n_dst, heads · dim]
  S* out;              // [n_message, 2 · heads]
  /// [2 · segments, heads + 4 · heads · dim]: of each piece its total, and then its four sums.
  S* records;

  __device__ uint64_t width() const { return layout.heads * layout.dim; }
  __device__ S* record(uint64_t i) const { return records + i * (layout.heads + 4 * width()); }
  /// Where a message is in `out`.
  __device__ S* place(const Piece& piece, uint32_t message) const {
    const uint64_t i = message < piece.own ? messages.rows.n_edge + piece.row : messages.entry(piece, message);
    return out + i * 2 * layout.heads;
  }

  __device__ void operator()(const Piece& piece, uint32_t group) const {
    const Lane lane(layout, group);
    const uint64_t at = uint64_t(piece.row) * layout.heads + lane.head;
    const S top = lane.has_head ? max[at] : S(0), inverse = lane.has_head ? S(1) / sum[at] : S(0);
    for (uint32_t chunk = 0; chunk < layout.chunks; chunk++) {
      const Scorer<T, S> scorer(lane, z_src, z_dst, attention, piece.row, chunk, messages.slope);
      const S* dout_row = lane.row(dout, piece.row);
      S gradient[T::COLUMNS];
      lane.load_columns<T>(dout_row, chunk, true, gradient);
      S sums[4][T::COLUMNS] = {}, total = 0;
      Keeper keeper(lane);
      for_batches(messages, lane, piece, [&](const Batch& batch) {
        S x[T::STEPS][T::COLUMNS];
        gather<T>(lane, batch, z_src, chunk, x);
        const S score = scorer.score(lane, batch, x);
        const S dot = head_sums<T>(
            lane, batch, z_src, x, [&](S value, int k) { return gradient[k] * value; },
            [&](S value, uint64_t c) { return dout_row[c] * value; });
        const bool present = batch.present() && lane.has_head;
        const bool kept = !messages.dropout.vertices || keeper.kept(messages, lane, piece, batch.number, batch.at);
        S alpha = 0, p = 0;
        if (present) {
          alpha = exponential(score - top) * inverse;
          p = (kept ? alpha * messages.scale : alpha * S(0)) * dot;
          total += p;
          if (lane.writes && chunk == 0) {
            S* message = place(piece, batch.message);
            message[lane.head] = kept ? alpha : -alpha;
            message[layout.heads + lane.head] = p;
          }
        }
        for_steps<T>(lane, [&](int u, int from) {
          const S p_of = __shfl_sync(FULL, p, from), alpha_of = __shfl_sync(FULL, alpha, from);
#pragma unroll
          for (int k = 0; k < T::COLUMNS; k++) {
            const S sum_of_ends = x[u][k] + scorer.own[k], derivative = leaky_slope(sum_of_ends, messages.slope);
            const S by_p = p_of * derivative, by_alpha = alpha_of * derivative;
            sums[0][k] += by_p;
            sums[1][k] += by_alpha;
            sums[2][k] += by_p * sum_of_ends;
            sums[3][k] += by_alpha * sum_of_ends;
          }
        });
      });
      total = lane.sum_parts(lane.sum_turns(total));
#pragma unroll
      for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int k = 0; k < T::COLUMNS; k++) sums[i][k] = lane.sum_parts(sums[i][k]);
      }
      if (piece.record != WHOLE) {
        if (lane.part != 0 || !lane.has_head) continue;
        S* to = record(piece.record);
        if (lane.column == 0) to[lane.head] = total;
        for (int i = 0; i < 4; i++) {
          lane.store_unaligned<T>(to + layout.heads + i * width() + uint64_t(lane.head) * layout.dim, chunk, sums[i]);
        }
        continue;
      }
      if (lane.part == 0) {
#pragma unroll
        for (int k = 0; k < T::COLUMNS; k++) {
          sums[0][k] = scorer.attention[k] * (sums[0][k] - total * sums[1][k]);
          sums[2][k] -= total * sums[3][k];
        }
        lane.store_columns<T>(dz + at * layout.dim, chunk, sums[0]);
        lane.store_columns<T>(dattention + at * layout.dim, chunk, sums[2]);
      }
      if (!lane.writes || chunk + 1 < layout.chunks) continue;
      for (uint32_t m = lane.mine(); m < piece.count; m += lane.batch()) {
        settle(place(piece, m), layout.heads, lane.head, total, messages.scale);
      }
    }
  }

  // A hub's pieces, by column; heads without columns count as having one.
  struct Part {
    S total, sums[4];
  };
  __device__ uint64_t per_head() const { return layout.dim > 0 ? layout.dim : 1; }
  __device__ Part nothing() const { return {}; }
  __device__ Part part(uint64_t i, uint64_t column) const {
    const S* from = record(i);
    Part part = {from[column / per_head()], {}};
    for (int k = 0; k < 4; k++) part.sums[k] = layout.dim > 0 ? from[layout.heads + k * width() + column] : S(0);
    return part;
  }
  __device__ Part merge(const Part& a, const Part& b) const {
    Part part = {a.total + b.total, {}};
    for (int k = 0; k < 4; k++) part.sums[k] = a.sums[k] + b.sums[k];
    return part;
  }
  __device__ void finish(uint64_t row, uint32_t segment, uint64_t column, const Part& part) const {
    if (column % per_head() == 0) totals[uint64_t(segment) * layout.heads + column / per_head()] = part.total;
    if (layout.dim == 0) return;
    dz[row * width() + column] = attention[column] * (part.sums[0] - part.total * part.sums[1]);
    dattention[row * width() + column] = part.sums[2] - part.total * part.sums[3];
  }
};

/// A warp settles the messages of a hub's piece.
template <class T, class S>
struct Settle {
  Destinations<T, S> of;

  __device__ void operator()(const Piece& piece, uint32_t) const {
    const uint64_t heads = of.layout.heads;
    const uint64_t n = piece.count * heads;
    for (uint64_t i = threadIdx.x % 32; i < n; i += 32) {
      const uint64_t head = i % heads;
      const S total = of.totals[piece.first_segment * heads + head];
      settle(of.place(piece, static_cast<uint32_t>(i / heads)), heads, head, total, of.messages.scale);
    }
  }
};

template <class T, class S>
struct Sources {
  Messages<S> messages;
  HeadLayout layout;
  const uint32_t* edge;  // [n_edge]
  const S* z_src;        // [n_src, heads · dim]
  const S* z_dst;        // [n_dst, heads · dim]
  const S* attention;    // [heads · dim]
  const S* dout;         // [n_dst, heads · dim]
  const S* factors;      // [n_message, 2 · heads]
  S* dz;                 // [n_src, heads · dim]
  S* records;            // [2 · segments, heads · dim]

  __device__ void operator()(const Piece& piece, uint32_t group) const {
    const Lane lane(layout, group);
    for (uint32_t chunk = 0; chunk < layout.chunks; chunk++) {
      S own[T::COLUMNS], vector[T::COLUMNS], sums[T::COLUMNS] = {}, through_scores[T::COLUMNS] = {};
      lane.load_columns<T>(lane.row(z_src, piece.row), chunk, true, own);
      lane.load_columns<T>(lane.row(attention, 0), chunk, true, vector);
      for_batches(messages, lane, piece, [&](const Batch& batch) {
        S gradient[T::STEPS][T::COLUMNS], z[T::STEPS][T::COLUMNS];
        gather<T>(lane, batch, dout, chunk, gradient);
        gather<T>(lane, batch, z_dst, chunk, z);
        S weight = 0, g = 0;
        if (batch.present() && lane.has_head) {
          const uint64_t i = batch.message < piece.own ? messages.rows.n_edge + piece.row
                                                       : edge[messages.entry(piece, batch.message)];
          weight = factors[i * 2 * layout.heads + lane.head];
          g = factors[i * 2 * layout.heads + layout.heads + lane.head];
        }
        for_steps<T>(lane, [&](int u, int from) {
          const S weight_of = __shfl_sync(FULL, weight, from), g_of = __shfl_sync(FULL, g, from);
#pragma unroll
          for (int k = 0; k < T::COLUMNS; k++) {
            sums[k] += weight_of * gradient[u][k];
            through_scores[k] += g_of * leaky_slope(own[k] + z[u][k], messages.slope);
          }
        });
      });
#pragma unroll
      for (int k = 0; k < T::COLUMNS; k++) sums[k] = lane.sum_parts(sums[k] + vector[k] * through_scores[k]);
      if (lane.part != 0) continue;
      if (piece.record != WHOLE) {
        lane.store_unaligned<T>(records + (uint64_t(piece.record) * layout.heads + lane.head) * layout.dim, chunk,
                                sums);
      } else {
        lane.store_columns<T>(dz + (uint64_t(piece.row) * layout.heads + lane.head) * layout.dim, chunk, sums);
      }
    }
  }

  struct Part {
    S value;
  };
  __device__ Part nothing() const { return {S(0)}; }
  __device__ Part part(uint64_t i, uint64_t column) const {
    return {records[i * layout.heads * layout.dim + column]};
  }
  __device__ Part merge(const Part& a, const Part& b) const { return {a.value + b.value}; }
  __device__ void finish(uint64_t row, uint32_t, uint64_t column, const Part& part) const {
    dz[row * layout.heads * layout.dim + column] = part.value;
  }
};

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_gatv2_backward_destinations(cohop_dtype scalar, const cohop_messages* a, const void* z_src,
                                          const void* z_dst, const void* attention, const void* max, const void* sum,
                                          const void* dout, void* totals, void* dz_dst, void* dattention,
                                          void* messages, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return with_tile<S>(a->dim, [&](auto tile) {
      using T = decltype(tile);
      const HeadLayout layout = head_layout<T>(a->heads, a->dim);
      Rows rows = messages_of<S>(*a, false).rows;
      const Destinations<T, S> op = {messages_of<S>(*a, false), layout, static_cast<const S*>(z_src),
                                     static_cast<const S*>(z_dst), static_cast<const S*>(attention),
                                     static_cast<const S*>(max), static_cast<const S*>(sum),
                                     static_cast<const S*>(dout), static_cast<S*>(totals), static_cast<S*>(dz_dst),
                                     static_cast<S*>(dattention), static_cast<S*>(messages),
                                     static_cast<S*>(a->records)};
      if (const int32_t code = launch_pieces(rows, rows.n_rows, layout.groups, op, stream)) return code;
      if (const int32_t code = launch_merge(rows, a->heads * (a->dim > 0 ? a->dim : 1), op, stream)) return code;
      rows.hubs = nullptr;
      return launch_pieces(rows, 0, 1, Settle<T, S>{op}, stream);
    }, z_src, z_dst, attention, dout, dz_dst, dattention);
  });)
}

int32_t cohop_gatv2_backward_sources(cohop_dtype scalar, const cohop_messages* transpose, const void* z_src,
                                     const void* z_dst, const void* attention, const void* dout, const void* messages,
                                     void* dz_src, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return with_tile<S>(transpose->dim, [&](auto tile) {
      using T = decltype(tile);
      const HeadLayout layout = head_layout<T>(transpose->heads, transpose->dim);
      const Messages<S> walked = messages_of<S>(*transpose, true);
      const Sources<T, S> op = {walked, layout, transpose->edge, static_cast<const S*>(z_src),
                                static_cast<const S*>(z_dst), static_cast<const S*>(attention),
                                static_cast<const S*>(dout), static_cast<const S*>(messages), static_cast<S*>(dz_src),
                                static_cast<S*>(transpose->records)};
      if (const int32_t code = launch_pieces(walked.rows, walked.rows.n_rows, layout.groups, op, stream)) return code;
      return launch_merge(walked.rows, transpose->heads * transpose->dim, op, stream);
    }, z_src, z_dst, attention, dout, dz_src);
  });)
}

}  // extern "C"
