// The messages of a row: its entries, preceded by a self-loop; their dropout; and the rows that they gather.
#pragma once
#include "attention.cuh"

namespace cohop {

/// Dropout of attention, see AttentionDropout.
struct AttentionDropout {
  /// Null: none.
  const uint32_t* vertices;
  uint32_t threshold;
  uint64_t seed, stream;
  /// Whether rows are the messages' sources, as in a transpose.
  bool by_source;
};

template <class S>
struct Messages {
  Rows rows;
  const uint32_t* indices;
  S slope;
  AttentionDropout dropout;
  /// 1 / (1 − p); 1 without dropout.
  S scale;

  /// The vertex at the other end of a piece's message; 0 if there is none.
  __device__ uint32_t other(const Piece& piece, uint32_t message) const {
    if (message >= piece.count) return 0;
    return message < piece.own ? piece.row : indices[entry(piece, message)];
  }

  /// The entry that a message is, unless it is the row's own.
  static __device__ uint64_t entry(const Piece& piece, uint32_t message) {
    return uint64_t(piece.begin) + (message - piece.own);
  }
};

template <class S>
Messages<S> messages_of(const cohop_messages& a, bool by_source) {
  Messages<S> messages = {};
  messages.rows = {a.indptr, a.n_rows, a.n_edge, a.n_own, PIECE, segment_count(a.n_edge, PIECE), a.hubs};
  messages.indices = a.indices;
  messages.slope = static_cast<S>(a.slope);
  messages.dropout = {a.vertices, a.threshold, a.seed, a.stream_number, by_source};
  messages.scale = static_cast<S>(a.scale);
  return messages;
}

/// Whether dropout keeps the message that a lane is responsible for.
///
/// One Philox block serves four heads, so up to four slots would compute the same one, and so would lanes that share a
/// turn. Instead they compute the blocks of as many batches at once, and exchange the bits.
struct Keeper {
  uint32_t together, copies, bits;

  __device__ explicit Keeper(const Lane& lane) : bits(0) {
    together = lane.layout.slots < 4 ? lane.layout.slots : 4;
    copies = together * (lane.layout.lanes / lane.layout.steps);
  }

  /// For batch `number`, whose first message is `at`. All lanes call it, for every batch in turn.
  template <class S>
  __device__ __forceinline__ bool kept(const Messages<S>& messages, const Lane& lane, const Piece& piece,
                                       uint32_t number, uint32_t at) {
    const AttentionDropout& dropout = messages.dropout;
    const uint32_t copy = number & (copies - 1), steps = lane.layout.steps;
    if (copy == 0) {
      const uint32_t mine = (lane.slot & (together - 1)) + together * (lane.column / steps);
      const uint32_t message = at + mine * lane.batch() + lane.mine();
      if (message < piece.count) {
        const uint32_t row = dropout.vertices[piece.row], other = dropout.vertices[messages.other(piece, message)];
        const uint32_t high = static_cast<uint32_t>(dropout.stream >> 32) + (lane.head / 4 << 16);
        const uint32_t source = dropout.by_source ? row : other, destination = dropout.by_source ? other : row;
        const Words words = philox({{source, destination, static_cast<uint32_t>(dropout.stream), high}},
                                   static_cast<uint32_t>(dropout.seed), static_cast<uint32_t>(dropout.seed >> 32));
        bits = 0;
#pragma unroll
        for (int k = 0; k < 4; k++) bits |= words.word[k] >= dropout.threshold ? 1u << k : 0u;
      }
    }
    const uint32_t slot = (lane.slot & ~(together - 1)) | (copy & (together - 1));
    const uint32_t column = copy / together * steps + lane.turn;
    const uint32_t from = (lane.part * lane.layout.slots + slot) * lane.layout.lanes + column;
    return __shfl_sync(FULL, bits, static_cast<int>(from)) >> (lane.head % 4) & 1;
  }
};

/// One batch of messages, as a lane sees it.
struct Batch {
  uint32_t number;
  /// The batch's first message, this lane's, and how many the piece has.
  uint32_t at, message, count;
  /// The other end of this lane's message.
  uint32_t other;

  /// Whether this lane's message exists, and the one that its part gathers at a step.
  __device__ bool present() const { return message < count; }
  __device__ bool present(const Lane& lane, uint32_t step) const { return at + lane.at(step) < count; }
};

/// Calls body(batch) for the batches of a piece. While one is processed, the ends of the next are loaded.
template <class S, class Body>
__device__ __forceinline__ void for_batches(const Messages<S>& messages, const Lane& lane, const Piece& piece,
                                            Body body) {
  Batch batch;
  batch.number = 0;
  batch.count = piece.count;
  batch.at = 0;
  uint32_t next = messages.other(piece, lane.mine());
  for (; batch.at < batch.count; batch.at += lane.batch(), batch.number++) {
    batch.message = batch.at + lane.mine();
    batch.other = next;
    next = messages.other(piece, batch.message + lane.batch());
    body(batch);
  }
}

/// This lane's columns of the rows of `x` that a batch gathers.
template <class T, class S>
__device__ __forceinline__ void gather(const Lane& lane, const Batch& batch, const S* x, uint32_t chunk,
                                       S (&values)[T::STEPS][T::COLUMNS]) {
#pragma unroll
  for (int u = 0; u < T::STEPS; u++) {
    if (u < static_cast<int>(lane.layout.steps)) {
      const uint32_t other = __shfl_sync(FULL, batch.other, lane.keeper(u));
      lane.load_columns<T>(lane.row(x, other), chunk, batch.present(lane, u), values[u]);
    }
  }
}

/// The sum over a head's columns c of a term of x[other, c], for this lane's message of a batch; `values` are the rows
/// that were gathered. `term(value, k)` is the term of the k-th column in registers; where heads are cut into chunks,
/// `far(value, c)` is that of column c.
template <class T, class S, class Term, class Far>
__device__ __forceinline__ S head_sums(const Lane& lane, const Batch& batch, const S* x,
                                       const S (&values)[T::STEPS][T::COLUMNS], Term term, Far far) {
  S sums[T::STEPS];
#pragma unroll
  for (int u = 0; u < T::STEPS; u++) {
    sums[u] = 0;
    if (u < static_cast<int>(lane.layout.steps)) {
      if (lane.layout.chunks == 1) {
#pragma unroll
        for (int k = 0; k < T::COLUMNS; k++) sums[u] += term(values[u][k], k);
      } else {
        const uint32_t other = __shfl_sync(FULL, batch.other, lane.keeper(u));
        const S* row = lane.row(x, other);
        if (batch.present(lane, u)) sums[u] = lane.sum_columns<T, S>([&](uint64_t c) { return far(row[c], c); });
      }
    }
  }
  return lane.sum_steps(sums);
}

/// Calls body(step, lane), where `lane` is responsible for what this lane's part gathers at the step.
template <class T, class Body>
__device__ __forceinline__ void for_steps(const Lane& lane, Body body) {
#pragma unroll
  for (int u = 0; u < T::STEPS; u++) {
    if (u < static_cast<int>(lane.layout.steps)) body(u, lane.keeper(u));
  }
}

}  // namespace cohop
