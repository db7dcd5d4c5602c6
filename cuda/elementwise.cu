// Maps over elements, rows and columns: each element is read and written once; bound by memory.
#include "rng.cuh"
#include "scalar.cuh"

namespace cohop {
namespace {

/// out[i] = map(i, x at i, out at i), N elements at a time.
template <int N, class S, class Map>
__global__ void __launch_bounds__(BLOCK) map_kernel(uint64_t n, const S* __restrict__ x, S* out, bool reads_out,
                                                    Map map) {
  for (uint64_t i = grid_thread() * N; i < n; i += grid_threads() * N) {
    const Pack<S, N> in = load<N>(x + i);
    Pack<S, N> values = {};
    if (reads_out) values = load<N>(out + i);
#pragma unroll
    for (int k = 0; k < N; k++) values.value[k] = map(i + k, in.value[k], values.value[k]);
    store<N>(out + i, values);
  }
}

/// `x` may be `out`: then it is passed once, and read once.
template <class S, class Map>
int32_t launch_map(uint64_t n, uint64_t cols, const S* x, S* out, bool reads_out, Map map, void* stream) {
  if (n == 0) return 0;
  if (packs<S>(cols, x, out)) {
    COHOP_LAUNCH((map_kernel<PACK<S>, S, Map>), grid_for(n / PACK<S>), BLOCK, 0, stream, n, x, out, reads_out, map);
  } else {
    COHOP_LAUNCH((map_kernel<1, S, Map>), grid_for(n), BLOCK, 0, stream, n, x, out, reads_out, map);
  }
  return cohop_last_error();
}

template <class S>
struct Scale {
  S alpha;
  bool add;
  __device__ S operator()(uint64_t, S x, S out) const { return add ? out + alpha * x : alpha * x; }
};

template <class S>
struct Multiply {
  const S* y;
  bool add;
  __device__ S operator()(uint64_t i, S x, S out) const { return add ? out + x * y[i] : x * y[i]; }
};

template <class S>
struct Divide {
  S alpha;
  const S* y;
  bool add;
  __device__ S operator()(uint64_t i, S x, S out) const { return add ? out + alpha * x / y[i] : alpha * x / y[i]; }
};

template <class S>
struct Apply {
  cohop_function function;
  __device__ S operator()(uint64_t, S x, S) const {
    switch (function) {
      case COHOP_SQUARE_ROOT: return square_root(x);
      case COHOP_EXPONENTIAL: return exponential(x);
      default: return logarithm(x);
    }
  }
};

template <class S>
struct ScaleRows {
  const S* factor;
  uint64_t cols;
  bool add;
  __device__ S operator()(uint64_t i, S x, S out) const {
    const S value = factor[i / cols] * x;
    return add ? out + value : value;
  }
};

/// Comparisons are written so that a NaN stays one: a diverged run must show.
template <class S>
__device__ __forceinline__ S activate(cohop_activation activation, S slope, S x) {
  switch (activation) {
    case COHOP_RELU: return x < S(0) ? S(0) : x;
    case COHOP_LEAKY_RELU: return x > S(0) ? x : slope * x;
    case COHOP_ELU: return x > S(0) ? x : exponential_minus_one(x);
    default: return x;
  }
}

template <class S>
struct BiasActivate {
  const S* bias;
  uint64_t cols;
  cohop_activation activation;
  S slope;
  __device__ S operator()(uint64_t i, S x, S) const {
    return activate(activation, slope, bias ? x + bias[i % cols] : x);
  }
};

template <class S>
struct ActivateBackward {
  cohop_activation activation;
  S slope;
  __device__ S operator()(uint64_t, S y, S dx) const {
    switch (activation) {
      case COHOP_RELU: return y > S(0) ? dx : S(0);
      case COHOP_LEAKY_RELU: return y > S(0) ? dx : slope * dx;
      case COHOP_ELU: return y > S(0) ? dx : (y + S(1)) * dx;  // exp(x) is y + 1 on the negative side
      default: return dx;
    }
  }
};

/// One Philox block for four columns.
template <class S>
__global__ void __launch_bounds__(BLOCK) dropout_kernel(uint64_t rows, uint64_t cols, uint32_t threshold, S factor,
                                                        uint64_t seed, uint64_t stream,
                                                        const uint32_t* __restrict__ row_ids, const S* __restrict__ x,
                                                        S* __restrict__ out) {
  const uint64_t per_row = (cols + 3) / 4;
  for (uint64_t i = grid_thread(); i < rows * per_row; i += grid_threads()) {
    const uint64_t row = i / per_row, column = i % per_row * 4;
    const uint32_t id = row_ids ? row_ids[row] : static_cast<uint32_t>(row);
    const Words counter = {{id, static_cast<uint32_t>(column / 4), static_cast<uint32_t>(stream),
                            static_cast<uint32_t>(stream >> 32)}};
    const Words words = philox(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    const uint64_t at = row * cols + column;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (column + k < cols) out[at + k] = words.word[k] >= threshold ? x[at + k] * factor : S(0);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(BLOCK) copy_columns_kernel(uint64_t rows, uint64_t n_columns, const S* __restrict__ x,
                                                             uint64_t x_cols, S* __restrict__ out, uint64_t out_cols,
                                                             bool add) {
  for (uint64_t i = grid_thread(); i < rows * n_columns; i += grid_threads()) {
    const uint64_t row = i / n_columns, column = i % n_columns;
    write(out[row * out_cols + column], x[row * x_cols + column], add);
  }
}

template <class T>
__global__ void __launch_bounds__(BLOCK) fill_kernel(uint64_t n, T value, T* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = value;
}

template <class T>
int32_t fill(const void* value, uint64_t n, void* out, void* stream) {
  COHOP_LAUNCH((fill_kernel<T>), grid_for(n), BLOCK, 0, stream, n, *static_cast<const T*>(value), static_cast<T*>(out));
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_fill(uint32_t element_bytes, const void* value, uint64_t n, void* out, void* stream) {
  COHOP_LAUNCHER(
    if (n == 0) return 0;
    switch (element_bytes) {
      case 1: return fill<uint8_t>(value, n, out, stream);
      case 2: return fill<uint16_t>(value, n, out, stream);
      case 4: return fill<uint32_t>(value, n, out, stream);
      case 8: return fill<uint64_t>(value, n, out, stream);
      default: return COHOP_ERROR_INVALID;
    })
}

int32_t cohop_scale(cohop_dtype scalar, uint64_t n, double alpha, const void* x, void* out, bool add, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Scale<S> map = {S(alpha), add};
    return launch_map(n, n, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream);
  });)
}

int32_t cohop_multiply(cohop_dtype scalar, uint64_t n, const void* x, const void* y, void* out, bool add,
                       void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Multiply<S> map = {static_cast<const S*>(y), add};
    return launch_map(n, n, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream);
  });)
}

int32_t cohop_divide(cohop_dtype scalar, uint64_t n, double alpha, const void* x, const void* y, void* out, bool add,
                     void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Divide<S> map = {S(alpha), static_cast<const S*>(y), add};
    return launch_map(n, n, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream);
  });)
}

int32_t cohop_map(cohop_dtype scalar, uint64_t n, cohop_function function, const void* x, void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return launch_map(n, n, static_cast<const S*>(x), static_cast<S*>(out), false, Apply<S>{function}, stream);
  });)
}

int32_t cohop_scale_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* factor, const void* x,
                         void* out, bool add, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const ScaleRows<S> map = {static_cast<const S*>(factor), cols, add};
    return launch_map(rows * cols, cols, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream);
  });)
}

int32_t cohop_add_bias_activate(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* bias,
                                cohop_activation activation, double slope, void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const BiasActivate<S> map = {static_cast<const S*>(bias), cols, activation, S(slope)};
    S* data = static_cast<S*>(out);
    return launch_map(rows * cols, cols, static_cast<const S*>(data), data, false, map, stream);
  });)
}

int32_t cohop_activate_backward(cohop_dtype scalar, uint64_t n, cohop_activation activation, double slope,
                                const void* y, void* dx, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const ActivateBackward<S> map = {activation, S(slope)};
    return launch_map(n, n, static_cast<const S*>(y), static_cast<S*>(dx), true, map, stream);
  });)
}

int32_t cohop_copy_columns(cohop_dtype scalar, uint64_t rows, uint64_t n_columns, const void* x, uint64_t x_cols,
                           void* out, uint64_t out_cols, bool add, void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0 || n_columns == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((copy_columns_kernel<S>), grid_for(rows * n_columns), BLOCK, 0, stream, rows, n_columns,
                   static_cast<const S*>(x), x_cols, static_cast<S*>(out), out_cols, add);
      return cohop_last_error();
    });)
}

int32_t cohop_dropout(cohop_dtype scalar, uint64_t rows, uint64_t cols, uint32_t threshold, double factor,
                      uint64_t seed, uint64_t stream_number, const uint32_t* row_ids, const void* x, void* out,
                      void* stream) {
  COHOP_LAUNCHER(
    if (rows == 0 || cols == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      COHOP_LAUNCH((dropout_kernel<S>), grid_for(rows * ((cols + 3) / 4)), BLOCK, 0, stream, rows, cols, threshold,
                   S(factor), seed, stream_number, row_ids, static_cast<const S*>(x), static_cast<S*>(out));
      return cohop_last_error();
    });)
}

}  // extern "C"
