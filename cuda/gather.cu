// Rows of a table by index, and the reverse.
//
// Both are bound by memory. A gather reads each row once, in pieces of up to 16 bytes, and writes it once; it also
// reads tables in the host's memory, across the bus. A scatter sorts the indices, so that rows that are added to the
// same row are neighbours; it reads one row of x per index, and reads and writes one row of out per distinct index.
#include "indexed.cuh"
#include "scratch.h"
#include "sort.h"

namespace cohop {
namespace {

/// Rows that a thread has in flight.
constexpr int IN_FLIGHT = 4;

/// out[i, :] = table[index[i], :]. A block is blockDim.x packs wide and IN_FLIGHT * blockDim.y rows high.
///
/// All loads are issued before anything is done about indices out of range: a row is loaded whether its index is valid
/// or not (the first instead), and not stored. So n_table must not be 0.
template <int N, class S, class E>
__global__ void __launch_bounds__(BLOCK) gather_kernel(uint64_t rows, uint64_t packs, const E* table,
                                                       uint64_t n_table, const uint32_t* __restrict__ index,
                                                       S* __restrict__ out, cohop_status* status) {
  const uint64_t cols = packs * N;
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.y * IN_FLIGHT + threadIdx.y;
  uint64_t from[IN_FLIGHT];
  bool valid[IN_FLIGHT];
#pragma unroll
  for (int u = 0; u < IN_FLIGHT; u++) {
    const uint64_t i = first + static_cast<uint64_t>(u) * blockDim.y;
    from[u] = index[i < rows ? i : rows - 1];
  }
#pragma unroll
  for (int u = 0; u < IN_FLIGHT; u++) {
    const uint64_t i = first + static_cast<uint64_t>(u) * blockDim.y;
    valid[u] = i < rows && from[u] < n_table;
    if (i < rows && !valid[u] && threadIdx.x == 0) report(status, COHOP_ARRAY_INDEX, i, from[u], n_table);
    if (!valid[u]) from[u] = 0;
  }
  for (uint64_t pack = threadIdx.x; pack < packs; pack += blockDim.x) {
    Pack<E, N> values[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) values[u] = load<N>(table + from[u] * cols + pack * N);
    finish_loads();
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      const uint64_t i = first + static_cast<uint64_t>(u) * blockDim.y;
      if (valid[u]) store_widened<N>(out + i * cols + pack * N, values[u]);
    }
  }
}

/// out[i] = index[i], which is reported where it is out of range.
__global__ void __launch_bounds__(BLOCK) narrow_index_kernel(uint64_t n, const uint64_t* __restrict__ index,
                                                             uint64_t limit, uint32_t* __restrict__ out,
                                                             cohop_status* status) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) {
    const uint64_t value = index[i], most = 0x7fffffffffffffffu;
    if (value >= limit) report(status, COHOP_ARRAY_INDEX, i, static_cast<int64_t>(value < most ? value : most), limit);
    out[i] = static_cast<uint32_t>(value);
  }
}

/// Gathers with the widest packs, of N elements or fewer, that rows are aligned to.
template <int N, class S, class E>
int32_t gather(uint64_t rows, uint64_t cols, const E* table, uint64_t n_table, const uint32_t* index, S* out,
               cohop_status* status, void* stream) {
  if constexpr (N > 1) {
    const uint64_t out_bytes = N < PACK<S> ? N * sizeof(S) : 16;
    if (cols % N != 0 || !is_aligned(table, N * sizeof(E)) || !is_aligned(out, out_bytes)) {
      return gather<N / 2>(rows, cols, table, n_table, index, out, status, stream);
    }
  }
  const uint64_t packs = cols / N;
  const unsigned width = static_cast<unsigned>(packs < BLOCK ? packs : BLOCK), height = BLOCK / width;
  const uint64_t blocks = (rows + height * IN_FLIGHT - 1) / (height * IN_FLIGHT);
  COHOP_LAUNCH((gather_kernel<N, S, E>), grid_of(blocks), dim3(width, height), 0, stream, rows, packs,
               table, n_table, index, out, status);
  return cohop_last_error();
}

/// Positions in the sorted indices that one group of lanes goes through.
constexpr uint64_t PART = 64;

/// Sorted indices, each with its row of x.
struct Sorted {
  uint64_t n;
  uint64_t n_parts;
  uint32_t limit;             // stands for indices out of range; above all others
  const uint32_t* index;      // [n]
  const uint32_t* positions;  // [n]

  /// Whether any index is out of range: those are last.
  __device__ bool has_failed() const { return index[n - 1] == limit; }
  __device__ uint64_t begin(uint64_t part) const { return part * PART; }
  __device__ uint64_t end(uint64_t part) const { return begin(part) + PART < n ? begin(part) + PART : n; }
  /// Whether a part begins with the index that the part before ends with.
  __device__ bool is_continued(uint64_t part) const {
    return part > 0 && part < n_parts && index[begin(part)] == index[begin(part) - 1];
  }
};

/// A group of lanes, its part and its lane's columns.
template <int N>
struct ScatterGroup {
  uint64_t part;
  uint64_t column;
  bool is_idle;

  __device__ ScatterGroup(const Sorted& sorted, uint64_t cols, uint32_t lanes, uint32_t tiles) {
    part = static_cast<uint64_t>(blockIdx.x / tiles) * (BLOCK / lanes) + threadIdx.x / lanes;
    column = (static_cast<uint64_t>(blockIdx.x % tiles) * lanes + threadIdx.x % lanes) * N;
    is_idle = part >= sorted.n_parts || column >= cols || sorted.has_failed();
  }
};

template <int N, class S>
__device__ __forceinline__ void add_pack(S* to, const Pack<S, N>& values) {
  Pack<S, N> sum = load<N>(static_cast<const S*>(to));
#pragma unroll
  for (int k = 0; k < N; k++) sum.value[k] += values.value[k];
  store<N>(to, sum);
}

/// A group adds the rows of its part to those of `out`. If the part before ends with the first rows' index, their sum
/// goes to sums[part] instead.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) scatter_add_kernel(Sorted sorted, uint64_t cols, uint32_t lanes,
                                                            uint32_t tiles, const S* __restrict__ x,
                                                            S* __restrict__ sums, S* __restrict__ out) {
  const ScatterGroup<N> group(sorted, cols, lanes, tiles);
  if (group.is_idle) return;
  const uint64_t begin = sorted.begin(group.part), end = sorted.end(group.part);
  S* continued = sorted.is_continued(group.part) ? sums + group.part * cols : nullptr;
  uint32_t current = sorted.index[begin];
  Pack<S, N> sum = {};
  const auto flush = [&] {
    if (continued) {
      store<N>(continued + group.column, sum);
      continued = nullptr;
    } else {
      add_pack(out + current * cols + group.column, sum);
    }
  };
  for (uint64_t first = begin; first < end; first += IN_FLIGHT) {
    // Reading beyond the end is safe: more scratch memory follows.
    const auto index = load<IN_FLIGHT>(sorted.index + first), positions = load<IN_FLIGHT>(sorted.positions + first);
    Pack<S, N> rows[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (first + u < end) rows[u] = load<N>(x + positions.value[u] * cols + group.column);
    }
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (first + u < end) {
        if (index.value[u] != current) {
          flush();
          current = index.value[u];
          sum = {};
        }
#pragma unroll
        for (int k = 0; k < N; k++) sum.value[k] += rows[u].value[k];
      }
    }
  }
  flush();
}

/// If the last index of a part goes on in later parts and begins in this one, the part's group adds their sums.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) scatter_add_continued_kernel(Sorted sorted, uint64_t cols, uint32_t lanes,
                                                                      uint32_t tiles, const S* __restrict__ sums,
                                                                      S* __restrict__ out) {
  const ScatterGroup<N> group(sorted, cols, lanes, tiles);
  if (group.is_idle || !sorted.is_continued(group.part + 1)) return;
  const uint64_t last = sorted.end(group.part) - 1;
  const uint32_t index = sorted.index[last];
  if (sorted.index[sorted.begin(group.part)] == index && sorted.is_continued(group.part)) return;
  Pack<S, N> sum = {};
  for (uint64_t part = group.part + 1; part < sorted.n_parts && sorted.index[sorted.begin(part)] == index; part++) {
    const Pack<S, N> values = load<N>(sums + part * cols + group.column);
#pragma unroll
    for (int k = 0; k < N; k++) sum.value[k] += values.value[k];
  }
  add_pack(out + index * cols + group.column, sum);
}

template <class S>
struct ScatterScratch {
  uint32_t* clamped;    // [n]
  uint32_t* index;      // [n]
  uint32_t* positions;  // [n]
  S* sums;              // [n_parts, cols]
  void* sort;
  uint64_t n_parts;
  uint64_t bytes;

  ScatterScratch(void* block, uint64_t n, uint64_t cols) : n_parts((n + PART - 1) / PART) {
    Scratch scratch(block);
    clamped = scratch.take<uint32_t>(n);
    index = scratch.take<uint32_t>(n);
    positions = scratch.take<uint32_t>(n);
    sums = scratch.take<S>(n_parts * cols);
    sort = scratch.take<unsigned char>(sort_bytes<uint32_t>(n));
    bytes = scratch.bytes();
  }
};

template <int N, class S>
int32_t launch_scatter_add(const Sorted& sorted, uint64_t cols, const S* x, S* sums, S* out, void* stream) {
  const uint64_t packs = cols / N;
  uint32_t lanes = 1;
  while (lanes < 32 && lanes < packs) lanes *= 2;
  const uint32_t tiles = static_cast<uint32_t>((packs + lanes - 1) / lanes);
  const uint64_t per_block = BLOCK / lanes;
  const unsigned blocks = grid_of((sorted.n_parts + per_block - 1) / per_block * tiles);
  COHOP_LAUNCH((scatter_add_kernel<N, S>), blocks, BLOCK, 0, stream, sorted, cols, lanes, tiles, x, sums, out);
  if (sorted.n_parts > 1) {
    COHOP_LAUNCH((scatter_add_continued_kernel<N, S>), blocks, BLOCK, 0, stream, sorted, cols, lanes, tiles,
                 static_cast<const S*>(sums), out);
  }
  return cohop_last_error();
}

template <class S>
int32_t scatter_add(uint64_t n, uint64_t cols, const S* x, const uint32_t* index, uint64_t n_out, void* scratch, S* out,
                    cohop_status* status, void* stream) {
  const ScatterScratch<S> parts(scratch, n, cols);
  const uint32_t limit = index_limit(n_out);
  COHOP_LAUNCH(clamp_index_kernel, grid_for(n), BLOCK, 0, stream, n, index, limit, parts.clamped, status);
  if (cols == 0) return cohop_last_error();
  const int32_t code = sort_pairs<uint32_t>(n, parts.clamped, nullptr, parts.index, parts.positions, 0,
                                            bits_below(static_cast<uint64_t>(limit) + 1), parts.sort, stream);
  if (code != 0) return code;
  const Sorted sorted = {n, parts.n_parts, limit, parts.index, parts.positions};
  return packs<S>(cols, x, out) ? launch_scatter_add<PACK<S>>(sorted, cols, x, parts.sums, out, stream)
                                : launch_scatter_add<1>(sorted, cols, x, parts.sums, out, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_gather(cohop_dtype scalar, cohop_dtype element, uint64_t rows, uint64_t cols, const void* table,
                     uint64_t n_table, const uint32_t* index, void* out, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0) return 0;
    // Of an empty table every index is out of range.
    if (cols == 0 || n_table == 0) {
      check_index(rows, index, n_table, status, stream);
      return cohop_last_error();
    }
    return with_scalar(scalar, [&](auto zero) {
      return with_element(element, [&](auto narrow) {
        using E = decltype(narrow);
        return gather<PACK<E>>(rows, cols, static_cast<const E*>(table), n_table, index,
                               static_cast<decltype(zero)*>(out), status, stream);
      });
    });)
}

int32_t cohop_narrow_index(uint64_t n, const uint64_t* index, uint64_t limit, uint32_t* out, cohop_status* status,
                           void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    COHOP_LAUNCH(narrow_index_kernel, grid_for(n), BLOCK, 0, stream, n, index, limit, out, status);
    return cohop_last_error();)
}

uint64_t cohop_scatter_add_bytes(cohop_dtype scalar, uint64_t rows, uint64_t cols) {
  return scalar == COHOP_F64 ? ScatterScratch<double>(nullptr, rows, cols).bytes
                             : ScatterScratch<float>(nullptr, rows, cols).bytes;
}

int32_t cohop_scatter_add(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const uint32_t* index,
                          uint64_t n_out, void* scratch, void* out, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return scatter_add(rows, cols, static_cast<const S*>(x), index, n_out, scratch, static_cast<S*>(out), status,
                         stream);
    });)
}

}  // extern "C"
