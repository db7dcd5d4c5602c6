// Edges as keys that sort: row << place_bits | place in the row.
#pragma once
#include "sort.h"
#include "table.cuh"

namespace cohop {
namespace {

__global__ void __launch_bounds__(BLOCK) keyed_edges_kernel(cohop_rows rows, uint64_t n_edge, uint32_t place_bits,
                                                            const uint64_t* __restrict__ key,
                                                            uint64_t* __restrict__ edge_id) {
  const uint64_t place_mask = (uint64_t(1) << place_bits) - 1;
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    edge_id[e] = rows.start[key[e] >> place_bits] + (key[e] & place_mask);
  }
}

/// Sorts keys; order: [n_edge] is where each came from.
inline int32_t sort_keys(const cohop_rows& rows, uint64_t n_edge, uint32_t place_bits, const uint64_t* key,
                         uint64_t* sorted, uint32_t* order, void* scratch, void* stream) {
  const int end_bit = static_cast<int>(place_bits) + bits_below(rows.n);
  return sort_pairs<uint64_t>(n_edge, key, nullptr, sorted, order, 0, end_bit, scratch, stream);
}

/// edge_id[e] = the edge of key[e]
inline int32_t launch_keyed_edges(const cohop_rows& rows, uint64_t n_edge, uint32_t place_bits, const uint64_t* key,
                                  uint64_t* edge_id, void* stream) {
  COHOP_LAUNCH(keyed_edges_kernel, grid_for(n_edge), BLOCK, 0, stream, rows, n_edge, place_bits, key, edge_id);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop
