// Groups the edges of a block by relation and row, in both directions: stable sorts, then a prefix sum over the edges
// at which a group begins. The host learns the number of groups in between.
#include "csr_rows.cuh"
#include "scan.h"
#include "sort.h"

namespace cohop {
namespace {

/// The arrays of one direction, by group.
struct Sorted {
  uint32_t* relation;  // [n_edge], ascending
  uint32_t* order;     // [n_edge]: edges by relation, row and position
  uint32_t* group;     // [n_edge + 1]: groups that begin before an edge in this order
};

struct GroupingScratch {
  uint32_t* destination;    // [n_edge], in the block's order
  uint32_t* relation;       // [n_edge], in the block's order
  uint32_t* source;         // [n_edge], ascending
  uint32_t* source_order;   // [n_edge]: edges by source and position
  uint32_t* between;        // [n_edge]: keys between two sorts
  Sorted by_destination, by_source;
  unsigned char* own;  // of sorts and sums
  uint64_t bytes;

  GroupingScratch(void* block, uint64_t n_edge) {
    Scratch scratch(block);
    for (uint32_t** array : {&destination, &relation, &source, &source_order, &between}) {
      *array = scratch.take<uint32_t>(n_edge);
    }
    for (Sorted* sorted : {&by_destination, &by_source}) {
      sorted->relation = scratch.take<uint32_t>(n_edge);
      sorted->order = scratch.take<uint32_t>(n_edge);
      sorted->group = scratch.take<uint32_t>(n_edge + 1);
    }
    const uint64_t sort = sort_bytes<uint32_t>(n_edge), scan = scan_bytes<uint32_t>(n_edge);
    own = scratch.take<unsigned char>(sort > scan ? sort : scan);
    bytes = scratch.bytes();
  }
};

/// Each edge's destination and relation. A relation out of range is reported; 0 stands in for it.
__global__ void __launch_bounds__(BLOCK) describe_edges_kernel(Rows rows, const uint16_t* __restrict__ edge_type,
                                                               uint64_t n_relations, uint32_t* __restrict__ destination,
                                                               uint32_t* __restrict__ relation, cohop_status* status) {
  for (uint64_t e = grid_thread(); e < rows.n_edge; e += grid_threads()) {
    const uint32_t r = edge_type[e];
    if (r >= n_relations) report(status, COHOP_ARRAY_EDGE_TYPE, e, r, n_relations);
    destination[e] = static_cast<uint32_t>(row_of(rows, e));
    relation[e] = r < n_relations ? r : 0;
  }
}

/// out[i] = x[index[i]]
__global__ void __launch_bounds__(BLOCK) permute_kernel(uint64_t n, const uint32_t* __restrict__ index,
                                                        const uint32_t* __restrict__ x, uint32_t* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = x[index[i]];
}

/// out[i] = whether a group begins with edge i of the order; row: [n_edge], in the block's order.
__global__ void __launch_bounds__(BLOCK) mark_groups_kernel(uint64_t n_edge, Sorted sorted,
                                                            const uint32_t* __restrict__ row,
                                                            uint32_t* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n_edge; i += grid_threads()) {
    out[i] = i == 0 || sorted.relation[i - 1] != sorted.relation[i] || row[sorted.order[i - 1]] != row[sorted.order[i]];
  }
}

/// out[j] = the number of ascending keys below j, or `through` at that number; n + 1 numbers.
__global__ void __launch_bounds__(BLOCK) bounds_kernel(uint64_t n, uint64_t n_keys, const uint32_t* __restrict__ keys,
                                                       const uint32_t* __restrict__ through,
                                                       uint32_t* __restrict__ out) {
  for (uint64_t j = grid_thread(); j <= n; j += grid_threads()) {
    uint64_t low = 0, high = n_keys;  // keys before low are below j, those from high on are not
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (keys[middle] < j) low = middle + 1; else high = middle;
    }
    out[j] = through ? through[low] : static_cast<uint32_t>(low);
  }
}

/// Each edge's group, and each group's row and first edge.
__global__ void __launch_bounds__(BLOCK) fill_groups_kernel(uint64_t n_edge, Sorted sorted,
                                                            const uint32_t* __restrict__ row, cohop_relation_groups to,
                                                            uint32_t* __restrict__ group) {
  for (uint64_t i = grid_thread(); i <= n_edge; i += grid_threads()) {
    if (i == n_edge) {
      to.indptr[to.n_group] = static_cast<uint32_t>(n_edge);
    } else {
      const uint32_t e = sorted.order[i], own = sorted.group[i + 1] - 1;
      group[e] = own;
      if (sorted.group[i] == own) {
        to.row[own] = row[e];
        to.indptr[own] = static_cast<uint32_t>(i);
      }
    }
  }
}

/// factor[e] = 1 / edges of its group
template <class S>
__global__ void __launch_bounds__(BLOCK) share_kernel(uint64_t n_edge, const uint32_t* __restrict__ group,
                                                      const uint32_t* __restrict__ indptr, S* __restrict__ factor) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint32_t g = group[e];
    factor[e] = static_cast<S>(1.0 / static_cast<double>(indptr[g + 1] - indptr[g]));
  }
}

/// Lanes per group of weighted edges: a group has few edges, as they were sampled.
constexpr int WEIGHT_LANES = 8;

/// factor[e] = its weight over the sum of its group's, or 0 if that is 0.
template <class S>
__global__ void __launch_bounds__(BLOCK) weighted_share_kernel(uint64_t n_group, const uint32_t* __restrict__ indptr,
                                                               const uint32_t* __restrict__ order,
                                                               const S* __restrict__ weight, S* __restrict__ factor) {
  constexpr uint64_t GROUPS = 32 / WEIGHT_LANES;
  const uint64_t lane = threadIdx.x % WEIGHT_LANES;
  for (uint64_t first = grid_thread() / 32 * GROUPS; first < n_group; first += grid_threads() / 32 * GROUPS) {
    const uint64_t group = first + threadIdx.x % 32 / WEIGHT_LANES;
    const uint64_t begin = group < n_group ? indptr[group] : 0, end = group < n_group ? indptr[group + 1] : 0;
    double sum = 0;
    for (uint64_t i = begin + lane; i < end; i += WEIGHT_LANES) sum += static_cast<double>(weight[order[i]]);
    sum = warp_sum<WEIGHT_LANES>(sum);
    const double scale = sum == 0 ? 0 : 1 / sum;
    for (uint64_t i = begin + lane; i < end; i += WEIGHT_LANES) {
      factor[order[i]] = static_cast<S>(static_cast<double>(weight[order[i]]) * scale);
    }
  }
}

/// The edges' data, in the order of groups and in that of rows (`row_order`; null: the block's order).
template <class S>
__global__ void __launch_bounds__(BLOCK) fill_edges_kernel(uint64_t n_edge, Sorted sorted,
                                                           const uint32_t* __restrict__ row_order,
                                                           const uint32_t* __restrict__ end,
                                                           const uint32_t* __restrict__ partner,
                                                           const uint32_t* __restrict__ partner_offsets,
                                                           const S* __restrict__ factor, cohop_relation_groups to) {
  S* weight = static_cast<S*>(to.weight);
  S* edge_weight = static_cast<S*>(to.edge_weight);
  for (uint64_t i = grid_thread(); i < n_edge; i += grid_threads()) {
    const uint32_t e = sorted.order[i], by_row = row_order ? row_order[i] : static_cast<uint32_t>(i);
    to.indices[i] = end[e];
    to.partner[i] = partner[e] - partner_offsets[sorted.relation[i]];
    weight[i] = factor[e];
    to.edge_partner[i] = partner[by_row];
    edge_weight[i] = factor[by_row];
  }
}

/// Numbers the groups, by prefix sums of the marks, and finds where each relation's groups begin.
int32_t number_groups(uint64_t n_edge, uint64_t n_relations, const Sorted& sorted, const uint32_t* row, void* own,
                      uint32_t* offsets, void* stream) {
  if (n_edge > 0) {
    COHOP_LAUNCH(mark_groups_kernel, grid_for(n_edge), BLOCK, 0, stream, n_edge, sorted, row, sorted.group + 1);
  }
  const int32_t code = exclusive_scan<uint32_t>(n_edge, sorted.group + 1, sorted.group, own, stream);
  if (code != 0) return code;
  COHOP_LAUNCH(bounds_kernel, grid_for(n_relations + 1), BLOCK, 0, stream, n_relations, n_edge, sorted.relation,
               sorted.group, offsets);
  return cohop_last_error();
}

int32_t sort_edges(const Rows& rows, uint64_t n_src, uint64_t n_relations, const uint32_t* indices,
                   const uint16_t* edge_type, const GroupingScratch& parts, uint32_t* destination_offsets,
                   uint32_t* source_offsets, cohop_status* status, void* stream) {
  const uint64_t n_edge = rows.n_edge;
  const Sorted &to = parts.by_destination, &from = parts.by_source;
  if (n_edge > 0) {
    COHOP_LAUNCH(describe_edges_kernel, grid_for(n_edge), BLOCK, 0, stream, rows, edge_type, n_relations,
                 parts.destination, parts.relation, status);
    const int bits = bits_below(n_relations);
    int32_t code = sort_pairs<uint32_t>(n_edge, parts.relation, nullptr, to.relation, to.order, 0, bits, parts.own,
                                        stream);
    if (code != 0) return code;
    code = sort_pairs<uint32_t>(n_edge, indices, nullptr, parts.source, parts.source_order, 0, bits_below(n_src),
                                parts.own, stream);
    if (code != 0) return code;
    COHOP_LAUNCH(permute_kernel, grid_for(n_edge), BLOCK, 0, stream, n_edge, parts.source_order, parts.relation,
                 parts.between);
    code = sort_pairs<uint32_t>(n_edge, parts.between, parts.source_order, from.relation, from.order, 0, bits,
                                parts.own, stream);
    if (code != 0) return code;
  }
  const int32_t code = number_groups(n_edge, n_relations, to, parts.destination, parts.own, destination_offsets,
                                     stream);
  if (code != 0) return code;
  return number_groups(n_edge, n_relations, from, indices, parts.own, source_offsets, stream);
}

/// The groups of each row, by relation; `keys`: [n_edge], to be overwritten.
int32_t sort_groups(const cohop_relation_groups& to, uint32_t* keys, void* own, void* stream) {
  const int32_t code = sort_pairs<uint32_t>(to.n_group, to.row, nullptr, keys, to.row_groups, 0, bits_below(to.n_rows),
                                            own, stream);
  if (code != 0) return code;
  COHOP_LAUNCH(bounds_kernel, grid_for(to.n_rows + 1), BLOCK, 0, stream, to.n_rows, to.n_group, keys, nullptr,
               to.group_indptr);
  return cohop_last_error();
}

template <class S>
int32_t fill_groups(uint64_t n_edge, const uint32_t* indices, const S* weight, const GroupingScratch& parts,
                    const cohop_relation_groups& to, const cohop_relation_groups& from, uint32_t* destination_group,
                    uint32_t* source_group, S* factor, void* stream) {
  COHOP_LAUNCH(fill_groups_kernel, grid_for(n_edge + 1), BLOCK, 0, stream, n_edge, parts.by_destination,
               parts.destination, to, destination_group);
  COHOP_LAUNCH(fill_groups_kernel, grid_for(n_edge + 1), BLOCK, 0, stream, n_edge, parts.by_source, indices, from,
               source_group);
  COHOP_LAUNCH(bounds_kernel, grid_for(to.n_rows + 1), BLOCK, 0, stream, to.n_rows, n_edge, parts.destination, nullptr,
               to.edge_indptr);
  COHOP_LAUNCH(bounds_kernel, grid_for(from.n_rows + 1), BLOCK, 0, stream, from.n_rows, n_edge, parts.source, nullptr,
               from.edge_indptr);
  if (n_edge > 0) {
    if (weight) {
      COHOP_LAUNCH((weighted_share_kernel<S>), grid_for(to.n_group * WEIGHT_LANES), BLOCK, 0, stream, to.n_group,
                   to.indptr, parts.by_destination.order, weight, factor);
    } else {
      COHOP_LAUNCH((share_kernel<S>), grid_for(n_edge), BLOCK, 0, stream, n_edge, destination_group, to.indptr, factor);
    }
    COHOP_LAUNCH((fill_edges_kernel<S>), grid_for(n_edge), BLOCK, 0, stream, n_edge, parts.by_destination, nullptr,
                 indices, source_group, from.offsets, factor, to);
    COHOP_LAUNCH((fill_edges_kernel<S>), grid_for(n_edge), BLOCK, 0, stream, n_edge, parts.by_source,
                 parts.source_order, parts.destination, destination_group, to.offsets, factor, from);
  }
  const int32_t code = sort_groups(to, parts.between, parts.own, stream);
  return code != 0 ? code : sort_groups(from, parts.between, parts.own, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_group_relations_bytes(uint64_t n_edge) { return GroupingScratch(nullptr, n_edge).bytes; }

int32_t cohop_sort_relations(uint64_t n_dst, uint64_t n_src, uint64_t n_edge, uint64_t n_relations,
                             const uint32_t* indptr, const uint32_t* indices, const uint16_t* edge_type, void* scratch,
                             uint32_t* destination_offsets, uint32_t* source_offsets, cohop_status* status,
                             void* stream) {
  COHOP_LAUNCHER(return sort_edges({n_dst, n_edge, indptr}, n_src, n_relations, indices, edge_type,
                                   GroupingScratch(scratch, n_edge), destination_offsets, source_offsets, status,
                                   stream);)
}

int32_t cohop_group_relations(cohop_dtype scalar, uint64_t n_edge, const uint32_t* indices, const void* weight,
                              void* scratch, const cohop_relation_groups* by_destination,
                              const cohop_relation_groups* by_source, uint32_t* destination_group,
                              uint32_t* source_group, void* factor, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return fill_groups(n_edge, indices, static_cast<const S*>(weight), GroupingScratch(scratch, n_edge),
                       *by_destination, *by_source, destination_group, source_group, static_cast<S*>(factor), stream);
  });)
}

}  // extern "C"
