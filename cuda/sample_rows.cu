// A layer's rows: looks up and checks destinations, counts by rule what rows keep, and writes the edges of rows that
// are kept whole.
#include "scan.h"
#include "table.cuh"

namespace cohop {
namespace {

__global__ void __launch_bounds__(BLOCK) begin_kernel(uint64_t n_slots, uint64_t* __restrict__ table, uint64_t* found) {
  for (uint64_t i = grid_thread(); i < n_slots; i += grid_threads()) table[i] = EMPTY;
  if (grid_thread() < COHOP_FOUND_ENTRIES) {
    const unsigned entry = threadIdx.x;
    found[entry] = entry == COHOP_FOUND_OUT_OF_RANGE || entry == COHOP_FOUND_REPEATED ? EMPTY : 0;
  }
}

/// One thread per destination: its in-edges, and whether it is repeated. Of an id that occurs at several positions,
/// whichever of the first two is inserted later meets the other, so the lowest of the later positions of all pairs that
/// meet is the first repeat.
__global__ void __launch_bounds__(BLOCK) rows_kernel(cohop_graph graph, cohop_rows rows, Table table) {
  for (uint64_t i = grid_thread(); i < rows.n; i += grid_threads()) {
    const uint32_t vertex = rows.vertex[i];
    uint64_t start = 0;
    uint32_t degree = 0;
    if (vertex >= graph.n_vertices) {
      atomic_min(&rows.found[COHOP_FOUND_OUT_OF_RANGE], i);
    } else {
      const uint32_t position = static_cast<uint32_t>(i), other = table.insert(vertex, position);
      if (other != NONE) atomic_min(&rows.found[COHOP_FOUND_REPEATED], other > position ? other : position);
      start = graph.indptr[vertex];
      degree = static_cast<uint32_t>(graph.indptr[vertex + uint64_t(1)] - start);
      if (degree > COHOP_HUB_DEGREE) rows.hub[atomic_add(&rows.found[COHOP_FOUND_HUBS], 1)] = position;
    }
    rows.start[i] = start;
    rows.degree[i] = degree;
  }
}

__global__ void __launch_bounds__(BLOCK) count_kernel(cohop_rows rows, cohop_count_rule rule, uint64_t fanout,
                                                      uint64_t* __restrict__ counts) {
  constexpr uint64_t TOO_MANY = uint64_t(1) << 32;  // no sum of counts up to this overflows
  if (fanout > TOO_MANY) fanout = TOO_MANY;
  for (uint64_t i = grid_thread(); i < rows.n; i += grid_threads()) {
    const uint64_t degree = rows.degree[i], words = (degree + 31) / 32;
    uint64_t count = 0;
    switch (rule) {
      case COHOP_COUNT_ALL: count = degree; break;
      case COHOP_COUNT_AT_MOST: count = degree < fanout ? degree : fanout; break;
      case COHOP_COUNT_DRAWS: count = degree > 0 ? fanout : 0; break;
      case COHOP_COUNT_WORDS: count = words; break;
      case COHOP_COUNT_WORDS_ABOVE: count = degree > fanout ? words : 0; break;
    }
    counts[i] = count;
  }
}

__global__ void total_kernel(const uint64_t* last, uint64_t* total) { *total = *last; }

__global__ void __launch_bounds__(BLOCK) indptr_kernel(uint64_t n, const uint64_t* __restrict__ offsets,
                                                       uint32_t* __restrict__ indptr) {
  for (uint64_t i = grid_thread(); i <= n; i += grid_threads()) indptr[i] = static_cast<uint32_t>(offsets[i]);
}

/// One thread per edge, so that long rows cost no more than short ones.
__global__ void __launch_bounds__(BLOCK) all_kernel(cohop_rows rows, const uint32_t* __restrict__ indptr,
                                                    uint64_t n_edge, uint64_t* __restrict__ edge_id) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint64_t row = row_of(indptr, rows.n, e);
    edge_id[e] = rows.start[row] + (e - indptr[row]);
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sample_rows(cohop_graph graph, cohop_rows rows, uint64_t* table, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    const Table repeats = {table, 2 * rows.n};
    COHOP_LAUNCH(begin_kernel, grid_for(repeats.n_slots), BLOCK, 0, stream, repeats.n_slots, table, rows.found);
    COHOP_LAUNCH(rows_kernel, grid_for(rows.n), BLOCK, 0, stream, graph, rows, repeats);
    return cohop_last_error();)
}

int32_t cohop_sample_count(cohop_rows rows, cohop_count_rule rule, uint64_t fanout, uint64_t* offsets, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    COHOP_LAUNCH(count_kernel, grid_for(rows.n), BLOCK, 0, stream, rows, rule, fanout, offsets + 1);
    return cohop_last_error();)
}

uint64_t cohop_sample_offsets_bytes(uint64_t n) { return scan_bytes<uint64_t>(n); }

int32_t cohop_sample_offsets(uint64_t n, uint64_t* offsets, void* scratch, uint64_t* total, void* stream) {
  COHOP_LAUNCHER(
    const int32_t code = exclusive_scan<uint64_t>(n, offsets + 1, offsets, scratch, stream);
    if (code != 0) return code;
    COHOP_LAUNCH(total_kernel, 1, 1, 0, stream, offsets + n, total);
    return cohop_last_error();)
}

int32_t cohop_sample_indptr(uint64_t n, const uint64_t* offsets, uint32_t* indptr, void* stream) {
  COHOP_LAUNCHER(
    COHOP_LAUNCH(indptr_kernel, grid_for(n + 1), BLOCK, 0, stream, n, offsets, indptr);
    return cohop_last_error();)
}

int32_t cohop_sample_all(cohop_rows rows, const uint32_t* indptr, uint64_t n_edge, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0) return 0;
    COHOP_LAUNCH(all_kernel, grid_for(n_edge), BLOCK, 0, stream, rows, indptr, n_edge, edge_id);
    return cohop_last_error();)
}

}  // extern "C"
