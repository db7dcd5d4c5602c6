// Where the threads of a block meet: barriers, and the collectives of a warp.
#include "multiprocessor.h"

namespace emulate {
namespace {

/// What a shuffle gives where the lane that it names did not take part: a NaN, and an index out of any range.
constexpr uint64_t NO_LANE = 0x7fffdeadfffdeadull;

bool names(unsigned mask, unsigned lane) { return mask >> lane & 1; }

/// The lane whose value a shuffle gives to `lane`; itself where the segment of `width` lanes ends.
unsigned shuffle_source(Collective operation, unsigned lane, int argument, int width) {
  const unsigned in_segment = static_cast<unsigned>(width) - 1, start = lane & ~in_segment, last = start | in_segment;
  const unsigned offset = static_cast<unsigned>(argument) % WARP;
  unsigned source = lane;
  switch (operation) {
    case Collective::SHUFFLE: return start | (offset & in_segment);
    case Collective::SHUFFLE_UP: return lane >= start + offset ? lane - offset : lane;
    case Collective::SHUFFLE_DOWN: source = lane + offset; break;
    default: source = lane ^ offset; break;
  }
  return source <= last ? source : lane;
}

uint64_t combine(Collective operation, uint64_t a, uint64_t b) {
  switch (operation) {
    case Collective::ADD: return static_cast<uint32_t>(a + b);
    case Collective::MIN: return b < a ? b : a;
    case Collective::MAX: return a < b ? b : a;
    case Collective::AND: return a & b;
    case Collective::OR: return a | b;
    default: return a ^ b;
  }
}

/// What a collective gives to one of the lanes that took part.
uint64_t result(const Rendezvous& at, unsigned lane) {
  switch (at.operation) {
    case Collective::SYNC: return 0;
    case Collective::SHUFFLE:
    case Collective::SHUFFLE_UP:
    case Collective::SHUFFLE_DOWN:
    case Collective::SHUFFLE_XOR: {
      const unsigned source = shuffle_source(at.operation, lane, at.argument[lane], at.width[lane]);
      return names(at.arrived, source) ? at.value[source] : NO_LANE;
    }
    default: break;
  }
  uint64_t combined = 0;
  unsigned ballot = 0, equal = 0;
  bool is_first = true;
  for (unsigned other = 0; other < WARP; other++) {
    if (!names(at.arrived, other)) continue;
    const uint64_t value = at.value[other];
    combined = is_first ? value : combine(at.operation, combined, value);
    is_first = false;
    if (value != 0) ballot |= 1u << other;
    if (value == at.value[lane]) equal |= 1u << other;
  }
  switch (at.operation) {
    case Collective::BALLOT: return ballot;
    case Collective::ANY: return ballot != 0;
    case Collective::ALL: return ballot == at.arrived;
    case Collective::MATCH_ANY: return equal;
    default: return combined;
  }
}

}  // namespace

int Multiprocessor::barrier(Barrier kind, int predicate, Where where) {
  auto& me = static_cast<DeviceThread&>(*current_thread);
  if (at_barrier_ == 0) {
    barrier_kind_ = kind;
    barrier_where_ = where;
    barrier_result_ = kind == Barrier::AND;
  } else if (barrier_kind_ != kind || barrier_where_.line != where.line || barrier_where_.file != where.file) {
    emulate::fail(DIVERGENT, "threads of the block are at different barriers: %s:%d and %s:%d", barrier_where_.file,
                  barrier_where_.line, where.file, where.line);
  }
  switch (kind) {
    case Barrier::PLAIN: break;
    case Barrier::OR: barrier_result_ |= predicate != 0; break;
    case Barrier::AND: barrier_result_ &= predicate != 0; break;
    case Barrier::COUNT: barrier_result_ += predicate != 0; break;
  }
  me.state = State::AT_BARRIER;
  me.where = where;
  at_barrier_++;
  release_barrier_if_complete();
  switch_from(me);
  return static_cast<int>(me.result);
}

void Multiprocessor::release_barrier_if_complete() {
  if (alive_ == 0 || at_barrier_ != alive_) return;
  for (unsigned i = 0; i < n_threads_; i++) {
    if (threads_[i].state != State::AT_BARRIER) continue;
    threads_[i].result = static_cast<uint64_t>(barrier_result_);
    make_ready(threads_[i]);
  }
  at_barrier_ = 0;
  barriers_passed_++;
}

uint64_t Multiprocessor::collective(Collective operation, unsigned mask, uint64_t value, int argument, int width,
                                    Where where) {
  auto& me = static_cast<DeviceThread&>(*current_thread);
  Warp& warp = warps_[me.warp];
  if (!names(mask, me.lane)) {
    emulate::fail(WRONG_MASK, "%s:%d: lane %u is not in its own mask %08x", where.file, where.line, me.lane, mask);
  }
  Rendezvous *joined = nullptr, *unused = nullptr;
  for (Rendezvous& other : warp.rendezvous) {
    if (!other.is_open) {
      if (!unused) unused = &other;
    } else if (other.mask == mask) {
      joined = &other;
    } else if (names(other.mask, me.lane) && (mask & other.arrived) != 0) {
      emulate::fail(WRONG_MASK, "lanes wait for each other with different masks: %08x at %s:%d and %08x at %s:%d",
                    other.mask, other.where.file, other.where.line, mask, where.file, where.line);
    }
  }
  if (!joined) {
    joined = unused;  // there is one: at most 31 lanes wait in at most 31 places while another arrives
    joined->is_open = true;
    joined->operation = operation;
    joined->mask = mask;
    joined->arrived = 0;
    joined->where = where;
  } else if (joined->operation != operation) {
    emulate::fail(DIVERGENT, "lanes of one mask are in different collectives: %s:%d and %s:%d", joined->where.file,
                  joined->where.line, where.file, where.line);
  }
  joined->arrived |= 1u << me.lane;
  joined->value[me.lane] = value;
  joined->argument[me.lane] = argument;
  joined->width[me.lane] = width;
  me.state = State::IN_COLLECTIVE;
  me.where = where;
  complete_if_all_arrived(me.warp, *joined);
  switch_from(me);
  return me.result;
}

void Multiprocessor::complete_if_all_arrived(unsigned warp, Rendezvous& at) {
  if (!at.is_open || at.arrived != (at.mask & warps_[warp].alive)) return;
  DeviceThread* lanes = &threads_[warp * WARP];
  race::Clocks together{};
  if constexpr (DETECTS_RACES) {
    for (unsigned lane = 0; lane < WARP; lane++) {
      if (names(at.arrived, lane)) together.learn(lanes[lane].clocks);
    }
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!names(at.arrived, lane)) continue;
    lanes[lane].result = result(at, lane);
    if (DETECTS_RACES && at.operation == Collective::SYNC) {
      lanes[lane].clocks = together;
      lanes[lane].clocks.clock[lane]++;
    }
    make_ready(lanes[lane]);
  }
  at.is_open = false;
}

}  // namespace emulate
