// PinSAGE's random walks: one thread per walk; then each destination's visits are sorted, and the most visited vertices
// picked.
#include "scalar.cuh"
#include "select.cuh"
#include "sort.h"

namespace cohop {
namespace {

/// One thread per walk against the in-edges. Visits of row r of this part are keys r << 32 | vertex; the vertex is NONE
/// where the walk had ended or was at its destination.
__global__ void __launch_bounds__(BLOCK) walk_kernel(cohop_graph graph, cohop_rows rows, uint64_t first_row,
                                                     uint64_t n_rows, cohop_variates variates, uint32_t layer,
                                                     uint32_t walks, uint32_t length, double restart,
                                                     uint64_t* __restrict__ key, cohop_status* status) {
  const uint64_t restarts = stream_of(Purpose::WALK_RESTART, layer), steps = stream_of(Purpose::WALK_STEP, layer);
  for (uint64_t i = grid_thread(); i < n_rows * walks; i += grid_threads()) {
    const uint64_t row = i / walks, walk = i % walks;
    const uint32_t vertex = rows.vertex[first_row + row];
    uint32_t at = vertex;
    bool ended = vertex >= graph.n_vertices;  // reported when its row was looked up
    for (uint64_t step = 0; step < length; step++) {
      uint32_t visit = NONE;
      if (!ended) {
        const uint64_t counter = vertex | (walk * length + step) << 32;
        if (uniform(seed_of(variates, restarts, counter), restarts, counter) < restart) at = vertex;
        const uint64_t start = graph.indptr[at], degree = graph.indptr[at + uint64_t(1)] - start;
        if (degree == 0) {
          ended = true;
        } else {
          const uint64_t edge = start + bounded(seed_of(variates, steps, counter), steps, counter, degree);
          at = graph.indices[edge];
          if (at >= graph.n_vertices) {
            report(status, COHOP_ARRAY_INDEX, edge, at, graph.n_vertices);
            ended = true;
          } else if (at != vertex) {
            visit = at;
          }
        }
      }
      key[i * length + step] = row << 32 | visit;
    }
  }
}

/// times[i] = how often the vertex that occurs first at i was visited; 0 elsewhere and for NONE.
__global__ void __launch_bounds__(BLOCK) times_kernel(uint64_t n_rows, uint64_t n_visits,
                                                      const uint64_t* __restrict__ sorted,
                                                      uint32_t* __restrict__ times) {
  for (uint64_t i = grid_thread(); i < n_rows * n_visits; i += grid_threads()) {
    const uint64_t own = sorted[i];
    uint64_t found = 0;
    if ((i == 0 || sorted[i - 1] != own) && static_cast<uint32_t>(own) != NONE) {
      // By doubling, then by halving: most vertices occur a few times.
      const uint64_t end = (i / n_visits + 1) * n_visits;
      uint64_t same = i, step = 1;
      while (same + step < end && sorted[same + step] == own) {
        same += step;
        step *= 2;
      }
      for (; step > 0; step /= 2) {
        if (same + step < end && sorted[same + step] == own) same += step;
      }
      found = same + 1 - i;
    }
    times[i] = static_cast<uint32_t>(found);
  }
}

/// More visits first, then the lower id.
struct VisitKeys {
  static constexpr int BITS = 64;
  const uint64_t* sorted;
  const uint32_t* times;
  __device__ bool valid(const Row& row, uint32_t place) const { return times[row.start + place] > 0; }
  __device__ uint64_t key(const Row& row, uint32_t place) const {
    return static_cast<uint64_t>(~times[row.start + place]) << 32 | static_cast<uint32_t>(sorted[row.start + place]);
  }
};

/// A team picks a destination's neighbours from its visits.
template <int THREADS>
__global__ void __launch_bounds__(BLOCK) most_visited_kernel(uint64_t first_row, uint64_t n_rows, uint32_t n_visits,
                                                             VisitKeys keys, uint64_t most,
                                                             uint32_t* __restrict__ vertex,
                                                             uint32_t* __restrict__ visits,
                                                             uint64_t* __restrict__ counts) {
  COHOP_SELECT_MEMORY(THREADS);
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * team.TEAMS;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * team.TEAMS + team.number(); i < n_rows; i += step) {
    const Row visited = {i, i * n_visits, n_visits};
    const uint64_t out = (first_row + i) * most;
    const uint32_t kept = keep_smallest<THREADS>(visited, keys, most, memory, team,
                                                 [&](const Row& row, uint32_t position, uint32_t place) {
      vertex[out + position] = static_cast<uint32_t>(keys.sorted[row.start + place]);
      visits[out + position] = keys.times[row.start + place];
    });
    if (team.rank() == 0) counts[first_row + i] = kept;
  }
}

/// One warp per row: packs its neighbours, and calculates their shares of the visits.
template <class S>
__global__ void __launch_bounds__(BLOCK) neighbors_kernel(uint64_t n, uint64_t most,
                                                          const uint32_t* __restrict__ indptr,
                                                          const uint32_t* __restrict__ vertex,
                                                          const uint32_t* __restrict__ visits,
                                                          uint32_t* __restrict__ source, S* __restrict__ weight) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint64_t row = grid_thread() / 32; row < n; row += grid_threads() / 32) {
    const uint64_t first = indptr[row], length = indptr[row + 1] - first;
    uint64_t total = 0;
    for (uint64_t k = lane; k < length; k += 32) total += visits[row * most + k];
    total = warp_sum(total);
    for (uint64_t k = lane; k < length; k += 32) {
      source[first + k] = vertex[row * most + k];
      weight[first + k] = static_cast<S>(static_cast<double>(visits[row * most + k]) / static_cast<double>(total));
    }
  }
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_sample_walks(cohop_graph graph, cohop_rows rows, uint64_t first_row, uint64_t n_rows,
                           cohop_variates variates, uint32_t layer, uint32_t walks, uint32_t length,
                           double restart, uint64_t most, uint64_t* key, uint64_t* sorted, uint32_t* times,
                           void* scratch, uint32_t* vertex, uint32_t* visits, uint64_t* counts, cohop_status* status,
                           void* stream) {
  COHOP_LAUNCHER(
    const uint64_t n_visits = static_cast<uint64_t>(walks) * length, n = n_rows * n_visits;
    if (n == 0) return 0;
    COHOP_LAUNCH(walk_kernel, grid_for(n_rows * walks), BLOCK, 0, stream, graph, rows, first_row, n_rows, variates,
                 layer, walks, length, restart, key, status);
    // `times` takes the sort's values, which are not needed.
    const int32_t code =
        sort_pairs<uint64_t>(n, key, nullptr, sorted, times, 0, 32 + bits_below(n_rows), scratch, stream);
    if (code != 0) return code;
    COHOP_LAUNCH(times_kernel, grid_for(n), BLOCK, 0, stream, n_rows, n_visits, sorted, times);
    const VisitKeys keys = {sorted, times};
    const uint32_t per_row = static_cast<uint32_t>(n_visits);
    if (n_visits <= COHOP_HUB_DEGREE) {
      COHOP_LAUNCH((most_visited_kernel<32>), grid_of_teams<32>(n_rows), BLOCK, 0, stream, first_row, n_rows, per_row,
                   keys, most, vertex, visits, counts);
    } else {
      COHOP_LAUNCH((most_visited_kernel<BLOCK>), static_cast<unsigned>(n_rows < MAX_BLOCKS ? n_rows : MAX_BLOCKS),
                   BLOCK, 0, stream, first_row, n_rows, per_row, keys, most, vertex, visits, counts);
    }
    return cohop_last_error();)
}

int32_t cohop_sample_walk_neighbors(cohop_dtype scalar, uint64_t n, uint64_t most, const uint32_t* indptr,
                                    const uint32_t* vertex, const uint32_t* visits, uint32_t* source, void* weight,
                                    void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((neighbors_kernel<S>), grid_for(n * 32), BLOCK, 0, stream, n, most, indptr, vertex, visits, source,
                   static_cast<S*>(weight));
      return cohop_last_error();
    });)
}

}  // extern "C"
