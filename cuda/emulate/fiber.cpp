#include "fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <new>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulate {

#ifndef EMULATE_USES_UCONTEXT
extern "C" void emulate_switch(void** save, void* to);
// Saves the registers that a callee must keep, changes stacks, and restores those of the other fiber: ten times as
// fast as swapcontext, which asks the kernel for the signal mask.
asm(R"(
.text
.globl emulate_switch
.hidden emulate_switch
.type emulate_switch,@function
emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulate_switch,.-emulate_switch
)");
#endif

#if defined(__SANITIZE_ADDRESS__)
/// The search for leaks does not see pointers that only a fiber's stack holds.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

void Fiber::adopt_os_thread() {
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  void* lowest = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &lowest, &bytes_);
  pthread_attr_destroy(&attributes);
  stack_ = static_cast<char*>(lowest);
#endif
}

void Fiber::start_at(void (*entry)(), char* stack, size_t bytes) {
  stack_ = stack;
  bytes_ = bytes;
  fake_stack_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, bytes);  // the red zones of frames that were left without a return
#endif
#ifdef EMULATE_USES_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#else
  // What emulate_switch pops: six registers, then the address to return to; above it a null return address for
  // `entry`, at a multiple of 16 less 8, as after a call.
  constexpr int SAVED_REGISTERS = 6;
  void** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < SAVED_REGISTERS; i++) *--top = nullptr;
  stack_pointer_ = top;
#endif
}

void Fiber::entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  if (&from == &to) return;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.bytes_);
#endif
#ifdef EMULATE_USES_UCONTEXT
  swapcontext(&from.context_, &to.context_);
#else
  emulate_switch(&from.stack_pointer_, to.stack_pointer_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

Stacks::Stacks(size_t count) : count_(count) {
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, count * STEP, protection, flags, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  for (size_t i = 0; i < count; i++) mprotect(memory_ + i * STEP, GUARD, PROT_NONE);
}

Stacks::~Stacks() { munmap(memory_, count_ * STEP); }

}  // namespace emulate
