// Picks edges of a row by their keys or by a predicate, in order, without memory for the row's keys: they are
// calculated again in each pass over the row.
//
// Keys are a struct with
//   BITS                                    32 or 64
//   bool valid(const Row&, uint32_t place)  whether this place of the row has a key
//   uint64_t key(const Row&, uint32_t place)
// and ties go to the lower place. `emit(row, position, place)` receives what is kept, position 0, 1, ... in the row.
#pragma once
#include "team.cuh"

namespace cohop {

/// A warp holds the keys of a row in registers: this many per lane.
constexpr int HELD = 4;
constexpr uint32_t MAX_HELD = 32 * HELD;

constexpr int DIGIT_BITS = 8;
constexpr int DIGITS = 1 << DIGIT_BITS;

/// Shared memory of one team's selection.
struct SelectMemory {
  unsigned histogram[DIGITS];
  unsigned digit, below, count, total;
};

/// What a selection keeps: places whose keys begin with less than `prefix`, and of those that begin with it the first
/// `ties`. Or all that have a key.
struct Selection {
  uint64_t prefix = 0;
  int shift = 0;
  uint32_t ties = 0;
  bool all = true;
};

/// The first warp finds the digit at which the counts reach `wanted`.
__device__ inline void find_digit(SelectMemory* memory, uint32_t wanted) {
  constexpr int EACH = DIGITS / 32;
  const unsigned lane = threadIdx.x % 32;
  // The lane that finds the digit reads its counts again: an array for them would be in local memory.
  const unsigned* counts = memory->histogram + lane * EACH;
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) sum += counts[i];
  unsigned through = sum;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const unsigned other = __shfl_up_sync(FULL, through, offset);
    if (lane >= static_cast<unsigned>(offset)) through += other;
  }
  if (lane == 31) memory->total = through;
  unsigned below = through - sum;
  if (below < wanted && wanted <= through) {
    int i = 0;
    while (below + counts[i] < wanted) below += counts[i++];
    memory->digit = lane * EACH + i;
    memory->below = below;
    memory->count = counts[i];
  }
}

/// The `wanted` smallest keys of a row, by radix selection from the highest digit. All threads of the team call it;
/// wanted > 0.
template <int THREADS, class Keys>
__device__ Selection select(const Row& row, const Keys& keys, uint32_t wanted, SelectMemory* memory) {
  using T = Team<THREADS>;
  Selection selection;
  selection.ties = wanted;
  for (selection.shift = Keys::BITS - DIGIT_BITS;; selection.shift -= DIGIT_BITS) {
    const bool is_first = selection.shift == Keys::BITS - DIGIT_BITS;
    for (unsigned i = T::rank(); i < DIGITS; i += THREADS) memory->histogram[i] = 0;
    T::sync();
    for (uint32_t place = T::rank(); place < row.degree; place += THREADS) {
      if (!keys.valid(row, place)) continue;
      const uint64_t key = keys.key(row, place);
      if (is_first || key >> (selection.shift + DIGIT_BITS) == selection.prefix) {
        atomicAdd(&memory->histogram[key >> selection.shift & (DIGITS - 1)], 1u);
      }
    }
    T::sync();
    if (T::rank() < 32) find_digit(memory, selection.ties);
    T::sync();
    if (is_first && memory->total <= wanted) return selection;
    selection.prefix = selection.prefix << DIGIT_BITS | memory->digit;
    selection.ties -= memory->below;
    // All of this digit, or no digit left.
    if (memory->count == selection.ties || selection.shift == 0) break;
  }
  selection.all = false;
  return selection;
}

/// Whether a place is kept before any ties (`is_less`), or is a tie (`is_tie`).
template <class Keys>
__device__ __forceinline__ void judge(const Row& row, const Keys& keys, const Selection& selection, uint32_t place,
                                      bool& is_less, bool& is_tie) {
  is_less = is_tie = false;
  if (place >= row.degree || !keys.valid(row, place)) return;
  if (selection.all) {
    is_less = true;
    return;
  }
  const uint64_t top = keys.key(row, place) >> selection.shift;
  is_less = top < selection.prefix;
  is_tie = top == selection.prefix;
}

/// Goes through a row in order and calls mark(place, is_kept, position) for every place, in tiles of the team's
/// threads; places beyond the row are not kept. Returns how many are kept.
template <int THREADS, class Keys, class Mark>
__device__ uint32_t mark_selected(const Row& row, const Keys& keys, const Selection& selection, Team<THREADS>& team,
                                  Mark mark) {
  using P = typename Team<THREADS>::Prefix;
  uint32_t less = 0, ties = 0;
  for (uint32_t base = 0; base < row.degree; base += THREADS) {
    const uint32_t place = base + Team<THREADS>::rank();
    bool is_less, is_tie;
    judge(row, keys, selection, place, is_less, is_tie);
    const P count = team.count(is_less, is_tie);
    const uint32_t ties_before = ties + P::second(count.before);
    const uint32_t kept_ties = ties_before < selection.ties ? ties_before : selection.ties;
    mark(place, is_less || (is_tie && ties_before < selection.ties), less + P::first(count.before) + kept_ties);
    less += P::first(count.total);
    ties += P::second(count.total);
  }
  return less + (ties < selection.ties ? ties : selection.ties);
}

/// The `wanted` smallest keys of each group of a row of at most MAX_HELD places, by comparing each with each;
/// group(place) is the group of a place. Calls `mark` as mark_selected does. Returns how many are kept. A warp calls
/// it.
template <class Keys, class Group, class Mark>
__device__ uint32_t mark_smallest_held(const Row& row, const Keys& keys, uint64_t wanted, Group group, Mark mark) {
  const uint32_t lane = threadIdx.x % 32;
  uint64_t key[HELD];
  uint32_t own_group[HELD], rank[HELD];
  bool valid[HELD];
#pragma unroll
  for (int item = 0; item < HELD; item++) {
    const uint32_t place = item * 32 + lane;
    valid[item] = place < row.degree && keys.valid(row, place);
    key[item] = valid[item] ? keys.key(row, place) : EMPTY;  // above every key
    own_group[item] = place < row.degree ? group(place) : 0;
    rank[item] = 0;
  }
#pragma unroll
  for (int other_item = 0; other_item < HELD; other_item++) {
    const uint32_t left = row.degree > other_item * 32u ? row.degree - other_item * 32 : 0;
    for (uint32_t from = 0; from < (left < 32 ? left : 32); from++) {
      const uint64_t other = __shfl_sync(FULL, key[other_item], from);
      const uint32_t other_group = __shfl_sync(FULL, own_group[other_item], from);
#pragma unroll
      for (int item = 0; item < HELD; item++) {
        const bool comes_first = other_item * 32 + from < item * 32 + lane;
        const bool is_before = other < key[item] || (other == key[item] && comes_first);
        rank[item] += is_before && other_group == own_group[item];
      }
    }
  }
  uint32_t kept = 0;
#pragma unroll
  for (int item = 0; item < HELD; item++) {
    if (item * 32u < row.degree) {
      const bool is_kept = valid[item] && rank[item] < wanted;
      const unsigned ballot = __ballot_sync(FULL, is_kept);
      mark(item * 32 + lane, is_kept, kept + __popc(ballot & ((1u << lane) - 1)));
      kept += __popc(ballot);
    }
  }
  return kept;
}

/// The `fanout` smallest keys of a row, or all of them, to `emit`. Returns how many. All threads of the team call it.
template <int THREADS, class Keys, class Emit>
__device__ uint32_t keep_smallest(const Row& row, const Keys& keys, uint64_t fanout, SelectMemory* memory,
                                  Team<THREADS>& team, Emit emit) {
  const auto mark = [&](uint32_t place, bool is_kept, uint32_t position) {
    if (is_kept) emit(row, position, place);
  };
  if (fanout == 0) return 0;
  if constexpr (THREADS == 32) {
    if (fanout < row.degree && row.degree <= MAX_HELD) {
      return mark_smallest_held(row, keys, fanout, [](uint32_t) { return 0u; }, mark);
    }
  }
  Selection selection;
  if (fanout < row.degree) selection = select<THREADS>(row, keys, static_cast<uint32_t>(fanout), memory);
  return mark_selected(row, keys, selection, team, mark);
}

/// What a kernel with selections by teams begins with: its shared memory and its team.
#define COHOP_SELECT_MEMORY(THREADS)                                       \
  COHOP_SHARED(SelectMemory, memories, [Team<THREADS>::TEAMS]);            \
  COHOP_SHARED(unsigned, part, [2 * (BLOCK / 32)]);                        \
  SelectMemory* memory = &memories[Team<THREADS>::number()];               \
  Team<THREADS> team(part)

/// Where kept edges go.
struct EmitEdges {
  const uint32_t* indptr;
  uint64_t* edge_id;
  __device__ void operator()(const Row& row, uint32_t position, uint32_t place) const {
    edge_id[indptr[row.number] + static_cast<uint64_t>(position)] = row.start + place;
  }
};

/// A team keeps the `fanout` smallest keys of a row.
template <int THREADS, class Keys>
__global__ void __launch_bounds__(BLOCK) smallest_kernel(cohop_rows rows, Keys keys, uint64_t fanout, EmitEdges emit) {
  COHOP_SELECT_MEMORY(THREADS);
  for_rows<THREADS>(rows, [&](const Row& row) { keep_smallest<THREADS>(row, keys, fanout, memory, team, emit); });
}

/// A team counts the places of a row that `predicate(row, place)` keeps; rows of up to `fanout` are kept whole.
template <int THREADS, class Predicate>
__global__ void __launch_bounds__(BLOCK) count_kernel(cohop_rows rows, Predicate predicate, uint64_t fanout,
                                                      uint64_t* __restrict__ counts) {
  COHOP_SHARED(unsigned, part, [2 * (BLOCK / 32)]);
  Team<THREADS> team(part);
  for_rows<THREADS>(rows, [&](const Row& row) {
    uint32_t kept = row.degree;
    if (fanout < row.degree) {
      uint32_t own = 0;
      for (uint32_t place = Team<THREADS>::rank(); place < row.degree; place += THREADS) own += predicate(row, place);
      kept = team.sum(own);
    }
    if (Team<THREADS>::rank() == 0) counts[row.number] = kept;
  });
}

/// A team writes the edges of a row that `predicate` keeps.
template <int THREADS, class Predicate>
__global__ void __launch_bounds__(BLOCK) filter_kernel(cohop_rows rows, Predicate predicate, uint64_t fanout,
                                                       EmitEdges emit) {
  COHOP_SHARED(unsigned, part, [2 * (BLOCK / 32)]);
  Team<THREADS> team(part);
  using P = typename Team<THREADS>::Prefix;
  for_rows<THREADS>(rows, [&](const Row& row) {
    uint32_t kept = 0;
    for (uint32_t base = 0; base < row.degree; base += THREADS) {
      const uint32_t place = base + Team<THREADS>::rank();
      const bool is_kept = place < row.degree && (row.degree <= fanout || predicate(row, place));
      const P count = team.count(is_kept, false);
      if (is_kept) emit(row, kept + P::first(count.before), place);
      kept += P::first(count.total);
    }
  });
}

/// Writes counts, [n], or if `counts` is null the edges.
template <class Predicate>
int32_t count_or_filter(const cohop_rows& rows, const Predicate& predicate, uint64_t fanout, uint64_t* counts,
                        const EmitEdges& emit, void* stream) {
  const unsigned warps = grid_of_teams<32>(rows.n), blocks = grid_of_teams<BLOCK>(rows.n);
  if (counts) {
    COHOP_LAUNCH((count_kernel<32, Predicate>), warps, BLOCK, 0, stream, rows, predicate, fanout, counts);
    COHOP_LAUNCH((count_kernel<BLOCK, Predicate>), blocks, BLOCK, 0, stream, rows, predicate, fanout, counts);
  } else {
    COHOP_LAUNCH((filter_kernel<32, Predicate>), warps, BLOCK, 0, stream, rows, predicate, fanout, emit);
    COHOP_LAUNCH((filter_kernel<BLOCK, Predicate>), blocks, BLOCK, 0, stream, rows, predicate, fanout, emit);
  }
  return cohop_last_error();
}

template <class Keys>
int32_t launch_smallest(const cohop_rows& rows, const Keys& keys, uint64_t fanout, const EmitEdges& emit,
                        void* stream) {
  COHOP_LAUNCH((smallest_kernel<32, Keys>), grid_of_teams<32>(rows.n), BLOCK, 0, stream, rows, keys, fanout, emit);
  COHOP_LAUNCH((smallest_kernel<BLOCK, Keys>), grid_of_teams<BLOCK>(rows.n), BLOCK, 0, stream, rows, keys, fanout,
               emit);
  return cohop_last_error();
}

}  // namespace cohop
