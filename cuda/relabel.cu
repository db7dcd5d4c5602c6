// From global ids to positions in a block: destinations first, then new sources in order of first occurrence.
//
// A hash table holds the lowest position at which each id occurs. An edge at whose position its source occurs first has
// a new source; a prefix sum over these edges gives the new sources their places. Each edge costs three reads at random
// addresses: of its source, of the table, and of the sum at the edge where its source occurs first.
#include "scan.h"
#include "table.cuh"

namespace cohop {
namespace {

__global__ void __launch_bounds__(BLOCK) clear_kernel(Table table) {
  for (uint64_t i = grid_thread(); i < table.n_slots; i += grid_threads()) table.slot[i] = EMPTY;
}

__global__ void __launch_bounds__(BLOCK) insert_destinations_kernel(uint64_t n_dst, const uint32_t* __restrict__ dst,
                                                                    Table table) {
  for (uint64_t i = grid_thread(); i < n_dst; i += grid_threads()) table.insert(dst[i], static_cast<uint32_t>(i));
}

/// One thread per edge. A source that is not a vertex becomes NONE; so does that of an edge that there is not, whose id
/// is EMPTY.
template <class S>
__global__ void __launch_bounds__(BLOCK) insert_sources_kernel(cohop_graph graph, uint64_t n_dst, uint64_t n_edge,
                                                               const uint64_t* __restrict__ edge_id,
                                                               uint32_t* __restrict__ source,
                                                               uint16_t* __restrict__ edge_type,
                                                               S* __restrict__ edge_weight, Table table,
                                                               cohop_status* status) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint64_t edge = edge_id ? edge_id[e] : 0;
    if (edge == EMPTY) {
      source[e] = NONE;
      continue;
    }
    uint32_t id = edge_id ? graph.indices[edge] : source[e];
    if (id >= graph.n_vertices) {
      report(status, COHOP_ARRAY_INDEX, edge, id, graph.n_vertices);
      id = NONE;
    } else {
      table.insert(id, static_cast<uint32_t>(n_dst + e));
    }
    if (edge_id) source[e] = id;
    if (edge_type) edge_type[e] = graph.edge_type[edge];
    if (edge_weight) edge_weight[e] = static_cast<S>(graph.edge_weight[edge]);
  }
}

/// first[e] = the position at which the edge's source occurs first; is_new[e] = whether that is this edge.
__global__ void __launch_bounds__(BLOCK) find_kernel(uint64_t n_dst, uint64_t n_edge,
                                                     const uint32_t* __restrict__ source, Table table,
                                                     uint32_t* __restrict__ first, uint32_t* __restrict__ is_new) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint32_t position = source[e] == NONE ? 0 : table.find(source[e]);
    first[e] = position;
    is_new[e] = position == n_dst + e;
  }
}

__global__ void total_kernel(const uint32_t* last, uint64_t* total) { *total = *last; }

/// One thread per destination and per edge.
__global__ void __launch_bounds__(BLOCK) finish_kernel(uint64_t n_dst, const uint32_t* __restrict__ dst,
                                                       uint64_t n_edge, const uint32_t* __restrict__ source,
                                                       const uint32_t* first, const uint32_t* __restrict__ rank,
                                                       uint32_t* __restrict__ src, uint32_t* indices) {
  for (uint64_t i = grid_thread(); i < n_dst + n_edge; i += grid_threads()) {
    if (i < n_dst) {
      src[i] = dst[i];
      continue;
    }
    const uint64_t e = i - n_dst;
    const uint32_t at = first[e];
    const uint64_t place = at < n_dst ? at : n_dst + rank[at - n_dst];
    if (at == i) src[place] = source[e];
    indices[e] = static_cast<uint32_t>(place);
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_relabel_bytes(uint64_t n_edge) { return scan_bytes<uint32_t>(n_edge); }

int32_t cohop_relabel_find(cohop_graph graph, cohop_dtype scalar, uint64_t n_dst, const uint32_t* dst, uint64_t n_edge,
                           const uint64_t* edge_id, uint32_t* source, uint32_t* first, uint32_t* rank, uint64_t n_slots,
                           uint64_t* slots, uint16_t* edge_type, void* edge_weight, void* scratch, uint64_t* n_new,
                           cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0) return 0;
    const Table table = {slots, n_slots};
    const unsigned grid = grid_for(n_edge);
    COHOP_LAUNCH(clear_kernel, grid_for(n_slots), BLOCK, 0, stream, table);
    COHOP_LAUNCH(insert_destinations_kernel, grid_for(n_dst), BLOCK, 0, stream, n_dst, dst, table);
    const int32_t found = with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((insert_sources_kernel<S>), grid, BLOCK, 0, stream, graph, n_dst, n_edge, edge_id, source,
                   edge_type, static_cast<S*>(edge_weight), table, status);
      return 0;
    });
    if (found != 0) return found;
    COHOP_LAUNCH(find_kernel, grid, BLOCK, 0, stream, n_dst, n_edge, source, table, first, rank + 1);
    const int32_t code = exclusive_scan<uint32_t>(n_edge, rank + 1, rank, scratch, stream);
    if (code != 0) return code;
    COHOP_LAUNCH(total_kernel, 1, 1, 0, stream, rank + n_edge, n_new);
    return cohop_last_error();)
}

int32_t cohop_relabel_finish(uint64_t n_dst, const uint32_t* dst, uint64_t n_edge, const uint32_t* source,
                             const uint32_t* first, const uint32_t* rank, uint32_t* src, uint32_t* indices,
                             void* stream) {
  COHOP_LAUNCHER(
    if (n_dst + n_edge == 0) return 0;
    COHOP_LAUNCH(finish_kernel, grid_for(n_dst + n_edge), BLOCK, 0, stream, n_dst, dst, n_edge, source, first, rank,
                 src, indices);
    return cohop_last_error();)
}

}  // extern "C"
