// Teams: a warp, or for hubs a whole block, that goes through a row together.
#pragma once
#include "rng.cuh"
#include "table.cuh"
#include "warp.cuh"

namespace cohop {

/// A row of the graph: a destination and its in-edges start .. start + degree.
struct Row {
  uint64_t number;
  uint64_t start;
  uint32_t degree;
};

/// THREADS threads of a block of BLOCK: 32, a warp, or all.
template <int THREADS>
struct Team {
  static constexpr int TEAMS = BLOCK / THREADS;

  /// Two flags of each thread in one number, counted over those before this thread and over all.
  struct Prefix {
    uint32_t before, total;
    __device__ static uint32_t first(uint32_t packed) { return packed & 0xffff; }
    __device__ static uint32_t second(uint32_t packed) { return packed >> 16; }
  };

  unsigned* part;      // [2, BLOCK / 32] in shared memory, for a block
  unsigned half = 0;   // which of the two the next count uses, so that one barrier per count is enough

  __device__ explicit Team(unsigned* part) : part(part) {}

  __device__ static unsigned rank() { return threadIdx.x % THREADS; }
  __device__ static unsigned number() { return threadIdx.x / THREADS; }
  __device__ static unsigned lane() { return threadIdx.x % 32; }

  __device__ static void sync() {
    if constexpr (THREADS == 32) __syncwarp(); else __syncthreads();
  }

  __device__ Prefix count(bool first, bool second) {
    const unsigned a = __ballot_sync(FULL, first), b = __ballot_sync(FULL, second), below = (1u << lane()) - 1;
    Prefix prefix = {static_cast<uint32_t>(__popc(a & below) | __popc(b & below) << 16),
                     static_cast<uint32_t>(__popc(a) | __popc(b) << 16)};
    if constexpr (THREADS > 32) {
      unsigned* counts = part + half * (BLOCK / 32);
      half ^= 1;
      const unsigned warp = threadIdx.x / 32;
      if (lane() == 0) counts[warp] = prefix.total;
      __syncthreads();
      prefix.total = 0;
#pragma unroll
      for (unsigned w = 0; w < BLOCK / 32; w++) {
        if (w < warp) prefix.before += counts[w];
        prefix.total += counts[w];
      }
    }
    return prefix;
  }

  /// The least value of the team, in every thread.
  __device__ unsigned least(unsigned value) {
    return together(__reduce_min_sync(FULL, value), [](unsigned a, unsigned b) { return a < b ? a : b; });
  }

  /// The sum over the team, in every thread.
  __device__ unsigned sum(unsigned value) {
    return together(__reduce_add_sync(FULL, value), [](unsigned a, unsigned b) { return a + b; });
  }

 private:
  /// Joins the results of the warps.
  template <class Join>
  __device__ unsigned together(unsigned value, Join join) {
    if constexpr (THREADS > 32) {
      unsigned* parts = part + half * (BLOCK / 32);
      half ^= 1;
      if (lane() == 0) parts[threadIdx.x / 32] = value;
      __syncthreads();
      value = parts[0];
#pragma unroll
      for (unsigned w = 1; w < BLOCK / 32; w++) value = join(value, parts[w]);
    }
    return value;
  }
};

/// Calls body(row) for the rows of a team: a warp takes the rows up to COHOP_HUB_DEGREE, a block the hubs.
template <int THREADS, class Body>
__device__ __forceinline__ void for_rows(const cohop_rows& rows, Body body) {
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * Team<THREADS>::TEAMS + Team<THREADS>::number();
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * Team<THREADS>::TEAMS;
  if constexpr (THREADS == 32) {
    for (uint64_t i = first; i < rows.n; i += step) {
      const uint32_t degree = rows.degree[i];
      if (degree <= COHOP_HUB_DEGREE) body(Row{i, rows.start[i], degree});
    }
  } else {
    const uint64_t n_hubs = rows.found[COHOP_FOUND_HUBS];
    for (uint64_t i = first; i < n_hubs; i += step) {
      const uint64_t row = rows.hub[i];
      body(Row{row, rows.start[row], rows.degree[row]});
    }
  }
}

/// Blocks for teams that work on n rows, of which few are hubs.
template <int THREADS>
unsigned grid_of_teams(uint64_t n) {
  const uint64_t blocks = (n + 7) / 8, most = THREADS == 32 ? MAX_BLOCKS : MAX_BLOCKS < 1024 ? 2 : 1024;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/// A warp's shared memory for sums in order: two tiles, so that one barrier per tile is enough.
struct OrderedMemory {
  double tile[2][32];
};

/// Lane 0 calls each(i, term(i)) for i = 0, 1, ... in this order. A warp calls it: all lanes calculate terms. The
/// memory may be used again after a barrier of the warp.
template <class Term, class Each>
__device__ __forceinline__ void in_order(uint32_t n, OrderedMemory& memory, Term term, Each each) {
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t base = 0, half = 0; base < n; base += 32, half ^= 1) {
    if (base + lane < n) memory.tile[half][lane] = term(base + lane);
    __syncwarp();
    if (lane == 0) {
      const uint32_t length = n - base < 32 ? n - base : 32;
      for (uint32_t i = 0; i < length; i++) each(base + i, memory.tile[half][i]);
    }
  }
}

/// The sum of term(0) + term(1) + ... in this order, by a warp, in every lane.
template <class Term>
__device__ __forceinline__ double ordered_sum(uint32_t n, OrderedMemory& memory, Term term) {
  double sum = 0.0;
  in_order(n, memory, term, [&](uint32_t, double value) { sum += value; });
  __syncwarp();  // the memory may be used again: a shuffle orders no accesses
  return __shfl_sync(FULL, sum, 0);
}

}  // namespace cohop
