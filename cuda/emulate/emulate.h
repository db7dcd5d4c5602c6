// The emulator: the subset of CUDA C++ that the kernels use, on the CPU, as a test bed.
//
// Every CUDA thread is a fiber. The fibers of a block share one OS thread and are switched at barriers, collectives of
// a warp, fences and atomics; in which order is chosen by a seed, so that a missing barrier shows as a wrong result
// for some seed. Blocks run on several OS threads. Three builds, chosen by COHOP_EMULATE (see build/kernels.rs):
//   plain  finds deadlocks, divergent barriers, wrong masks, invalid launches, failed assertions;
//   asan   also finds accesses out of bounds or misaligned, in global, static and dynamic shared memory;
//   race   also finds accesses that no barrier orders, and reads of shared memory that nothing has written.
//
// Where to look:
//   device code's side  runtime.h, vector_types.h, half.h, intrinsics.h, collectives.h, atomics.h
//   running it          launch.cpp (grids, blocks, errors), multiprocessor.cpp (one block), collectives.cpp (where its
//                       threads meet), fiber.cpp (switching between them), race.cpp (the race detector)
// Launches are queued in the host's streams (src/device/cuda/emulated/), which run them later, in an order that the
// seed picks. What it does not show: two launches that run at the same time, the device's roundings in exp, log and the
// like, barriers on one source line that threads reach in different iterations, speed.
#pragma once
#include "atomics.h"
#include "collectives.h"
#include "half.h"
#include "intrinsics.h"
#include "runtime.h"
#include "vector_types.h"

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __constant__ static const
#ifndef __restrict__
#define __restrict__ __restrict
#endif

#define threadIdx (::emulate::current_thread->index)
#define blockIdx (::emulate::current_block->index)
#define blockDim (::emulate::current_block->threads)
#define gridDim (::emulate::current_block->grid)
constexpr int warpSize = 32;

#undef assert
#define assert(condition) \
  ((condition) ? (void)0  \
               : ::emulate::fail(::emulate::ASSERTION, "%s:%d: assertion failed: %s", __FILE__, __LINE__, #condition))

using cudaStream_t = void*;

// The macros of gpu.h. `__shared__` itself stays undefined, an error on purpose: static or thread_local variables could
// be neither guarded by the address sanitizer nor filled again for every block.
#define COHOP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  ::emulate::launch(#kernel, dim3(grid), dim3(block), (shared_bytes), (stream), kernel, ##__VA_ARGS__)
#define COHOP_SHARED(T, name, dims)                                                              \
  using name##_type = T dims;                                                                    \
  name##_type& name = *static_cast<name##_type*>(::emulate::shared_memory(                       \
      [] {                                                                                       \
        static const char key = 0;                                                               \
        return static_cast<const void*>(&key);                                                   \
      }(),                                                                                       \
      sizeof(name##_type), alignof(name##_type)))
#define COHOP_DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(::emulate::current_block->dynamic_shared)

inline int cohop_last_error() { return emulate::take_error(); }
inline void cohop_begin_launcher(const char* name) { emulate::begin_launcher(name); }
