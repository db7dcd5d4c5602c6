// A launch: a grid of blocks that several OS threads share.
#pragma once
#include <atomic>
#include <mutex>

#include "runtime.h"

namespace emulate {

/// The most shared memory of a block, static and dynamic together, without cudaFuncSetAttribute.
inline constexpr size_t MAX_SHARED_BYTES = 48 << 10;

struct Launch {
  const char* kernel;
  dim3 grid, threads;
  size_t dynamic_shared_bytes;
  std::function<void()> body;  // of each thread
  uint64_t seed;
  uint64_t n_blocks;

  // Blocks are taken in the order (i * stride + start) mod n_blocks.
  uint64_t stride, start;
  std::atomic<uint64_t> n_taken{0};

  std::atomic<bool> has_failed{false};
  std::mutex mutex;  // of the two below
  int error = SUCCESS;
  char message[800];

  /// Keeps the first error only.
  void set_error(Error code, const char* text);
};

}  // namespace emulate
