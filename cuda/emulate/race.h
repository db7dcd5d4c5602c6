// The race detector: which accesses are ordered before which.
//
// Two accesses of one byte by different threads race if at least one writes, they are not both atomic, and nothing
// orders them. Threads of one block are ordered by __syncthreads, lanes of one warp also by __syncwarp. As CUDA's
// guide has it, shuffles and votes order nothing, nor do atomics; threads of different blocks are never ordered. Every
// race between accesses that a run makes is found, and nothing else is reported, whatever order the threads ran in.
#pragma once
#include "runtime.h"

namespace emulate::race {

/// What a lane knows of the clocks of its warp's lanes; its own advances with every __syncwarp.
struct Clocks {
  uint32_t clock[WARP];

  void start(unsigned lane);
  void learn(const Clocks& other);
};

enum class Kind : uint8_t { READ, WRITE, ATOMIC };

/// Forgets all accesses.
void begin_launch();

/// Marks memory that a block got as shared: nothing has written it yet.
void begin_shared(const void* address, size_t bytes);

/// Checks and records an access by the running thread, from the code at `pc`.
void access(const void* address, size_t bytes, Kind kind, void* pc);

}  // namespace emulate::race
