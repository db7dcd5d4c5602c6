// How the attention kernels cover rows, heads and messages.
//
// A warp takes one row, or a piece of a hub's row, and one group of heads. `lanes` of its lanes share the columns of a
// head, up to 16 columns per lane in registers; `slots` heads are processed side by side; and if both leave lanes over,
// `parts` messages at a time are gathered by as many parts of the warp, whose sums are added at the end:
//
//   lane = (part · slots + slot) · lanes + column lane
//
// Messages are processed in batches of `steps · parts`. The rows of a batch are in flight together, and every lane is
// responsible for the score, exponential and dropout of one message and head of the batch: no work is repeated by all
// lanes of a head.
//
// Hubs: entries are cut into segments of PIECE. A row of more than PIECE entries is skipped by its own warp; the warp
// of each segment sums up the entries that such rows have in it (at most two have entries in it, and at most one begins
// in it), and a block for each segment merges the pieces of the row that begins there, in order. All sums are the same
// on every run. Memory traffic: each gathered row once, and partial sums, which are 1 / PIECE of that.
#pragma once
#include "rng.cuh"
#include "scalar.cuh"
#include "warp.cuh"

namespace cohop {

constexpr int ATTENTION_BLOCK = 128;
constexpr int MERGE_BLOCK = 256;
constexpr int MERGE_COLUMNS = 128;
constexpr uint32_t PIECE = 128;
constexpr uint32_t NO_ROW = 0xffffffffu;
constexpr uint32_t WHOLE = 0xffffffffu;

template <class S>
__device__ __forceinline__ S leaky(S x, S slope) {
  return x > S(0) ? x : slope * x;
}

template <class S>
__device__ __forceinline__ S leaky_slope(S x, S slope) {
  return x > S(0) ? S(1) : slope;
}

/// A lane's share of a head: K_ loads per row, of N_ columns each.
template <int N_, int K_>
struct Tile {
  static constexpr int N = N_, K = K_, COLUMNS = N * K;
  /// Messages of a part of the warp that are in flight together.
  static constexpr int STEPS = COLUMNS <= 4 ? 4 : COLUMNS <= 8 ? 2 : 1;
};

/// See the head of the file. All but `heads`, `dim`, `groups` and `chunks` are powers of two.
struct HeadLayout {
  uint64_t heads, dim;
  uint32_t lanes, slots, parts, steps;
  /// Groups of `slots` heads.
  uint32_t groups;
  /// Parts of a head's columns that fit into registers: 1 unless heads are very wide.
  uint32_t chunks;
};

template <class T>
HeadLayout head_layout(uint64_t heads, uint64_t dim) {
  const auto power = [](uint64_t n) {
    uint32_t p = 1;
    while (p < n && p < 32) p *= 2;
    return p;
  };
  HeadLayout layout = {};
  layout.heads = heads;
  layout.dim = dim;
  layout.lanes = power((dim + T::COLUMNS - 1) / T::COLUMNS);
  const uint32_t most = 32 / layout.lanes, slots = power(heads);
  layout.slots = slots < most ? slots : most;
  layout.parts = most / layout.slots;
  layout.steps = layout.lanes < T::STEPS ? layout.lanes : T::STEPS;
  layout.groups = static_cast<uint32_t>((heads + layout.slots - 1) / layout.slots);
  const uint64_t capacity = uint64_t(layout.lanes) * T::COLUMNS;
  layout.chunks = dim <= capacity ? 1 : static_cast<uint32_t>((dim + capacity - 1) / capacity);
  return layout;
}

/// Calls body with the Tile for heads of `dim` columns in matrices at these addresses.
template <class S, class Body, class... Pointers>
int32_t with_tile(uint64_t dim, Body body, Pointers... pointers) {
  constexpr int N = PACK<S>;
  if (!packs<S>(dim, pointers...)) return body(Tile<1, 4>());
  if (dim <= 32 * N) return body(Tile<N, 1>());
  if (dim <= 64 * N) return body(Tile<N, 2>());
  return body(Tile<N, 4>());
}

/// A lane's place in the layout.
struct Lane {
  HeadLayout layout;
  uint32_t index, column, slot, part;
  uint32_t head;
  bool has_head;
  /// Columns that the head has: 0 if there is no head.
  uint32_t dim;
  /// Which of the part's messages of a batch this lane is responsible for; if several lanes are, one of them writes.
  uint32_t turn;
  bool writes;

  __device__ Lane(const HeadLayout& layout, uint32_t group) : layout(layout) {
    index = threadIdx.x % 32;
    column = index & (layout.lanes - 1);
    slot = (index / layout.lanes) & (layout.slots - 1);
    part = index / (layout.lanes * layout.slots);
    head = group * layout.slots + slot;
    has_head = head < layout.heads;
    dim = has_head ? static_cast<uint32_t>(layout.dim) : 0;
    turn = column & (layout.steps - 1);
    writes = has_head && column < layout.steps;
  }

  /// Messages of a batch.
  __device__ uint32_t batch() const { return layout.steps * layout.parts; }
  /// The place in a batch of this lane's message, and of the one that its part gathers at a step.
  __device__ uint32_t mine() const { return turn * layout.parts + part; }
  __device__ uint32_t at(uint32_t step) const { return step * layout.parts + part; }
  /// The lane that is responsible for the part's message at a step.
  __device__ int keeper(uint32_t step) const { return (index & ~(layout.steps - 1)) | step; }

  /// The head's first column in row `row` of a matrix.
  template <class S>
  __device__ const S* row(const S* x, uint64_t row) const {
    return x + (row * layout.heads + head) * layout.dim;
  }

  /// The first column of the k-th load of a chunk.
  template <class T>
  __device__ uint32_t first(uint32_t chunk, int k) const {
    return ((chunk * T::K + k) * layout.lanes + column) * T::N;
  }

  /// This lane's columns of a head's row; 0 where there are none.
  template <class T, class S>
  __device__ void load_columns(const S* x, uint32_t chunk, bool present, S (&values)[T::COLUMNS]) const {
#pragma unroll
    for (int k = 0; k < T::K; k++) {
      const uint32_t begin = first<T>(chunk, k);
      Pack<S, T::N> pack = {};
      if (present && begin < dim) pack = load<T::N>(x + begin);
#pragma unroll
      for (int n = 0; n < T::N; n++) values[k * T::N + n] = pack.value[n];
    }
  }

  template <class T, class S>
  __device__ void store_columns(S* x, uint32_t chunk, const S (&values)[T::COLUMNS]) const {
#pragma unroll
    for (int k = 0; k < T::K; k++) {
      const uint32_t begin = first<T>(chunk, k);
      Pack<S, T::N> pack;
#pragma unroll
      for (int n = 0; n < T::N; n++) pack.value[n] = values[k * T::N + n];
      if (begin < dim) store<T::N>(x + begin, pack);
    }
  }

  /// The same where rows are not aligned.
  template <class T, class S>
  __device__ void store_unaligned(S* x, uint32_t chunk, const S (&values)[T::COLUMNS]) const {
#pragma unroll
    for (int k = 0; k < T::K; k++) {
      const uint32_t begin = first<T>(chunk, k);
#pragma unroll
      for (int n = 0; n < T::N; n++) {
        if (begin < dim) x[begin + n] = values[k * T::N + n];
      }
    }
  }

  /// This lane's part of Σ term(c) over all columns c of the head, for heads that do not fit into registers.
  template <class T, class S, class Term>
  __device__ S sum_columns(Term term) const {
    S sum = 0;
    for (uint32_t begin = column * T::N; begin < dim; begin += layout.lanes * T::N) {
      for (int n = 0; n < T::N; n++) sum += term(begin + n);
    }
    return sum;
  }

  /// Sums the values of each step over the head's lanes; this lane gets the sum of its `turn`.
  ///
  /// At each step lanes exchange half of the values that they hold: 3 shuffles for 4 values over 4 lanes.
  template <int STEPS, class S>
  __device__ S sum_steps(S (&values)[STEPS]) const {
    uint32_t offset = 1;
#pragma unroll
    for (int left = STEPS; left > 1; left /= 2) {
      if (offset < layout.lanes) {
        const bool odd = column & offset;
#pragma unroll
        for (int i = 0; i < left / 2; i++) {
          const S kept = odd ? values[2 * i + 1] : values[2 * i], given = odd ? values[2 * i] : values[2 * i + 1];
          values[i] = kept + __shfl_xor_sync(FULL, given, offset);
        }
        offset *= 2;
      }
    }
    for (; offset < layout.lanes; offset *= 2) values[0] += __shfl_xor_sync(FULL, values[0], offset);
    return values[0];
  }

  /// The sum of a head's value over the turns, or over the parts.
  template <class S>
  __device__ S sum_turns(S value) const {
    for (uint32_t offset = 1; offset < layout.steps; offset *= 2) value += __shfl_xor_sync(FULL, value, offset);
    return value;
  }
  template <class S>
  __device__ S sum_parts(S value) const {
    for (uint32_t offset = layout.lanes * layout.slots; offset < 32; offset *= 2) {
      value += __shfl_xor_sync(FULL, value, offset);
    }
    return value;
  }
};

// ---- rows and pieces ----------------------------------------------------------------------------------------------

/// The rows of a pattern, and where its hubs are cut.
struct Rows {
  const uint32_t* indptr;
  uint64_t n_rows, n_edge;
  /// The first rows, which have a message from or to themselves before their entries.
  uint64_t n_own;
  /// Entries of a segment, and number of segments: 0 if no row can be a hub.
  uint32_t piece, segments;
  /// [segments]: the hub that begins in a segment, or NO_ROW.
  uint32_t* hubs;
};

inline uint32_t segment_count(uint64_t n_edge, uint32_t piece) {
  return n_edge > piece ? static_cast<uint32_t>((n_edge + piece - 1) / piece) : 0;
}

/// A row, or the part of it that is in a segment.
struct Piece {
  uint32_t row;
  /// Its entries.
  uint32_t begin, end;
  /// Messages: 1 from or to the row itself (`own`), if it has one and begins here, and the entries.
  uint32_t own, count;
  /// Whether the row begins here.
  bool begins;
  /// The segment in which the row begins.
  uint32_t first_segment;
  /// The place of the piece's sums among those of all pieces (two per segment), or WHOLE.
  uint32_t record;

  __device__ void count_messages(uint64_t n_own) {
    own = begins && row < n_own ? 1 : 0;
    count = end > begin ? end - begin + own : own;
  }
};

/// The row that holds an entry, found by a warp: 32 probes at a time.
__device__ inline uint32_t row_of(const Rows& rows, uint64_t entry) {
  uint64_t low = 0, high = rows.n_rows;
  while (high - low > 1) {
    const uint64_t step = (high - low + 31) / 32, probe = low + threadIdx.x % 32 * step;
    const unsigned before = __ballot_sync(FULL, probe < high && rows.indptr[probe] <= entry);
    low += static_cast<uint64_t>(before ? __popc(before) - 1 : 0) * step;
    high = low + step < high ? low + step : high;
  }
  return static_cast<uint32_t>(low);
}

/// Piece `which` (0 or 1) of a segment; false if there is none.
__device__ inline bool piece_of_segment(const Rows& rows, uint32_t segment, int which, Piece& piece) {
  const uint64_t first = uint64_t(segment) * rows.piece;
  const uint64_t end = first + rows.piece < rows.n_edge ? first + rows.piece : rows.n_edge;
  piece.row = row_of(rows, which == 0 ? first : end - 1);
  const uint64_t row_begin = rows.indptr[piece.row], row_end = rows.indptr[piece.row + 1];
  if (row_end <= row_begin + rows.piece || (which == 1 && row_begin <= first)) return false;
  piece.begins = row_begin >= first;
  piece.begin = static_cast<uint32_t>(piece.begins ? row_begin : first);
  piece.end = static_cast<uint32_t>(row_end < end ? row_end : end);
  piece.first_segment = static_cast<uint32_t>(row_begin / rows.piece);
  piece.record = 2 * segment + which;
  piece.count_messages(rows.n_own);
  return true;
}

/// Calls body(piece, group) for every piece and then for every row that is not a hub, one warp each, and records the
/// hubs.
template <class Body>
__device__ __forceinline__ void for_pieces(const Rows& rows, uint64_t n_rows, uint32_t groups, Body body) {
  const uint64_t tasks = (rows.segments + n_rows) * groups;
  for (uint64_t task = grid_thread() / 32; task < tasks; task += grid_threads() / 32) {
    const uint64_t item = task / groups;
    const uint32_t group = static_cast<uint32_t>(task % groups);
    const bool cut = item < rows.segments;
    uint32_t hub = NO_ROW;
    for (int which = 0; which < (cut ? 2 : 1); which++) {
      Piece piece;
      if (cut) {
        if (!piece_of_segment(rows, static_cast<uint32_t>(item), which, piece)) continue;
        if (piece.begins) hub = piece.row;
      } else {
        piece.row = static_cast<uint32_t>(item - rows.segments);
        piece.begin = rows.indptr[piece.row];
        piece.end = rows.indptr[piece.row + 1];
        piece.begins = true;
        piece.record = WHOLE;
        piece.count_messages(rows.n_own);
        if (piece.count - piece.own > rows.piece) continue;
      }
      body(piece, group);
    }
    if (cut && group == 0 && threadIdx.x % 32 == 0 && rows.hubs) rows.hubs[item] = hub;
  }
}

/// op(piece, group) for every piece and row.
template <class Op>
__global__ void __launch_bounds__(ATTENTION_BLOCK) pieces_kernel(Rows rows, uint64_t n_rows, uint32_t groups, Op op) {
  for_pieces(rows, n_rows, groups, op);
}

/// A block merges MERGE_COLUMNS columns of the pieces of the hub that begins in its segment; its warps take turns at
/// the pieces.
///
/// Op has a plain struct Part with `nothing()`, `part(record, column)`, `merge(part, part)` and
/// `finish(row, segment, column, part)`.
template <class Op>
__global__ void __launch_bounds__(MERGE_BLOCK) merge_kernel(Rows rows, uint64_t columns, Op op) {
  constexpr int WARPS = MERGE_BLOCK / 32, EACH = MERGE_COLUMNS / 32;
  using Part = typename Op::Part;
  COHOP_SHARED(Part, parts, [WARPS][MERGE_COLUMNS]);
  const uint32_t segment = blockIdx.x, row = rows.hubs[segment];
  if (row == NO_ROW) return;
  const uint64_t begin = rows.indptr[row], row_end = rows.indptr[row + 1];
  const uint64_t end = row_end < rows.n_edge ? row_end : rows.n_edge;
  const uint64_t count = (end - 1) / rows.piece - segment + 1;
  const uint64_t tile = static_cast<uint64_t>(blockIdx.y) * MERGE_COLUMNS;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Part part[EACH];
#pragma unroll
  for (int k = 0; k < EACH; k++) part[k] = op.nothing();
#pragma unroll 2
  for (uint64_t i = warp; i < count; i += WARPS) {
    // A row that begins inside of a segment is the segment's second piece.
    const uint32_t record = 2 * (segment + static_cast<uint32_t>(i)) + (i == 0 && begin % rows.piece != 0 ? 1 : 0);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      const uint64_t column = tile + k * 32 + lane;
      if (column < columns) part[k] = op.merge(part[k], op.part(record, column));
    }
  }
#pragma unroll
  for (int k = 0; k < EACH; k++) parts[warp][k * 32 + lane] = part[k];
  __syncthreads();
  const uint64_t column = tile + threadIdx.x;
  if (threadIdx.x >= MERGE_COLUMNS || column >= columns) return;
  Part total = parts[0][threadIdx.x];
  for (int w = 1; w < WARPS; w++) total = op.merge(total, parts[w][threadIdx.x]);
  op.finish(row, segment, column, total);
}

template <class Op>
int32_t launch_pieces(const Rows& rows, uint64_t n_rows, uint32_t groups, const Op& op, void* stream) {
  const uint64_t tasks = (rows.segments + n_rows) * groups;
  if (tasks == 0) return 0;
  COHOP_LAUNCH((pieces_kernel<Op>), grid_for(tasks * 32, ATTENTION_BLOCK), ATTENTION_BLOCK, 0, stream, rows, n_rows,
               groups, op);
  return cohop_last_error();
}

template <class Op>
int32_t launch_merge(const Rows& rows, uint64_t columns, const Op& op, void* stream) {
  if (rows.segments == 0 || columns == 0) return 0;
  const dim3 grid(rows.segments, static_cast<unsigned>((columns + MERGE_COLUMNS - 1) / MERGE_COLUMNS));
  COHOP_LAUNCH((merge_kernel<Op>), grid, MERGE_BLOCK, 0, stream, rows, columns, op);
  return cohop_last_error();
}

}  // namespace cohop
