// A dense product per relation, of all its groups with its own weights, all relations in one launch; and the gradient
// of the weights. Sums over edges are sparse products (spmm.cu), before or after.
//
// Groups are cut into parts of one relation each. Relation r has its parts from slot offsets[r] / size + r on (rounded
// down), so that a block finds its part by bisection and no table of parts is needed; at most one slot per relation has
// no groups. Compute-bound from some dozens of columns on.
#include "tile_product.cuh"

namespace cohop {
namespace {

/// Where each relation's groups begin: offsets[n_relations + 1].
struct Relations {
  uint64_t n_relations;
  uint64_t n_group;
  const uint32_t* offsets;

  __host__ __device__ uint64_t slots(uint64_t size) const { return n_group / size + n_relations; }
  __device__ uint64_t slot(uint64_t relation, uint64_t size) const { return offsets[relation] / size + relation; }
};

/// Groups first..end of one relation.
struct Part {
  uint64_t relation, first, end;

  __device__ Part(const Relations& relations, uint64_t size, uint64_t slot) {
    uint64_t low = 0, high = relations.n_relations;  // slot(low) <= slot < slot(high)
    while (high - low > 1) {
      const uint64_t middle = low + (high - low) / 2;
      if (relations.slot(middle, size) <= slot) low = middle; else high = middle;
    }
    const uint64_t last = relations.offsets[low + 1];
    relation = low;
    first = relations.offsets[low] + (slot - relations.slot(low, size)) * size;
    end = first + size < last ? first + size : last;
  }
  __device__ bool is_empty() const { return first >= end; }
};

/// Rows of a matrix, one per group: `index` says which (null: the group's own number), `factor` what to multiply them
/// by (null: 1).
template <class S>
struct GroupRows {
  const uint32_t* index;
  const S* factor;
  const S* x;
};

/// A block has a tile of groups of one relation by columns; neighbouring blocks have the same groups.
template <bool TRANSPOSED, int N, class S>
__global__ void __launch_bounds__(BLOCK) relation_product_kernel(Relations relations, uint64_t inner, uint64_t n,
                                                                 uint64_t column_tiles, GroupRows<S> rows,
                                                                 const S* __restrict__ weight, S* __restrict__ out) {
  constexpr int ROWS = Tile<S>::ROWS, COLUMNS = Tile<S>::COLUMNS;
  const Part part(relations, ROWS, blockIdx.x / column_tiles);
  if (part.is_empty()) return;
  const uint64_t column = blockIdx.x % column_tiles * COLUMNS, group = part.first + threadIdx.x % ROWS;
  weight += part.relation * inner * n;
  InnerLines<S, ROWS, N> left = {nullptr, S(1), inner, {}};
  if (group < part.end) {
    left.line = rows.x + (rows.index ? rows.index[group] : group) * inner;
    if (rows.factor) left.factor = rows.factor[group];
  }
  S sum[Tile<S>::ROW_RUN][Tile<S>::COLUMN_RUN] = {};
  if constexpr (TRANSPOSED) {
    const uint64_t line = column + threadIdx.x % COLUMNS;
    multiply_tile(inner, left, InnerLines<S, COLUMNS, N>{line < n ? weight + line * inner : nullptr, S(1), inner, {}},
                  sum);
  } else {
    const uint32_t lines = static_cast<uint32_t>(inner);
    multiply_tile(inner, left, OuterLines<S, COLUMNS, N>{weight, nullptr, nullptr, 0, lines, n, column, {}}, sum);
  }
  write_tile(sum, part.end - part.first, n - column, n, out + part.first * n + column);
}

/// Groups of a part of a weight gradient: enough parts to fill any device, few enough for their sums to take little
/// memory.
uint64_t gradient_part(uint64_t n_group, uint64_t k, uint64_t n) {
  const uint64_t tiles = ((k + 63) / 64) * ((n + 63) / 64), even = n_group / 2048 * tiles;
  return even < 256 ? 256 : (even + TILE_DEPTH - 1) / TILE_DEPTH * TILE_DEPTH;
}

/// A block has a tile of one part's gradient. If the part is all of its relation, that is the result; otherwise it goes
/// to `parts`: [slots, k, n].
template <int N, class S>
__global__ void __launch_bounds__(BLOCK, 1) relation_weight_gradient_kernel(Relations relations, uint64_t part_size,
                                                                            uint64_t k, uint64_t n, GroupRows<S> left,
                                                                            GroupRows<S> right, S* __restrict__ parts,
                                                                            S* __restrict__ dweight) {
  constexpr int ROWS = Tile<S>::ROWS, COLUMNS = Tile<S>::COLUMNS;
  const uint64_t column_tiles = (n + COLUMNS - 1) / COLUMNS, tiles = (k + ROWS - 1) / ROWS * column_tiles;
  const uint64_t slot = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const Part part(relations, part_size, slot);
  if (part.is_empty()) return;
  const uint64_t row = tile / column_tiles * ROWS, column = tile % column_tiles * COLUMNS;
  const uint32_t first = static_cast<uint32_t>(part.first), inner = static_cast<uint32_t>(part.end - part.first);
  S sum[Tile<S>::ROW_RUN][Tile<S>::COLUMN_RUN] = {};
  multiply_tile(inner, OuterLines<S, ROWS, N>{left.x, left.index, left.factor, first, inner, k, row, {}},
                OuterLines<S, COLUMNS, N>{right.x, right.index, right.factor, first, inner, n, column, {}}, sum);
  const uint64_t begin = relations.offsets[part.relation], end = relations.offsets[part.relation + 1];
  S* to = end - begin <= part_size ? dweight + part.relation * k * n : parts + slot * k * n;
  write_tile(sum, k - row, n - column, n, to + row * n + column);
}

/// dweight = the sum of a relation's parts in their order; 0 if there are none. A single part is already in place.
template <class S>
__global__ void __launch_bounds__(BLOCK) add_gradient_parts_kernel(Relations relations, uint64_t part_size,
                                                                   uint64_t size, const S* __restrict__ parts,
                                                                   S* __restrict__ dweight) {
  for (uint64_t i = grid_thread(); i < relations.n_relations * size; i += grid_threads()) {
    const uint64_t relation = i / size, begin = relations.offsets[relation], end = relations.offsets[relation + 1];
    const uint64_t n_parts = (end - begin + part_size - 1) / part_size;
    if (n_parts == 1) continue;
    const S* part = parts + relations.slot(relation, part_size) * size + i % size;
    S sum = 0;
    for (uint64_t p = 0; p < n_parts; p++) sum += part[p * size];
    dweight[i] = sum;
  }
}

template <bool TRANSPOSED, class S>
int32_t relation_product(const Relations& relations, uint64_t inner, uint64_t n, const GroupRows<S>& rows,
                         const S* weight, S* out, void* stream) {
  const uint64_t column_tiles = (n + Tile<S>::COLUMNS - 1) / Tile<S>::COLUMNS;
  const unsigned blocks = grid_of(relations.slots(Tile<S>::ROWS) * column_tiles);
  if (packs<S>(inner, rows.x, weight) && (TRANSPOSED || n % PACK<S> == 0)) {
    COHOP_LAUNCH((relation_product_kernel<TRANSPOSED, PACK<S>, S>), blocks, BLOCK, 0, stream, relations, inner, n,
                 column_tiles, rows, weight, out);
  } else {
    COHOP_LAUNCH((relation_product_kernel<TRANSPOSED, 1, S>), blocks, BLOCK, 0, stream, relations, inner, n,
                 column_tiles, rows, weight, out);
  }
  return cohop_last_error();
}

template <class S>
int32_t relation_weight_gradient(const Relations& relations, uint64_t k, uint64_t n, const GroupRows<S>& left,
                                 const GroupRows<S>& right, S* parts, S* dweight, void* stream) {
  const uint64_t part_size = gradient_part(relations.n_group, k, n);
  if (relations.n_group > 0) {
    const uint64_t row_tiles = (k + Tile<S>::ROWS - 1) / Tile<S>::ROWS;
    const uint64_t column_tiles = (n + Tile<S>::COLUMNS - 1) / Tile<S>::COLUMNS;
    const unsigned blocks = grid_of(relations.slots(part_size) * row_tiles * column_tiles);
    if (packs<S>(k, left.x) && packs<S>(n, right.x)) {
      COHOP_LAUNCH((relation_weight_gradient_kernel<PACK<S>, S>), blocks, BLOCK, 0, stream, relations, part_size, k, n,
                   left, right, parts, dweight);
    } else {
      COHOP_LAUNCH((relation_weight_gradient_kernel<1, S>), blocks, BLOCK, 0, stream, relations, part_size, k, n, left,
                   right, parts, dweight);
    }
  }
  COHOP_LAUNCH((add_gradient_parts_kernel<S>), grid_for(relations.n_relations * k * n), BLOCK, 0, stream, relations,
               part_size, k * n, static_cast<const S*>(parts), dweight);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_relation_product(cohop_dtype scalar, uint64_t n_relations, uint64_t n_group, const uint32_t* offsets,
                               uint64_t inner, uint64_t n, const uint32_t* index, const void* factor, const void* x,
                               const void* weight, bool transposed, void* out, void* stream) {
  COHOP_LAUNCHER(
    if (n_group == 0 || n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Relations relations = {n_relations, n_group, offsets};
      const GroupRows<S> rows = {index, static_cast<const S*>(factor), static_cast<const S*>(x)};
      const S* w = static_cast<const S*>(weight);
      S* to = static_cast<S*>(out);
      return transposed ? relation_product<true>(relations, inner, n, rows, w, to, stream)
                        : relation_product<false>(relations, inner, n, rows, w, to, stream);
    });)
}

uint64_t cohop_relation_weight_gradient_parts(uint64_t n_relations, uint64_t n_group, uint64_t k, uint64_t n) {
  return Relations{n_relations, n_group, nullptr}.slots(gradient_part(n_group, k, n));
}

int32_t cohop_relation_weight_gradient(cohop_dtype scalar, uint64_t n_relations, uint64_t n_group,
                                       const uint32_t* offsets, uint64_t k, uint64_t n, const uint32_t* left_index,
                                       const void* left_factor, const void* left, const uint32_t* right_index,
                                       const void* right_factor, const void* right, void* parts, void* dweight,
                                       void* stream) {
  COHOP_LAUNCHER(
    if (n_relations == 0 || k == 0 || n == 0) return 0;
    return with_scalar(scalar, [&](auto zero) {
      using S = decltype(zero);
      const Relations relations = {n_relations, n_group, offsets};
      const GroupRows<S> a = {left_index, static_cast<const S*>(left_factor), static_cast<const S*>(left)};
      const GroupRows<S> b = {right_index, static_cast<const S*>(right_factor), static_cast<const S*>(right)};
      return relation_weight_gradient(relations, k, n, a, b, static_cast<S*>(parts), static_cast<S*>(dweight), stream);
    });)
}

}  // extern "C"
