// Philox-4x32-10, the twin of src/rng: the same words for the same draw.
#pragma once
#include "gpu.h"

namespace cohop {

struct Words {
  uint32_t word[4];
};

__device__ __forceinline__ Words philox(Words c, uint32_t key0, uint32_t key1) {
#pragma unroll
  for (int round = 0; round < 10; round++) {
    if (round > 0) {
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const uint32_t high0 = __umulhi(0xD2511F53u, c.word[0]), low0 = 0xD2511F53u * c.word[0];
    const uint32_t high1 = __umulhi(0xCD9E8D57u, c.word[2]), low1 = 0xCD9E8D57u * c.word[2];
    c = {{high1 ^ c.word[1] ^ key0, low1, high0 ^ c.word[3] ^ key1, low0}};
  }
  return c;
}

}  // namespace cohop
