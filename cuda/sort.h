// Stable sorts of pairs by an integer key. CUB sorts, in a file of its own: it is slow to compile.
#pragma once
#include "gpu.h"

namespace cohop {

/// Bits that hold every number below `limit`.
inline int bits_below(uint64_t limit) {
  int bits = 0;
  while (bits < 64 && limit > uint64_t(1) << bits) bits++;
  return bits;
}

/// Bytes of scratch memory of `sort_pairs` on the thread's current device. Key: uint32_t or uint64_t.
template <class Key>
uint64_t sort_bytes(uint64_t n);

/// Sorts n pairs by bits begin_bit..end_bit of their keys; equal ones stay in order. Null `values`: 0, 1, 2, ...
/// Inputs are not changed and do not overlap outputs. To be called in a launcher; returns its code. Key: uint32_t or
/// uint64_t.
template <class Key>
int32_t sort_pairs(uint64_t n, const Key* keys, const uint32_t* values, Key* keys_out, uint32_t* values_out,
                   int begin_bit, int end_bit, void* scratch, void* stream);

}  // namespace cohop
