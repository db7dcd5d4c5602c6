// Batch norm: sums over rows and maps by columns; each matrix is read or written once; bound by memory.
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
