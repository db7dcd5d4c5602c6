// Rows between the memories of devices: packed to be sent, or read where another device has them.
//
// All are bound by memory, those of other devices by what connects them: a row crosses once, in pieces of up to 16
// bytes, and a thread has several rows in flight, as answers from another device take long.
#include "indexed.cuh"

namespace cohop {
namespace {

/// Rows that a thread has in flight.
constexpr int IN_FLIGHT = 4;

/// The tables of all devices, and where the rows of each begin among all rows.
struct Offered {
  cohop_offered_rows from[COHOP_MAX_TABLES];
  uint64_t start[COHOP_MAX_TABLES + 1];
  uint32_t n_tables;

  __device__ uint32_t table_of(uint64_t row) const {
    uint32_t table = 0;
    while (start[table + 1] <= row) table++;
    return table;
  }
};

/// out[order[j], :] = row j of all. A block is blockDim.x packs wide and IN_FLIGHT * blockDim.y rows high. A row that
/// is out of range is not stored.
template <int N, class S, class E>
__global__ void __launch_bounds__(BLOCK) gather_offered_kernel(Offered offered, uint64_t packs,
                                                               const uint32_t* __restrict__ order,
                                                               S* __restrict__ out, cohop_status* status) {
  const uint64_t cols = packs * N, rows = offered.start[offered.n_tables];
  const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.y * IN_FLIGHT + threadIdx.y;
  const E* from[IN_FLIGHT];
  uint64_t to[IN_FLIGHT];
  uint32_t row[IN_FLIGHT], table[IN_FLIGHT];
  bool valid[IN_FLIGHT];
#pragma unroll
  for (int u = 0; u < IN_FLIGHT; u++) {
    const uint64_t j = first + static_cast<uint64_t>(u) * blockDim.y, clamped = j < rows ? j : rows - 1;
    table[u] = offered.table_of(clamped);
    row[u] = offered.from[table[u]].rows[clamped - offered.start[table[u]]];
    to[u] = order[clamped];
  }
#pragma unroll
  for (int u = 0; u < IN_FLIGHT; u++) {
    const uint64_t j = first + static_cast<uint64_t>(u) * blockDim.y, n_table = offered.from[table[u]].n_table;
    valid[u] = j < rows && row[u] < n_table && to[u] < rows;
    if (j < rows && !valid[u] && threadIdx.x == 0) {
      const bool is_row = row[u] >= n_table;
      report(status, COHOP_ARRAY_INDEX, j, static_cast<int64_t>(is_row ? row[u] : to[u]), is_row ? n_table : rows);
    }
    from[u] = static_cast<const E*>(offered.from[table[u]].table) + (valid[u] ? row[u] * cols : 0);
  }
  for (uint64_t pack = threadIdx.x; pack < packs; pack += blockDim.x) {
    Pack<E, N> values[IN_FLIGHT];
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (valid[u]) values[u] = load<N>(from[u] + pack * N);
    }
    finish_loads();
#pragma unroll
    for (int u = 0; u < IN_FLIGHT; u++) {
      if (valid[u]) store_widened<N>(out + to[u] * cols + pack * N, values[u]);
    }
  }
}

/// out[index[k], :] += row k of those offered. One thread per pack.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) add_offered_kernel(cohop_offered_rows from, uint64_t packs,
                                                            const uint32_t* __restrict__ index, uint64_t n_out,
                                                            S* __restrict__ out, cohop_status* status) {
  const uint64_t cols = packs * N;
  for (uint64_t i = grid_thread(); i < from.n_rows * packs; i += grid_threads()) {
    const uint64_t k = i / packs, pack = i % packs;
    const uint64_t row = from.rows ? from.rows[k] : k;
    const uint32_t to = index[k];
    if (row >= from.n_table || to >= n_out) {
      const bool is_row = row >= from.n_table;
      const int64_t value = static_cast<int64_t>(is_row ? row : to);
      if (pack == 0) report(status, COHOP_ARRAY_INDEX, k, value, is_row ? from.n_table : n_out);
      continue;
    }
    const Pack<S, N> added = load<N>(static_cast<const S*>(from.table) + row * cols + pack * N);
    S* const place = out + to * cols + pack * N;
    Pack<S, N> sum = load<N>(place);
#pragma unroll
    for (int n = 0; n < N; n++) sum.value[n] += added.value[n];
    store<N>(place, sum);
  }
}

/// out[i, :] = table[index[i], :], in words. One thread per word.
template <class Word>
__global__ void __launch_bounds__(BLOCK) pack_rows_kernel(uint64_t words, uint64_t rows,
                                                          const Word* __restrict__ table, uint64_t n_table,
                                                          const uint32_t* __restrict__ index,
                                                          Word* __restrict__ out, cohop_status* status) {
  for (uint64_t i = grid_thread(); i < rows * words; i += grid_threads()) {
    const uint64_t row = i / words, word = i % words;
    const uint32_t from = index[row];
    if (from < n_table) {
      out[i] = table[from * words + word];
    } else if (word == 0) {
      report(status, COHOP_ARRAY_INDEX, row, from, n_table);
    }
  }
}

template <class T>
bool rows_are_aligned(const T* table, uint64_t cols, int n) {
  return cols % n == 0 && is_aligned(table, n * sizeof(T));
}

template <int N, class S, class E>
int32_t gather_offered(const Offered& offered, uint64_t cols, const uint32_t* order, S* out, cohop_status* status,
                       void* stream) {
  if constexpr (N > 1) {
    bool fits = is_aligned(out, N < PACK<S> ? N * sizeof(S) : 16);
    for (uint32_t t = 0; t < offered.n_tables; t++) {
      fits = fits && rows_are_aligned(static_cast<const E*>(offered.from[t].table), cols, N);
    }
    if (!fits) return gather_offered<N / 2, S, E>(offered, cols, order, out, status, stream);
  }
  const uint64_t packs = cols / N, rows = offered.start[offered.n_tables];
  const unsigned width = static_cast<unsigned>(packs < BLOCK ? packs : BLOCK), height = BLOCK / width;
  const uint64_t blocks = (rows + height * IN_FLIGHT - 1) / (height * IN_FLIGHT);
  COHOP_LAUNCH((gather_offered_kernel<N, S, E>), grid_of(blocks), dim3(width, height), 0, stream, offered, packs, order,
               out, status);
  return cohop_last_error();
}

template <int N, class S>
int32_t add_offered(const cohop_offered_rows& from, uint64_t cols, const uint32_t* index, uint64_t n_out, S* out,
                    cohop_status* status, void* stream) {
  const uint64_t packs = cols / N;
  COHOP_LAUNCH((add_offered_kernel<N, S>), grid_for(from.n_rows * packs), BLOCK, 0, stream, from, packs, index, n_out,
               out, status);
  return cohop_last_error();
}

template <class Word>
int32_t pack_rows(uint64_t row_bytes, uint64_t rows, const void* table, uint64_t n_table, const uint32_t* index,
                  void* out, cohop_status* status, void* stream) {
  const uint64_t words = row_bytes / sizeof(Word);
  COHOP_LAUNCH((pack_rows_kernel<Word>), grid_for(rows * words), BLOCK, 0, stream, words, rows,
               static_cast<const Word*>(table), n_table, index, static_cast<Word*>(out), status);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_gather_offered(cohop_dtype scalar, cohop_dtype element, uint64_t cols, const cohop_offered_rows* from,
                             uint32_t n_tables, const uint32_t* order, void* out, cohop_status* status,
                             void* stream) {
  COHOP_LAUNCHER(
    if (n_tables > COHOP_MAX_TABLES) return COHOP_ERROR_INVALID;
    Offered offered = {};
    offered.n_tables = n_tables;
    for (uint32_t t = 0; t < n_tables; t++) {
      offered.from[t] = from[t];
      offered.start[t + 1] = offered.start[t] + from[t].n_rows;
    }
    if (cols == 0 || offered.start[n_tables] == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return with_element(element, [&](auto narrow) {
        using E = decltype(narrow);
        return gather_offered<PACK<E>, S, E>(offered, cols, order, static_cast<S*>(out), status, stream);
      });
    });)
}

int32_t cohop_add_offered(cohop_dtype scalar, uint64_t cols, const cohop_offered_rows* from, const uint32_t* index,
                          uint64_t n_out, void* out, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (cols == 0 || from->n_rows == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      S* const sums = static_cast<S*>(out);
      return packs<S>(cols, from->table, out) ? add_offered<PACK<S>>(*from, cols, index, n_out, sums, status, stream)
                                              : add_offered<1>(*from, cols, index, n_out, sums, status, stream);
    });)
}

int32_t cohop_pack_rows(uint64_t row_bytes, uint64_t rows, const void* table, uint64_t n_table, const uint32_t* index,
                        void* out, cohop_status* status, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0 || row_bytes == 0) return 0;
    const uintptr_t all = reinterpret_cast<uintptr_t>(table) | reinterpret_cast<uintptr_t>(out) | row_bytes;
    if (all % 16 == 0) return pack_rows<Pack<uint32_t, 4>>(row_bytes, rows, table, n_table, index, out, status, stream);
    if (all % 4 == 0) return pack_rows<uint32_t>(row_bytes, rows, table, n_table, index, out, status, stream);
    return pack_rows<uint16_t>(row_bytes, rows, table, n_table, index, out, status, stream);)
}

}  // extern "C"
