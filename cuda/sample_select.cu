// Neighbours chosen by variates: the smallest keys of a row or of each of its relations, and LABOR-0.
#include "select.cuh"

namespace cohop {
namespace {

/// A variate of the edge.
struct EdgeKeys {
  static constexpr int BITS = 32;
  cohop_variates variates;
  uint64_t stream;
  __device__ bool valid(const Row&, uint32_t) const { return true; }
  __device__ uint64_t key(const Row& row, uint32_t place) const { return variate(variates, stream, row.start + place); }
};

/// A variate of the edge's source.
struct SourceKeys {
  static constexpr int BITS = 32;
  cohop_variates variates;
  uint64_t stream;
  const uint32_t* indices;
  __device__ bool valid(const Row&, uint32_t) const { return true; }
  __device__ uint64_t key(const Row& row, uint32_t place) const {
    return variate(variates, stream, indices[row.start + place]);
  }
};

/// An exponential variate of the edge, whose rate is its weight.
struct WeightedKeys {
  static constexpr int BITS = 64;
  cohop_variates variates;
  uint64_t stream;
  const float* weight;
  __device__ bool valid(const Row& row, uint32_t place) const { return weight[row.start + place] > 0.0f; }
  __device__ uint64_t key(const Row& row, uint32_t place) const {
    const uint64_t edge = row.start + place;
    // Positive finite numbers are in the order of their bits.
    const uint64_t seed = seed_of(variates, stream, edge);
    return bits_of(-ln(uniform_open(seed, stream, edge)) / static_cast<double>(weight[edge]));
  }
};

/// The edge's variate, for the edges of one relation.
struct RelationKeys {
  static constexpr int BITS = EdgeKeys::BITS;
  EdgeKeys edges;
  const uint16_t* edge_type;
  uint32_t relation;
  __device__ bool valid(const Row& row, uint32_t place) const { return edge_type[row.start + place] == relation; }
  __device__ uint64_t key(const Row& row, uint32_t place) const { return edges.key(row, place); }
};

/// A team marks what a row of more than `fanout` edges keeps, one bit per edge, one relation after the other from the
/// lowest; a word of bits always belongs to the same warp. fanout > 0.
template <int THREADS>
__global__ void __launch_bounds__(BLOCK) mark_relations_kernel(cohop_rows rows, EdgeKeys edges,
                                                               const uint16_t* edge_type, uint64_t fanout,
                                                               const uint64_t* __restrict__ word_offsets,
                                                               uint32_t* kept, uint64_t* __restrict__ counts) {
  COHOP_SELECT_MEMORY(THREADS);
  constexpr unsigned NO_RELATION = 1u << 16;
  for_rows<THREADS>(rows, [&](const Row& row) {
    uint32_t* words = kept + word_offsets[row.number];
    const auto mark = [&](uint32_t place, bool is_kept, bool is_first) {
      const unsigned ballot = __ballot_sync(FULL, is_kept);
      if (place % 32 == 0 && place < row.degree) words[place / 32] = is_first ? ballot : words[place / 32] | ballot;
    };
    const auto relation_of = [&](uint32_t place) { return static_cast<uint32_t>(edge_type[row.start + place]); };
    uint64_t n_kept = 0;
    if (row.degree <= fanout) {
      n_kept = row.degree;
    } else if (THREADS == 32 && row.degree <= MAX_HELD) {
      n_kept = mark_smallest_held(row, edges, fanout, relation_of,
                                  [&](uint32_t place, bool is_kept, uint32_t) { mark(place, is_kept, true); });
    } else {
      bool is_first = true;
      for (unsigned next = 0;; is_first = false) {
        unsigned relation = NO_RELATION;
        for (uint32_t place = team.rank(); place < row.degree; place += THREADS) {
          const unsigned own = relation_of(place);
          if (own >= next && own < relation) relation = own;
        }
        relation = team.least(relation);
        if (relation == NO_RELATION) break;
        next = relation + 1;
        const RelationKeys keys = {edges, edge_type, relation};
        const Selection selection = select<THREADS>(row, keys, static_cast<uint32_t>(fanout), memory);
        n_kept += mark_selected(row, keys, selection, team,
                                [&](uint32_t place, bool is_kept, uint32_t) { mark(place, is_kept, is_first); });
      }
    }
    if (team.rank() == 0) counts[row.number] = n_kept;
  });
}

/// One warp per row: each lane writes the edges of one word of bits.
__global__ void __launch_bounds__(BLOCK) marked_kernel(cohop_rows rows, const uint32_t* __restrict__ indptr,
                                                       uint64_t fanout, const uint64_t* __restrict__ word_offsets,
                                                       const uint32_t* __restrict__ kept,
                                                       uint64_t* __restrict__ edge_id) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t row = grid_thread() / 32; row < rows.n; row += grid_threads() / 32) {
    const uint64_t start = rows.start[row];
    const uint32_t degree = rows.degree[row], n_words = (degree + 31) / 32;
    uint64_t* out = edge_id + indptr[row];
    if (degree <= fanout) {
      for (uint32_t place = lane; place < degree; place += 32) out[place] = start + place;
      continue;
    }
    const uint32_t* words = kept + word_offsets[row];
    for (uint32_t base = 0; base < n_words; base += 32) {
      uint32_t bits = base + lane < n_words ? words[base + lane] : 0;
      uint32_t through = __popc(bits);
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const uint32_t other = __shfl_up_sync(FULL, through, offset);
        if (lane >= static_cast<uint32_t>(offset)) through += other;
      }
      uint64_t* own = out + (through - __popc(bits));
      for (; bits != 0; bits &= bits - 1)
        *own++ = start + (base + lane) * uint64_t(32) + (__ffs(static_cast<int>(bits)) - 1);
      out += __shfl_sync(FULL, through, 31);
    }
  }
}

/// u d < k 2^32, where u is the variate of the edge's source.
struct Labor0 {
  cohop_variates variates;
  uint64_t stream, fanout;
  const uint32_t* indices;
  __device__ bool operator()(const Row& row, uint32_t place) const {
    const uint64_t word = variate(variates, stream, indices[row.start + place]);
    // Neither side overflows: here k < d < 2^32.
    return word * row.degree < fanout << 32;
  }
};

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sample_smallest(cohop_graph graph, cohop_rows rows, const uint32_t* indptr, cohop_variates variates,
                              uint64_t stream_number, cohop_key key, uint64_t fanout, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    const EmitEdges emit = {indptr, edge_id};
    switch (key) {
      case COHOP_KEY_EDGE: return launch_smallest(rows, EdgeKeys{variates, stream_number}, fanout, emit, stream);
      case COHOP_KEY_SOURCE:
        return launch_smallest(rows, SourceKeys{variates, stream_number, graph.indices}, fanout, emit, stream);
      case COHOP_KEY_WEIGHTED:
        return launch_smallest(rows, WeightedKeys{variates, stream_number, graph.edge_weight}, fanout, emit,
                               stream);
    }
    return COHOP_ERROR_INVALID;)
}

int32_t cohop_sample_mark_relations(cohop_graph graph, cohop_rows rows, cohop_variates variates, uint64_t stream_number,
                                    uint64_t fanout, const uint64_t* word_offsets, uint32_t* kept, uint64_t* counts,
                                    void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    if (fanout == 0) return COHOP_ERROR_INVALID;
    const EdgeKeys edges = {variates, stream_number};
    COHOP_LAUNCH((mark_relations_kernel<32>), grid_of_teams<32>(rows.n), BLOCK, 0, stream, rows, edges, graph.edge_type,
                 fanout, word_offsets, kept, counts);
    COHOP_LAUNCH((mark_relations_kernel<BLOCK>), grid_of_teams<BLOCK>(rows.n), BLOCK, 0, stream, rows, edges,
                 graph.edge_type, fanout, word_offsets, kept, counts);
    return cohop_last_error();)
}

int32_t cohop_sample_marked(cohop_rows rows, const uint32_t* indptr, uint64_t fanout, const uint64_t* word_offsets,
                            const uint32_t* kept, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    COHOP_LAUNCH(marked_kernel, grid_for(rows.n * 32), BLOCK, 0, stream, rows, indptr, fanout, word_offsets, kept,
                 edge_id);
    return cohop_last_error();)
}

int32_t cohop_sample_labor0(cohop_graph graph, cohop_rows rows, cohop_variates variates, uint64_t stream_number,
                            uint64_t fanout, uint64_t* counts, const uint32_t* indptr, uint64_t* edge_id,
                            void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    const Labor0 labor = {variates, stream_number, fanout, graph.indices};
    return count_or_filter(rows, labor, fanout, counts, EmitEdges{indptr, edge_id}, stream);)
}

}  // extern "C"
