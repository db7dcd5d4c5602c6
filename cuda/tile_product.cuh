// Dense products a b, one tile of the result per block, for operands whose rows may be anywhere.
//
// The inner dimension is processed in steps of TILE_DEPTH: while the threads multiply one step's operands, which are in
// shared memory, the next step's are being loaded into registers; with two buffers one barrier per step is enough. A
// thread has ROW_RUN x COLUMN_RUN results in registers, and for each value of the inner dimension reads ROW_RUN and
// COLUMN_RUN operands in 16-byte words. Sums run in the inner dimension's order: the same result on every run.
#pragma once
#include "scalar.cuh"

namespace cohop {

constexpr int TILE_DEPTH = 16;

/// A tile's extents: 16 x 16 threads.
template <class S>
struct Tile {
  static constexpr int ROW_RUN = sizeof(S) == 4 ? 8 : 4, COLUMN_RUN = 4;
  static constexpr int ROWS = 16 * ROW_RUN, COLUMNS = 16 * COLUMN_RUN;
  static_assert(BLOCK == 256, "a thread for each run of results");

  /// Where a thread's results are in the tile.
  __device__ static int row() { return threadIdx.x / 16 * ROW_RUN; }
  __device__ static int column() { return threadIdx.x % 16 * COLUMN_RUN; }
};

/// An operand that is contiguous along the inner dimension: a thread loads part of one line. N values at a time.
template <class S, int WIDTH, int N>
struct InnerLines {
  static constexpr int COUNT = WIDTH * TILE_DEPTH / BLOCK;
  const S* line;   // the thread's, number threadIdx.x % WIDTH of the tile; null beyond the operand's edge
  S factor;        // of that line
  uint64_t inner;  // elements of a line
  Pack<S, N> values[COUNT / N];

  __device__ __forceinline__ void fetch(uint64_t from) {
    from += threadIdx.x / WIDTH * COUNT;
#pragma unroll
    for (int j = 0; j < COUNT / N; j++) {
      values[j] = {};
      if (line && from + j * N < inner) values[j] = load<N>(line + from + j * N);
    }
  }
  __device__ __forceinline__ void put(S* tile) const {
    tile += threadIdx.x / WIDTH * COUNT * WIDTH + threadIdx.x % WIDTH;
#pragma unroll
    for (int i = 0; i < COUNT; i++) tile[i * WIDTH] = factor * values[i / N].value[i % N];
  }
};

/// An operand that is contiguous across the inner dimension, which counts its lines.
template <class S, int WIDTH, int N>
struct OuterLines {
  static constexpr int COUNT = WIDTH * TILE_DEPTH / BLOCK, LOADS = WIDTH / N;
  const S* x;
  const uint32_t* index;  // of a line; null: its own number
  const S* factor;        // of a line; null: 1
  uint32_t first;         // number of the first line
  uint32_t inner;         // lines
  uint64_t cols;          // elements of a line
  uint64_t column;        // of the tile's edge
  Pack<S, N> values[COUNT / N];

  __device__ __forceinline__ void fetch(uint64_t from) {
#pragma unroll
    for (int j = 0; j < COUNT / N; j++) {
      const int slot = threadIdx.x + j * BLOCK;
      const uint32_t line = static_cast<uint32_t>(from) + slot / LOADS;
      const uint64_t at = column + slot % LOADS * N;
      values[j] = {};
      if (line < inner && at < cols) {
        const uint32_t number = first + line;
        values[j] = load<N>(x + static_cast<uint64_t>(index ? index[number] : number) * cols + at);
        if (factor) {
#pragma unroll
          for (int k = 0; k < N; k++) values[j].value[k] *= factor[number];
        }
      }
    }
  }
  __device__ __forceinline__ void put(S* tile) const {
#pragma unroll
    for (int j = 0; j < COUNT / N; j++) store<N>(tile + (threadIdx.x + j * BLOCK) * N, values[j]);
  }
};

/// sum += a b over the inner dimension. All threads of the block call it, once.
template <class S, class A, class B>
__device__ __forceinline__ void multiply_tile(uint64_t inner, A a, B b,
                                              S (&sum)[Tile<S>::ROW_RUN][Tile<S>::COLUMN_RUN]) {
  constexpr int ROWS = Tile<S>::ROWS, COLUMNS = Tile<S>::COLUMNS, N = PACK<S>;
  constexpr int ROW_RUN = Tile<S>::ROW_RUN, COLUMN_RUN = Tile<S>::COLUMN_RUN;
  using Word = Pack<S, N>;  // for the alignment
  COHOP_SHARED(Word, a_words, [2][TILE_DEPTH * ROWS / N]);
  COHOP_SHARED(Word, b_words, [2][TILE_DEPTH * COLUMNS / N]);
  const auto put = [&](int buffer) {
    a.put(a_words[buffer]->value);
    b.put(b_words[buffer]->value);
    __syncthreads();
  };
  a.fetch(0);
  b.fetch(0);
  int buffer = 0;
  put(buffer);
  for (uint64_t from = 0; from < inner; from += TILE_DEPTH) {
    const bool has_next = from + TILE_DEPTH < inner;
    if (has_next) {
      a.fetch(from + TILE_DEPTH);
      b.fetch(from + TILE_DEPTH);
    }
#pragma unroll
    for (int depth = 0; depth < TILE_DEPTH; depth++) {
      Word left[ROW_RUN / N], right[COLUMN_RUN / N];
#pragma unroll
      for (int i = 0; i < ROW_RUN / N; i++) left[i] = a_words[buffer][(depth * ROWS + Tile<S>::row()) / N + i];
#pragma unroll
      for (int j = 0; j < COLUMN_RUN / N; j++)
        right[j] = b_words[buffer][(depth * COLUMNS + Tile<S>::column()) / N + j];
#pragma unroll
      for (int i = 0; i < ROW_RUN; i++) {
#pragma unroll
        for (int j = 0; j < COLUMN_RUN; j++) {
          sum[i][j] = multiply_add(left[i / N].value[i % N], right[j / N].value[j % N], sum[i][j]);
        }
      }
    }
    if (has_next) put(buffer ^= 1);
  }
}

/// Writes a thread's results, except those beyond the last row or column; `out` is the tile's first element.
template <class S>
__device__ __forceinline__ void write_tile(const S (&sum)[Tile<S>::ROW_RUN][Tile<S>::COLUMN_RUN], uint64_t rows,
                                           uint64_t columns, uint64_t stride, S* out) {
  constexpr int N = PACK<S>;
  const bool is_packed = stride % N == 0 && reinterpret_cast<uintptr_t>(out) % 16 == 0;
#pragma unroll
  for (int i = 0; i < Tile<S>::ROW_RUN; i++) {
    const uint64_t row = Tile<S>::row() + i;
    if (row >= rows) break;
    S* to = out + row * stride + Tile<S>::column();
#pragma unroll
    for (int j = 0; j < Tile<S>::COLUMN_RUN; j += N) {
      const uint64_t column = Tile<S>::column() + j;
      if (is_packed) {
        Pack<S, N> values;
#pragma unroll
        for (int k = 0; k < N; k++) values.value[k] = sum[i][j + k];
        if (column < columns) store<N>(to + j, values);
      } else {
#pragma unroll
        for (int k = 0; k < N; k++) {
          if (column + k < columns) to[j + k] = sum[i][j + k];
        }
      }
    }
  }
}

}  // namespace cohop
