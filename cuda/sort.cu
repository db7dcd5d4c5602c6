// Stable sorts of pairs: CUB's radix sort under nvcc, the standard library's merge sort on the emulator.
#include "scratch.h"
#include "sort.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>
#else
#include <vector>
#endif

namespace cohop {
namespace {

__global__ void __launch_bounds__(BLOCK) count_up_kernel(uint64_t n, uint32_t* __restrict__ out) {
  for (uint64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = static_cast<uint32_t>(i);
}

/// CUB's own scratch memory, enough for any range of bits: it depends on the range, but not much.
template <class Key>
uint64_t radix_sort_bytes(uint64_t n) {
#if defined(__CUDACC__)
  size_t bytes = 0;
  const Key* keys = nullptr;
  const uint32_t* values = nullptr;
  // If this fails, the sort fails too, for lack of memory.
  if (cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, static_cast<Key*>(nullptr), values,
                                      static_cast<uint32_t*>(nullptr), n) != cudaSuccess) {
    return 0;
  }
  return bytes;
#else
  return n * (sizeof(Key) + sizeof(uint32_t)) + 1;
#endif
}

/// Memory for the numbers 0, 1, 2, ..., and for CUB itself.
template <class Key>
struct SortScratch {
  uint64_t own_bytes;
  uint32_t* positions;
  unsigned char* own;
  uint64_t bytes;
  SortScratch(void* block, uint64_t n) : own_bytes(radix_sort_bytes<Key>(n)) {
    Scratch scratch(block);
    positions = scratch.take<uint32_t>(n);
    own = scratch.take<unsigned char>(own_bytes);
    bytes = scratch.bytes();
  }
};

}  // namespace

template <class Key>
uint64_t sort_bytes(uint64_t n) {
  return SortScratch<Key>(nullptr, n).bytes;
}

template <class Key>
int32_t sort_pairs(uint64_t n, const Key* keys, const uint32_t* values, Key* keys_out, uint32_t* values_out,
                   int begin_bit, int end_bit, void* scratch, void* stream) {
  if (n == 0) return 0;
  const SortScratch<Key> parts(scratch, n);
  if (!values) {
    COHOP_LAUNCH(count_up_kernel, grid_for(n), BLOCK, 0, stream, n, parts.positions);
    values = parts.positions;
  }
#if defined(__CUDACC__)
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  if (begin_bit >= end_bit) {
    cudaMemcpyAsync(keys_out, keys, n * sizeof(Key), cudaMemcpyDeviceToDevice, on);
    cudaMemcpyAsync(values_out, values, n * sizeof(uint32_t), cudaMemcpyDeviceToDevice, on);
    return cohop_last_error();
  }
  size_t bytes = parts.own_bytes;
  const cudaError_t code = cub::DeviceRadixSort::SortPairs(parts.own, bytes, keys, keys_out, values, values_out, n,
                                                           begin_bit, end_bit, on);
  const int32_t earlier = cohop_last_error();
  return code != cudaSuccess ? static_cast<int32_t>(code) : earlier;
#else
  emulate::queue_host_work(__func__, stream, [=] {
    memset(parts.own, 0xa5, parts.own_bytes);
    const auto digit = [&](uint32_t i) {
      const uint64_t mask = end_bit >= 64 ? ~uint64_t(0) : (uint64_t(1) << end_bit) - 1;
      return begin_bit >= end_bit ? 0 : (static_cast<uint64_t>(keys[i]) & mask) >> begin_bit;
    };
    std::vector<uint32_t> order(n);
    for (uint64_t i = 0; i < n; i++) order[i] = static_cast<uint32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return digit(a) < digit(b); });
    for (uint64_t i = 0; i < n; i++) {
      keys_out[i] = keys[order[i]];
      values_out[i] = values[order[i]];
    }
  });
  return cohop_last_error();
#endif
}

template uint64_t sort_bytes<uint32_t>(uint64_t);
template uint64_t sort_bytes<uint64_t>(uint64_t);
template int32_t sort_pairs(uint64_t, const uint32_t*, const uint32_t*, uint32_t*, uint32_t*, int, int, void*, void*);
template int32_t sort_pairs(uint64_t, const uint64_t*, const uint32_t*, uint64_t*, uint32_t*, int, int, void*, void*);

}  // namespace cohop
