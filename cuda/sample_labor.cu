// LABOR-i and LABOR-*: optimises the probabilities of the candidates, which are the sources of all in-edges of a
// layer's destinations; then picks edges by these probabilities, and calculates the estimator's weights.
//
// A candidate has a slot: its id where there are enough in-edges for arrays over all vertices, otherwise one of a hash
// table. Slots are in no particular order, and no result depends on it: maxima and sums of integers are the same in any
// order, and a row's sums run along the row.
#include "scalar.cuh"
#include "select.cuh"

namespace cohop {
namespace {

constexpr double UNIT = 4294967296.0;  // 2^32

template <class T>
__global__ void __launch_bounds__(BLOCK) fill_kernel(uint64_t n, T value, T* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = value;
}

/// Finds or makes the slot of an id.
__device__ inline uint32_t slot_of(const cohop_labor& labor, uint32_t id) {
  uint64_t at = labor.slot ? home(id, labor.n_slots) : id;
  for (;;) {
    uint32_t held = peek(&labor.id[at]);
    if (held == NONE) held = atomicCAS(&labor.id[at], NONE, id);
    if (held == NONE || held == id) return static_cast<uint32_t>(at);
    at = at + 1 == labor.n_slots ? 0 : at + 1;
  }
}

/// One thread per in-edge.
__global__ void __launch_bounds__(BLOCK) gather_kernel(cohop_graph graph, cohop_rows rows, uint64_t n_in_edges,
                                                       cohop_labor labor, cohop_status* status) {
  for (uint64_t i = grid_thread(); i < n_in_edges; i += grid_threads()) {
    const uint64_t row = row_of(labor.offsets, rows.n, i), edge = rows.start[row] + (i - labor.offsets[row]);
    uint32_t source = graph.indices[edge];
    if (source >= graph.n_vertices) {
      report(status, COHOP_ARRAY_INDEX, edge, source, graph.n_vertices);
      source = 0;
    }
    const uint32_t slot = slot_of(labor, source);
    if (labor.slot) labor.slot[i] = slot;
  }
}

/// One thread per slot: its candidate's variate and initial probability.
__global__ void __launch_bounds__(BLOCK) slots_kernel(cohop_labor labor, cohop_variates variates, uint64_t stream) {
  for (uint64_t i = grid_thread(); i < labor.n_slots; i += grid_threads()) {
    const uint32_t id = labor.id[i];
    labor.word[i] = id == NONE ? 0 : variate(variates, stream, id);
    labor.pi[i] = 1.0;
  }
}

/// The slots of a row's in-edges.
struct Candidates {
  const uint32_t* slot;
  uint64_t n_slots;
  __device__ Candidates(const cohop_graph& graph, const cohop_labor& labor, const Row& row)
      : slot(labor.slot ? labor.slot + labor.offsets[row.number] : graph.indices + row.start), n_slots(labor.n_slots) {}
  /// In a graph that was not checked, an id may be beyond the slots; gather_kernel has reported it.
  __device__ uint32_t operator[](uint32_t place) const {
    const uint32_t own = slot[place];
    return own < n_slots ? own : 0;
  }
};

/// The least c for which all min(1, c pi) are 1.
__device__ double covering_scale(const Row& row, const Candidates& candidates, const double* pi) {
  double scale = 0.0;
  for (uint32_t place = threadIdx.x % 32; place < row.degree; place += 32) {
    const double own = 1.0 / pi[candidates[place]];
    if (own > scale) scale = own;
  }
  return warp_max(scale);
}

/// The c that solves sum 1 / min(1, c pi) = d^2 / k over a row of d > k > 0 edges: with the m terms that are 1 known,
/// c is the sum of the others' 1 / pi over d^2 / k - m. Both rise from step to step, from m = 0.
__device__ double scale_of(const Row& row, const Candidates& candidates, const double* pi, double fanout,
                           OrderedMemory& memory) {
  const double degree = row.degree, target = degree * degree / fanout;
  uint32_t saturated = 0;
  double scale = 0.0;
  for (;;) {
    uint32_t now_saturated = 0;
    const double sum = ordered_sum(row.degree, memory, [&](uint32_t place) {
      const double own = pi[candidates[place]];
      if (scale * own >= 1.0) {
        now_saturated++;
        return 0.0;
      }
      return 1.0 / own;
    });
    now_saturated = warp_sum(now_saturated);
    // Rounding could let c, and so m, fall again: then the step before was the last.
    if (scale > 0.0 && now_saturated <= saturated) return scale;
    saturated = now_saturated;
    scale = sum / (target - static_cast<double>(saturated));
  }
}

/// One warp per row, for hubs too: the sums that decide run along the row.
__global__ void __launch_bounds__(BLOCK) solve_kernel(cohop_graph graph, cohop_rows rows, uint64_t fanout,
                                                      cohop_labor labor) {
  COHOP_SHARED(OrderedMemory, memories, [BLOCK / 32]);
  OrderedMemory& memory = memories[threadIdx.x / 32];
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t i = grid_thread() / 32; i < rows.n; i += grid_threads() / 32) {
    const Row row = {i, rows.start[i], rows.degree[i]};
    const Candidates candidates(graph, labor, row);
    const bool whole = row.degree <= fanout;
    const double scale = whole ? covering_scale(row, candidates, labor.pi)
                               : scale_of(row, candidates, labor.pi, static_cast<double>(fanout), memory);
    if (lane == 0) labor.scale[i] = scale;
    for (uint32_t place = lane; place < row.degree; place += 32) {
      const uint32_t slot = candidates[place];
      double probability = scale * labor.pi[slot];
      // Where all edges are kept, rounding must not leave a probability a little below 1.
      if (whole && probability < 1.0) probability = 1.0;
      // Positive numbers are in the order of their bits.
      uint64_t* largest = reinterpret_cast<uint64_t*>(&labor.largest[slot]);
      if (probability > from_bits(peek(largest))) atomic_max(largest, bits_of(probability));
    }
  }
}

/// The sum of min(1, largest), in units of 2^-32: whole numbers, in any order. A slot without a candidate has 0.
__global__ void __launch_bounds__(BLOCK) expected_kernel(cohop_labor labor, uint64_t* expected) {
  uint64_t sum = 0;
  for (uint64_t i = grid_thread(); i < labor.n_slots; i += grid_threads()) {
    const double probability = labor.largest[i];
    sum += static_cast<uint64_t>((probability < 1.0 ? probability : 1.0) * UNIT);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0 && sum > 0) atomic_add(expected, sum);
}

/// Decides whether one edge is kept.
struct Planned {
  cohop_graph graph;
  cohop_labor labor;

  __device__ double probability(const Row& row, uint32_t slot) const {
    const double probability = labor.scale[row.number] * labor.pi[slot];
    return probability < 1.0 ? probability : 1.0;
  }
  __device__ bool operator()(const Row& row, uint32_t place) const {
    const uint32_t slot = Candidates(graph, labor, row)[place];
    return static_cast<double>(labor.word[slot]) < probability(row, slot) * UNIT;
  }
};

struct PlannedKeys {
  static constexpr int BITS = 64;
  Planned planned;
  __device__ bool valid(const Row&, uint32_t) const { return true; }
  __device__ uint64_t key(const Row& row, uint32_t place) const {
    const uint32_t slot = Candidates(planned.graph, planned.labor, row)[place];
    return bits_of(static_cast<double>(planned.labor.word[slot]) / planned.probability(row, slot));
  }
};

/// One warp per row: 1 / probability of each kept edge as a share of their sum.
template <class S>
__global__ void __launch_bounds__(BLOCK) weights_kernel(cohop_rows rows, uint64_t fanout, Planned planned,
                                                        const uint32_t* __restrict__ indptr,
                                                        const uint64_t* __restrict__ edge_id, S* __restrict__ weight) {
  COHOP_SHARED(OrderedMemory, memories, [BLOCK / 32]);
  OrderedMemory& memory = memories[threadIdx.x / 32];
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t i = grid_thread() / 32; i < rows.n; i += grid_threads() / 32) {
    const Row row = {i, rows.start[i], rows.degree[i]};
    const uint64_t first = indptr[i];
    const uint32_t length = static_cast<uint32_t>(indptr[i + 1] - first);
    const Candidates candidates(planned.graph, planned.labor, row);
    const auto inverse = [&](uint32_t k) {
      return 1.0 / planned.probability(row, candidates[static_cast<uint32_t>(edge_id[first + k] - row.start)]);
    };
    const bool whole = row.degree <= fanout;
    const double sum = whole ? 0.0 : ordered_sum(length, memory, inverse);
    for (uint32_t k = lane; k < length; k += 32) {
      weight[first + k] = static_cast<S>(whole ? 1.0 / static_cast<double>(row.degree) : inverse(k) / sum);
    }
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sample_labor_gather(cohop_graph graph, cohop_rows rows, uint64_t n_in_edges, cohop_variates variates,
                                  uint64_t stream_number, cohop_labor labor, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (n_in_edges == 0) return 0;
    const unsigned grid = grid_for(labor.n_slots);
    COHOP_LAUNCH((fill_kernel<uint32_t>), grid, BLOCK, 0, stream, labor.n_slots, NONE, labor.id);
    COHOP_LAUNCH(gather_kernel, grid_for(n_in_edges), BLOCK, 0, stream, graph, rows, n_in_edges, labor, status);
    COHOP_LAUNCH(slots_kernel, grid, BLOCK, 0, stream, labor, variates, stream_number);
    return cohop_last_error();)
}

int32_t cohop_sample_labor_solve(cohop_graph graph, cohop_rows rows, uint64_t fanout, cohop_labor labor, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0 || labor.n_slots == 0) return 0;
    const unsigned grid = grid_for(labor.n_slots);
    uint64_t* expected = rows.found + COHOP_FOUND_EXPECTED;
    COHOP_LAUNCH((fill_kernel<double>), grid, BLOCK, 0, stream, labor.n_slots, 0.0, labor.largest);
    COHOP_LAUNCH((fill_kernel<uint64_t>), 1, 1, 0, stream, uint64_t(1), uint64_t(0), expected);
    COHOP_LAUNCH(solve_kernel, grid_for(rows.n * 32), BLOCK, 0, stream, graph, rows, fanout, labor);
    COHOP_LAUNCH(expected_kernel, grid, BLOCK, 0, stream, labor, expected);
    return cohop_last_error();)
}

int32_t cohop_sample_labor_poisson(cohop_graph graph, cohop_rows rows, uint64_t fanout, cohop_labor labor,
                                   uint64_t* counts, const uint32_t* indptr, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    return count_or_filter(rows, Planned{graph, labor}, fanout, counts, EmitEdges{indptr, edge_id}, stream);)
}

int32_t cohop_sample_labor_smallest(cohop_graph graph, cohop_rows rows, uint64_t fanout, cohop_labor labor,
                                    const uint32_t* indptr, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    return launch_smallest(rows, PlannedKeys{{graph, labor}}, fanout, EmitEdges{indptr, edge_id}, stream);)
}

int32_t cohop_sample_labor_weights(cohop_dtype scalar, cohop_graph graph, cohop_rows rows, uint64_t fanout,
                                   cohop_labor labor, const uint32_t* indptr, const uint64_t* edge_id, void* weight,
                                   void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((weights_kernel<S>), grid_for(rows.n * 32), BLOCK, 0, stream, rows, fanout, Planned{graph, labor},
                   indptr, edge_id, static_cast<S*>(weight));
      return cohop_last_error();
    });)
}

}  // extern "C"
