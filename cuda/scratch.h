// Several arrays in one block of scratch memory.
#pragma once
#include "gpu.h"

namespace cohop {

/// Hands out parts of a block one after the other, each aligned to 256 bytes. Over a null block it only counts, so that
/// one function lays a block out both for its size and for its use.
class Scratch {
 public:
  explicit Scratch(void* block) : block_(static_cast<unsigned char*>(block)) {}

  /// The next n elements; null if only counting.
  template <class T>
  T* take(uint64_t n) {
    T* part = block_ ? reinterpret_cast<T*>(block_ + bytes_) : nullptr;
    bytes_ += (n * sizeof(T) + 255) / 256 * 256;
    return part;
  }

  /// Bytes of all that was taken.
  uint64_t bytes() const { return bytes_; }

 private:
  unsigned char* block_;
  uint64_t bytes_ = 0;
};

}  // namespace cohop
