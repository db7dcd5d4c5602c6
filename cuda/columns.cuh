// Loops over rows and columns in which each thread keeps its columns: what belongs to a column is loaded once, and no
// element costs a division. Sums over rows are taken in two passes of a fixed shape: the same result on every run.
//
// A body has a member template `columns<N>(column)`, which loads what belongs to the N columns from `column` on.
#pragma once
#include "scalar.cuh"
#include "warp.cuh"

namespace cohop {
namespace {

/// Number of threads to aim for: enough to fill any device.
constexpr uint64_t COLUMN_THREADS = 1 << 18;

/// The same for loops without sums. On the emulator so few that tests reach the second round of their loops.
#if defined(__CUDACC__)
constexpr uint64_t SLOT_THREADS = COLUMN_THREADS;
#else
constexpr uint64_t SLOT_THREADS = 1 << 10;
#endif

/// The fewest rows of a part of a sum, so that the second pass stays small, and the most parts.
constexpr uint64_t MIN_PART = 32;
constexpr uint64_t MAX_PARTS = 4096;

inline unsigned blocks_for(uint64_t n_threads) { return static_cast<unsigned>((n_threads + BLOCK - 1) / BLOCK); }

/// A thread has N columns and every n_slots-th row; columns<N>() returns a function of the row.
template <int N, class Body>
__global__ void __launch_bounds__(BLOCK) for_columns_kernel(uint64_t rows, uint64_t cols, uint64_t n_slots, Body body) {
  const uint64_t packs = cols / N, thread = grid_thread(), slot = thread / packs;
  if (slot >= n_slots) return;
  const auto at_row = body.template columns<N>(thread % packs * N);
  for (uint64_t row = slot; row < rows; row += n_slots) at_row(row);
}

/// N columns a thread; `cols` is a multiple of N.
template <int N, class Body>
int32_t launch_columns(uint64_t rows, uint64_t cols, Body body, void* stream) {
  if (rows == 0 || cols == 0) return 0;
  const uint64_t packs = cols / N, most = packs < SLOT_THREADS ? SLOT_THREADS / packs : 1;
  const uint64_t n_slots = rows < most ? rows : most;
  COHOP_LAUNCH((for_columns_kernel<N, Body>), blocks_for(n_slots * packs), BLOCK, 0, stream, rows, cols, n_slots, body);
  return cohop_last_error();
}

/// `is_packed`: rows of all that the body reads and writes can be accessed 16 bytes at a time.
template <class S, class Body>
int32_t for_columns(uint64_t rows, uint64_t cols, bool is_packed, Body body, void* stream) {
  return is_packed ? launch_columns<PACK<S>>(rows, cols, body, stream) : launch_columns<1>(rows, cols, body, stream);
}

/// Parts of the rows that a sum is taken over: a function of the shape alone.
inline uint64_t sum_parts(uint64_t rows, uint64_t cols) {
  const uint64_t wanted = cols == 0 ? 1 : COLUMN_THREADS / cols;
  const uint64_t most = wanted < 64 ? 64 : wanted < MAX_PARTS ? wanted : MAX_PARTS;
  const uint64_t parts = (rows + MIN_PART - 1) / MIN_PART;
  return parts < 1 ? 1 : parts < most ? parts : most;
}

template <class S, int SUMS>
struct Outputs {
  S* out[SUMS];
};

/// A thread sums N columns over one part of the rows; columns<N>() returns a function of an element's position that
/// adds to sum[SUMS][N]. `parts`: [SUMS, cols, n_parts].
template <int N, int SUMS, class S, class Body>
__global__ void __launch_bounds__(BLOCK) sum_columns_kernel(uint64_t rows, uint64_t cols, uint64_t rows_per_part,
                                                            uint64_t n_parts, Body body, S* __restrict__ parts) {
  const uint64_t packs = cols / N, thread = grid_thread(), part = thread / packs, column = thread % packs * N;
  if (part >= n_parts) return;
  const uint64_t first = part * rows_per_part, end = first + rows_per_part < rows ? first + rows_per_part : rows;
  const auto add_at = body.template columns<N>(column);
  S sum[SUMS][N] = {};
#pragma unroll 4
  for (uint64_t row = first; row < end; row++) add_at(row * cols + column, sum);
#pragma unroll
  for (int s = 0; s < SUMS; s++) {
#pragma unroll
    for (int k = 0; k < N; k++) parts[(s * cols + column + k) * n_parts + part] = sum[s][k];
  }
}

/// A warp adds up the parts of one column.
template <int SUMS, class S>
__global__ void __launch_bounds__(BLOCK) add_parts_kernel(uint64_t cols, uint64_t n_parts, const S* __restrict__ parts,
                                                          Outputs<S, SUMS> to, bool add) {
  const uint64_t column = grid_thread() / 32, lane = threadIdx.x % 32;
  if (column >= SUMS * cols) return;
  S sum = 0;
#pragma unroll 4
  for (uint64_t part = lane; part < n_parts; part += 32) sum += parts[column * n_parts + part];
  sum = warp_sum(sum);
  // Not to.out[column / cols]: an index that is not known when compiling would move the pointers to the stack.
  S* out = to.out[0];
#pragma unroll
  for (int s = 1; s < SUMS; s++) out = column / cols == static_cast<unsigned>(s) ? to.out[s] : out;
  if (lane == 0) write(out[column % cols], sum, add);
}

/// out[s][j] (= | +=) the sum over rows of what the body adds; scratch: [SUMS, cols, sum_parts(rows, cols)] scalars.
template <int SUMS, class S, class Body>
int32_t sum_columns(uint64_t rows, uint64_t cols, bool is_packed, Body body, S* scratch, Outputs<S, SUMS> to, bool add,
                    void* stream) {
  if (cols == 0) return 0;
  const uint64_t n_parts = sum_parts(rows, cols), per_part = (rows + n_parts - 1) / n_parts;
  if (is_packed) {
    COHOP_LAUNCH((sum_columns_kernel<PACK<S>, SUMS, S, Body>), blocks_for(cols / PACK<S> * n_parts), BLOCK, 0, stream,
                 rows, cols, per_part, n_parts, body, scratch);
  } else {
    COHOP_LAUNCH((sum_columns_kernel<1, SUMS, S, Body>), blocks_for(cols * n_parts), BLOCK, 0, stream, rows, cols,
                 per_part, n_parts, body, scratch);
  }
  COHOP_LAUNCH((add_parts_kernel<SUMS, S>), blocks_for(SUMS * cols * 32), BLOCK, 0, stream, cols, n_parts,
               static_cast<const S*>(scratch), to, add);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop
