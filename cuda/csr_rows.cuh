// Sums and maxima over the entries of each row of a CSR pattern.
//
// A group of lanes takes one row and one tile of columns, a pack of up to 16 bytes per lane, which stays in registers.
// The lanes load the row's entries coalesced, broadcast them by shuffles, and have IN_FLIGHT rows of the dense operand
// in flight. A warp has one to eight groups; all its lanes take as many steps as its longest row needs, so that the
// whole warp takes part in every shuffle.
//
// Rows with more entries than `Hubs::degree` would keep one group busy long after all others are done. They are cut
// into chunks of about `Hubs::chunk` entries, each taken by a group of its own in the same launch; a second launch
// merges the chunks' results in order, those of a hub of many chunks by all groups of a block. The host does not know
// which rows these are, but a chunk's place is fixed: a row that begins at entry b and has d entries has d / chunk
// chunks from slot b / chunk on (both rounded down), so that no two rows share a slot, and n_edge / chunk slots are
// enough. The result does not depend on anything but the pattern. Where the caller knows that no row is a hub, as in a
// block of a small fanout, there are no slots, no memory for them and no second launch.
#pragma once
#include "scalar.cuh"
#include "scratch.h"
#include "warp.cuh"

namespace cohop {

constexpr uint32_t NO_ROW = 0xffffffffu;
constexpr int IN_FLIGHT = 4;
/// Blocks that fit onto a multiprocessor: half of its threads. The compiler, left alone, saves registers by waiting for
/// one row before it asks for the next.
constexpr int ROWS_BLOCKS = 4;

/// Rows of a CSR pattern.
struct Rows {
  uint64_t n_rows;
  uint64_t n_edge;
  const uint32_t* indptr;  // [n_rows + 1]
  uint64_t longest_row = ~uint64_t(0);  // no row has more entries, as far as the caller knows
};

/// How columns go to lanes: a tile has `lanes` packs.
struct Tiling {
  uint64_t packs;  // of a row
  uint32_t lanes;  // a power of two from IN_FLIGHT to 32
  uint32_t tiles;

  explicit Tiling(uint64_t packs) : packs(packs), lanes(IN_FLIGHT) {
    while (lanes < 32 && lanes < packs) lanes *= 2;
    tiles = static_cast<uint32_t>((packs + lanes - 1) / lanes);
  }

  /// Blocks for one group per item and tile.
  unsigned blocks(uint64_t items) const {
    const uint64_t per_block = BLOCK / lanes;
    return grid_of((items + per_block - 1) / per_block * tiles);
  }
};

/// A group's item and its lane's pack of columns.
struct Group {
  uint64_t item;
  uint64_t pack;
  uint32_t lane;

  __device__ explicit Group(const Tiling& tiling) {
    item = static_cast<uint64_t>(blockIdx.x / tiling.tiles) * (BLOCK / tiling.lanes) + threadIdx.x / tiling.lanes;
    lane = threadIdx.x % tiling.lanes;
    pack = static_cast<uint64_t>(blockIdx.x % tiling.tiles) * tiling.lanes + lane;
  }
};

/// Entries of a chunk. The fewer, the more groups work on a hub, and the more memory do slots need: with 512, a row of
/// the dense operand for every 512 entries, a twentieth of the operand where rows have 25 entries.
constexpr uint64_t MIN_CHUNK = 256;
constexpr uint64_t MAX_CHUNK = 512;

/// A hub of no more chunks is merged by one group.
constexpr uint64_t FEW_CHUNKS = 4 * IN_FLIGHT;

/// How rows with many entries are cut.
struct Hubs {
  uint64_t chunk;
  uint64_t slots;   // number of slots; 0: no row can be a hub, or none is to be cut
  uint32_t* first;  // [slots]: the row whose first chunk has this slot, or NO_ROW

  /// No row has more than `longest_row` entries, as far as the caller knows. If one has, it is only slow.
  Hubs(uint64_t n_edge, uint64_t longest_row) : first(nullptr) {
    const uint64_t even = (n_edge / 8192 + 31) / 32 * 32;
    chunk = even < MIN_CHUNK ? MIN_CHUNK : even < MAX_CHUNK ? even : MAX_CHUNK;
    slots = (longest_row < n_edge ? longest_row : n_edge) > degree() ? n_edge / chunk : 0;
  }

  __device__ __host__ uint64_t degree() const { return 2 * chunk; }
};

/// The row that entry e belongs to.
__device__ inline uint64_t row_of(const Rows& rows, uint64_t e) {
  uint64_t low = 0, high = rows.n_rows;  // indptr[low] <= e < indptr[high]
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (rows.indptr[middle] <= e) low = middle; else high = middle;
  }
  return low;
}

/// A pass over the entries begin..begin + count of a row, for a column pack. All lanes of a warp call it.
///
/// Op has `Entry entry(e)`: what a lane loads of entry e; `Entry broadcast(entry, lane, width)`; `Operand load(entry,
/// column)`: a pack of the dense operand; `State`; and `add(state, e, entry, operand)`.
///
/// Loads are issued whether their entry exists or not: a load that is switched off leaves its registers as they were,
/// and the compiler would wait for each before the next to keep both cases apart. A lane without an entry has the row's
/// last one, or if there is none the zeros of `Entry`, and a lane beyond the columns the last pack: such loads meet
/// lines that others read.
template <class Op>
__device__ __forceinline__ void accumulate(const Op& op, const Tiling& tiling, const Group& group, uint64_t begin,
                                           uint32_t count, typename Op::State& state) {
  const uint64_t column = (group.pack < tiling.packs ? group.pack : tiling.packs - 1) * Op::N;
  const uint32_t longest = warp_max(count);
  for (uint32_t base = 0; base < longest; base += tiling.lanes) {
    typename Op::Entry own = {};
    if (count > 0) own = op.entry(begin + (base + group.lane < count ? base + group.lane : count - 1));
    const uint32_t steps = longest - base < tiling.lanes ? longest - base : tiling.lanes;
    for (uint32_t k = 0; k < steps; k += IN_FLIGHT) {
      typename Op::Entry entry[IN_FLIGHT];
      typename Op::Operand operand[IN_FLIGHT];
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) entry[u] = op.broadcast(own, k + u, tiling.lanes);
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) operand[u] = op.load(entry[u], column);
#pragma unroll
      for (int u = 0; u < IN_FLIGHT; u++) {
        if (base + k + u < count) op.add(state, static_cast<uint32_t>(begin + base + k + u), entry[u], operand[u]);
      }
    }
  }
}

/// A group takes one chunk of a hub, if its slot has one, or one row that is not a hub. Slots come first: they take
/// longer than most rows.
///
/// Op has also `finish(row, column, state, is_empty)`: writes a row's result; and `save(slot, column, state)`.
template <class Op>
__global__ void __launch_bounds__(BLOCK, ROWS_BLOCKS) csr_rows_kernel(Op op, Rows rows, Tiling tiling, Hubs hubs) {
  const Group group(tiling);
  const bool is_slot = group.item < hubs.slots;
  const uint64_t slot = group.item;
  uint64_t row = NO_ROW, begin = 0;
  uint32_t count = 0;
  if (is_slot) {
    // The slot's row, if there is one, has the last entry that can belong to the slot.
    const uint64_t hub = row_of(rows, (slot + 1) * hubs.chunk - 1);
    const uint64_t hub_begin = rows.indptr[hub], degree = rows.indptr[hub + 1] - hub_begin;
    const uint64_t first = hub_begin / hubs.chunk, n_chunks = degree / hubs.chunk, chunk = slot - first;
    const bool is_chunk = degree > hubs.degree() && slot >= first && chunk < n_chunks;
    if (is_chunk) {
      row = hub;
      begin = hub_begin + degree * chunk / n_chunks;
      count = static_cast<uint32_t>(hub_begin + degree * (chunk + 1) / n_chunks - begin);
    }
    if (group.pack == 0) hubs.first[slot] = is_chunk && chunk == 0 ? static_cast<uint32_t>(hub) : NO_ROW;
  } else if (group.item - hubs.slots < rows.n_rows) {
    const uint64_t i = group.item - hubs.slots;
    begin = rows.indptr[i];
    const uint64_t degree = rows.indptr[i + 1] - begin;
    if (hubs.slots == 0 || degree <= hubs.degree()) {
      row = i;
      count = static_cast<uint32_t>(degree);
    }
  }
  typename Op::State state = op.start();
  accumulate(op, tiling, group, begin, count, state);
  if (row == NO_ROW || group.pack >= tiling.packs) return;
  if (is_slot) {
    op.save(slot, group.pack * Op::N, state);
  } else {
    op.finish(row, group.pack * Op::N, state, count == 0);
  }
}

/// The chunks first..end of a hub, merged in order; at least one. `saved(slot, column)` is what `save` stored there,
/// and `merge(state, later)` adds a later chunk's state.
template <class Op>
__device__ __forceinline__ typename Op::State merge_chunks(const Op& op, uint64_t first, uint64_t end,
                                                           uint64_t column) {
  typename Op::State state = op.start();
  // Unrolled further, it spills registers.
#pragma unroll 1
  for (; first < end; first += IN_FLIGHT) {
    typename Op::State later[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      later[u] = op.saved(first + u < end ? first + u : end - 1, column);
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (first + u < end) op.merge(state, later[u]);
    }
  }
  return state;
}

/// A group merges the chunks of a hub, if its slot is the hub's first. Where they are many, all groups of the block
/// take an equal share of them each, and one merges what these found, in order.
template <class Op>
__global__ void __launch_bounds__(BLOCK, ROWS_BLOCKS) csr_hubs_kernel(Op op, Rows rows, Tiling tiling, Hubs hubs) {
  COHOP_SHARED(typename Op::State, share, [BLOCK]);
  COHOP_SHARED(uint32_t, large, [BLOCK / IN_FLIGHT]);
  const Group group(tiling);
  const uint32_t own = threadIdx.x / tiling.lanes, n_groups = BLOCK / tiling.lanes;
  const uint64_t column = group.pack * Op::N;
  const bool is_column = group.pack < tiling.packs;
  const auto n_chunks = [&](uint32_t row) { return (rows.indptr[row + 1] - rows.indptr[row]) / hubs.chunk; };

  const uint32_t row = group.item < hubs.slots ? hubs.first[group.item] : NO_ROW;
  const uint64_t chunks = row == NO_ROW ? 0 : n_chunks(row);
  if (row != NO_ROW && chunks <= FEW_CHUNKS && is_column) {
    op.finish(row, column, merge_chunks(op, group.item, group.item + chunks, column), false);
  }
  if (group.lane == 0) large[own] = chunks > FEW_CHUNKS ? row : NO_ROW;
  __syncthreads();
  for (uint32_t g = 0; g < n_groups; g++) {
    const uint32_t hub = large[g];
    if (hub == NO_ROW) continue;
    const uint64_t first = group.item - own + g, end = first + n_chunks(hub);
    const uint64_t part = (end - first + n_groups - 1) / n_groups, begin = first + own * part;
    if (begin < end && is_column) {
      share[threadIdx.x] = merge_chunks(op, begin, begin + part < end ? begin + part : end, column);
    }
    __syncthreads();
    if (own == 0 && is_column) {
      typename Op::State state = share[group.lane];
      for (uint32_t k = 1; first + k * part < end; k++) op.merge(state, share[k * tiling.lanes + group.lane]);
      op.finish(hub, column, state, false);
    }
    __syncthreads();
  }
}

/// Both launches. `op` and `hubs` already have their parts of the scratch memory.
template <class Op>
int32_t launch_csr_rows(const Op& op, const Rows& rows, uint64_t cols, const Hubs& hubs, void* stream) {
  const Tiling tiling(cols / Op::N);
  COHOP_LAUNCH((csr_rows_kernel<Op>), tiling.blocks(hubs.slots + rows.n_rows), BLOCK, 0, stream, op, rows, tiling,
               hubs);
  if (hubs.slots > 0) {
    COHOP_LAUNCH((csr_hubs_kernel<Op>), tiling.blocks(hubs.slots), BLOCK, 0, stream, op, rows, tiling, hubs);
  }
  return cohop_last_error();
}

/// Where sums of chunks are kept: for operations whose state is a pack of sums.
template <class S, int N_>
struct SumRows {
  static constexpr int N = N_;
  using State = Pack<S, N>;
  uint64_t cols;
  S* sums;  // [slots, cols]
  S* out;   // [n_rows, cols]
  bool add_to_out;

  __device__ State start() const { return {}; }
  __device__ void save(uint64_t slot, uint64_t column, const State& state) const {
    store<N>(sums + slot * cols + column, state);
  }
  __device__ State saved(uint64_t slot, uint64_t column) const { return load<N>(sums + slot * cols + column); }
  __device__ void merge(State& state, const State& later) const {
#pragma unroll
    for (int k = 0; k < N; k++) state.value[k] += later.value[k];
  }
  __device__ void write_row(uint64_t row, uint64_t column, State state) const {
    S* to = out + row * cols + column;
    if (add_to_out) {
      const State before = load<N>(static_cast<const S*>(to));
#pragma unroll
      for (int k = 0; k < N; k++) state.value[k] = before.value[k] + state.value[k];
    }
    store<N>(to, state);
  }
};

/// Scratch memory of operations with sums.
template <class S>
struct SumScratch {
  Hubs hubs;
  S* sums;
  uint64_t bytes;

  SumScratch(void* block, const Rows& rows, uint64_t cols) : hubs(rows.n_edge, rows.longest_row) {
    Scratch scratch(block);
    hubs.first = scratch.take<uint32_t>(hubs.slots);
    sums = scratch.take<S>(hubs.slots * cols);
    bytes = scratch.bytes();
  }
};

}  // namespace cohop
