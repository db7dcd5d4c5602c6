// Reductions over a warp and a block, in a fixed order.
#pragma once
#include "gpu.h"

namespace cohop {

/// The sum over groups of WIDTH lanes, in every lane.
template <int WIDTH = 32, class T>
__device__ __forceinline__ T warp_sum(T value, unsigned mask = FULL) {
#pragma unroll
  for (int offset = WIDTH / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
  return value;
}

/// The maximum over groups of WIDTH lanes, in every lane.
template <int WIDTH = 32, class T>
__device__ __forceinline__ T warp_max(T value, unsigned mask = FULL) {
#pragma unroll
  for (int offset = WIDTH / 2; offset > 0; offset /= 2) {
    const T other = __shfl_xor_sync(mask, value, offset);
    value = other > value ? other : value;
  }
  return value;
}

/// The sum over a block of THREADS threads, in thread 0. All threads call it; `part` is [THREADS / 32] in shared
/// memory.
template <int THREADS, class T>
__device__ __forceinline__ T block_sum(T value, T* part) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  value = warp_sum(value);
  if (lane == 0) part[warp] = value;
  __syncthreads();
  if (warp == 0) value = warp_sum(lane < THREADS / 32 ? part[lane] : T(0));
  return value;
}

}  // namespace cohop
