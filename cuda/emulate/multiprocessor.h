// One OS thread's share of the emulated GPU: it runs blocks, one after the other.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "fiber.h"
#include "launch.h"
#include "race.h"
#include "runtime.h"

namespace emulate {

enum class State : uint8_t { READY, AT_BARRIER, IN_COLLECTIVE, EXITED };

struct DeviceThread : Thread {
  Fiber fiber;
  State state;
  Where where;      // where it waits
  uint64_t result;  // of the barrier or collective that it waited for
  race::Clocks clocks;
};

/// Lanes that have arrived at a collective, waiting for the rest of their mask.
struct Rendezvous {
  bool is_open;
  Collective operation;
  unsigned mask, arrived;
  Where where;
  uint64_t value[WARP];
  int argument[WARP], width[WARP];
};

struct Warp {
  unsigned alive;  // lanes that have not exited
  Rendezvous rendezvous[WARP];
};

class Multiprocessor {
 public:
  /// The calling OS thread's multiprocessor; null while it runs no block. Fibers move between OS threads from block to
  /// block, so the compiler must not remember what it returned.
  [[gnu::noipa]] static Multiprocessor* current();
  static void set_current(Multiprocessor* multiprocessor);

  /// Makes room for blocks of `threads` threads.
  void reserve(size_t threads);

  /// Runs one block of the launch. To be called on the OS thread that called set_current.
  void run(Launch& launch, uint64_t block);

  // The functions below are called by the running thread.

  int barrier(Barrier kind, int predicate, Where where);
  uint64_t collective(Collective operation, unsigned mask, uint64_t value, int argument, int width, Where where);
  void* shared_memory(const void* key, size_t bytes, size_t alignment);
  void maybe_yield();
  [[noreturn]] void fail(Error error, const char* message);

  bool is_stack(const void* address) const { return stacks_->contains(address); }
  uint64_t block_number() const { return block_number_; }
  uint32_t barriers_passed() const { return barriers_passed_; }

 private:
  struct SharedVariable {
    const void* key;
    size_t bytes, alignment;
    std::unique_ptr<char, void (*)(void*)> memory;
    char* start;
  };

  static void fiber_main();
  void run_thread();
  void begin_block(Launch& launch, uint64_t block);
  void restart_fibers();
  void report_deadlock();

  void make_ready(DeviceThread& thread);
  DeviceThread* next_ready();
  void switch_from(DeviceThread& thread);
  void release_barrier_if_complete();
  void complete_if_all_arrived(unsigned warp, Rendezvous& rendezvous);
  uint64_t random();

  Launch* launch_ = nullptr;
  Block block_{};
  uint64_t block_number_ = 0;
  uint64_t random_state_ = 0;
  bool shuffles_ = false;

  Fiber os_thread_;
  std::optional<Stacks> stacks_;
  bool has_abandoned_fibers_ = false;
  std::vector<DeviceThread> threads_;
  std::vector<Warp> warps_;
  unsigned n_threads_ = 0;  // of this block

  // Ready threads: a ring that starts at first_ready_; if they are shuffled, a set that starts at 0.
  std::vector<DeviceThread*> ready_;
  size_t first_ready_ = 0, n_ready_ = 0;

  unsigned alive_ = 0;  // threads that have not exited
  unsigned at_barrier_ = 0;
  Barrier barrier_kind_{};
  Where barrier_where_{};
  int barrier_result_ = 0;
  uint32_t barriers_passed_ = 0;

  // The block's variables come first; what follows them is memory for later blocks. The first is the dynamic one.
  std::vector<SharedVariable> shared_;
  size_t n_shared_ = 0, shared_bytes_ = 0;
  uint32_t poison_ = 0;
};

}  // namespace emulate
