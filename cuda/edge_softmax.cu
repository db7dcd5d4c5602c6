// Softmax over the entries of a row, per head, and its gradient.
//
// A row's values are contiguous, [entries, heads]. A row is taken by as many lanes as a row of average length keeps
// busy, each lane with a fixed head. Values are read twice, the second time from a nearby cache, and written once. Rows
// of many entries are cut into pieces, see attention.cuh.
#include "attention.cuh"
#include "softmax.cuh"

namespace cohop {
namespace {

constexpr uint32_t SOFTMAX_PIECE = 1024;

/// `width` lanes (a power of two) take a row, `together` heads at a time: each lane has one head, and every `step`-th
/// of its entries.
struct RowLanes {
  uint64_t heads;
  uint32_t width, together, step;
  uint32_t index, head, turn;
  bool active;

  __device__ RowLanes(uint64_t heads, uint32_t width) : heads(heads), width(width) {
    together = heads < width ? static_cast<uint32_t>(heads) : width;
    step = width / together;
    index = threadIdx.x % width;
    head = index % together;
    turn = index / together;
    active = turn < step;
  }

  /// The lane of the same head that is `turns` later, if there is one.
  __device__ int later(uint32_t turns) const { return static_cast<int>(threadIdx.x % 32 + turns * together); }
  /// The lane of the same head whose turn is first.
  __device__ int first() const { return static_cast<int>(threadIdx.x % 32 - index + head); }

  /// Merges the values of all lanes of a head by merge(own, other); every one of them gets the result. All lanes call
  /// it.
  template <class Value, class Shuffle, class Merge>
  __device__ Value all(Value value, Shuffle shuffle, Merge merge) const {
    uint32_t offset = 1;
    while (offset < step) offset *= 2;
    for (offset /= 2; offset > 0; offset /= 2) {
      const Value other = shuffle(value, turn + offset < step ? later(offset) : static_cast<int>(threadIdx.x % 32));
      if (turn + offset < step) value = merge(value, other);
    }
    return shuffle(value, first());
  }
};

/// Softmax: the largest value and the sum of exponentials, and from these the results.
template <class S>
struct Forward {
  const S* x;
  S* out;

  using Total = Softmax<S>;
  __device__ static Total nothing() { return Total::nothing(); }
  __device__ void add(Total& total, uint64_t i) const { total.add(x[i]); }
  __device__ static Total merge(const Total& a, const Total& b) {
    S scale_a, scale_b;
    return Total::merge(a, b, scale_a, scale_b);
  }
  __device__ static Total shuffle(const Total& total, int lane) {
    return {__shfl_sync(FULL, total.max, lane), __shfl_sync(FULL, total.sum, lane)};
  }
  __device__ void write(const Total& total, uint64_t i) const {
    out[i] = exponential(x[i] - Total::reference(total.max)) / total.sum;
  }
};

/// The gradient: Σ y · dout, and from it the results.
template <class S>
struct Backward {
  const S *y, *dout;
  S* dx;

  struct Total {
    S sum;
  };
  __device__ static Total nothing() { return {S(0)}; }
  __device__ void add(Total& total, uint64_t i) const { total.sum += y[i] * dout[i]; }
  __device__ static Total merge(const Total& a, const Total& b) { return {a.sum + b.sum}; }
  __device__ static Total shuffle(const Total& total, int lane) { return {__shfl_sync(FULL, total.sum, lane)}; }
  __device__ void write(const Total& total, uint64_t i) const { dx[i] = y[i] * (dout[i] - total.sum); }
};

/// Calls body(head, present) for the heads of this lane; all lanes of a warp call it equally often.
template <class Body>
__device__ __forceinline__ void for_heads(const RowLanes& lanes, Body body) {
  for (uint64_t head = 0; head < lanes.heads; head += lanes.together) {
    body(head + lanes.head, lanes.active && head + lanes.head < lanes.heads);
  }
}

/// The total over this lane's share of a head's entries in begin..end.
template <class Op>
__device__ __forceinline__ typename Op::Total own_total(const Op& op, const RowLanes& lanes, uint64_t head,
                                                        bool present, uint64_t begin, uint64_t end) {
  typename Op::Total total = op.nothing();
  for (uint64_t e = begin + lanes.turn; present && e < end; e += lanes.step) op.add(total, e * lanes.heads + head);
  return total;
}

/// `width` lanes take a row.
template <class Op>
__global__ void __launch_bounds__(BLOCK) rows_kernel(Rows rows, uint64_t heads, uint32_t width, Op op,
                                                     cohop_status* status) {
  const RowLanes lanes(heads, width);
  const uint64_t rows_at_once = grid_threads() / width, warp_rows = 32 / width;
  // The rows of a warp start together, so that all of its lanes meet in the shuffles.
  for (uint64_t first = grid_thread() / 32 * warp_rows; first < rows.n_rows; first += rows_at_once) {
    const uint64_t row = first + threadIdx.x % 32 / width;
    uint64_t begin = 0, end = 0;
    if (row < rows.n_rows) {
      begin = rows.indptr[row];
      end = rows.indptr[row + 1];
      if (end > rows.n_edge) {
        if (lanes.index == 0) report(status, COHOP_ARRAY_INDPTR, row + 1, static_cast<int64_t>(end), rows.n_edge + 1);
        end = rows.n_edge;
      }
      if (end > begin + rows.piece) end = begin;
    }
    for_heads(lanes, [&](uint64_t head, bool present) {
      const auto total = lanes.all(own_total(op, lanes, head, present, begin, end), Op::shuffle, Op::merge);
      for (uint64_t e = begin + lanes.turn; present && e < end; e += lanes.step) op.write(total, e * heads + head);
    });
  }
}

/// Totals of a hub's pieces, merged to those of its row.
template <class Op>
struct Totals {
  using Total = typename Op::Total;
  using Part = Total;
  Op op;
  uint64_t heads;
  Total* pieces;  // [2 · segments, heads]
  Total* rows;    // [segments, heads]

  __device__ void operator()(const Piece& piece, uint32_t) const {
    const RowLanes lanes(heads, 32);
    for_heads(lanes, [&](uint64_t head, bool present) {
      const Total own = own_total(op, lanes, head, present, piece.begin, piece.end);
      const Total total = lanes.all(own, Op::shuffle, Op::merge);
      if (present && lanes.turn == 0) pieces[piece.record * heads + head] = total;
    });
  }

  __device__ Part nothing() const { return Op::nothing(); }
  __device__ Part part(uint64_t record, uint64_t head) const { return pieces[record * heads + head]; }
  __device__ Part merge(const Part& a, const Part& b) const { return Op::merge(a, b); }
  __device__ void finish(uint64_t, uint32_t segment, uint64_t head, const Part& part) const {
    rows[uint64_t(segment) * heads + head] = part;
  }
};

/// Writes the results of a hub's piece from its row's totals.
template <class Op>
struct Values {
  Op op;
  uint64_t heads;
  const typename Op::Total* rows;  // [segments, heads]

  __device__ void operator()(const Piece& piece, uint32_t) const {
    const RowLanes lanes(heads, 32);
    for_heads(lanes, [&](uint64_t head, bool present) {
      if (!present) return;
      const auto total = rows[piece.first_segment * heads + head];
      for (uint64_t e = uint64_t(piece.begin) + lanes.turn; e < piece.end; e += lanes.step) {
        op.write(total, e * heads + head);
      }
    });
  }
};

template <class Op>
int32_t launch_rows(Rows rows, uint64_t heads, const Op& op, void* records, cohop_status* status, void* stream) {
  using Total = typename Op::Total;
  if (rows.n_rows == 0) return 0;
  // Lanes for a row of average length, so that short rows share a warp.
  const uint64_t average = (rows.n_edge + rows.n_rows - 1) / rows.n_rows * heads;
  uint32_t width = 1;
  while (width < 32 && width < average) width *= 2;
  const uint64_t threads = (rows.n_rows + 32 / width - 1) / (32 / width) * 32;
  COHOP_LAUNCH((rows_kernel<Op>), grid_for(threads), BLOCK, 0, stream, rows, heads, width, op, status);
  if (rows.segments == 0) return cohop_last_error();
  Total* pieces = static_cast<Total*>(records);
  Total* totals = pieces + 2 * uint64_t(rows.segments) * heads;
  const Totals<Op> merged = {op, heads, pieces, totals};
  if (const int32_t code = launch_pieces(rows, 0, 1, merged, stream)) return code;
  if (const int32_t code = launch_merge(rows, heads, merged, stream)) return code;
  rows.hubs = nullptr;
  return launch_pieces(rows, 0, 1, Values<Op>{op, heads, totals}, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_edge_softmax_segments(uint64_t n_edge) { return segment_count(n_edge, SOFTMAX_PIECE); }

int32_t cohop_edge_softmax(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads, const uint32_t* indptr,
                           const void* x, uint32_t* hubs, void* records, void* out, cohop_status* status,
                           void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Rows rows = {indptr, n_rows, n_edge, 0, SOFTMAX_PIECE, segment_count(n_edge, SOFTMAX_PIECE), hubs};
    const Forward<S> op = {static_cast<const S*>(x), static_cast<S*>(out)};
    return launch_rows(rows, heads, op, records, status, stream);
  });)
}

int32_t cohop_edge_softmax_backward(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads,
                                    const uint32_t* indptr, const void* y, const void* dout, uint32_t* hubs,
                                    void* records, void* dx, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Rows rows = {indptr, n_rows, n_edge, 0, SOFTMAX_PIECE, segment_count(n_edge, SOFTMAX_PIECE), hubs};
    const Backward<S> op = {static_cast<const S*>(y), static_cast<const S*>(dout), static_cast<S*>(dx)};
    return launch_rows(rows, heads, op, records, status, stream);
  });)
}

}  // extern "C"
