// GATv2's forward pass, fused: a source's row serves its score and the sum while it is in registers.
//
// Reads n_message · heads · dim scalars.
#include "gatv2.cuh"
#include "weighted_sum.cuh"

namespace cohop {
namespace {

template <class T, class S>
struct Gatv2Forward {
  Messages<S> messages;
  HeadLayout layout;
  const S* z_src;      // [n_src, heads · dim]
  const S* z_dst;      // [n_dst, heads · dim]
  const S* attention;  // [heads · dim]
  WeightedSum<S> to;

  __device__ void operator()(const Piece& piece, uint32_t group) const {
    const Lane lane(layout, group);
    for (uint32_t chunk = 0; chunk < layout.chunks; chunk++) {
      const Scorer<T, S> scorer(lane, z_src, z_dst, attention, piece.row, chunk, messages.slope);
      RunningSum<T, S> sums;
      Keeper keeper(lane);
      for_batches(messages, lane, piece, [&](const Batch& batch) {
        S x[T::STEPS][T::COLUMNS];
        gather<T>(lane, batch, z_src, chunk, x);
        const S score = scorer.score(lane, batch, x);
        S weight = sums.add(lane, batch.present() && lane.has_head ? score : lowest<S>());
        if (messages.dropout.vertices && !keeper.kept(messages, lane, piece, batch.number, batch.at)) weight = S(0);
        sums.add_rows(lane, weight, x);
      });
      sums.write(lane, to, piece, chunk);
    }
  }
};

}  // namespace
}  // namespace cohop

using namespace cohop;

extern "C" {

int32_t cohop_gatv2(cohop_dtype scalar, const cohop_messages* a, const void* z_src, const void* z_dst,
                    const void* attention, void* out, void* max, void* sum, void* stream) {
  COHOP_LAUNCHER(return with_scalar(scalar, [&](auto zero) {
    using S = decltype(zero);
    return with_tile<S>(a->dim, [&](auto tile) {
      using T = decltype(tile);
      const Messages<S> messages = messages_of<S>(*a, false);
      const HeadLayout layout = head_layout<T>(a->heads, a->dim);
      const WeightedSum<S> to = {static_cast<S*>(out), static_cast<S*>(max), static_cast<S*>(sum),
                                 static_cast<S*>(a->records), a->heads, a->dim, messages.scale};
      const Gatv2Forward<T, S> op = {messages, layout, static_cast<const S*>(z_src), static_cast<const S*>(z_dst),
                                     static_cast<const S*>(attention), to};
      return launch_weighted_sum(messages.rows, layout, op, to, stream);
    }, z_src, z_dst, attention, out);
  });)
}

}  // extern "C"
