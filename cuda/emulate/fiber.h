// Fibers: stacks between which one OS thread switches.
#pragma once
#include <stddef.h>

#include "runtime.h"

#if !defined(__x86_64__) || defined(EMULATE_UCONTEXT)
#define EMULATE_USES_UCONTEXT
#include <ucontext.h>
#endif

namespace emulate {

class Fiber {
 public:
  /// Makes this fiber stand for the calling OS thread, on the stack that it has.
  void adopt_os_thread();

  /// Makes this fiber start in `entry`, which never returns, on the given stack. What it ran before is forgotten.
  void start_at(void (*entry)(), char* stack, size_t bytes);

  /// `entry` calls this first.
  static void entered();

  /// Runs `to` until something switches back to `from`.
  static void switch_to(Fiber& from, Fiber& to);

 private:
#ifdef EMULATE_USES_UCONTEXT
  ucontext_t context_;
#else
  void* stack_pointer_ = nullptr;
#endif
  char* stack_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;  // of the address sanitizer
};

/// Stacks for fibers, each with an inaccessible page below it.
class Stacks {
 public:
  static constexpr size_t BYTES = HAS_ASAN ? 256 << 10 : 64 << 10;

  explicit Stacks(size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  char* stack(size_t i) const { return memory_ + i * STEP + GUARD; }
  bool contains(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(memory_) < count_ * STEP;
  }

 private:
  static constexpr size_t GUARD = 4096, STEP = BYTES + GUARD;
  char* memory_;
  size_t count_;
};

}  // namespace emulate
