// Counter-based random numbers, the twin of src/rng: the same bits for the same draw.
//
// Everything in doubles is +, -, *, / and sqrt in the order of src/rng/math.rs. Files that take decisions by it are
// compiled without fused multiply-add (build/kernels.rs).
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

/// `Purpose` of src/rng: those that kernels draw for.
enum class Purpose : uint32_t {
  SUBSET = 2,
  EDGE = 3,
  SOURCE = 4,
  KEY = 5,
  REPLACEMENT = 6,
  WALK_RESTART = 7,
  WALK_STEP = 8,
  SUBSET_AGAIN = 16
};

__device__ __forceinline__ uint64_t stream_of(Purpose purpose, uint32_t index) {
  return static_cast<uint64_t>(purpose) << 32 | index;
}

/// The Philox block of a draw.
__device__ __forceinline__ Words block(uint64_t seed, uint64_t stream, uint64_t counter) {
  return philox({{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), static_cast<uint32_t>(stream),
                  static_cast<uint32_t>(stream >> 32)}},
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

__device__ __forceinline__ uint64_t high_first(uint32_t first, uint32_t second) {
  return static_cast<uint64_t>(first) << 32 | second;
}

/// In [0, 1), a multiple of 2^-53.
__device__ __forceinline__ double uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  const Words words = block(seed, stream, counter);
  return static_cast<double>(high_first(words.word[0], words.word[1]) >> 11) * (1.0 / 9007199254740992.0);
}

/// In (0, 1), an odd multiple of 2^-53.
__device__ __forceinline__ double uniform_open(uint64_t seed, uint64_t stream, uint64_t counter) {
  const Words words = block(seed, stream, counter);
  return (static_cast<double>(high_first(words.word[0], words.word[1]) >> 12) + 0.5) * (1.0 / 4503599627370496.0);
}

/// A whole number below n > 0, each equally likely.
__device__ inline uint64_t bounded(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n) {
  for (;;) {
    const Words words = block(seed, stream, counter);
    const uint64_t word = high_first(words.word[0], words.word[1]);
    const uint64_t low = word * n;
    if (low >= n || low >= (0 - n) % n) return __umul64hi(word, n);
    seed = high_first(words.word[2], words.word[3]);
  }
}

__device__ __forceinline__ uint64_t bits_of(double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

__device__ __forceinline__ double from_bits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/// The polynomial of these coefficients, the highest first.
template <class... Coefficients>
__device__ __forceinline__ double horner(double x, double highest, Coefficients... others) {
  double sum = highest;
  ((sum = sum * x + others), ...);
  return sum;
}

/// Natural logarithm of a positive, finite, normal number.
__device__ inline double ln(double x) {
  const uint64_t bits = bits_of(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = from_bits((bits & ((uint64_t(1) << 52) - 1)) | uint64_t(1023) << 52);
  if (m >= 1.41421356237309504880168872420969808) {
    m *= 0.5;
    exponent += 1;
  }
  const double k = static_cast<double>(exponent);
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  const double tail = horner(s2, 1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0,
                             1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0);
  const double two_s = s + s;
  return k * 6.931471803691238e-1 + (two_s + (two_s * s2 * tail + k * 1.9082149292705877e-10));
}

/// e to a power of at most 709; 0 below -708.
__device__ inline double exp_of(double x) {
  if (x < -708.0) return 0.0;
  const double half = x < 0.0 ? -0.5 : 0.5;
  const double n = static_cast<double>(static_cast<int64_t>(x * 1.44269504088896340735992468100189214 + half));
  const double r = (x - n * 6.931471803691238e-1) - n * 1.9082149292705877e-10;
  const double series = horner(r, 1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                               1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0,
                               1.0 / 6.0, 0.5);
  const double power = 1.0 + (r + r * r * series);
  return power * from_bits(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

/// The standard normal distribution function.
__device__ inline double normal_cdf(double x) {
  const double a = x < 0.0 ? -x : x;
  double tail = 0.0;
  if (!(a > 37.0)) {
    const double density = exp_of(-0.5 * a * a);
    if (a < 7.07106781186547) {
      const double numerator = horner(a, 3.52624965998911e-2, 0.700383064443688, 6.37396220353165, 33.912866078383,
                                      112.079291497871, 221.213596169931, 220.206867912376);
      const double denominator = horner(a, 8.83883476483184e-2, 1.75566716318264, 16.064177579207, 86.7807322029461,
                                        296.564248779674, 637.333633378831, 793.826512519948, 440.413735824752);
      tail = density * numerator / denominator;
    } else {
      const double fraction = a + 1.0 / (a + 2.0 / (a + 3.0 / (a + 4.0 / (a + 0.65))));
      tail = density / (fraction * 2.506628274631);
    }
  }
  return x < 0.0 ? tail : 1.0 - tail;
}

/// The standard normal quantile of a number in (0, 1).
__device__ inline double normal_quantile(double p) {
  const double q = p - 0.5;
  if ((q < 0.0 ? -q : q) <= 0.425) {
    const double r = 0.180625 - q * q;
    const double numerator = horner(r, 2.5090809287301226e3, 3.343057558358813e4, 6.726577092700870e4,
                                    4.592195393154987e4, 1.373169376550946e4, 1.9715909503065513e3,
                                    1.3314166789178438e2, 3.3871328727963665);
    const double denominator = horner(r, 5.226495278852854e3, 2.8729085735721943e4, 3.930789580009271e4,
                                      2.121379430158660e4, 5.394196021424751e3, 6.871870074920579e2,
                                      4.231333070160091e1, 1.0);
    return q * numerator / denominator;
  }
  double r = sqrt(-ln(q < 0.0 ? p : 1.0 - p));
  double magnitude;
  if (r <= 5.0) {
    r = r - 1.6;
    const double numerator =
        horner(r, 7.745450142783414e-4, 2.2723844989269184e-2, 2.417807251774506e-1, 1.2704582524523684,
               3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835);
    const double denominator =
        horner(r, 1.0507500716444169e-9, 5.475938084995345e-4, 1.5198666563616457e-2, 1.4810397642748008e-1,
               6.897673349851e-1, 1.6763848301838038, 2.053191626637759, 1.0);
    magnitude = numerator / denominator;
  } else {
    r = r - 5.0;
    const double numerator =
        horner(r, 2.0103343992922881e-7, 2.7115555687434876e-5, 1.2426609473880784e-3, 2.6532189526576124e-2,
               2.9656057182850487e-1, 1.7848265399172913, 5.463784911164114, 6.657904643501104);
    const double denominator =
        horner(r, 2.0442631033899398e-15, 1.421511758316446e-7, 1.8463183175100548e-5, 7.868691311456133e-4,
               1.4875361290850615e-2, 1.369298809227358e-1, 5.99832206555888e-1, 1.0);
    magnitude = numerator / denominator;
  }
  return q < 0.0 ? -magnitude : magnitude;
}

/// One of a block's words, by selections: an index would put the block into local memory.
__device__ __forceinline__ uint32_t word_of(const Words& words, uint32_t number) {
  return number < 2 ? (number == 0 ? words.word[0] : words.word[1]) : (number == 2 ? words.word[2] : words.word[3]);
}

/// The seed of a draw, which is word `number` of its block: `Seeds::of_word`.
__device__ __forceinline__ uint64_t seed_of(const cohop_variates& variates, uint64_t stream, uint64_t counter,
                                            uint32_t number = 0) {
  if (variates.renewed_below == 0) return variates.first;
  const uint32_t time = word_of(block(variates.renewal, stream, counter), number);
  return time < variates.renewed_below ? variates.second : variates.first;
}

/// The variate of `id`, 32 bits of it: `Variates::word`.
__device__ inline uint32_t variate(const cohop_variates& variates, uint64_t stream, uint64_t id) {
  if (variates.sin == 0.0) return block(seed_of(variates, stream, id), stream, id).word[0];
  const double first = normal_quantile(uniform_open(variates.first, stream, id));
  const double second = normal_quantile(uniform_open(variates.second, stream, id));
  const double r = normal_cdf(variates.cos * first + variates.sin * second) * 4294967296.0;
  // r can round up to 1.
  return r >= 4294967295.0 ? 0xffffffffu : static_cast<uint32_t>(r);
}

}  // namespace cohop
