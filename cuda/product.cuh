// Sparse products: for each row of a CSR pattern, the sum over its entries of their columns' rows, times the entries'
// factors. These rows are those of a matrix, or rows of a table by index.
#pragma once
#include "csr_rows.cuh"

namespace cohop {

/// Factors of the entries; absent ones are null.
template <class S>
struct Factors {
  const uint32_t* positions;  // [n_edge]
  const S* edge;              // [n_edge]
  const S* row;               // [n_rows]
  const S* column;            // [n_cols]
};

/// The rows of a matrix.
template <class E_>
struct DenseRows {
  using E = E_;
  const E* x;  // [n_cols, cols]

  __device__ uint32_t place(uint32_t column) const { return column; }
  template <int N>
  __device__ Pack<E, N> load(uint32_t place, uint64_t cols, uint64_t column) const {
    return cohop::load<N>(x + place * cols + column);
  }
};

/// Rows of a table by index, of which there is at least one; it stands for those that are out of range.
template <class E_>
struct TableRows {
  using E = E_;
  const E* table;         // [n_table, cols]
  uint64_t n_table;
  const uint32_t* index;  // [n_cols]

  __device__ uint32_t place(uint32_t column) const {
    const uint32_t place = index[column];
    return place < n_table ? place : 0;
  }
  template <int N>
  __device__ Pack<E, N> load(uint32_t place, uint64_t cols, uint64_t column) const {
    return cohop::load<N>(table + place * cols + column);
  }
};

/// `X` has the rows: DenseRows or TableRows. Without WEIGHTED, there are no factors that differ within a row.
template <class S, int N, bool WEIGHTED, class X>
struct Product : SumRows<S, N> {
  using typename SumRows<S, N>::State;
  const uint32_t* indices;  // [n_edge]
  X x;
  Factors<S> factors;

  struct Weighted {
    uint32_t place;
    S weight;
  };
  struct Plain {
    uint32_t place;
  };
  using Entry = std::conditional_t<WEIGHTED, Weighted, Plain>;
  using Operand = Pack<typename X::E, N>;

  __device__ Entry entry(uint64_t e) const {
    const uint32_t column = indices[e];
    Entry entry = {};
    entry.place = x.place(column);
    if constexpr (WEIGHTED) {
      entry.weight = factors.column ? factors.column[column] : S(1);
      if (factors.edge) entry.weight *= factors.edge[factors.positions ? factors.positions[e] : e];
    }
    return entry;
  }
  __device__ Entry broadcast(const Entry& own, int lane, int width) const {
    Entry entry = {};
    entry.place = __shfl_sync(FULL, own.place, lane, width);
    if constexpr (WEIGHTED) entry.weight = __shfl_sync(FULL, own.weight, lane, width);
    return entry;
  }
  __device__ Operand load(const Entry& entry, uint64_t column) const {
    return x.template load<N>(entry.place, this->cols, column);
  }
  __device__ void add(State& state, uint32_t, const Entry& entry, const Operand& operand) const {
#pragma unroll
    for (int k = 0; k < N; k++) {
      if constexpr (WEIGHTED) {
        state.value[k] += entry.weight * widen<S>(operand.value[k]);
      } else {
        state.value[k] += widen<S>(operand.value[k]);
      }
    }
  }
  /// Times the row's factor. Rounded before anything is added, so that all kernels with these sums give the same bits.
  __device__ void scale(uint64_t row, State& state) const {
    if (!factors.row) return;
    const S factor = factors.row[row];
#pragma unroll
    for (int k = 0; k < N; k++) state.value[k] = rounded_product(state.value[k], factor);
  }
  __device__ void finish(uint64_t row, uint64_t column, State state, bool is_empty) const {
    if (is_empty && this->add_to_out) return;
    if (!is_empty) scale(row, state);
    this->write_row(row, column, state);
  }
};

}  // namespace cohop
