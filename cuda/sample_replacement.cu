// Draws of a row's edges with replacement: uniform, or in proportion to their weights.
//
// A draw by weight is the first edge that lifts the row's running sum of weights above u times their sum. The sums are
// added up in row order, as on the CPU; only every 32nd is kept, and the search for a draw begins at one of these.
#include "keyed.cuh"
#include "team.cuh"

namespace cohop {
namespace {

/// One warp per row: its running sum after every 32 edges, the whole sum, and the last edge that lifted it.
__global__ void __launch_bounds__(BLOCK) running_sums_kernel(cohop_graph graph, cohop_rows rows,
                                                             const uint64_t* __restrict__ word_offsets,
                                                             double* __restrict__ running, double* __restrict__ row_sum,
                                                             uint32_t* __restrict__ row_last) {
  COHOP_SHARED(OrderedMemory, memories, [BLOCK / 32]);
  OrderedMemory& memory = memories[threadIdx.x / 32];
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t row = grid_thread() / 32; row < rows.n; row += grid_threads() / 32) {
    const uint64_t start = rows.start[row], words = word_offsets[row];
    const uint32_t degree = rows.degree[row];
    double sum = 0.0;
    uint32_t last = 0;
    in_order(
        degree, memory, [&](uint32_t place) { return static_cast<double>(graph.edge_weight[start + place]); },
        [&](uint32_t place, double weight) {
          const double next = sum + weight;
          if (next != sum) last = place;
          sum = next;
          if (place % 32 == 31 || place + 1 == degree) running[words + place / 32] = sum;
        });
    if (lane == 0) {
      row_sum[row] = sum;
      row_last[row] = last;
    }
    __syncwarp();  // before the next row's terms
  }
}

/// One thread per draw.
__global__ void __launch_bounds__(BLOCK) draws_kernel(cohop_graph graph, cohop_rows rows,
                                                      const uint32_t* __restrict__ indptr, uint64_t n_edge,
                                                      cohop_variates variates, uint64_t stream,
                                                      const uint64_t* __restrict__ word_offsets,
                                                      const double* __restrict__ running,
                                                      const double* __restrict__ row_sum,
                                                      const uint32_t* __restrict__ row_last,
                                                      uint64_t* __restrict__ edge_id) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint64_t row = row_of(indptr, rows.n, e), start = rows.start[row];
    const uint64_t counter = rows.vertex[row] | (e - indptr[row]) << 32;
    const uint64_t seed = seed_of(variates, stream, counter);
    if (!running) {
      edge_id[e] = start + bounded(seed, stream, counter, rows.degree[row]);
      continue;
    }
    const double target = uniform(seed, stream, counter) * row_sum[row];
    const double* sums = running + word_offsets[row];
    const uint64_t n_words = word_offsets[row + 1] - word_offsets[row];
    uint64_t low = 0, high = n_words;  // the first word after which the sum is above the target
    while (low < high) {
      const uint64_t middle = (low + high) / 2;
      if (sums[middle] <= target) low = middle + 1; else high = middle;
    }
    uint64_t place = row_last[row];  // a product that rounded up to the whole sum belongs to the last that lifted it
    if (low < n_words) {
      double sum = low > 0 ? sums[low - 1] : 0.0;
      for (place = low * 32; (sum += static_cast<double>(graph.edge_weight[start + place])) <= target;) place++;
    }
    edge_id[e] = start + place;
  }
}

/// One warp per row of at most 32 edges: the place of each is the number of smaller ones and equal ones before it.
__global__ void __launch_bounds__(BLOCK) sort_rows_kernel(uint64_t n, const uint32_t* __restrict__ indptr,
                                                          uint64_t* edge_id) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t row = grid_thread() / 32; row < n; row += grid_threads() / 32) {
    const uint32_t length = indptr[row + 1] - indptr[row];
    uint64_t* edges = edge_id + indptr[row];
    const uint64_t own = lane < length ? edges[lane] : EMPTY;
    uint32_t rank = 0;
    for (uint32_t from = 0; from < length; from++) {
      const uint64_t other = __shfl_sync(FULL, own, from);
      rank += other < own || (other == own && from < lane);
    }
    __syncwarp();  // before what other lanes have read is overwritten: a shuffle orders no accesses
    if (lane < length) edges[rank] = own;
  }
}

/// One thread per edge. Within a row the key is the place and not the edge's id, so that fewer bits are sorted.
__global__ void __launch_bounds__(BLOCK) keys_kernel(cohop_rows rows, const uint32_t* __restrict__ indptr,
                                                     uint64_t n_edge, uint32_t place_bits,
                                                     const uint64_t* __restrict__ edge_id, uint64_t* __restrict__ key) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint64_t row = row_of(indptr, rows.n, e);
    key[e] = row << place_bits | (edge_id[e] - rows.start[row]);
  }
}

/// A team counts the edges of positive weight; finite weights that are not negative have a sum of 0 only if all are 0.
template <int THREADS>
__global__ void __launch_bounds__(BLOCK) count_weighted_kernel(cohop_graph graph, cohop_rows rows, uint64_t fanout,
                                                               bool draws, uint64_t* __restrict__ counts) {
  COHOP_SHARED(unsigned, part, [2 * (BLOCK / 32)]);
  Team<THREADS> team(part);
  for_rows<THREADS>(rows, [&](const Row& row) {
    uint32_t own = 0;
    for (uint32_t place = team.rank(); place < row.degree; place += THREADS)
      own += graph.edge_weight[row.start + place] > 0.0f;
    const uint64_t positive = team.sum(own);
    if (team.rank() == 0) counts[row.number] = positive == 0 || (!draws && positive < fanout) ? positive : fanout;
  });
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sample_count_weighted(cohop_graph graph, cohop_rows rows, uint64_t fanout, bool draws, uint64_t* counts,
                                    void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    constexpr uint64_t TOO_MANY = uint64_t(1) << 32;
    if (fanout > TOO_MANY) fanout = TOO_MANY;
    COHOP_LAUNCH((count_weighted_kernel<32>), grid_of_teams<32>(rows.n), BLOCK, 0, stream, graph, rows, fanout, draws,
                 counts);
    COHOP_LAUNCH((count_weighted_kernel<BLOCK>), grid_of_teams<BLOCK>(rows.n), BLOCK, 0, stream, graph, rows, fanout,
                 draws, counts);
    return cohop_last_error();)
}

int32_t cohop_sample_running_sums(cohop_graph graph, cohop_rows rows, const uint64_t* word_offsets, double* running,
                                  double* row_sum, uint32_t* row_last, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0) return 0;
    COHOP_LAUNCH(running_sums_kernel, grid_for(rows.n * 32), BLOCK, 0, stream, graph, rows, word_offsets, running,
                 row_sum, row_last);
    return cohop_last_error();)
}

int32_t cohop_sample_draws(cohop_graph graph, cohop_rows rows, const uint32_t* indptr, uint64_t n_edge,
                           cohop_variates variates, uint32_t layer, const uint64_t* word_offsets, const double* running,
                           const double* row_sum, const uint32_t* row_last, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0) return 0;
    const uint64_t draws = static_cast<uint64_t>(Purpose::REPLACEMENT) << 32 | layer;
    COHOP_LAUNCH(draws_kernel, grid_for(n_edge), BLOCK, 0, stream, graph, rows, indptr, n_edge, variates, draws,
                 word_offsets, running, row_sum, row_last, edge_id);
    return cohop_last_error();)
}

int32_t cohop_sample_sort_rows(uint64_t n, const uint32_t* indptr, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    COHOP_LAUNCH(sort_rows_kernel, grid_for(n * 32), BLOCK, 0, stream, n, indptr, edge_id);
    return cohop_last_error();)
}

int32_t cohop_sample_sort_long_rows(cohop_rows rows, const uint32_t* indptr, uint64_t n_edge, uint32_t place_bits,
                                    uint64_t* key, uint64_t* sorted, uint32_t* order, void* scratch, uint64_t* edge_id,
                                    void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0) return 0;
    COHOP_LAUNCH(keys_kernel, grid_for(n_edge), BLOCK, 0, stream, rows, indptr, n_edge, place_bits, edge_id, key);
    const int32_t code = sort_keys(rows, n_edge, place_bits, key, sorted, order, scratch, stream);
    if (code != 0) return code;
    return launch_keyed_edges(rows, n_edge, place_bits, sorted, edge_id, stream);)
}

}  // extern "C"
