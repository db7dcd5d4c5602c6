// Uniform subsets of rows by Floyd's algorithm: for j = d - k .. d - 1 a place drawn from 0 ..= j, or j itself if that
// place is taken already.
//
// A place that draw i finds is taken iff an earlier draw found it too, or if it is some j of an earlier draw that found
// its own place taken: a chain of draws to follow, instead of a set to search one draw after the other.
#include "keyed.cuh"
#include "rng.cuh"

namespace cohop {
namespace {

/// Draw number `number` of a vertex, below n.
__device__ __forceinline__ uint32_t draw_place(const cohop_variates& variates, uint32_t layer, uint32_t vertex,
                                               uint32_t number, uint32_t n) {
  const uint64_t draws = stream_of(Purpose::SUBSET, layer), group = vertex | static_cast<uint64_t>(number / 4) << 32;
  const uint64_t seed = seed_of(variates, draws, group, number % 4);
  const uint32_t word = word_of(block(seed, draws, group), number % 4);
  const uint64_t product = static_cast<uint64_t>(word) * n;
  const uint32_t low = static_cast<uint32_t>(product);
  if (low >= n || low >= (0u - n) % n) return static_cast<uint32_t>(product >> 32);
  const uint64_t counter = vertex | static_cast<uint64_t>(number) << 32;
  return static_cast<uint32_t>(bounded(seed, stream_of(Purpose::SUBSET_AGAIN, layer), counter, n));
}

/// WIDTH lanes per row, ITEMS draws per lane: a fanout of at most WIDTH * ITEMS, all of it in registers. Each draw is
/// compared with each by shuffles, to find earlier draws of the same place and the number of smaller places.
template <int WIDTH, int ITEMS>
__global__ void __launch_bounds__(BLOCK) subset_kernel(cohop_rows rows, const uint32_t* __restrict__ indptr,
                                                       cohop_variates variates, uint32_t layer, uint32_t fanout,
                                                       uint64_t* __restrict__ edge_id) {
  const uint32_t lane = threadIdx.x % WIDTH;
  const unsigned group = WIDTH == 32 ? FULL : ((1u << (WIDTH % 32)) - 1) << (threadIdx.x % 32 / WIDTH * WIDTH);
  for (uint64_t row = grid_thread() / WIDTH; row < rows.n; row += grid_threads() / WIDTH) {
    const uint64_t start = rows.start[row];
    uint64_t* out = edge_id + indptr[row];
    const uint32_t degree = rows.degree[row];
    if (degree <= fanout) {
      for (uint32_t place = lane; place < degree; place += WIDTH) out[place] = start + place;
      continue;
    }
    const uint32_t vertex = rows.vertex[row], first_last = degree - fanout;
    uint32_t place[ITEMS], rank[ITEMS];
    bool taken[ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
      const uint32_t number = item * WIDTH + lane;
      place[item] = number < fanout ? draw_place(variates, layer, vertex, number, first_last + number + 1) : NONE;
      taken[item] = false;
      rank[item] = 0;
    }
#pragma unroll
    for (int other_item = 0; other_item < ITEMS; other_item++) {
      for (uint32_t from = 0; from < WIDTH; from++) {
        const uint32_t other = __shfl_sync(group, place[other_item], from, WIDTH);
#pragma unroll
        for (int item = 0; item < ITEMS; item++) {
          if (other == place[item] && other_item * WIDTH + from < item * WIDTH + lane) taken[item] = true;
        }
      }
    }
    // Along the chains: in each round, a draw whose place is the j of an earlier draw looks up whether that draw found
    // its own place taken.
    for (;;) {
      unsigned all_taken[ITEMS];
      bool changed = false;
#pragma unroll
      for (int item = 0; item < ITEMS; item++)
        all_taken[item] = __ballot_sync(group, taken[item]) >> (threadIdx.x % 32 / WIDTH * WIDTH);
#pragma unroll
      for (int item = 0; item < ITEMS; item++) {
        const uint32_t number = item * WIDTH + lane, asked = place[item] - first_last;
        if (taken[item] || number >= fanout || place[item] < first_last || asked >= number) continue;
        bool answer = false;
#pragma unroll
        for (int other_item = 0; other_item < ITEMS; other_item++) {
          if (asked / WIDTH == static_cast<uint32_t>(other_item)) answer = all_taken[other_item] >> asked % WIDTH & 1;
        }
        if (answer) taken[item] = changed = true;
      }
      if (!__any_sync(group, changed)) break;
    }
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
      if (taken[item] && item * WIDTH + lane < fanout) place[item] = first_last + item * WIDTH + lane;
    }
#pragma unroll
    for (int other_item = 0; other_item < ITEMS; other_item++) {
      for (uint32_t from = 0; from < WIDTH; from++) {
        const uint32_t other = __shfl_sync(group, place[other_item], from, WIDTH);
#pragma unroll
        for (int item = 0; item < ITEMS; item++) rank[item] += other < place[item];
      }
    }
#pragma unroll
    for (int item = 0; item < ITEMS; item++) {
      if (item * WIDTH + lane < fanout) out[rank[item]] = start + place[item];
    }
  }
}

template <int WIDTH, int ITEMS>
int32_t launch_subset(const cohop_rows& rows, const uint32_t* indptr, cohop_variates variates, uint32_t layer,
                      uint32_t fanout, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCH((subset_kernel<WIDTH, ITEMS>), grid_for(rows.n * WIDTH), BLOCK, 0, stream, rows, indptr, variates, layer,
               fanout, edge_id);
  return cohop_last_error();
}

/// One thread per edge: its row and the place that it draws there, or its own place in a row that is kept whole.
__global__ void __launch_bounds__(BLOCK) draw_kernel(cohop_rows rows, const uint32_t* __restrict__ indptr,
                                                     uint64_t n_edge, cohop_variates variates, uint32_t layer,
                                                     uint64_t fanout, uint32_t place_bits, uint64_t* __restrict__ key) {
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint64_t row = row_of(indptr, rows.n, e);
    const uint32_t degree = rows.degree[row], number = static_cast<uint32_t>(e - indptr[row]);
    const uint32_t place =
        degree <= fanout
            ? number
            : draw_place(variates, layer, rows.vertex[row], number,
                         degree - static_cast<uint32_t>(fanout) + number + 1);
    key[e] = row << place_bits | place;
  }
}

/// One thread per sorted draw: whether the draw before it found the same place. The sort is stable, so that draw came
/// earlier.
__global__ void __launch_bounds__(BLOCK) repeated_kernel(uint64_t n_edge, const uint64_t* __restrict__ sorted,
                                                         const uint32_t* __restrict__ order,
                                                         uint8_t* __restrict__ repeated) {
  for (uint64_t i = grid_thread(); i < n_edge; i += grid_threads())
    repeated[order[i]] = i > 0 && sorted[i] == sorted[i - 1];
}

/// One thread per edge: follows its chain, whose length grows with the logarithm of the fanout.
__global__ void __launch_bounds__(BLOCK) resolve_kernel(cohop_rows rows, const uint32_t* __restrict__ indptr,
                                                        uint64_t n_edge, uint64_t fanout, uint32_t place_bits,
                                                        const uint64_t* __restrict__ key,
                                                        const uint8_t* __restrict__ repeated,
                                                        uint64_t* __restrict__ resolved) {
  const uint64_t place_mask = (uint64_t(1) << place_bits) - 1;
  for (uint64_t e = grid_thread(); e < n_edge; e += grid_threads()) {
    const uint64_t own = key[e], row = own >> place_bits, first = indptr[row];
    const uint32_t degree = rows.degree[row];
    uint64_t result = own;
    if (degree > fanout) {
      const uint64_t first_last = degree - fanout;
      for (uint64_t number = e - first;;) {
        if (repeated[first + number]) {
          result = row << place_bits | (first_last + (e - first));
          break;
        }
        const uint64_t place = key[first + number] & place_mask;
        if (place < first_last || place - first_last >= number) break;
        number = place - first_last;
      }
    }
    resolved[e] = result;
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sample_subset(cohop_rows rows, const uint32_t* indptr, cohop_variates variates, uint32_t layer,
                            uint64_t fanout, uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (rows.n == 0 || fanout == 0) return 0;
    if (fanout > COHOP_SUBSET_MAX_FANOUT) return COHOP_ERROR_INVALID;
    const uint32_t k = static_cast<uint32_t>(fanout);
    if (k <= 4) return launch_subset<4, 1>(rows, indptr, variates, layer, k, edge_id, stream);
    if (k <= 8) return launch_subset<8, 1>(rows, indptr, variates, layer, k, edge_id, stream);
    if (k <= 16) return launch_subset<16, 1>(rows, indptr, variates, layer, k, edge_id, stream);
    if (k <= 32) return launch_subset<32, 1>(rows, indptr, variates, layer, k, edge_id, stream);
    if (k <= 64) return launch_subset<32, 2>(rows, indptr, variates, layer, k, edge_id, stream);
    return launch_subset<32, 4>(rows, indptr, variates, layer, k, edge_id, stream);)
}

uint64_t cohop_sample_sort_bytes(uint64_t n_edge) { return sort_bytes<uint64_t>(n_edge); }

int32_t cohop_sample_subset_sorted(cohop_rows rows, const uint32_t* indptr, uint64_t n_edge,
                                   cohop_variates variates, uint32_t layer, uint64_t fanout, uint32_t place_bits,
                                   uint64_t* key, uint64_t* sorted, uint32_t* order, uint8_t* repeated, void* scratch,
                                   uint64_t* edge_id, void* stream) {
  COHOP_LAUNCHER(
    if (n_edge == 0) return 0;
    const unsigned grid = grid_for(n_edge);
    COHOP_LAUNCH(draw_kernel, grid, BLOCK, 0, stream, rows, indptr, n_edge, variates, layer, fanout, place_bits, key);
    int32_t code = sort_keys(rows, n_edge, place_bits, key, sorted, order, scratch, stream);
    if (code != 0) return code;
    COHOP_LAUNCH(repeated_kernel, grid, BLOCK, 0, stream, n_edge, sorted, order, repeated);
    // `sorted` is no longer needed and takes the resolved places; after that `key` takes them in order.
    COHOP_LAUNCH(resolve_kernel, grid, BLOCK, 0, stream, rows, indptr, n_edge, fanout, place_bits, key, repeated,
                 sorted);
    code = sort_keys(rows, n_edge, place_bits, sorted, key, order, scratch, stream);
    if (code != 0) return code;
    return launch_keyed_edges(rows, n_edge, place_bits, key, edge_id, stream);)
}

}  // extern "C"
