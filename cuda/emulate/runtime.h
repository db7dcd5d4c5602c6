// What device code calls in the emulator. The macros of emulate.h expand to it; the emulator's own files include it
// without them.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

#include "vector_types.h"

namespace emulate {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool HAS_ASAN = true;
#else
inline constexpr bool HAS_ASAN = false;
#endif
#if defined(EMULATE_RACE)
inline constexpr bool DETECTS_RACES = true;
#else
inline constexpr bool DETECTS_RACES = false;
#endif

inline constexpr unsigned WARP = 32;

/// CUDA's codes where it has one for the error.
enum Error : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_CONFIGURATION = 9,
  ASSERTION = 710,
  MISALIGNED = 716,
  LAUNCH_FAILURE = 719,
  DEADLOCK = 10001,
  DIVERGENT = 10002,
  WRONG_MASK = 10003,
  DATA_RACE = 10004,
  EXCEPTION = 10005,
  UNINITIALISED = 10006,
};

/// The running thread, as device code sees it.
struct Thread {
  uint3 index;
  unsigned linear, lane, warp;
};

/// Its block, as device code sees it.
struct Block {
  uint3 index;
  dim3 threads, grid;
  void* dynamic_shared;
};

// `__thread`, not `thread_local`: device code reads them everywhere, and needs no call to initialise them.
extern __thread Thread* current_thread;
extern __thread Block* current_block;

/// A place in a kernel: for messages, and to tell barriers apart.
struct Where {
  const char* file;
  int line;
};

enum class Barrier : uint8_t { PLAIN, OR, AND, COUNT };

/// Waits for all threads of the block that have not exited.
int barrier(Barrier kind, int predicate, Where where);

enum class Collective : uint8_t {
  SYNC,
  SHUFFLE,
  SHUFFLE_UP,
  SHUFFLE_DOWN,
  SHUFFLE_XOR,
  BALLOT,
  ANY,
  ALL,
  MATCH_ANY,
  ADD,
  MIN,
  MAX,
  AND,
  OR,
  XOR,
};

/// Waits for all lanes in `mask` that have not exited. `argument` and `width` are those of shuffles.
uint64_t collective(Collective operation, unsigned mask, uint64_t value, int argument, int width, Where where);

/// A point at which other threads may run; not taken in the schedule that runs threads in order.
void maybe_yield();

/// This block's copy of a shared variable; `key` tells variables apart.
void* shared_memory(const void* key, size_t bytes, size_t alignment);

using Modify = uint64_t (*)(uint64_t old, uint64_t a, uint64_t b);

/// Atomically replaces a value of 2, 4 or 8 bytes by modify(value, a, b); returns what it was. It is compiled
/// separately from the kernels, so that the race detector does not see plain accesses.
uint64_t atomic(void* address, int bytes, Modify modify, uint64_t a, uint64_t b);

/// Ends the launch with an error.
[[noreturn]] void fail(Error error, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Forgets errors of earlier launches of this host thread. `name` stays valid.
void begin_launcher(const char* name);

/// Where launchers queue work: the first member of what the host's side calls a stream. The host's side runs each work
/// once, after the works that were queued before it, by run(work); or, after an error, only frees it by drop(work). run
/// returns a code, whose message is cohop_emulate_message's until the calling thread's next one.
struct Stream {
  void (*queue)(const Stream* stream, const char* name, bool is_launch, int32_t (*run)(void* work),
                void (*drop)(void* work), void* work);
};

/// Queues a launch in which each thread calls body. Without a stream it runs at once. What CUDA refuses at once is an
/// error at once; errors are kept for take_error, and while there is one, nothing is queued.
void queue_grid(const char* kernel, dim3 grid, dim3 threads, size_t dynamic_shared_bytes, void* stream,
                std::function<void()> body);

/// Queues what a library of CUDA's would do on the device, as work of the host.
void queue_host_work(const char* name, void* stream, std::function<void()> work);

/// The first error of this host thread's launches since the last call.
int take_error();

/// Arguments are copied, as CUDA does it: the launch may run when the launcher has returned.
template <class Kernel, class... Arguments>
void launch(const char* name, dim3 grid, dim3 threads, size_t dynamic_shared_bytes, void* stream, Kernel kernel,
            Arguments... arguments) {
  queue_grid(name, grid, threads, dynamic_shared_bytes, stream, [=] { kernel(arguments...); });
}

// Values travel through the runtime as 64 bits.

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}

template <class T>
T from_bits(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace emulate
