// Faults on purpose, to see that the emulator finds them (src/device/cuda/faults.rs says in which mode). Every kernel
// has a sound twin, in which nothing may be found. Built with the emulator only.
#include "scalar.cuh"
#include "warp.cuh"

#include <stdexcept>

namespace cohop {
namespace {

constexpr unsigned BLOCKS = 2, THREADS = 64, TABLE = 16;
constexpr unsigned DYNAMIC_BYTES = THREADS * sizeof(int32_t);

/// in[i] = i, out[i] = 1 if thread i saw what it should; both hold BLOCKS * THREADS elements.
struct Data {
  const int32_t* in;
  int32_t* out;

  __device__ void saw(bool expected) const { out[grid_thread()] = expected; }
};

template <bool FAULTY>
__global__ void missing_barrier_after_initialisation(Data data) {
  COHOP_SHARED(int, table, [TABLE]);
  if (threadIdx.x >= THREADS - TABLE) table[threadIdx.x - (THREADS - TABLE)] = 0;
  if (!FAULTY) __syncthreads();
  atomicAdd(&table[threadIdx.x % TABLE], 1);
  __syncthreads();
  data.saw(table[threadIdx.x % TABLE] == THREADS / TABLE);
}

template <bool FAULTY>
__global__ void missing_barrier_before_reading(Data data) {
  COHOP_SHARED(int, value, [THREADS]);
  value[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!FAULTY) __syncthreads();
  const unsigned other = (threadIdx.x + 33) % THREADS;
  data.saw(value[other] == static_cast<int>(other));
}

/// A tile that is filled and read again and again.
template <bool FAULTY>
__global__ void missing_barrier_before_overwriting(Data data) {
  COHOP_SHARED(int, value, [THREADS]);
  const unsigned other = (threadIdx.x + 33) % THREADS;
  bool is_right = true;
  for (int step = 0; step < 4; step++) {
    value[threadIdx.x] = step * static_cast<int>(THREADS) + static_cast<int>(threadIdx.x);
    __syncthreads();
    is_right &= value[other] == step * static_cast<int>(THREADS) + static_cast<int>(other);
    if (!FAULTY) __syncthreads();
  }
  data.saw(is_right);
}

template <bool FAULTY>
__global__ void missing_syncwarp(Data data) {
  COHOP_SHARED(int, value, [THREADS]);
  value[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!FAULTY) __syncwarp();
  data.saw(value[threadIdx.x ^ 1] == static_cast<int>(threadIdx.x ^ 1));
}

/// Lanes meet in a shuffle, but it orders no memory accesses.
template <bool FAULTY>
__global__ void shuffle_as_syncwarp(Data data) {
  COHOP_SHARED(int, value, [THREADS]);
  value[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int other = __shfl_xor_sync(FULL, static_cast<int>(threadIdx.x), 1);
  if (!FAULTY) __syncwarp();
  data.saw(value[other] == other);
}

template <bool FAULTY>
__global__ void non_atomic_update(Data data) {
  COHOP_SHARED(int, count, [1]);
  if (threadIdx.x == 0) count[0] = 0;
  __syncthreads();
  if (FAULTY) {
    count[0] += 1;
  } else {
    atomicAdd(&count[0], 1);
  }
  __syncthreads();
  data.saw(count[0] == THREADS);
}

/// The first thread of every block writes the same element, and the same value.
template <bool FAULTY>
__global__ void race_between_blocks(Data data) {
  data.saw(true);
  if (FAULTY && threadIdx.x == 0) data.out[0] = 1;
}

struct Wide {
  int32_t value[8];
};

/// Structures too wide for one access, copied into the same place or not.
template <bool FAULTY>
__global__ void race_of_wide_copies(Data data) {
  COHOP_SHARED(Wide, copy, [THREADS / 8]);
  if (threadIdx.x < THREADS / 8) {
    copy[FAULTY ? threadIdx.x / 2 : threadIdx.x] = reinterpret_cast<const Wide*>(data.in)[threadIdx.x];
  }
  __syncthreads();
  data.saw(FAULTY || copy[threadIdx.x / 8].value[threadIdx.x % 8] == static_cast<int>(threadIdx.x));
}

/// Neighbouring bytes, which threads may write side by side; or the same ones.
template <bool FAULTY>
__global__ void race_of_bytes(Data data) {
  COHOP_SHARED(uint8_t, byte, [THREADS]);
  byte[FAULTY ? threadIdx.x / 2 : threadIdx.x] = 1;
  __syncthreads();
  data.saw(byte[FAULTY ? threadIdx.x / 2 : threadIdx.x] == 1);
}

template <bool FAULTY>
__global__ void uninitialised_shared_memory(Data data) {
  COHOP_SHARED(int, value, [THREADS]);
  if (!FAULTY) value[threadIdx.x] = static_cast<int>(threadIdx.x);
  data.saw(value[threadIdx.x] == static_cast<int>(threadIdx.x));
}

template <bool FAULTY>
__global__ void out_of_bounds_in_global_memory(Data data) {
  const uint64_t i = grid_thread() + FAULTY;
  data.saw(data.in[i] == static_cast<int>(i));
}

template <bool FAULTY>
__global__ void out_of_bounds_in_static_shared_memory(Data data) {
  COHOP_SHARED(int, value, [THREADS]);
  value[threadIdx.x + FAULTY] = 0;
  data.saw(value[threadIdx.x + FAULTY] == 0);
}

template <bool FAULTY>
__global__ void out_of_bounds_in_dynamic_shared_memory(Data data) {
  COHOP_DYNAMIC_SHARED(int, value);
  value[threadIdx.x + FAULTY] = 0;
  data.saw(value[threadIdx.x + FAULTY] == 0);
}

template <bool FAULTY>
__global__ void misaligned_vector(Data data) {
  const int start = FAULTY ? 1 : 4;
  const Pack<int32_t, 4> values = load<4>(data.in + start);
  data.saw(values.value[0] == start && values.value[3] == start + 3);
}

/// An array in shared memory is aligned as its elements are.
template <bool FAULTY>
__global__ void misaligned_vector_in_shared_memory(Data data) {
  using Element = std::conditional_t<FAULTY, int32_t, Pack<int32_t, 4>>;
  COHOP_SHARED(Element, value, [16 / sizeof(Element)]);
  int32_t* values = reinterpret_cast<int32_t*>(value);
  if (threadIdx.x < 4) values[threadIdx.x] = 1;
  __syncthreads();
  data.saw(load<4>(values).value[3] == 1);
}

template <bool FAULTY>
__global__ void misaligned_atomic(Data data) {
  COHOP_SHARED(int, value, [2]);
  if (threadIdx.x < 2) value[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(reinterpret_cast<int*>(reinterpret_cast<char*>(value) + (FAULTY ? 2 : 4)), 1);
  data.saw(true);
}

/// Half of a warp waits for the block, the other half for the warp.
template <bool FAULTY>
__global__ void deadlock(Data data) {
  if (FAULTY && threadIdx.x % 32 < 16) {
    __syncthreads();
    __syncwarp();
  } else {
    __syncwarp();
    __syncthreads();
  }
  data.saw(true);
}

template <bool FAULTY>
__global__ void divergent_barrier(Data data) {
  if (FAULTY && threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  data.saw(true);
}

template <bool FAULTY>
__global__ void mask_without_the_own_lane(Data data) {
  data.saw(__any_sync(FAULTY ? 0x0000ffffu : FULL, 1) == 1);
}

/// In each pair of lanes, the two expect different groups.
template <bool FAULTY>
__global__ void different_masks(Data data) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned pair = 3u << (lane & ~1u);
  data.saw(__any_sync(FAULTY && lane % 2 == 1 ? FULL : pair, 1) == 1);
}

template <bool FAULTY>
__global__ void shuffle_from_outside_the_mask(Data data) {
  bool is_right = true;
  if (threadIdx.x % 32 < 16) {
    const int lane = static_cast<int>(threadIdx.x % 32), source = lane + (FAULTY ? 16 : 0);
    is_right = __shfl_sync(0x0000ffffu, lane, source) == source;
  }
  data.saw(is_right);
}

template <bool FAULTY>
__global__ void failed_assertion(Data data) {
  assert(!FAULTY || threadIdx.x != 40);
  data.saw(true);
}

template <bool FAULTY>
__global__ void trap(Data data) {
  if (FAULTY && threadIdx.x == 40) __trap();
  data.saw(true);
}

template <bool FAULTY>
__global__ void exception(Data data) {
  if (FAULTY && threadIdx.x == 40) throw std::runtime_error("thrown in a kernel");
  data.saw(true);
}

template <bool FAULTY>
__global__ void too_much_static_shared_memory(Data data) {
  COHOP_SHARED(char, value, [(48 << 10) - DYNAMIC_BYTES + (FAULTY ? 16 : 0)]);
  value[threadIdx.x] = 1;
  data.saw(value[threadIdx.x] == 1);
}

/// Not faulty in itself; see the launches.
template <bool FAULTY>
__global__ void sound(Data data) {
  data.saw(true);
}

struct Fault {
  const char* name;
  void (*faulty)(Data);
  void (*right)(Data);
  unsigned faulty_blocks, faulty_threads, faulty_dynamic_bytes;
};

#define FAULT_LAUNCHED_AS(kernel, name, blocks, threads, dynamic_bytes) \
  { #name, kernel<true>, kernel<false>, blocks, threads, dynamic_bytes }
#define FAULT(kernel) FAULT_LAUNCHED_AS(kernel, kernel, BLOCKS, THREADS, DYNAMIC_BYTES)

const Fault FAULTS[] = {
    FAULT(missing_barrier_after_initialisation),
    FAULT(missing_barrier_before_reading),
    FAULT(missing_barrier_before_overwriting),
    FAULT(missing_syncwarp),
    FAULT(shuffle_as_syncwarp),
    FAULT(non_atomic_update),
    FAULT(race_between_blocks),
    FAULT(race_of_wide_copies),
    FAULT(race_of_bytes),
    FAULT(uninitialised_shared_memory),
    FAULT(out_of_bounds_in_global_memory),
    FAULT(out_of_bounds_in_static_shared_memory),
    FAULT(out_of_bounds_in_dynamic_shared_memory),
    FAULT(misaligned_vector),
    FAULT(misaligned_vector_in_shared_memory),
    FAULT(misaligned_atomic),
    FAULT(deadlock),
    FAULT(divergent_barrier),
    FAULT(mask_without_the_own_lane),
    FAULT(different_masks),
    FAULT(shuffle_from_outside_the_mask),
    FAULT(failed_assertion),
    FAULT(trap),
    FAULT(exception),
    FAULT(too_much_static_shared_memory),
    FAULT_LAUNCHED_AS(sound, empty_grid, 0, THREADS, 0),
    FAULT_LAUNCHED_AS(sound, too_many_threads, BLOCKS, 1025, 0),
    FAULT_LAUNCHED_AS(sound, too_much_dynamic_shared_memory, BLOCKS, THREADS, (48 << 10) + 1),
};

int32_t launch(const Fault& fault, bool faulty, Data data, void* stream) {
  const unsigned blocks = faulty ? fault.faulty_blocks : BLOCKS;
  const unsigned threads = faulty ? fault.faulty_threads : THREADS;
  const unsigned dynamic_bytes = faulty ? fault.faulty_dynamic_bytes : DYNAMIC_BYTES;
  emulate::launch(fault.name, blocks, threads, dynamic_bytes, stream, faulty ? fault.faulty : fault.right, data);
  return cohop_last_error();
}

}  // namespace
}  // namespace cohop

using namespace cohop;

/// Launches the named kernel or its sound twin, in `stream` or, if it is null, at once. `in` and `out`: see Data.
extern "C" int32_t cohop_emulate_fault(const char* name, bool faulty, const int32_t* in, int32_t* out, void* stream) {
  COHOP_LAUNCHER(
    for (const Fault& fault : FAULTS) {
      if (strcmp(fault.name, name) == 0) return launch(fault, faulty, {in, out}, stream);
    }
    return COHOP_ERROR_INVALID;)
}
