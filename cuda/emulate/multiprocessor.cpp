#include "multiprocessor.h"

#include <stdio.h>
#include <stdlib.h>

#include <exception>
#include <new>

namespace emulate {

__thread Thread* current_thread;
__thread Block* current_block;

static __thread Multiprocessor* current_multiprocessor;

Multiprocessor* Multiprocessor::current() { return current_multiprocessor; }

void Multiprocessor::set_current(Multiprocessor* multiprocessor) {
  current_multiprocessor = multiprocessor;
  if (multiprocessor) multiprocessor->os_thread_.adopt_os_thread();
}

void Multiprocessor::reserve(size_t threads) {
  if (threads <= threads_.size()) return;
  stacks_.reset();
  stacks_.emplace(threads);
  threads_.resize(threads);
  warps_.resize((threads + WARP - 1) / WARP);
  ready_.resize(threads);
  restart_fibers();
}

void Multiprocessor::restart_fibers() {
  for (size_t i = 0; i < threads_.size(); i++) threads_[i].fiber.start_at(fiber_main, stacks_->stack(i), Stacks::BYTES);
  has_abandoned_fibers_ = false;
}

/// A fiber runs one thread of each block.
void Multiprocessor::fiber_main() {
  Fiber::entered();
  for (;;) current()->run_thread();
}

void Multiprocessor::run_thread() {
  // fail() switches away for good, which must not happen inside a handler: the exception would never be destroyed.
  char exception[300] = "";
  try {
    launch_->body();
  } catch (const std::exception& error) {
    snprintf(exception, sizeof exception, "C++ exception: %s", error.what());
  } catch (...) {
    snprintf(exception, sizeof exception, "C++ exception of unknown type");
  }
  if (exception[0]) fail(EXCEPTION, exception);

  auto& me = static_cast<DeviceThread&>(*current_thread);
  me.state = State::EXITED;
  alive_--;
  Warp& warp = warps_[me.warp];
  warp.alive &= ~(1u << me.lane);
  // Threads that wait for all living threads may have waited only for this one.
  for (Rendezvous& rendezvous : warp.rendezvous) complete_if_all_arrived(me.warp, rendezvous);
  release_barrier_if_complete();
  switch_from(me);
}

void Multiprocessor::run(Launch& launch, uint64_t block) {
  begin_block(launch, block);
  current_block = &block_;
  if (DeviceThread* first = next_ready()) {
    current_thread = first;
    Fiber::switch_to(os_thread_, first->fiber);
  }
  // Control returns here when no thread is ready: all have exited or wait, or one has failed.
  current_thread = nullptr;
  current_block = nullptr;
  has_abandoned_fibers_ = alive_ > 0;
  if (alive_ > 0 && !launch.has_failed) report_deadlock();
}

void Multiprocessor::begin_block(Launch& launch, uint64_t block) {
  if (has_abandoned_fibers_) restart_fibers();
  launch_ = &launch;
  block_number_ = block;
  const dim3 grid = launch.grid, threads = launch.threads;
  block_.index = {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
                  static_cast<unsigned>(block / grid.x / grid.y)};
  block_.threads = threads;
  block_.grid = grid;
  n_threads_ = threads.x * threads.y * threads.z;
  random_state_ = (launch.seed * 0x9e3779b97f4a7c15ull) ^ ((block + 1) * 0xd1b54a32d192ed03ull);
  if (random_state_ == 0) random_state_ = 1;
  shuffles_ = launch.seed != 0;

  first_ready_ = n_ready_ = 0;
  alive_ = n_threads_;
  at_barrier_ = 0;
  barriers_passed_ = 0;
  for (unsigned i = 0; i * WARP < n_threads_; i++) {
    const unsigned rest = n_threads_ - i * WARP;
    warps_[i].alive = rest >= WARP ? ~0u : (1u << rest) - 1;
    for (Rendezvous& rendezvous : warps_[i].rendezvous) rendezvous.is_open = false;
  }
  for (unsigned i = 0; i < n_threads_; i++) {
    DeviceThread& thread = threads_[i];
    thread.index = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
    thread.linear = i;
    thread.lane = i % WARP;
    thread.warp = i / WARP;
    if constexpr (DETECTS_RACES) thread.clocks.start(thread.lane);
    make_ready(thread);
  }

  // Memory that is read before it is written is a NaN as a float, or else a large negative number.
  poison_ = random() & 1 ? 0x7fc0deadu : 0xf3a5f3a5u;
  n_shared_ = shared_bytes_ = 0;
  block_.dynamic_shared = shared_memory(this, launch.dynamic_shared_bytes, 16);
}

void* Multiprocessor::shared_memory(const void* key, size_t bytes, size_t alignment) {
  for (size_t i = 0; i < n_shared_; i++) {
    if (shared_[i].key == key) return shared_[i].start;
  }
  shared_bytes_ += bytes;
  if (shared_bytes_ > MAX_SHARED_BYTES) fail(INVALID_CONFIGURATION, "more than 48 KiB of shared memory");

  if (n_shared_ == shared_.size()) shared_.push_back({nullptr, 0, 0, {nullptr, free}, nullptr});
  SharedVariable& variable = shared_[n_shared_++];
  // With the address sanitizer each block gets new memory, so that pointers into another block's are seen. Its size is
  // exact, for overruns; and an address is aligned as promised, but no better, for misaligned vectors.
  if (HAS_ASAN || !variable.memory || variable.bytes != bytes || variable.alignment != alignment) {
    const size_t allocated_alignment = alignment < 16 ? 16 : alignment;
    const size_t offset = HAS_ASAN && alignment < 16 ? alignment : 0;
    void* memory = nullptr;
    if (posix_memalign(&memory, allocated_alignment, offset + bytes + (bytes == 0)) != 0) throw std::bad_alloc();
    variable.memory.reset(static_cast<char*>(memory));
    variable.start = variable.memory.get() + offset;
  }
  variable.key = key;
  variable.bytes = bytes;
  variable.alignment = alignment;
  for (size_t i = 0; i < bytes; i++) variable.start[i] = static_cast<char>(poison_ >> i % 4 * 8);
  if constexpr (DETECTS_RACES) race::begin_shared(variable.start, bytes);
  return variable.start;
}

void Multiprocessor::fail(Error error, const char* message) {
  const Thread& me = *current_thread;
  char text[sizeof launch_->message];
  snprintf(text, sizeof text, "%s: block (%u,%u,%u) thread (%u,%u,%u) seed %llu: %s", launch_->kernel, block_.index.x,
           block_.index.y, block_.index.z, me.index.x, me.index.y, me.index.z,
           static_cast<unsigned long long>(launch_->seed), message);
  launch_->set_error(error, text);
  // The block's threads are abandoned where they are.
  Fiber::switch_to(static_cast<DeviceThread&>(*current_thread).fiber, os_thread_);
  __builtin_unreachable();
}

void Multiprocessor::report_deadlock() {
  const DeviceThread *at_barrier = nullptr, *in_collective = nullptr;
  unsigned n_at_barrier = 0, n_in_collective = 0;
  for (unsigned i = 0; i < n_threads_; i++) {
    const DeviceThread& thread = threads_[i];
    if (thread.state == State::AT_BARRIER && n_at_barrier++ == 0) at_barrier = &thread;
    if (thread.state == State::IN_COLLECTIVE && n_in_collective++ == 0) in_collective = &thread;
  }
  char text[sizeof launch_->message];
  int length = snprintf(text, sizeof text, "%s: block (%u,%u,%u) seed %llu: deadlock", launch_->kernel, block_.index.x,
                        block_.index.y, block_.index.z, static_cast<unsigned long long>(launch_->seed));
  const auto add = [&](unsigned count, const char* what, const DeviceThread* first) {
    if (!first || length >= static_cast<int>(sizeof text)) return;
    length += snprintf(text + length, sizeof text - length, ", %u threads wait %s (thread %u: %s:%d)", count, what,
                       first->linear, first->where.file, first->where.line);
  };
  add(n_at_barrier, "at a barrier", at_barrier);
  add(n_in_collective, "for lanes of their warp", in_collective);
  if (length < static_cast<int>(sizeof text)) {
    snprintf(text + length, sizeof text - length, ", %u have exited", n_threads_ - alive_);
  }
  launch_->set_error(DEADLOCK, text);
}

void Multiprocessor::make_ready(DeviceThread& thread) {
  thread.state = State::READY;
  size_t end = n_ready_++;
  if (!shuffles_) end = (first_ready_ + end) % ready_.size();
  ready_[end] = &thread;
}

DeviceThread* Multiprocessor::next_ready() {
  if (n_ready_ == 0) return nullptr;
  n_ready_--;
  if (shuffles_) {
    // Takes a random one; the last moves to its place.
    const size_t chosen = (random() >> 32) * (n_ready_ + 1) >> 32;
    DeviceThread* thread = ready_[chosen];
    ready_[chosen] = ready_[n_ready_];
    return thread;
  }
  DeviceThread* thread = ready_[first_ready_];
  first_ready_ = (first_ready_ + 1) % ready_.size();
  return thread;
}

/// Runs other threads until this one is resumed.
void Multiprocessor::switch_from(DeviceThread& thread) {
  DeviceThread* next = next_ready();
  if (next) current_thread = next;
  Fiber::switch_to(thread.fiber, next ? next->fiber : os_thread_);
}

void Multiprocessor::maybe_yield() {
  if (!shuffles_ || random() >> 62 != 0) return;
  auto& me = static_cast<DeviceThread&>(*current_thread);
  make_ready(me);
  switch_from(me);
}

/// xorshift64*
uint64_t Multiprocessor::random() {
  random_state_ ^= random_state_ >> 12;
  random_state_ ^= random_state_ << 25;
  random_state_ ^= random_state_ >> 27;
  return random_state_ * 0x2545f4914f6cdd1dull;
}

}  // namespace emulate
