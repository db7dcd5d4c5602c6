// The C interface of the kernels, bound by bindgen (src/device/cuda/ffi.rs).
//
// Every launcher returns 0 or an error code: a cudaError_t, one of the emulator's from 10001, or COHOP_ERROR_*. It
// never throws, never synchronises, and launches nothing for zero elements. `scalar` names the type behind `void`
// pointers; contracts are those of the Rust trait that the section names. `add` adds to the output instead of
// overwriting it. Pointers are to device memory unless something else is said; optional ones may be null.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { COHOP_ERROR_INVALID = 1, COHOP_ERROR_EXCEPTION = 20001 };

typedef enum cohop_dtype { COHOP_F16 = 0, COHOP_BF16 = 1, COHOP_F32 = 2, COHOP_F64 = 3 } cohop_dtype;

// Arrays whose entries kernels check.
typedef enum cohop_array {
  COHOP_ARRAY_NONE = 0,
  COHOP_ARRAY_INDEX = 1,
  COHOP_ARRAY_LABELS = 2,
  COHOP_ARRAY_EDGE_TYPE = 3,
  COHOP_ARRAY_PERMUTATION = 4,
  COHOP_ARRAY_DST = 5,
  COHOP_ARRAY_ASCENDING = 6,  // an index that is not above the one before it, which `limit` then is
  COHOP_ARRAY_INDPTR = 7
} cohop_array;

// The first index out of range; array COHOP_ARRAY_NONE: none. Lies in memory that both host and device can reach.
typedef struct cohop_status {
  uint32_t array;
  uint64_t position;
  int64_t value;
  uint64_t limit;
} cohop_status;

// ---- runtime ----------------------------------------------------------------------------------------------------
int32_t cohop_device_count(int32_t* count);
// Static or thread-local text; valid until the thread's next call.
const char* cohop_error_name(int32_t code);
const char* cohop_error_message(int32_t code);

// ---- storage (Storage) ------------------------------------------------------------------------------------------
// out[i] = the n_bytes-wide value at host address `value` (1, 2, 4 or 8 bytes).
int32_t cohop_fill(uint32_t element_bytes, const void* value, uint64_t n, void* out, void* stream);

// ---- elementwise (Elementwise) ----------------------------------------------------------------------------------
typedef enum cohop_activation {
  COHOP_IDENTITY = 0,
  COHOP_RELU = 1,
  COHOP_LEAKY_RELU = 2,
  COHOP_ELU = 3
} cohop_activation;

int32_t cohop_scale(cohop_dtype scalar, uint64_t n, double alpha, const void* x, void* out, bool add, void* stream);
int32_t cohop_multiply(cohop_dtype scalar, uint64_t n, const void* x, const void* y, void* out, bool add, void* stream);
int32_t cohop_add_bias_activate(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* bias,
                                cohop_activation activation, double slope, void* out, void* stream);
int32_t cohop_scale_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* factor, const void* x,
                         void* out, bool add, void* stream);
int32_t cohop_copy_columns(cohop_dtype scalar, uint64_t rows, uint64_t n_columns, const void* x, uint64_t x_cols,
                           void* out, uint64_t out_cols, bool add, void* stream);
int32_t cohop_activate_backward(cohop_dtype scalar, uint64_t n, cohop_activation activation, double slope,
                                const void* y, void* dx, void* stream);
int32_t cohop_dropout(cohop_dtype scalar, uint64_t rows, uint64_t cols, uint32_t threshold, double factor,
                      uint64_t seed, uint64_t stream_number, const uint32_t* row_ids, const void* x, void* out,
                      void* stream);

// ---- reduce (Elementwise, BatchNorm) ----------------------------------------------------------------------------
// Parts of the rows that sums over rows have; scratch: [cols, parts] scalars.
uint64_t cohop_sum_rows_parts(uint64_t rows, uint64_t cols);
int32_t cohop_sum_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, void* scratch, void* out,
                       bool add, void* stream);
// scratch: [cohop_dot_parts(n)] doubles.
uint64_t cohop_dot_parts(uint64_t n);
int32_t cohop_dot(cohop_dtype scalar, uint64_t n, const void* x, const void* y, double* scratch, void* out,
                  void* stream);

// ---- gather (Gather) --------------------------------------------------------------------------------------------

// ---- spmm (Spmm) ------------------------------------------------------------------------------------------------

// ---- sddmm (Sddmm) ----------------------------------------------------------------------------------------------

// ---- attention (Attention) --------------------------------------------------------------------------------------
// A pattern, its heads and its messages (Csr, AttentionSpec); a struct of the host.
typedef struct cohop_messages {
  uint64_t n_rows;
  uint64_t n_edge;
  const uint32_t* indptr;   // [n_rows + 1]
  const uint32_t* indices;  // [n_edge]
  const uint32_t* edge;     // [n_edge]; null: entries stand at their own positions
  uint64_t n_own;           // the first rows, which have a self-loop; 0 without self-loops
  uint64_t heads;
  uint64_t dim;
  double slope;
  const uint32_t* vertices;  // dropout: ids of the sources; null: no dropout, and then scale is 1
  uint32_t threshold;        // words below are dropped
  double scale;              // of what is kept
  uint64_t seed;
  uint64_t stream_number;
  // Scratch memory for rows of many entries, by segments = cohop_attention_segments(n_edge).
  uint32_t* hubs;  // [segments]
  void* records;   // [2 * segments, n] scalars; n is said with each kernel
} cohop_messages;

// What cohop_gat_backward reads besides (GatSaved).
typedef struct cohop_gat_saved {
  const void* z;
  const void* score_src;
  const void* score_dst;
  const void* max;
  const void* sum;
  const void* out;
  const void* dout;
} cohop_gat_saved;

uint64_t cohop_attention_segments(uint64_t n_edge);
// n = 2 * heads + heads * dim
int32_t cohop_gat(cohop_dtype scalar, const cohop_messages* a, const void* z, const void* score_src, const void* score_dst,
                  void* out, void* max, void* sum, void* stream);
// n = heads + heads * dim; stats: [n_dst, heads, 4] scalars of scratch memory.
int32_t cohop_gat_backward(cohop_dtype scalar, const cohop_messages* transpose, uint64_t n_dst, const cohop_gat_saved* saved,
                           void* stats, void* dz, void* dscore_src, void* dscore_dst_own, void* dscore_edge, void* stream);
// n = 2 * heads + heads * dim
int32_t cohop_gatv2(cohop_dtype scalar, const cohop_messages* a, const void* z_src, const void* z_dst, const void* attention,
                    void* out, void* max, void* sum, void* stream);
// n = heads + 4 * heads * dim; totals: [segments, heads] scalars of scratch memory.
int32_t cohop_gatv2_backward_destinations(cohop_dtype scalar, const cohop_messages* a, const void* z_src, const void* z_dst,
                                          const void* attention, const void* max, const void* sum, const void* dout,
                                          void* totals, void* dz_dst, void* dattention, void* messages, void* stream);
// n = heads * dim
int32_t cohop_gatv2_backward_sources(cohop_dtype scalar, const cohop_messages* transpose, const void* z_src, const void* z_dst,
                                     const void* attention, const void* dout, const void* messages, void* dz_src,
                                     void* stream);

// ---- edge_softmax (Attention) -----------------------------------------------------------------------------------
// n_edge is the length of x over heads. Scratch memory for rows of many entries, by
// segments = cohop_edge_softmax_segments(n_edge): hubs: [segments], records: [3 * segments, 2 * heads] scalars.
uint64_t cohop_edge_softmax_segments(uint64_t n_edge);
int32_t cohop_edge_softmax(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads, const uint32_t* indptr,
                           const void* x, uint32_t* hubs, void* records, void* out, cohop_status* status, void* stream);
int32_t cohop_edge_softmax_backward(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads,
                                    const uint32_t* indptr, const void* y, const void* dout, uint32_t* hubs, void* records,
                                    void* dx, cohop_status* status, void* stream);
int32_t cohop_invert_permutation(uint64_t n, const uint32_t* permutation, uint32_t* out, cohop_status* status, void* stream);

// ---- head_dot (Attention) ---------------------------------------------------------------------------------------
int32_t cohop_head_dot(cohop_dtype scalar, uint64_t rows, uint64_t heads, uint64_t dim, const void* x, const void* a,
                       void* out, void* stream);
int32_t cohop_head_dot_backward_input(cohop_dtype scalar, uint64_t rows, uint64_t heads, uint64_t dim, const void* a,
                                      const void* dout, void* dx, bool add, void* stream);
// scratch: [cohop_head_dot_parts(rows), heads * dim] scalars.
uint64_t cohop_head_dot_parts(uint64_t rows);
int32_t cohop_head_dot_backward_vector(cohop_dtype scalar, uint64_t rows, uint64_t heads, uint64_t dim, const void* x,
                                       const void* dout, void* scratch, void* da, void* stream);

// ---- relation (Relation) ----------------------------------------------------------------------------------------

// ---- batch_norm (BatchNorm) -------------------------------------------------------------------------------------
// Scratch of the sums: for each output [cols, cohop_sum_rows_parts(rows, cols)] scalars.
int32_t cohop_sum_squared_deviation(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const void* center,
                                    void* scratch, void* out, void* stream);
int32_t cohop_inverse_square_root(cohop_dtype scalar, uint64_t n, const void* x, double factor, double epsilon,
                                  void* out, void* stream);
int32_t cohop_normalize(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const void* mean,
                        const void* inverse_std, const void* gain, const void* bias, void* out, void* stream);
int32_t cohop_normalize_backward_parameters(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x,
                                            const void* mean, const void* inverse_std, const void* dout, void* scratch,
                                            void* dgain, void* dbias, void* stream);
// share: 1 / n_total, or 0 where the statistics were constants.
int32_t cohop_normalize_backward(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const void* mean,
                                 const void* inverse_std, const void* gain, const void* dout, const void* dgain,
                                 const void* dbias, double share, void* dx, void* stream);

// ---- loss (Loss) ------------------------------------------------------------------------------------------------
int32_t cohop_log_softmax_nll(cohop_dtype scalar, uint64_t rows, uint64_t n_class, const void* logits,
                              const int32_t* labels, void* lse, void* loss, cohop_status* status, void* stream);
int32_t cohop_log_softmax_nll_backward(cohop_dtype scalar, uint64_t rows, uint64_t n_class, const void* logits,
                                       const int32_t* labels, const void* lse, double factor, const void* dloss,
                                       void* dlogits, cohop_status* status, void* stream);

// ---- optimizer (Optimizer) --------------------------------------------------------------------------------------
// m = beta1 m + rest1 g, v = beta2 v + rest2 g^2, parameter = shrink parameter - rate m / (sqrt(correction2 v) + epsilon)
// with g = grad + decay parameter.
typedef struct cohop_adam {
  double decay;
  double shrink;
  double epsilon;
  double beta1;
  double rest1;
  double beta2;
  double rest2;
  double rate;
  double correction2;
} cohop_adam;

// step: on the host.
int32_t cohop_adam_step(cohop_dtype scalar, uint64_t n, const cohop_adam* step, const void* grad, void* first_moment,
                        void* second_moment, void* parameter, void* stream);
// n rows of the gradient, for those of the parameter, [rows, dim], that `index` says.
int32_t cohop_adam_rows(cohop_dtype scalar, uint64_t n, uint64_t rows, uint64_t dim, const cohop_adam* step,
                        const uint32_t* index, const void* grad, void* first_moment, void* second_moment,
                        void* parameter, cohop_status* status, void* stream);
int32_t cohop_sgd_step(cohop_dtype scalar, uint64_t n, double lr, double momentum, double weight_decay,
                       const void* grad, void* velocity, void* parameter, void* stream);

// ---- sample (Sample) --------------------------------------------------------------------------------------------

#ifdef __cplusplus
}
#endif
