// Maps over elements, rows and columns: each element is read and written once, 16 bytes at a time where rows are
// aligned to them; bound by memory. What depends on the column, or the row, is a loop of columns.cuh: no division an
// element.
#include "columns.cuh"
#include "rng.cuh"

namespace cohop {
namespace {

/// out[i..i + N] = map(x, out); x may be out.
template <int N, class S, class Map>
__device__ __forceinline__ void map_pack(uint64_t i, const S* x, S* out, bool reads_out, const Map& map) {
  const Pack<S, N> in = load<N>(x + i);
  Pack<S, N> values = {};
  if (reads_out) values = load<N>(static_cast<const S*>(out + i));
  const auto at = map.template at<N>(i);
#pragma unroll
  for (int k = 0; k < N; k++) values.value[k] = at(k, in.value[k], values.value[k]);
  store<N>(out + i, values);
}

/// out[i] = map(x, out) for all elements, N at a time, and one at a time those that are left.
///
/// Map has a member template `at<N>(i)`, which loads what else belongs to the N elements from i on, and returns a
/// function of the element's number among them, of x and of out.
template <int N, class S, class Map>
__global__ void __launch_bounds__(BLOCK) map_kernel(uint64_t n, const S* x, S* out, bool reads_out, Map map) {
  const uint64_t packs = n / N;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) map_pack<N>(i * N, x, out, reads_out, map);
  if (N > 1 && grid_thread() < n - packs * N) map_pack<1>(packs * N + grid_thread(), x, out, reads_out, map);
}

/// `others`: what the map reads at the same places.
template <class S, class Map, class... Others>
int32_t launch_map(uint64_t n, const S* x, S* out, bool reads_out, Map map, void* stream, Others... others) {
  if (n == 0) return 0;
  if (packs<S>(0, x, out, others...)) {
    COHOP_LAUNCH((map_kernel<PACK<S>, S, Map>), grid_for((n + PACK<S> - 1) / PACK<S>), BLOCK, 0, stream, n, x, out,
                 reads_out, map);
  } else {
    COHOP_LAUNCH((map_kernel<1, S, Map>), grid_for(n), BLOCK, 0, stream, n, x, out, reads_out, map);
  }
  return cohop_last_error();
}

template <class S>
struct Scale {
  S alpha;
  bool add;
  template <int N>
  __device__ auto at(uint64_t) const {
    return [alpha = alpha, add = add](int, S x, S out) { return add ? out + alpha * x : alpha * x; };
  }
};

template <class S>
struct Multiply {
  const S* y;
  bool add;
  template <int N>
  __device__ auto at(uint64_t i) const {
    return [y = load<N>(y + i), add = add](int k, S x, S out) {
      return add ? out + x * y.value[k] : x * y.value[k];
    };
  }
};

template <class S>
struct Divide {
  S alpha;
  const S* y;
  bool add;
  template <int N>
  __device__ auto at(uint64_t i) const {
    return [alpha = alpha, y = load<N>(y + i), add = add](int k, S x, S out) {
      return add ? out + alpha * x / y.value[k] : alpha * x / y.value[k];
    };
  }
};

template <class S>
struct Apply {
  cohop_function function;
  template <int N>
  __device__ auto at(uint64_t) const {
    return [function = function](int, S x, S) {
      switch (function) {
        case COHOP_SQUARE_ROOT: return square_root(x);
        case COHOP_EXPONENTIAL: return exponential(x);
        default: return logarithm(x);
      }
    };
  }
};

template <class S>
struct ScaleRows {
  uint64_t cols;
  const S* factor;
  const S* x;
  S* out;
  bool add;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [cols = cols, factor = factor, x = x + column, out = out + column, add = add](uint64_t row) {
      Pack<S, N> values = load<N>(x + row * cols), before = {};
      if (add) before = load<N>(static_cast<const S*>(out + row * cols));
      const S by = factor[row];
#pragma unroll
      for (int k = 0; k < N; k++) {
        const S value = by * values.value[k];
        values.value[k] = add ? before.value[k] + value : value;
      }
      store<N>(out + row * cols, values);
    };
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
  uint64_t cols;
  const S* bias;  // or null
  cohop_activation activation;
  S slope;
  S* out;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    Pack<S, N> of = {};
    if (bias) of = load<N>(bias + column);
    return [cols = cols, bias = of, has_bias = bias != nullptr, activation = activation, slope = slope,
            out = out + column](uint64_t row) {
      Pack<S, N> values = load<N>(static_cast<const S*>(out + row * cols));
#pragma unroll
      for (int k = 0; k < N; k++) {
        const S x = values.value[k];
        values.value[k] = activate(activation, slope, has_bias ? x + bias.value[k] : x);
      }
      store<N>(out + row * cols, values);
    };
  }
};

template <class S>
struct ActivateBackward {
  cohop_activation activation;
  S slope;
  template <int N>
  __device__ auto at(uint64_t) const {
    return [activation = activation, slope = slope](int, S y, S dx) {
      switch (activation) {
        case COHOP_RELU: return y > S(0) ? dx : S(0);
        case COHOP_LEAKY_RELU: return y > S(0) ? dx : slope * dx;
        case COHOP_ELU: return y > S(0) ? dx : (y + S(1)) * dx;  // exp(x) is y + 1 on the negative side
        default: return dx;
      }
    };
  }
};

/// One Philox block for the four columns of a thread, which are read and written M at a time. Those beyond the last are
/// none of the matrix's: then M is 1.
template <int M, class S>
struct Dropout {
  uint64_t cols;
  uint32_t threshold;
  S factor;
  uint64_t seed, stream;
  const uint32_t* row_ids;  // or null
  const S* x;
  S* out;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    static_assert(N == 4);
    return [d = *this, column](uint64_t row) {
      const uint32_t id = d.row_ids ? d.row_ids[row] : static_cast<uint32_t>(row);
      const uint64_t at = row * d.cols + column;
      S values[4] = {};
#pragma unroll
      for (int first = 0; first < 4; first += M) {
        if (M > 1 || column + first < d.cols) {
          const Pack<S, M> in = load<M>(d.x + at + first);
#pragma unroll
          for (int k = 0; k < M; k++) values[first + k] = in.value[k];
        }
      }
      const Words counter = {{id, static_cast<uint32_t>(column / 4), static_cast<uint32_t>(d.stream),
                              static_cast<uint32_t>(d.stream >> 32)}};
      const Words words = philox(counter, static_cast<uint32_t>(d.seed), static_cast<uint32_t>(d.seed >> 32));
#pragma unroll
      for (int first = 0; first < 4; first += M) {
        Pack<S, M> kept;
#pragma unroll
        for (int k = 0; k < M; k++) {
          kept.value[k] = words.word[first + k] >= d.threshold ? values[first + k] * d.factor : S(0);
        }
        if (M > 1 || column + first < d.cols) store<M>(d.out + at + first, kept);
      }
    };
  }
};

template <class S>
struct CopyColumns {
  const S* x;
  uint64_t x_cols;
  S* out;
  uint64_t out_cols;
  bool add;
  template <int N>
  __device__ auto columns(uint64_t column) const {
    return [x = x + column, x_cols = x_cols, out = out + column, out_cols = out_cols, add = add](uint64_t row) {
      Pack<S, N> values = load<N>(x + row * x_cols);
      S* to = out + row * out_cols;
      if (add) {
        const Pack<S, N> before = load<N>(static_cast<const S*>(to));
#pragma unroll
        for (int k = 0; k < N; k++) values.value[k] = before.value[k] + values.value[k];
      }
      store<N>(to, values);
    };
  }
};

/// N values at a time, and one at a time those that are left.
template <int N, class T>
__global__ void __launch_bounds__(BLOCK) fill_kernel(uint64_t n, T value, T* __restrict__ out) {
  Pack<T, N> values;
#pragma unroll
  for (int k = 0; k < N; k++) values.value[k] = value;
  const uint64_t packs = n / N;
  for (uint64_t i = grid_thread(); i < packs; i += grid_threads()) store<N>(out + i * N, values);
  if (N > 1 && grid_thread() < n - packs * N) out[packs * N + grid_thread()] = value;
}

template <class T>
int32_t fill(const void* value, uint64_t n, void* out, void* stream) {
  const T of = *static_cast<const T*>(value);
  T* to = static_cast<T*>(out);
  if (packs<T>(0, to)) {
    COHOP_LAUNCH((fill_kernel<PACK<T>, T>), grid_for((n + PACK<T> - 1) / PACK<T>), BLOCK, 0, stream, n, of, to);
  } else {
    COHOP_LAUNCH((fill_kernel<1, T>), grid_for(n), BLOCK, 0, stream, n, of, to);
  }
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
    return launch_map(n, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream);
  });)
}

int32_t cohop_multiply(cohop_dtype scalar, uint64_t n, const void* x, const void* y, void* out, bool add,
                       void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Multiply<S> map = {static_cast<const S*>(y), add};
    return launch_map(n, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream, map.y);
  });)
}

int32_t cohop_divide(cohop_dtype scalar, uint64_t n, double alpha, const void* x, const void* y, void* out, bool add,
                     void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const Divide<S> map = {S(alpha), static_cast<const S*>(y), add};
    return launch_map(n, static_cast<const S*>(x), static_cast<S*>(out), add, map, stream, map.y);
  });)
}

int32_t cohop_map(cohop_dtype scalar, uint64_t n, cohop_function function, const void* x, void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return launch_map(n, static_cast<const S*>(x), static_cast<S*>(out), false, Apply<S>{function}, stream);
  });)
}

int32_t cohop_scale_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* factor, const void* x,
                         void* out, bool add, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const ScaleRows<S> body = {cols, static_cast<const S*>(factor), static_cast<const S*>(x), static_cast<S*>(out),
                               add};
    return for_columns<S>(rows, cols, packs<S>(cols, x, out), body, stream);
  });)
}

int32_t cohop_add_bias_activate(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* bias,
                                cohop_activation activation, double slope, void* out, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const BiasActivate<S> body = {cols, static_cast<const S*>(bias), activation, S(slope), static_cast<S*>(out)};
    return for_columns<S>(rows, cols, packs<S>(cols, bias, out), body, stream);
  });)
}

int32_t cohop_activate_backward(cohop_dtype scalar, uint64_t n, cohop_activation activation, double slope,
                                const void* y, void* dx, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const ActivateBackward<S> map = {activation, S(slope)};
    return launch_map(n, static_cast<const S*>(y), static_cast<S*>(dx), true, map, stream);
  });)
}

int32_t cohop_copy_columns(cohop_dtype scalar, uint64_t rows, uint64_t n_columns, const void* x, uint64_t x_cols,
                           void* out, uint64_t out_cols, bool add, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const CopyColumns<S> body = {static_cast<const S*>(x), x_cols, static_cast<S*>(out), out_cols, add};
    const bool is_packed = packs<S>(n_columns, x, out) && x_cols % PACK<S> == 0 && out_cols % PACK<S> == 0;
    return for_columns<S>(rows, n_columns, is_packed, body, stream);
  });)
}

int32_t cohop_dropout(cohop_dtype scalar, uint64_t rows, uint64_t cols, uint32_t threshold, double factor,
                      uint64_t seed, uint64_t stream_number, const uint32_t* row_ids, const void* x, void* out,
                      void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    const S* from = static_cast<const S*>(x);
    S* to = static_cast<S*>(out);
    if (cols % 4 == 0 && packs<S>(cols, from, to)) {
      const Dropout<PACK<S>, S> body = {cols, threshold, S(factor), seed, stream_number, row_ids, from, to};
      return launch_columns<4>(rows, cols, body, stream);
    }
    const Dropout<1, S> body = {cols, threshold, S(factor), seed, stream_number, row_ids, from, to};
    return launch_columns<4>(rows, (cols + 3) / 4 * 4, body, stream);
  });)
}

}  // extern "C"
