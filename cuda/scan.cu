// Prefix sums: CUB's under nvcc, a loop of the host's on the emulator.
#include "scan.h"

#if defined(__CUDACC__)
#include <cub/device/device_scan.cuh>
#endif

namespace cohop {

#if defined(__CUDACC__)

template <class T>
uint64_t scan_bytes(uint64_t n) {
  size_t bytes = 0;
  const T* x = nullptr;
  T* out = nullptr;
  // If this fails, the scan fails too, for lack of memory.
  if (cub::DeviceScan::InclusiveSum(nullptr, bytes, x, out, n) != cudaSuccess) return 0;
  return bytes;
}

template <class T>
int32_t exclusive_scan(uint64_t n, const T* x, T* out, void* scratch, void* stream) {
  const cudaStream_t on = static_cast<cudaStream_t>(stream);
  // The first sum does not come from `x`, so the others are the inclusive ones, one further on.
  const cudaError_t code = cudaMemsetAsync(out, 0, sizeof(T), on);
  if (code != cudaSuccess || n == 0) return static_cast<int32_t>(code);
  size_t bytes = scan_bytes<T>(n);
  return static_cast<int32_t>(cub::DeviceScan::InclusiveSum(scratch, bytes, x, out + 1, n, on));
}

#else

template <class T>
uint64_t scan_bytes(uint64_t n) {
  return n / 64 + 1;
}

template <class T>
int32_t exclusive_scan(uint64_t n, const T* x, T* out, void* scratch, void* stream) {
  emulate::queue_host_work(__func__, stream, [=] {
    memset(scratch, 0xa5, scan_bytes<T>(n));
    T sum = 0;
    out[0] = 0;
    for (uint64_t i = 0; i < n; i++) out[i + 1] = sum += x[i];
  });
  return cohop_last_error();
}

#endif

template uint64_t scan_bytes<uint32_t>(uint64_t);
template uint64_t scan_bytes<uint64_t>(uint64_t);
template int32_t exclusive_scan(uint64_t, const uint32_t*, uint32_t*, void*, void*);
template int32_t exclusive_scan(uint64_t, const uint64_t*, uint64_t*, void*, void*);

}  // namespace cohop
