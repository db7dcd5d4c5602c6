// Launches, their errors, and the emulator's functions for device code and tests.
#include "launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "multiprocessor.h"
#include "race.h"

namespace emulate {
namespace {

/// Per launching thread: tests that run side by side choose their own schedules and see their own errors.
thread_local std::optional<uint64_t> chosen_seed;
thread_local int last_error = SUCCESS;
thread_local char last_message[sizeof Launch::message];

/// A launch, by the launcher that makes it and its number among the launches of one call, from 1.
using Place = std::pair<std::string, uint64_t>;
thread_local Place place;
/// Places that this host thread has passed since they were last taken, and the one whose next launch is to fail.
thread_local std::set<Place> passed;
thread_local std::optional<Place> to_fail;

void set_last_error(int error, const char* message) {
  if (last_error != SUCCESS) return;
  last_error = error;
  snprintf(last_message, sizeof last_message, "%s", message);
}

uint64_t environment(const char* name, uint64_t otherwise) {
  const char* value = getenv(name);
  return value && *value ? strtoull(value, nullptr, 10) : otherwise;
}

uint64_t seed() {
  if (!chosen_seed) chosen_seed = environment("COHOP_EMULATE_SEED", 1);
  return *chosen_seed;
}

/// Multiprocessors are kept for reuse: their stacks are expensive to make.
std::mutex idle_mutex;
std::vector<std::unique_ptr<Multiprocessor>> idle;

std::unique_ptr<Multiprocessor> take_multiprocessor() {
  const std::lock_guard<std::mutex> lock(idle_mutex);
  if (idle.empty()) return std::make_unique<Multiprocessor>();
  std::unique_ptr<Multiprocessor> last = std::move(idle.back());
  idle.pop_back();
  return last;
}

void run_blocks(Launch& launch) {
  std::unique_ptr<Multiprocessor> multiprocessor = take_multiprocessor();
  multiprocessor->reserve(launch.threads.x * launch.threads.y * launch.threads.z);
  Multiprocessor::set_current(multiprocessor.get());
  for (;;) {
    const uint64_t i = launch.n_taken++;
    if (i >= launch.n_blocks || launch.has_failed) break;
    const auto block = (static_cast<unsigned __int128>(i) * launch.stride + launch.start) % launch.n_blocks;
    multiprocessor->run(launch, static_cast<uint64_t>(block));
  }
  Multiprocessor::set_current(nullptr);
  const std::lock_guard<std::mutex> lock(idle_mutex);
  idle.push_back(std::move(multiprocessor));
}

/// Grids of fewer threads than this are run by the launching thread: starting others would take longer.
constexpr uint64_t MIN_THREADS_TO_SHARE = 4096;

[[maybe_unused]] void run_on_several_threads(Launch& launch) {
  static const uint64_t max_workers = environment("COHOP_EMULATE_WORKERS", std::thread::hardware_concurrency());
  const uint64_t threads_per_block = launch.threads.x * launch.threads.y * launch.threads.z;
  uint64_t workers = launch.n_blocks < max_workers ? launch.n_blocks : max_workers;
  if (launch.n_blocks * threads_per_block < MIN_THREADS_TO_SHARE) workers = 1;
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < workers; i++) {
    others.emplace_back([&launch] {
      try {
        run_blocks(launch);
      } catch (const std::exception& error) {
        launch.set_error(OUT_OF_MEMORY, error.what());
      }
    });
  }
  try {
    run_blocks(launch);
  } catch (const std::exception& error) {
    launch.set_error(OUT_OF_MEMORY, error.what());
  }
  for (std::thread& other : others) other.join();
}

/// Runs launches one at a time and blocks in one order, so that the result depends on the seed alone.
[[maybe_unused]] void run_and_detect_races(Launch& launch) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  race::begin_launch();
  try {
    run_blocks(launch);
  } catch (const std::exception& error) {
    launch.set_error(OUT_OF_MEMORY, error.what());
  }
}

/// CUDA's limits.
bool is_valid(dim3 grid, dim3 threads, size_t dynamic_shared_bytes) {
  const uint64_t n_threads = static_cast<uint64_t>(threads.x) * threads.y * threads.z;
  const bool block_fits = n_threads >= 1 && n_threads <= 1024 && threads.z <= 64;
  const bool is_empty = grid.x == 0 || grid.y == 0 || grid.z == 0;
  const bool grid_fits = grid.x <= 0x7fffffff && grid.y <= 0xffff && grid.z <= 0xffff;
  return block_fits && !is_empty && grid_fits && dynamic_shared_bytes <= MAX_SHARED_BYTES;
}

/// What can go wrong before anything is queued: an earlier error, or the order to fail.
bool may_queue(const char* kernel) {
  if (last_error != SUCCESS) return false;
  place.second++;
  passed.insert(place);
  if (to_fail != place) return true;
  to_fail.reset();
  char message[sizeof Launch::message];
  snprintf(message, sizeof message, "%s: this launch was told to fail", kernel);
  set_last_error(LAUNCH_FAILURE, message);
  return false;
}

int keep_message(int code, const char* message) {
  if (code != SUCCESS) snprintf(last_message, sizeof last_message, "%s", message);
  return code;
}

int run_launch(Launch& launch) {
  if constexpr (DETECTS_RACES) {
    run_and_detect_races(launch);
  } else {
    run_on_several_threads(launch);
  }
  return keep_message(launch.error, launch.message);
}

struct HostWork {
  const char* name;
  std::function<void()> work;
};

int run_host_work(HostWork& work) {
  try {
    work.work();
    return SUCCESS;
  } catch (const std::exception& error) {
    return keep_message(OUT_OF_MEMORY, (std::string(work.name) + ": " + error.what()).c_str());
  }
}

/// Hands work to the stream, or runs it at once if there is none.
template <class Work, int (*run)(Work&)>
void queue(const char* name, bool is_launch, void* stream, std::unique_ptr<Work> work) {
  if (!stream) {
    const int error = run(*work);
    if (error != SUCCESS && last_error == SUCCESS) last_error = error;
    return;
  }
  const auto* to = static_cast<const Stream*>(stream);
  to->queue(
      to, name, is_launch, [](void* work) -> int32_t { return run(*static_cast<Work*>(work)); },
      [](void* work) { delete static_cast<Work*>(work); }, work.release());
}

}  // namespace

void Launch::set_error(Error code, const char* text) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (has_failed) return;
  error = code;
  snprintf(message, sizeof message, "%s", text);
  has_failed = true;
}

void begin_launcher(const char* name) {
  take_error();
  place = {name, 0};
}

void queue_grid(const char* kernel, dim3 grid, dim3 threads, size_t dynamic_shared_bytes, void* stream,
                std::function<void()> body) {
  if (!may_queue(kernel)) return;
  if (!is_valid(grid, threads, dynamic_shared_bytes)) {
    char message[sizeof Launch::message];
    snprintf(message, sizeof message,
             "%s: invalid launch: grid (%u,%u,%u), block (%u,%u,%u), %zu bytes of shared memory", kernel, grid.x,
             grid.y, grid.z, threads.x, threads.y, threads.z, dynamic_shared_bytes);
    return set_last_error(INVALID_CONFIGURATION, message);
  }
  auto launch = std::make_unique<Launch>();
  launch->kernel = kernel;
  launch->grid = grid;
  launch->threads = threads;
  launch->dynamic_shared_bytes = dynamic_shared_bytes;
  launch->body = std::move(body);
  launch->seed = seed();
  launch->n_blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  launch->stride = 1;
  if (launch->seed != 0) {
    // A stride that has no common divisor with the number of blocks visits every block once.
    launch->stride = (launch->seed * 0x9e3779b97f4a7c15ull >> 20) % launch->n_blocks | 1;
    while (std::gcd(launch->stride, launch->n_blocks) != 1) launch->stride++;
    launch->start = launch->seed * 7919 % launch->n_blocks;
  }
  queue<Launch, run_launch>(kernel, true, stream, std::move(launch));
}

void queue_host_work(const char* name, void* stream, std::function<void()> work) {
  if (last_error != SUCCESS) return;
  queue<HostWork, run_host_work>(name, false, stream, std::make_unique<HostWork>(HostWork{name, std::move(work)}));
}

int take_error() {
  const int error = last_error;
  last_error = SUCCESS;
  return error;
}

void fail(Error error, const char* format, ...) {
  char message[500];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (!current_thread) {
    fprintf(stderr, "device code was called outside a kernel: %s\n", message);
    abort();
  }
  Multiprocessor::current()->fail(error, message);
}

int barrier(Barrier kind, int predicate, Where where) {
  return Multiprocessor::current()->barrier(kind, predicate, where);
}

uint64_t collective(Collective operation, unsigned mask, uint64_t value, int argument, int width, Where where) {
  return Multiprocessor::current()->collective(operation, mask, value, argument, width, where);
}

void* shared_memory(const void* key, size_t bytes, size_t alignment) {
  return Multiprocessor::current()->shared_memory(key, bytes, alignment);
}

void maybe_yield() { Multiprocessor::current()->maybe_yield(); }

template <class Word>
static uint64_t modify_at_once(Word* address, Modify modify, uint64_t a, uint64_t b) {
  Word old = __atomic_load_n(address, __ATOMIC_RELAXED);
  for (;;) {
    const Word next = static_cast<Word>(modify(old, a, b));
    if (__atomic_compare_exchange_n(address, &old, next, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return old;
  }
}

uint64_t atomic(void* address, int bytes, Modify modify, uint64_t a, uint64_t b) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    fail(MISALIGNED, "an atomic's address %p is misaligned", address);
  }
  if constexpr (DETECTS_RACES) race::access(address, bytes, race::Kind::ATOMIC, __builtin_return_address(0));
  maybe_yield();
  uint64_t old = 0;
  switch (bytes) {
    case 2: old = modify_at_once(static_cast<uint16_t*>(address), modify, a, b); break;
    case 4: old = modify_at_once(static_cast<uint32_t*>(address), modify, a, b); break;
    default: old = modify_at_once(static_cast<uint64_t*>(address), modify, a, b); break;
  }
  maybe_yield();
  return old;
}

}  // namespace emulate

extern "C" {

/// Chooses the schedule of this host thread's launches and streams; 0 runs threads, blocks and streams in order.
void cohop_emulate_set_seed(uint64_t seed) { emulate::chosen_seed = seed; }

uint64_t cohop_emulate_seed() { return emulate::seed(); }

/// Makes launch number `number`, from 1, fail in the next call of `launcher` that has so many launches; once, and only
/// on this host thread.
void cohop_emulate_fail_launch(const char* launcher, uint64_t number) { emulate::to_fail = {launcher, number}; }

/// Calls `each` for every launch that this host thread has made since the last call of this, each once: the name of its
/// launcher, and its number among the launches of one call, from 1.
void cohop_emulate_take_launches(void (*each)(void* context, const char* launcher, uint64_t number), void* context) {
  for (const emulate::Place& place : emulate::passed) each(context, place.first.c_str(), place.second);
  emulate::passed.clear();
}

/// The message of this host thread's last failed launch.
const char* cohop_emulate_message() { return emulate::last_message; }

const char* cohop_emulate_error_name(int32_t code) {
  switch (code) {
    case emulate::SUCCESS: return "success";
    case emulate::INVALID_VALUE: return "invalid value";
    case emulate::OUT_OF_MEMORY: return "out of memory";
    case emulate::INVALID_CONFIGURATION: return "invalid configuration";
    case emulate::ASSERTION: return "assertion failed";
    case emulate::MISALIGNED: return "misaligned address";
    case emulate::LAUNCH_FAILURE: return "launch failure";
    case emulate::DEADLOCK: return "deadlock";
    case emulate::DIVERGENT: return "divergent barrier";
    case emulate::WRONG_MASK: return "wrong mask";
    case emulate::DATA_RACE: return "race";
    case emulate::EXCEPTION: return "exception in a kernel";
    case emulate::UNINITIALISED: return "uninitialised shared memory";
    default: return "unknown error";
  }
}

}  // extern "C"
