// One include for every .cu file: CUDA under nvcc, the emulator under g++.
#pragma once
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace cohop {
void count_launch();
}

// The kernel may be a template in parentheses: COHOP_LAUNCH((kernel<float>), grid, block, shared, stream, arguments...)
// After a failed launch, a launcher's later launches are skipped: they would read what the failed one did not write.
#define COHOP_LAUNCH(kernel, grid, block, shared, stream, ...)                                \
  do {                                                                                        \
    if (cudaPeekAtLastError() == cudaSuccess) {                                               \
      ::cohop::count_launch();                                                                \
      kernel<<<(grid), (block), (shared), static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__); \
    }                                                                                         \
  } while (false)
// COHOP_SHARED(float, tile, [32][33]);  COHOP_SHARED(int, count, );
#define COHOP_SHARED(T, name, dims) __shared__ T name dims
// The launch's dynamic shared memory.
#define COHOP_DYNAMIC_SHARED(T, name)                                \
  extern __shared__ __align__(16) unsigned char cohop_dynamic_[]; \
  T* name = reinterpret_cast<T*>(cohop_dynamic_)

static inline int32_t cohop_last_error() { return static_cast<int32_t>(cudaGetLastError()); }
static inline void cohop_begin_launcher(const char*) { (void)cudaGetLastError(); }
#else
#include "emulate/emulate.h"
#endif

#include "cohop.h"

// The body of a launcher: no exception reaches the caller, and no error of an earlier call is taken for this one's.
#define COHOP_LAUNCHER(...)         \
  try {                             \
    cohop_begin_launcher(__func__); \
    __VA_ARGS__                     \
  } catch (...) {                   \
    return COHOP_ERROR_EXCEPTION;   \
  }

namespace cohop {

constexpr unsigned FULL = 0xffffffffu;

// __restrict__ stands where no other argument of the kernel can be the same memory: on outputs, which are mutable views
// in Rust and so borrowed by nothing else, and on inputs that no launcher is given twice. Inputs of the same kind that
// may well be equal, as in the dot product of a vector with itself, are without it; so are maps over elements, which
// may be called in place. Where outputs have it, the compiler mostly needs none on inputs to load ahead.

/// Threads of a block, unless a kernel says otherwise.
constexpr int BLOCK = 256;

/// The most blocks of a grid-stride loop: enough to fill any device, few enough to start fast. On the emulator so few
/// that tests reach the second round of such loops.
#if defined(__CUDACC__)
constexpr uint64_t MAX_BLOCKS = 16384;
#else
constexpr uint64_t MAX_BLOCKS = 8;
#endif

/// Blocks for n threads of a grid-stride loop.
inline unsigned grid_for(uint64_t n, unsigned block = BLOCK) {
  const uint64_t blocks = (n + block - 1) / block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS);
}

/// Blocks that must all run. If they are too many, a number that cannot be launched, which is an error.
inline unsigned grid_of(uint64_t blocks) { return static_cast<unsigned>(blocks < 0xffffffffu ? blocks : 0xffffffffu); }

/// A thread's first position in a grid-stride loop, and the loop's step.
__device__ __forceinline__ uint64_t grid_thread() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ uint64_t grid_threads() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }

/// Calls body(0.0f) or body(0.0), by the scalar that a device computes in.
template <class Body>
int32_t with_scalar(cohop_dtype dtype, Body body) {
  switch (dtype) {
    case COHOP_F32: return body(0.0f);
    case COHOP_F64: return body(0.0);
    default: return COHOP_ERROR_INVALID;
  }
}

/// Keeps the first index out of range that any kernel meets; the host reads it after waiting for the device.
__device__ inline void report(cohop_status* status, uint32_t array, uint64_t position, int64_t value, uint64_t limit) {
  if (atomicCAS(&status->array, 0u, array) == 0u) {
    status->position = position;
    status->value = value;
    status->limit = limit;
  }
}

}  // namespace cohop
