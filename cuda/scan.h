// Prefix sums. CUB computes them, in a file of its own: it is slow to compile.
#pragma once
#include "gpu.h"

namespace cohop {

/// Bytes of scratch memory of `exclusive_scan` on the thread's current device. T: uint32_t or uint64_t.
template <class T>
uint64_t scan_bytes(uint64_t n);

/// out[0] = 0, out[i + 1] = out[i] + x[i]: n values, n + 1 sums. `x` may be `out + 1`. To be called in a launcher;
/// returns its code. T: uint32_t or uint64_t.
template <class T>
int32_t exclusive_scan(uint64_t n, const T* x, T* out, void* scratch, void* stream);

}  // namespace cohop
