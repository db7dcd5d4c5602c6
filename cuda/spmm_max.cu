// The maximum over the entries of each row and column, where it is attained, and its gradient.
//
// Bound by memory: per entry, the maximum reads one row of x, the gradient one row of dout and one of argmax. See
// csr_rows.cuh for how the work is divided. The same result on every run. Rows of x and dout may have 16 bits, and then
// a factor each.
#include "csr_rows.cuh"

namespace cohop {
namespace {

constexpr uint32_t NO_ENTRY = 0xffffffffu;

/// A row's factor; 1 for rows of scalars, which never have one.
template <class S, class E>
__device__ __forceinline__ S factor_of(const S* factors, uint32_t row) {
  if constexpr (std::is_same_v<S, E>) return S(1);
  return factors ? factors[row] : S(1);
}

/// A row's value.
template <class S, class E>
__device__ __forceinline__ S times(S factor, E value) {
  if constexpr (std::is_same_v<S, E>) return value;
  return factor * widen<S>(value);
}

template <class S, class E, int N_>
struct Maximum {
  static constexpr int N = N_;
  struct State {
    Pack<S, N> max;
    Pack<uint32_t, N> argmax;
  };
  using Entry = uint32_t;
  struct Operand {
    Pack<E, N> row;
    S factor;
  };
  uint64_t cols;
  const uint32_t* indices;   // [n_edge]
  const E* x;                // [n_cols, cols]
  const S* factors;          // [n_cols], or null
  S* out;                    // [n_rows, cols]
  uint32_t* argmax;          // [n_rows, cols]
  S* saved_max;              // [slots, cols]
  uint32_t* saved_argmax;    // [slots, cols]

  __device__ State start() const {
    State state = {};
#pragma unroll
    for (int k = 0; k < N; k++) state.argmax.value[k] = NO_ENTRY;
    return state;
  }
  __device__ Entry entry(uint64_t e) const { return indices[e]; }
  __device__ Entry broadcast(Entry own, int lane, int width) const { return __shfl_sync(FULL, own, lane, width); }
  __device__ Operand load(Entry column_of_a, uint64_t column) const {
    return {cohop::load<N>(x + column_of_a * cols + column), factor_of<S, E>(factors, column_of_a)};
  }
  /// Strictly greater, so that the first of equal values stays; a NaN never is, and gives way to any number.
  __device__ static void take(State& state, int k, S value, uint32_t e) {
    const S max = state.max.value[k];
    if (value > max || (max != max && value == value) || state.argmax.value[k] == NO_ENTRY) {
      state.max.value[k] = value;
      state.argmax.value[k] = e;
    }
  }
  __device__ void add(State& state, uint32_t e, Entry, const Operand& operand) const {
#pragma unroll
    for (int k = 0; k < N; k++) take(state, k, times(operand.factor, operand.row.value[k]), e);
  }
  __device__ void save(uint64_t slot, uint64_t column, const State& state) const {
    store<N>(saved_max + slot * cols + column, state.max);
    store<N>(saved_argmax + slot * cols + column, state.argmax);
  }
  __device__ State saved(uint64_t slot, uint64_t column) const {
    return {cohop::load<N>(static_cast<const S*>(saved_max + slot * cols + column)),
            cohop::load<N>(static_cast<const uint32_t*>(saved_argmax + slot * cols + column))};
  }
  __device__ void merge(State& state, const State& later) const {
#pragma unroll
    for (int k = 0; k < N; k++) take(state, k, later.max.value[k], later.argmax.value[k]);
  }
  __device__ void finish(uint64_t row, uint64_t column, const State& state, bool) const {
    store<N>(out + row * cols + column, state.max);
    store<N>(argmax + row * cols + column, state.argmax);
  }
};

/// Rows are those of the transpose.
template <class S, class E, int N>
struct MaximumBackward : SumRows<S, N> {
  using typename SumRows<S, N>::State;
  const uint32_t* indices;  // [n_edge]
  const uint32_t* edge;     // [n_edge]
  const uint32_t* argmax;   // [n_cols, cols]
  const E* dout;            // [n_cols, cols]
  const S* factors;         // [n_cols], or null

  struct Entry {
    uint32_t column;
    uint32_t position;
  };
  struct Operand {
    Pack<uint32_t, N> argmax;
    Pack<E, N> dout;
    S factor;
  };

  __device__ Entry entry(uint64_t e) const { return {indices[e], edge[e]}; }
  __device__ Entry broadcast(const Entry& own, int lane, int width) const {
    const uint32_t column = __shfl_sync(FULL, own.column, lane, width);
    return {column, __shfl_sync(FULL, own.position, lane, width)};
  }
  __device__ Operand load(const Entry& entry, uint64_t column) const {
    const uint64_t at = entry.column * this->cols + column;
    return {cohop::load<N>(argmax + at), cohop::load<N>(dout + at), factor_of<S, E>(factors, entry.column)};
  }
  __device__ void add(State& state, uint32_t, const Entry& entry, const Operand& operand) const {
#pragma unroll
    for (int k = 0; k < N; k++) {
      const bool is_maximum = operand.argmax.value[k] == entry.position;
      state.value[k] += is_maximum ? times(operand.factor, operand.dout.value[k]) : S(0);
    }
  }
  __device__ void finish(uint64_t row, uint64_t column, const State& state, bool is_empty) const {
    if (!is_empty || !this->add_to_out) this->write_row(row, column, state);
  }
};

template <class S>
struct MaximumScratch {
  Hubs hubs;
  S* max;
  uint32_t* argmax;
  uint64_t bytes;

  MaximumScratch(void* block, const Rows& rows, uint64_t cols) : hubs(rows.n_edge, rows.longest_row) {
    Scratch scratch(block);
    hubs.first = scratch.take<uint32_t>(hubs.slots);
    max = scratch.take<S>(hubs.slots * cols);
    argmax = scratch.take<uint32_t>(hubs.slots * cols);
    bytes = scratch.bytes();
  }
};

template <int N, class S, class E>
int32_t spmm_max(const Rows& rows, uint64_t cols, const uint32_t* indices, const E* x, const S* factors, void* scratch,
                 S* out, uint32_t* argmax, void* stream) {
  const MaximumScratch<S> parts(scratch, rows, cols);
  const Maximum<S, E, N> op = {cols, indices, x, factors, out, argmax, parts.max, parts.argmax};
  return launch_csr_rows(op, rows, cols, parts.hubs, stream);
}

template <int N, class S, class E>
int32_t spmm_max_backward(const Rows& rows, uint64_t cols, const uint32_t* indices, const uint32_t* edge,
                          const uint32_t* argmax, const E* dout, const S* factors, void* scratch, S* dx, bool add,
                          void* stream) {
  const SumScratch<S> parts(scratch, rows, cols);
  MaximumBackward<S, E, N> op;
  op.cols = cols;
  op.sums = parts.sums;
  op.out = dx;
  op.add_to_out = add;
  op.indices = indices;
  op.edge = edge;
  op.argmax = argmax;
  op.dout = dout;
  op.factors = factors;
  return launch_csr_rows(op, rows, cols, parts.hubs, stream);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

uint64_t cohop_spmm_max_bytes(cohop_dtype scalar, uint64_t n_edge, uint64_t longest_row, uint64_t cols) {
  const Rows rows = {0, n_edge, nullptr, longest_row};
  return scalar == COHOP_F64 ? MaximumScratch<double>(nullptr, rows, cols).bytes
                             : MaximumScratch<float>(nullptr, rows, cols).bytes;
}

int32_t cohop_spmm_max(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_edge, uint64_t longest_row,
                       uint64_t cols, const uint32_t* indptr, const uint32_t* indices, const void* x,
                       const void* factor, void* scratch, void* out, uint32_t* argmax, void* stream) {
  COHOP_LAUNCHER(
    if (n_rows == 0 || cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return with_rows<S>(element, [&](auto narrow) {
        using E = decltype(narrow);
        const Rows rows = {n_rows, n_edge, indptr, longest_row};
        const E* from = static_cast<const E*>(x);
        const S* factors = static_cast<const S*>(factor);
        S* to = static_cast<S*>(out);
        constexpr int N = PACK<S>;
        return packs<S>(cols, to, argmax) && is_aligned(from, N * sizeof(E))
                   ? spmm_max<N>(rows, cols, indices, from, factors, scratch, to, argmax, stream)
                   : spmm_max<1>(rows, cols, indices, from, factors, scratch, to, argmax, stream);
      });
    });)
}

int32_t cohop_spmm_max_backward(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_edge,
                                uint64_t longest_row, uint64_t cols, const uint32_t* indptr, const uint32_t* indices,
                                const uint32_t* edge, const uint32_t* argmax, const void* dout, const void* factor,
                                void* scratch, void* dx, bool add, void* stream) {
  COHOP_LAUNCHER(
    if (n_rows == 0 || cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      return with_rows<S>(element, [&](auto narrow) {
        using E = decltype(narrow);
        const Rows rows = {n_rows, n_edge, indptr, longest_row};
        const E* from = static_cast<const E*>(dout);
        const S* factors = static_cast<const S*>(factor);
        S* to = static_cast<S*>(dx);
        constexpr int N = PACK<S>;
        return packs<S>(cols, to, argmax) && is_aligned(from, N * sizeof(E))
                   ? spmm_max_backward<N>(rows, cols, indices, edge, argmax, from, factors, scratch, to, add, stream)
                   : spmm_max_backward<1>(rows, cols, indices, edge, argmax, from, factors, scratch, to, add, stream);
      });
    });)
}

}  // extern "C"
