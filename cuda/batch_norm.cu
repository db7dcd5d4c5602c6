// Batch norm: sums over rows and maps by columns; each matrix is read or written once; bound by memory.
//
// Mean and squared deviations come from one pass (Chan, Golub & LeVeque 1979). A thread has N columns of a part of the
// rows and knows of each: `shift`, the column's first element there, `offset`, the mean of x - shift so far, and
// `squares`, the sum of squared deviations from shift + offset. It takes GROUP rows at once: of n rows with the new
// ones, and with d = x - shift - offset of these, offset += sum(d) / n and squares += sum(d^2) - sum(d)^2 / n. All
// these numbers have the size of deviations, however large the mean is, and little cancels: of the first GROUP rows one
// has d = 0, so that sum(d)^2 / n is at most 1 - 1 / GROUP of sum(d^2); of later ones, at most a half. Parts are merged
// in f64, their means as differences from the first part's shift.
#include "columns.cuh"

namespace cohop {
namespace {

/// sum[0] += (x - center)^2
template <class S>
struct SquaredDeviation {
  const S* x;
  const S* center;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [x = x, center = load<N>(center + column)](uint64_t at, S (&sum)[1][N]) {
      const Pack<S, N> in = load<N>(x + at);
#pragma unroll
      for (int k = 0; k < N; k++) {
        const S deviation = in.value[k] - center.value[k];
        sum[0][k] += deviation * deviation;
      }
    };
  }
};

/// sum[0] += dout * standardised x, sum[1] += dout
template <class S>
struct ParameterGradients {
  const S* x;
  const S* mean;
  const S* inverse_std;
  const S* dout;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [x = x, dout = dout, mean = load<N>(mean + column), inverse_std = load<N>(inverse_std + column)](
               uint64_t at, S (&sum)[2][N]) {
      const Pack<S, N> in = load<N>(x + at), gradient = load<N>(dout + at);
#pragma unroll
      for (int k = 0; k < N; k++) {
        sum[0][k] += gradient.value[k] * ((in.value[k] - mean.value[k]) * inverse_std.value[k]);
        sum[1][k] += gradient.value[k];
      }
    };
  }
};

/// Rows that a thread has in flight.
constexpr int GROUP = 4;

/// parts: [3, cols, n_parts]: shift, offset and squares.
template <int N, class S>
__global__ void __launch_bounds__(BLOCK) moments_kernel(uint64_t rows, uint64_t cols, uint64_t rows_per_part,
                                                        uint64_t n_parts, const S* __restrict__ x,
                                                        S* __restrict__ parts) {
  const uint64_t packs = cols / N, thread = grid_thread(), part = thread / packs, column = thread % packs * N;
  const uint64_t first = part * rows_per_part, end = first + rows_per_part < rows ? first + rows_per_part : rows;
  if (part >= n_parts || first >= end) return;
  const Pack<S, N> shift = load<N>(x + first * cols + column);
  S offset[N] = {}, squares[N] = {};
  for (uint64_t row = first; row < end; row += GROUP) {
    Pack<S, N> in[GROUP];
    // Loads are issued whether the row exists or not; see csr_rows.cuh.
#pragma unroll
    for (int u = 0; u < GROUP; u++) in[u] = load<N>(x + (row + u < end ? row + u : end - 1) * cols + column);
    const uint64_t seen = (row + GROUP < end ? row + GROUP : end) - first;
    const S share = S(1) / static_cast<S>(seen);
#pragma unroll
    for (int k = 0; k < N; k++) {
      S sum = 0, square = 0;
#pragma unroll
      for (int u = 0; u < GROUP; u++) {
        const S deviation = row + u < end ? in[u].value[k] - shift.value[k] - offset[k] : S(0);
        sum += deviation;
        square += deviation * deviation;
      }
      const S step = sum * share;
      offset[k] += step;
      squares[k] += square - sum * step;
    }
  }
#pragma unroll
  for (int k = 0; k < N; k++) {
    const uint64_t at = (column + k) * n_parts + part;
    parts[at] = shift.value[k];
    parts[cols * n_parts + at] = offset[k];
    parts[2 * cols * n_parts + at] = squares[k];
  }
}

/// What is known of some rows of a column; the mean is that of differences from one number.
struct Moments {
  double n, mean, squares;

  __device__ void merge(const Moments& other) {
    if (other.n == 0) return;
    const double n_both = n + other.n, delta = other.mean - mean, share = other.n / n_both;
    mean += delta * share;
    squares += other.squares + delta * delta * n * share;
    n = n_both;
  }
};

/// A warp merges the parts of one column, in a fixed order.
template <class S>
__global__ void __launch_bounds__(BLOCK) merge_moments_kernel(uint64_t rows, uint64_t cols, uint64_t rows_per_part,
                                                              uint64_t n_parts, const S* __restrict__ parts,
                                                              S* __restrict__ mean, S* __restrict__ squares) {
  const uint64_t column = grid_thread() / 32, lane = threadIdx.x % 32;
  if (column >= cols) return;
  const double origin = rows > 0 ? static_cast<double>(parts[column * n_parts]) : 0.0;
  Moments all = {0, 0, 0};
  for (uint64_t part = lane; part * rows_per_part < rows; part += 32) {
    const uint64_t at = column * n_parts + part, first = part * rows_per_part;
    const uint64_t n = rows - first < rows_per_part ? rows - first : rows_per_part;
    const double mean_of_part = parts[at] - origin + static_cast<double>(parts[cols * n_parts + at]);
    all.merge({static_cast<double>(n), mean_of_part, static_cast<double>(parts[2 * cols * n_parts + at])});
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const double n = __shfl_down_sync(FULL, all.n, distance), other = __shfl_down_sync(FULL, all.mean, distance);
    all.merge({n, other, __shfl_down_sync(FULL, all.squares, distance)});
  }
  if (lane == 0) {
    mean[column] = static_cast<S>(origin + all.mean);
    squares[column] = static_cast<S>(all.squares);
  }
}

template <int N, class S>
int32_t moments(uint64_t rows, uint64_t cols, const S* x, S* parts, S* mean, S* squares, void* stream) {
  const uint64_t n_parts = sum_parts(rows, cols), per_part = (rows + n_parts - 1) / n_parts;
  if (rows > 0) {
    COHOP_LAUNCH((moments_kernel<N, S>), blocks_for(cols / N * n_parts), BLOCK, 0, stream, rows, cols, per_part,
                 n_parts, x, parts);
  }
  COHOP_LAUNCH((merge_moments_kernel<S>), blocks_for(cols * 32), BLOCK, 0, stream, rows, cols, per_part, n_parts,
               static_cast<const S*>(parts), mean, squares);
  return cohop_last_error();
}

template <class S>
struct Normalize {
  uint64_t cols;
  const S* x;
  const S* mean;
  const S* inverse_std;
  const S* gain;
  const S* bias;
  S* out;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [cols = cols, x = x + column, out = out + column, mean = load<N>(mean + column),
            inverse_std = load<N>(inverse_std + column), gain = load<N>(gain + column),
            bias = load<N>(bias + column)](uint64_t row) {
      Pack<S, N> values = load<N>(x + row * cols);
#pragma unroll
      for (int k = 0; k < N; k++) {
        values.value[k] = (values.value[k] - mean.value[k]) * inverse_std.value[k] * gain.value[k] + bias.value[k];
      }
      store<N>(out + row * cols, values);
    };
  }
};

/// `share`: one over the number of rows in the statistics; 0 if they were constants, and then there is no correction.
template <class S>
struct InputGradient {
  uint64_t cols;
  const S* x;
  const S* mean;
  const S* inverse_std;
  const S* gain;
  const S* dout;
  const S* dgain;
  const S* dbias;
  S share;
  S* dx;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [cols = cols, x = x + column, dout = dout + column, dx = dx + column, share = share,
            mean = load<N>(mean + column), inverse_std = load<N>(inverse_std + column), gain = load<N>(gain + column),
            dgain = load<N>(dgain + column), dbias = load<N>(dbias + column)](uint64_t row) {
      Pack<S, N> values = load<N>(dout + row * cols);
      if (share != S(0)) {
        const Pack<S, N> in = load<N>(x + row * cols);
#pragma unroll
        for (int k = 0; k < N; k++) {
          const S standard = (in.value[k] - mean.value[k]) * inverse_std.value[k];
          values.value[k] -= (dbias.value[k] + standard * dgain.value[k]) * share;
        }
      }
#pragma unroll
      for (int k = 0; k < N; k++) values.value[k] = gain.value[k] * inverse_std.value[k] * values.value[k];
      store<N>(dx + row * cols, values);
    };
  }
};

template <class S>
__global__ void __launch_bounds__(BLOCK) inverse_square_root_kernel(uint64_t n, const S* __restrict__ x, S factor,
                                                                    S epsilon, S* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = S(1) / square_root(factor * x[i] + epsilon);
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_moments(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, void* scratch, void* mean,
                      void* squares, void* stream) {
  COHOP_LAUNCHER(
    if (cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const S* from = static_cast<const S*>(x);
      S *parts = static_cast<S*>(scratch), *to = static_cast<S*>(mean), *deviation = static_cast<S*>(squares);
      return packs<S>(cols, from) ? moments<PACK<S>>(rows, cols, from, parts, to, deviation, stream)
                                  : moments<1>(rows, cols, from, parts, to, deviation, stream);
    });)
}

int32_t cohop_sum_squared_deviation(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const void* center,
                                    void* scratch, void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const SquaredDeviation<S> body = {static_cast<const S*>(x), static_cast<const S*>(center)};
    const Outputs<S, 1> to = {{static_cast<S*>(out)}};
    return sum_columns(rows, cols, packs<S>(cols, x, center), body, static_cast<S*>(scratch), to, false, stream);
  });)
}

int32_t cohop_inverse_square_root(cohop_dtype scalar, uint64_t n, const void* x, double factor, double epsilon,
                                  void* out, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((inverse_square_root_kernel<S>), grid_for(n), BLOCK, 0, stream, n, static_cast<const S*>(x),
                   S(factor), S(epsilon), static_cast<S*>(out));
      return cohop_last_error();
    });)
}

int32_t cohop_normalize(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const void* mean,
                        const void* inverse_std, const void* gain, const void* bias, void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Normalize<S> body = {cols, static_cast<const S*>(x), static_cast<const S*>(mean),
                               static_cast<const S*>(inverse_std), static_cast<const S*>(gain),
                               static_cast<const S*>(bias), static_cast<S*>(out)};
    return for_columns<S>(rows, cols, packs<S>(cols, x, mean, inverse_std, gain, bias, out), body, stream);
  });)
}

int32_t cohop_normalize_backward_parameters(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x,
                                            const void* mean, const void* inverse_std, const void* dout, void* scratch,
                                            void* dgain, void* dbias, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const ParameterGradients<S> body = {static_cast<const S*>(x), static_cast<const S*>(mean),
                                        static_cast<const S*>(inverse_std), static_cast<const S*>(dout)};
    const Outputs<S, 2> to = {{static_cast<S*>(dgain), static_cast<S*>(dbias)}};
    return sum_columns(rows, cols, packs<S>(cols, x, mean, inverse_std, dout), body, static_cast<S*>(scratch), to,
                       false, stream);
  });)
}

int32_t cohop_normalize_backward(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const void* mean,
                                 const void* inverse_std, const void* gain, const void* dout, const void* dgain,
                                 const void* dbias, double share, void* dx, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const InputGradient<S> body = {cols, static_cast<const S*>(x), static_cast<const S*>(mean),
                                   static_cast<const S*>(inverse_std), static_cast<const S*>(gain),
                                   static_cast<const S*>(dout), static_cast<const S*>(dgain),
                                   static_cast<const S*>(dbias), S(share), static_cast<S*>(dx)};
    const bool is_packed = packs<S>(cols, x, mean, inverse_std, gain, dout, dgain, dbias, dx);
    return for_columns<S>(rows, cols, is_packed, body, stream);
  });)
}

}  // extern "C"
