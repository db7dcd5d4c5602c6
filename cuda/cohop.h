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
// Static or thread-local text; valid until the thread's next call.
const char* cohop_error_name(int32_t code);
const char* cohop_error_message(int32_t code);
// Kernels that launchers of this process have launched, not counting those of CUDA's own libraries. 0 on the emulator,
// which counts by device.
uint64_t cohop_launches(void);

// ---- storage (Storage) ------------------------------------------------------------------------------------------
// out[i] = the value of element_bytes (1, 2, 4 or 8) bytes at the host address `value`.
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
// out (= | +=) alpha x / y
int32_t cohop_divide(cohop_dtype scalar, uint64_t n, double alpha, const void* x, const void* y, void* out, bool add,
                     void* stream);
typedef enum cohop_function { COHOP_SQUARE_ROOT = 0, COHOP_EXPONENTIAL = 1, COHOP_LOGARITHM = 2 } cohop_function;
int32_t cohop_map(cohop_dtype scalar, uint64_t n, cohop_function function, const void* x, void* out, void* stream);
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
// The number of parts into which sums over rows cut the rows; scratch: [cols, parts] scalars.
uint64_t cohop_sum_rows_parts(uint64_t rows, uint64_t cols);
int32_t cohop_sum_rows(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, void* scratch, void* out,
                       bool add, void* stream);
// scratch: [cohop_dot_parts(n)] doubles.
uint64_t cohop_dot_parts(uint64_t n);
int32_t cohop_dot(cohop_dtype scalar, uint64_t n, const void* x, const void* y, double* scratch, void* out,
                  void* stream);

// ---- gather (Gather) --------------------------------------------------------------------------------------------
int32_t cohop_gather(cohop_dtype scalar, cohop_dtype element, uint64_t rows, uint64_t cols, const void* table,
                     uint64_t n_table, const uint32_t* index, void* out, cohop_status* status, void* stream);
int32_t cohop_narrow_index(uint64_t n, const uint64_t* index, uint64_t limit, uint32_t* out, cohop_status* status,
                           void* stream);
uint64_t cohop_scatter_add_bytes(cohop_dtype scalar, uint64_t rows, uint64_t cols);
// scratch: cohop_scatter_add_bytes(scalar, rows, cols) bytes.
int32_t cohop_scatter_add(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, const uint32_t* index,
                          uint64_t n_out, void* scratch, void* out, cohop_status* status, void* stream);
// scratch: cohop_spmm_bytes(scalar, n_edge, longest_row, cols) bytes, where cols is the table's. The factors `edge`,
// `row`, `column` and `own` are optional; out: [n_rows, cols], or [n_rows, 2 * cols] without `own`.
int32_t cohop_gather_aggregate(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_cols,
                               uint64_t n_edge, uint64_t longest_row, uint64_t cols, const void* table,
                               uint64_t n_table, const uint32_t* index, const uint32_t* indptr,
                               const uint32_t* indices, const void* edge, const void* row, const void* column,
                               const void* own, void* scratch, void* out, cohop_status* status, void* stream);

// ---- spmm (Spmm) ------------------------------------------------------------------------------------------------
// `longest_row`: the most entries of a row that the caller expects; n_edge if it knows no better. Where that is little,
// long rows are not cut: no second launch, and no scratch memory. A row that has more all the same is only slow.
uint64_t cohop_spmm_bytes(cohop_dtype scalar, uint64_t n_edge, uint64_t longest_row, uint64_t cols);
// scratch: cohop_spmm_bytes(scalar, n_edge, longest_row, cols) bytes. `positions` and the factors `edge`, `row`,
// `column` are optional. `element` is the type of x: COHOP_F16, COHOP_BF16 or `scalar`.
int32_t cohop_spmm(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_edge, uint64_t longest_row,
                   uint64_t cols, const uint32_t* indptr, const uint32_t* indices, const uint32_t* positions,
                   const void* edge, const void* row, const void* column, const void* x, void* scratch, void* out,
                   bool add, void* stream);
// weight: [n_edge, heads], x: [_, heads * dim]; scratch: cohop_spmm_bytes(scalar, n_edge, longest_row, heads * dim)
// bytes.
int32_t cohop_spmm_heads(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t longest_row, uint64_t heads,
                         uint64_t dim, const uint32_t* indptr, const uint32_t* indices, const uint32_t* positions,
                         const void* weight, const void* x, void* scratch, void* out, bool add, void* stream);
uint64_t cohop_spmm_max_bytes(cohop_dtype scalar, uint64_t n_edge, uint64_t longest_row, uint64_t cols);
// scratch: cohop_spmm_max_bytes(scalar, n_edge, longest_row, cols) bytes. `element` is the type of x, as in cohop_spmm;
// `factor`, one scalar for each of its rows, is optional, and none if it is `scalar`.
int32_t cohop_spmm_max(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_edge, uint64_t longest_row,
                       uint64_t cols, const uint32_t* indptr, const uint32_t* indices, const void* x,
                       const void* factor, void* scratch, void* out, uint32_t* argmax, void* stream);
// scratch: cohop_spmm_bytes(scalar, n_edge, longest_row, cols) bytes. `element` and `factor` as in cohop_spmm_max, of
// dout.
int32_t cohop_spmm_max_backward(cohop_dtype scalar, cohop_dtype element, uint64_t n_rows, uint64_t n_edge,
                                uint64_t longest_row, uint64_t cols, const uint32_t* indptr, const uint32_t* indices,
                                const uint32_t* edge, const uint32_t* argmax, const void* dout, const void* factor,
                                void* scratch, void* dx, bool add, void* stream);

// ---- narrow (Narrow) --------------------------------------------------------------------------------------------
// `element`: COHOP_F16 or COHOP_BF16; factor: [rows], optional.
int32_t cohop_narrow(cohop_dtype scalar, cohop_dtype element, uint64_t rows, uint64_t cols, const void* x, void* out,
                     void* factor, void* stream);
int32_t cohop_widen(cohop_dtype scalar, cohop_dtype element, uint64_t n, const void* x, void* out, void* stream);

// ---- exchange (Exchange) ----------------------------------------------------------------------------------------
// Some rows of a table that another device has offered: those that `rows: [n_rows]` names, also in its memory.
typedef struct cohop_offered_rows {
  const void* table;  // [n_table, cols]
  uint64_t n_table;
  const uint32_t* rows;
  uint64_t n_rows;
} cohop_offered_rows;
enum { COHOP_MAX_TABLES = 64 };

// from: [n_tables] on the host, at most COHOP_MAX_TABLES. out: [number of rows of all, cols]
int32_t cohop_gather_offered(cohop_dtype scalar, cohop_dtype element, uint64_t cols, const cohop_offered_rows* from,
                             uint32_t n_tables, const uint32_t* order, void* out, cohop_status* status, void* stream);
// out: [n_out, cols]; index: [from->n_rows], no number twice. Without from->rows, all of the table, in order.
int32_t cohop_add_offered(cohop_dtype scalar, uint64_t cols, const cohop_offered_rows* from, const uint32_t* index,
                          uint64_t n_out, void* out, cohop_status* status, void* stream);
// Rows of any elements, as they are. row_bytes: a multiple of 2. out: [rows]
int32_t cohop_pack_rows(uint64_t row_bytes, uint64_t rows, const void* table, uint64_t n_table, const uint32_t* index,
                        void* out, cohop_status* status, void* stream);

// ---- structure (Structure) --------------------------------------------------------------------------------------
uint64_t cohop_transpose_bytes(uint64_t n_edge);
// scratch: cohop_transpose_bytes(n_edge) bytes.
int32_t cohop_transpose(uint64_t n_rows, uint64_t n_cols, uint64_t n_edge, const uint32_t* indptr,
                        const uint32_t* indices, void* scratch, uint32_t* out_indptr, uint32_t* out_indices,
                        uint32_t* out_edge, void* stream);
int32_t cohop_inverse_degree(cohop_dtype scalar, uint64_t n, const uint32_t* indptr, double offset, void* out,
                             void* stream);
int32_t cohop_inverse_weight_sum(cohop_dtype scalar, uint64_t n, const uint32_t* indptr, const void* weight,
                                 double offset, void* out, void* stream);
int32_t cohop_invert_permutation(uint64_t n, const uint32_t* permutation, uint32_t* out, cohop_status* status,
                                 void* stream);

// ---- sddmm (Sddmm) ----------------------------------------------------------------------------------------------
int32_t cohop_sddmm_dot(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads, uint64_t dim,
                        const uint32_t* indptr, const uint32_t* indices, const void* x, const void* y, void* out,
                        bool add, void* stream);
int32_t cohop_sddmm_add(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t cols, const uint32_t* indptr,
                        const uint32_t* indices, const void* x, const void* y, void* out, bool add, void* stream);

// ---- attention (Attention) --------------------------------------------------------------------------------------
// A pattern, its heads and its messages (Csr, AttentionSpec); a struct of the host.
typedef struct cohop_messages {
  uint64_t n_rows;
  uint64_t n_edge;
  const uint32_t* indptr;   // [n_rows + 1]
  const uint32_t* indices;  // [n_edge]
  const uint32_t* edge;     // [n_edge]; null: values are at the entries' own positions
  uint64_t n_own;           // the first rows, which have a self-loop; 0 without self-loops
  uint64_t heads;
  uint64_t dim;
  double slope;
  const uint32_t* vertices;  // dropout: ids of the sources; null: no dropout, and then scale is 1
  uint32_t threshold;        // words below are dropped
  double scale;              // of the messages that are kept
  uint64_t seed;
  uint64_t stream_number;
  // Scratch memory for rows of many entries, by segments = cohop_attention_segments(n_edge).
  uint32_t* hubs;  // [segments]
  void* records;   // [2 * segments, n] scalars; n is stated with each kernel
} cohop_messages;

// What cohop_gat_backward also reads (GatSaved).
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
int32_t cohop_gat(cohop_dtype scalar, const cohop_messages* a, const void* z, const void* score_src,
                  const void* score_dst, void* out, void* max, void* sum, void* stream);
// n = heads + heads * dim; stats: [n_dst, heads, 4] scalars of scratch memory.
int32_t cohop_gat_backward(cohop_dtype scalar, const cohop_messages* transpose, uint64_t n_dst,
                           const cohop_gat_saved* saved, void* stats, void* dz, void* dscore_src, void* dscore_dst_own,
                           void* dscore_edge, void* stream);
// n = 2 * heads + heads * dim
int32_t cohop_gatv2(cohop_dtype scalar, const cohop_messages* a, const void* z_src, const void* z_dst,
                    const void* attention, void* out, void* max, void* sum, void* stream);
// n = heads + 4 * heads * dim; totals: [segments, heads] scalars of scratch memory.
int32_t cohop_gatv2_backward_destinations(cohop_dtype scalar, const cohop_messages* a, const void* z_src,
                                          const void* z_dst, const void* attention, const void* max, const void* sum,
                                          const void* dout, void* totals, void* dz_dst, void* dattention,
                                          void* messages, void* stream);
// n = heads * dim
int32_t cohop_gatv2_backward_sources(cohop_dtype scalar, const cohop_messages* transpose, const void* z_src,
                                     const void* z_dst, const void* attention, const void* dout, const void* messages,
                                     void* dz_src, void* stream);

// ---- edge_softmax (Attention) -----------------------------------------------------------------------------------
// n_edge is the length of x over heads. Scratch memory for rows of many entries, by
// segments = cohop_edge_softmax_segments(n_edge): hubs: [segments], records: [3 * segments, 2 * heads] scalars.
uint64_t cohop_edge_softmax_segments(uint64_t n_edge);
int32_t cohop_edge_softmax(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads, const uint32_t* indptr,
                           const void* x, uint32_t* hubs, void* records, void* out, cohop_status* status, void* stream);
int32_t cohop_edge_softmax_backward(cohop_dtype scalar, uint64_t n_rows, uint64_t n_edge, uint64_t heads,
                                    const uint32_t* indptr, const void* y, const void* dout, uint32_t* hubs,
                                    void* records, void* dx, cohop_status* status, void* stream);

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
// Scratch memory of both launchers: the second needs what the first left there.
uint64_t cohop_group_relations_bytes(uint64_t n_edge);
// Sorts edges; offsets: [n_relations + 1], the last of which is the number of groups.
int32_t cohop_sort_relations(uint64_t n_dst, uint64_t n_src, uint64_t n_edge, uint64_t n_relations,
                             const uint32_t* indptr, const uint32_t* indices, const uint16_t* edge_type, void* scratch,
                             uint32_t* destination_offsets, uint32_t* source_offsets, cohop_status* status,
                             void* stream);

// Fields of RelationGroups and GroupsByRow; `offsets` is read, all else is written.
typedef struct cohop_relation_groups {
  uint64_t n_rows;
  uint64_t n_group;
  const uint32_t* offsets;
  uint32_t* row;
  uint32_t* indptr;
  uint32_t* indices;
  uint32_t* partner;
  void* weight;
  uint32_t* group_indptr;
  uint32_t* row_groups;
  uint32_t* edge_indptr;
  uint32_t* edge_partner;
  void* edge_weight;
} cohop_relation_groups;

// The structs are on the host; `weight` may be null; factor: [n_edge], in the block's order.
int32_t cohop_group_relations(cohop_dtype scalar, uint64_t n_edge, const uint32_t* indices, const void* weight,
                              void* scratch, const cohop_relation_groups* by_destination,
                              const cohop_relation_groups* by_source, uint32_t* destination_group,
                              uint32_t* source_group, void* factor, void* stream);
// out[g, :] = factor[g] x[index[g], :] W_r for the groups g of each relation r; x: [_, inner], out: [n_group, n],
// weight: [n_relations, inner, n] or, transposed, [n_relations, n, inner]. Null: index g, factor 1.
int32_t cohop_relation_product(cohop_dtype scalar, uint64_t n_relations, uint64_t n_group, const uint32_t* offsets,
                               uint64_t inner, uint64_t n, const uint32_t* index, const void* factor, const void* x,
                               const void* weight, bool transposed, void* out, void* stream);
// dweight[r] = sum over the groups g of r of (left row of g)^T (right row of g), rows as above; left: [_, k], right:
// [_, n], dweight: [n_relations, k, n], parts: [cohop_relation_weight_gradient_parts(...), k, n].
uint64_t cohop_relation_weight_gradient_parts(uint64_t n_relations, uint64_t n_group, uint64_t k, uint64_t n);
int32_t cohop_relation_weight_gradient(cohop_dtype scalar, uint64_t n_relations, uint64_t n_group,
                                       const uint32_t* offsets, uint64_t k, uint64_t n, const uint32_t* left_index,
                                       const void* left_factor, const void* left, const uint32_t* right_index,
                                       const void* right_factor, const void* right, void* parts, void* dweight,
                                       void* stream);

// ---- batch_norm (BatchNorm) -------------------------------------------------------------------------------------
// Scratch of the sums: for each output [cols, cohop_sum_rows_parts(rows, cols)] scalars.
// scratch: [3, cols, cohop_sum_rows_parts(rows, cols)] scalars; mean, squares: [cols].
int32_t cohop_moments(cohop_dtype scalar, uint64_t rows, uint64_t cols, const void* x, void* scratch, void* mean,
                      void* squares, void* stream);
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
// out[0] += the number of rows whose largest score is at their label.
int32_t cohop_count_right(cohop_dtype scalar, uint64_t n, uint64_t n_class, const void* scores, const int32_t* labels,
                          uint32_t* out, void* stream);
typedef enum cohop_element_loss { COHOP_BINARY_CROSS_ENTROPY = 0, COHOP_SQUARED_ERROR = 1 } cohop_element_loss;
int32_t cohop_element_loss_forward(cohop_dtype scalar, cohop_element_loss kind, uint64_t n, const void* x,
                                   const void* target, void* loss, void* stream);
int32_t cohop_element_loss_backward(cohop_dtype scalar, cohop_element_loss kind, uint64_t n, const void* x,
                                    const void* target, double factor, const void* dloss, void* dx, void* stream);

// ---- optimizer (Optimizer) --------------------------------------------------------------------------------------
// m = beta1 m + rest1 g, v = beta2 v + rest2 g^2, parameter = shrink parameter - rate m / (sqrt(correction2 v) +
// epsilon) with g = grad + decay parameter.
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

// A parameter of n scalars, its gradient and its state: Adam's two moments, or SGD's velocity, which has no second.
typedef struct cohop_parameter {
  uint64_t n;
  const void* grad;
  void* first_moment;
  void* second_moment;
  void* value;
} cohop_parameter;

// parameters, steps: [n_parameters], on the host. A launch takes up to 32 parameters.
int32_t cohop_adam_step(cohop_dtype scalar, uint64_t n_parameters, const cohop_parameter* parameters,
                        const cohop_adam* steps, void* stream);
// step: on the host. n rows of the gradient, for those of the parameter, [rows, dim], that `index` says.
int32_t cohop_adam_rows(cohop_dtype scalar, uint64_t n, uint64_t rows, uint64_t dim, const cohop_adam* step,
                        const uint32_t* index, const void* grad, void* first_moment, void* second_moment,
                        void* parameter, cohop_status* status, void* stream);
int32_t cohop_sgd_step(cohop_dtype scalar, uint64_t n_parameters, const cohop_parameter* parameters, double lr,
                       double momentum, double weight_decay, void* stream);

// ---- sample (Sample) --------------------------------------------------------------------------------------------
// A layer is sampled in three steps. Rows: destinations are looked up and checked. Picking: how many edges each row
// keeps, by rule or by a count; a prefix sum; the edges. Relabelling: sources get their positions in the block.
// Between the steps the host reads `found` and allocates what comes next.

typedef struct cohop_graph {
  uint64_t n_vertices;
  const uint64_t* indptr;    // [n_vertices + 1]
  const uint32_t* indices;   // [n_edges]
  const uint16_t* edge_type; // [n_edges], or null
  const float* edge_weight;  // [n_edges], or null
} cohop_graph;

// What a minibatch draws from: `rng::Variates`.
typedef struct cohop_variates {
  uint64_t first;          // the seed of draws that have not changed
  uint64_t second;         // of those that have
  uint64_t renewal;        // of when they do
  uint64_t renewed_below;  // a draw has changed if its word under `renewal` is below this
  double cos;
  double sin;
} cohop_variates;

// Entries of `found`, [COHOP_FOUND_ENTRIES] in device memory.
enum {
  COHOP_FOUND_OUT_OF_RANGE = 0,  // the first position of a destination that is not a vertex; UINT64_MAX: none
  COHOP_FOUND_REPEATED = 1,      // the first position of a destination that came before; UINT64_MAX: none
  COHOP_FOUND_HUBS = 2,          // rows of more than COHOP_HUB_DEGREE in-edges
  COHOP_FOUND_KEPT = 3,          // edges of the block
  COHOP_FOUND_SCRATCH = 4,       // elements of a method's own scratch memory
  COHOP_FOUND_EXPECTED = 5,      // LABOR: the expected number of sources, times 2^32
  COHOP_FOUND_NEW = 6,           // sources of the block that are no destinations
  COHOP_FOUND_ENTRIES = 8
};

// Rows beyond this degree are processed by a block instead of a warp.
enum { COHOP_HUB_DEGREE = 4096 };

// The destinations of a layer.
typedef struct cohop_rows {
  uint64_t n;
  const uint32_t* vertex;  // [n]
  uint64_t* start;         // [n]: the first in-edge
  uint32_t* degree;        // [n]
  uint32_t* hub;           // [n]: the rows beyond COHOP_HUB_DEGREE, in any order
  uint64_t* found;         // [COHOP_FOUND_ENTRIES]
} cohop_rows;

// table: [2 n], for finding repeats.
int32_t cohop_sample_rows(cohop_graph graph, cohop_rows rows, uint64_t* table, void* stream);

// row, own: [n_dst]; column: [n_src]; indptr: [n_dst + 1]; weighted: [n_vertices], sums of weights, or null.
int32_t cohop_sample_degree_factors(cohop_dtype scalar, cohop_graph graph, const double* weighted, uint64_t n_src,
                                    uint64_t n_dst, const uint32_t* src, const uint32_t* indptr, bool has_estimates,
                                    void* row, void* column, void* own, void* stream);

// How many of something a row of degree d has, for a fanout of k.
typedef enum cohop_count_rule {
  COHOP_COUNT_ALL = 0,          // d
  COHOP_COUNT_AT_MOST = 1,      // min(d, k)
  COHOP_COUNT_DRAWS = 2,        // k, or 0 if d is
  COHOP_COUNT_WORDS = 3,        // ceil(d / 32)
  COHOP_COUNT_WORDS_ABOVE = 4   // ceil(d / 32) if d > k, or 0
} cohop_count_rule;

// offsets: [n + 1], of which [1 ..= n] are counts (at most 2^32 each) until cohop_sample_offsets sums them up.
int32_t cohop_sample_count(cohop_rows rows, cohop_count_rule rule, uint64_t fanout, uint64_t* offsets, void* stream);
uint64_t cohop_sample_offsets_bytes(uint64_t n);
// Turns counts into prefix sums, and writes the total to *total.
int32_t cohop_sample_offsets(uint64_t n, uint64_t* offsets, void* scratch, uint64_t* total, void* stream);
int32_t cohop_sample_indptr(uint64_t n, const uint64_t* offsets, uint32_t* indptr, void* stream);

// The launchers below fill edge_id, [n_edge], with the edges that rows keep, ascending in each row.

// All in-edges.
int32_t cohop_sample_all(cohop_rows rows, const uint32_t* indptr, uint64_t n_edge, uint64_t* edge_id, void* stream);

// Floyd's subsets of a fanout that one warp can hold.
enum { COHOP_SUBSET_MAX_FANOUT = 128 };
int32_t cohop_sample_subset(cohop_rows rows, const uint32_t* indptr, cohop_variates variates, uint32_t layer,
                            uint64_t fanout, uint64_t* edge_id, void* stream);
// Of any fanout. place_bits: the bits of every in-degree of the graph. key, sorted: [n_edge]; order: [n_edge];
// repeated: [n_edge]; scratch: cohop_sample_sort_bytes(n_edge).
uint64_t cohop_sample_sort_bytes(uint64_t n_edge);
int32_t cohop_sample_subset_sorted(cohop_rows rows, const uint32_t* indptr, uint64_t n_edge,
                                   cohop_variates variates, uint32_t layer, uint64_t fanout, uint32_t place_bits,
                                   uint64_t* key, uint64_t* sorted, uint32_t* order, uint8_t* repeated, void* scratch,
                                   uint64_t* edge_id, void* stream);

// With replacement. word_offsets: of COHOP_COUNT_WORDS; running: [words], row_sum, row_last: [n].
int32_t cohop_sample_running_sums(cohop_graph graph, cohop_rows rows, const uint64_t* word_offsets, double* running,
                                  double* row_sum, uint32_t* row_last, void* stream);
// Draws, unsorted; without weights if `running` is null.
int32_t cohop_sample_draws(cohop_graph graph, cohop_rows rows, const uint32_t* indptr, uint64_t n_edge,
                           cohop_variates variates, uint32_t layer, const uint64_t* word_offsets, const double* running,
                           const double* row_sum, const uint32_t* row_last, uint64_t* edge_id, void* stream);
// Sorts each row, of which none is longer than 32.
int32_t cohop_sample_sort_rows(uint64_t n, const uint32_t* indptr, uint64_t* edge_id, void* stream);
// Sorts rows of any length. key, sorted: [n_edge]; order: [n_edge].
int32_t cohop_sample_sort_long_rows(cohop_rows rows, const uint32_t* indptr, uint64_t n_edge, uint32_t place_bits,
                                    uint64_t* key, uint64_t* sorted, uint32_t* order, void* scratch, uint64_t* edge_id,
                                    void* stream);

// Edges of positive weight of each row, or with `draws` the fanout where there are any, into counts: [n].
int32_t cohop_sample_count_weighted(cohop_graph graph, cohop_rows rows, uint64_t fanout, bool draws, uint64_t* counts,
                                    void* stream);

// What the keys are variates of.
typedef enum cohop_key {
  COHOP_KEY_EDGE = 0,      // of the edge
  COHOP_KEY_SOURCE = 1,    // of the edge's source
  COHOP_KEY_WEIGHTED = 2   // exponential, of the edge: only edges of positive weight have one
} cohop_key;
// The `fanout` edges of each row with the smallest keys, ties to the lower id.
int32_t cohop_sample_smallest(cohop_graph graph, cohop_rows rows, const uint32_t* indptr, cohop_variates variates,
                              uint64_t stream_number, cohop_key key, uint64_t fanout, uint64_t* edge_id, void* stream);

// The same in each relation. word_offsets: of COHOP_COUNT_WORDS_ABOVE; kept: [words], a bit for each edge.
int32_t cohop_sample_mark_relations(cohop_graph graph, cohop_rows rows, cohop_variates variates, uint64_t stream_number,
                                    uint64_t fanout, const uint64_t* word_offsets, uint32_t* kept, uint64_t* counts,
                                    void* stream);
int32_t cohop_sample_marked(cohop_rows rows, const uint32_t* indptr, uint64_t fanout, const uint64_t* word_offsets,
                            const uint32_t* kept, uint64_t* edge_id, void* stream);

// LABOR-0: writes counts, [n], or if `counts` is null the edges.
int32_t cohop_sample_labor0(cohop_graph graph, cohop_rows rows, cohop_variates variates, uint64_t stream_number,
                            uint64_t fanout, uint64_t* counts, const uint32_t* indptr, uint64_t* edge_id, void* stream);

// LABOR-i: what is known of the candidates, the sources of all in-edges, each of which has a slot.
typedef struct cohop_labor {
  uint64_t n_slots;
  uint32_t* id;             // [n_slots]; UINT32_MAX: empty
  uint32_t* word;           // [n_slots]: variates
  double* pi;               // [n_slots]
  double* largest;          // [n_slots]: the largest c pi of the rows that a candidate is in
  double* scale;            // [n]: c
  const uint64_t* offsets;  // [n + 1]: of COHOP_COUNT_ALL
  uint32_t* slot;           // [n_in_edges], or null: a vertex's slot is its id
} cohop_labor;
int32_t cohop_sample_labor_gather(cohop_graph graph, cohop_rows rows, uint64_t n_in_edges, cohop_variates variates,
                                  uint64_t stream_number, cohop_labor labor, cohop_status* status, void* stream);
// One solution for c, and the largest c pi. found[COHOP_FOUND_EXPECTED] = the expected number of sources.
int32_t cohop_sample_labor_solve(cohop_graph graph, cohop_rows rows, uint64_t fanout, cohop_labor labor, void* stream);
// As cohop_sample_labor0.
int32_t cohop_sample_labor_poisson(cohop_graph graph, cohop_rows rows, uint64_t fanout, cohop_labor labor,
                                   uint64_t* counts, const uint32_t* indptr, uint64_t* edge_id, void* stream);
int32_t cohop_sample_labor_smallest(cohop_graph graph, cohop_rows rows, uint64_t fanout, cohop_labor labor,
                                    const uint32_t* indptr, uint64_t* edge_id, void* stream);
// weight: [n_edge].
int32_t cohop_sample_labor_weights(cohop_dtype scalar, cohop_graph graph, cohop_rows rows, uint64_t fanout,
                                   cohop_labor labor, const uint32_t* indptr, const uint64_t* edge_id, void* weight,
                                   void* stream);

// Random walks of the rows first_row .. first_row + n_rows. A row has n_visits = walks * length visits and at most
// most = min(fanout, n_visits) neighbours. key, sorted: [n_rows, n_visits]; times: [n_rows, n_visits];
// vertex, visits: [n, most]; counts: [n].
int32_t cohop_sample_walks(cohop_graph graph, cohop_rows rows, uint64_t first_row, uint64_t n_rows,
                           cohop_variates variates, uint32_t layer, uint32_t walks, uint32_t length,
                           double restart, uint64_t most, uint64_t* key, uint64_t* sorted, uint32_t* times,
                           void* scratch, uint32_t* vertex, uint32_t* visits, uint64_t* counts, cohop_status* status,
                           void* stream);
int32_t cohop_sample_walk_neighbors(cohop_dtype scalar, uint64_t n, uint64_t most, const uint32_t* indptr,
                                    const uint32_t* vertex, const uint32_t* visits, uint32_t* source, void* weight,
                                    void* stream);

// Fills out with draws, for the comparison with src/rng. out: [n] of 8 bytes.
typedef enum cohop_draw {
  COHOP_DRAW_UNIFORM = 0,
  COHOP_DRAW_UNIFORM_OPEN = 1,
  COHOP_DRAW_BOUNDED = 2,          // below parameter[i]
  COHOP_DRAW_VARIATE = 3,
  COHOP_DRAW_LN = 4,               // of parameter[i], a double's bits
  COHOP_DRAW_EXP = 5,
  COHOP_DRAW_NORMAL_CDF = 6,
  COHOP_DRAW_NORMAL_QUANTILE = 7
} cohop_draw;
int32_t cohop_sample_draw(cohop_draw draw, cohop_variates variates, uint64_t stream_number, uint64_t n,
                          const uint64_t* parameter, uint64_t* out, void* stream);

// ---- relabel (Sample) -------------------------------------------------------------------------------------------
// Sources of the edges, and where each source comes first: dst[i] at i, edge e at n_dst + e.
// edge_id: [n_edge], UINT64_MAX for an edge that there is not, after all others; null: walks. source: [n_edge], an
// output unless edge_id is null; first: [n_edge]; rank: [n_edge + 1]; table: [n_slots],
// at least two for each id that can come; edge_type, edge_weight: [n_edge] or null, the latter of scalars. *n_new = the
// number of new sources.
uint64_t cohop_relabel_bytes(uint64_t n_edge);
int32_t cohop_relabel_find(cohop_graph graph, cohop_dtype scalar, uint64_t n_dst, const uint32_t* dst, uint64_t n_edge,
                           const uint64_t* edge_id, uint32_t* source, uint32_t* first, uint32_t* rank, uint64_t n_slots,
                           uint64_t* table, uint16_t* edge_type, void* edge_weight, void* scratch, uint64_t* n_new,
                           cohop_status* status, void* stream);
// src: [n_dst + n_new]; indices: [n_edge], may be first.
int32_t cohop_relabel_finish(uint64_t n_dst, const uint32_t* dst, uint64_t n_edge, const uint32_t* source,
                             const uint32_t* first, const uint32_t* rank, uint32_t* src, uint32_t* indices,
                             void* stream);

#ifdef __cplusplus
}
#endif
