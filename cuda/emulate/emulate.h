// CPU emulator for the subset of CUDA C++ that this crate's kernels use.
// Every CUDA thread is a fiber; fibers of a block run on one OS thread and are switched only at
// synchronisation points, warp collectives and (optionally) atomics, in a seeded random order.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include <algorithm>

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __constant__ static const
#ifndef __restrict__
#define __restrict__ __restrict
#endif
// Raw __shared__ is left undefined on purpose (a compile error here): static or thread_local storage
// could be neither guarded by ASan nor refilled with garbage for every block, and g++ ignores a
// section attribute on it in templates. Kernels say COHOP_SHARED(T, name, [N]) instead.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define EMULATE_VEC(T, N, A2, A4)                                              \
  struct alignas(A2) N##2 { T x, y; };                                     \
  struct N##3 { T x, y, z; };                                              \
  struct alignas(A4) N##4 { T x, y, z, w; };                               \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }              \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }      \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATE_VEC(float, float, 8, 16)
EMULATE_VEC(int, int, 8, 16)
EMULATE_VEC(unsigned, uint, 8, 16)
EMULATE_VEC(double, double, 16, 16)

namespace emulate {
enum Err { OK = 0, INVALID_VALUE = 1, INVALID_CONFIG = 9, ASSERT = 710, LAUNCH_FAILURE = 719,
           DEADLOCK = 10001, DIVERGENT = 10002, BAD_MASK = 10003, RACE = 10004, EXCEPTION = 10005 };
enum Op : uint8_t { SYNCWARP, SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR, BALLOT, ANY, ALL, MATCH_ANY,
                    RED_ADD, RED_MIN, RED_MAX, RED_AND, RED_OR, RED_XOR, ACTIVE };
enum Bar : uint8_t { B_SYNC, B_OR, B_AND, B_COUNT };

struct Thread {  // what device code can see of the running fiber
  uint3 tid;
  unsigned lin, lane, warp;
};
struct Grid { uint3 bid; dim3 block, grid; void* dyn; };
extern thread_local Thread* cur;
extern thread_local Grid* grd;

struct Where { const char* file; int line; };
uint64_t collective(Op op, unsigned mask, uint64_t v, int arg, int width, Where w);
int barrier(Bar kind, int pred, Where w);
void maybe_yield();   // a scheduling point that only the shuffling modes take
void fence();
void* shared(const void* key, size_t bytes);   // this block's copy of one shared variable
[[noreturn]] void fail(int code, const char* fmt, ...) __attribute__((format(printf, 2, 3)));
void run_grid(dim3 grid, dim3 block, size_t smem, void (*body)(void*), void* arg, const char* name);
int take_error();

template <class K, class... A>
inline void launch(const char* name, dim3 g, dim3 b, size_t smem, K k, A... a) {
  auto body = [&] { k(a...); };
  run_grid(g, b, smem, [](void* p) { (*static_cast<decltype(body)*>(p))(); }, &body, name);
}
template <class T> inline uint64_t bits(T v) { uint64_t u = 0; static_assert(sizeof(T) <= 8); memcpy(&u, &v, sizeof v); return u; }
template <class T> inline T unbits(uint64_t u) { T v; memcpy(&v, &u, sizeof v); return v; }
// out of line so that race builds do not see them as plain accesses
uint64_t atomic_rmw(void* p, int size, uint64_t (*f)(uint64_t old, uint64_t a, uint64_t b), uint64_t a, uint64_t b);
}  // namespace emulate

#define threadIdx (::emulate::cur->tid)
#define blockIdx (::emulate::grd->bid)
#define blockDim (::emulate::grd->block)
#define gridDim (::emulate::grd->grid)
constexpr int warpSize = 32;

#define EMULATE_WHERE_ARGS const char* f_ = __builtin_FILE(), int l_ = __builtin_LINE()
#define EMULATE_HERE ::emulate::Where{f_, l_}

static inline void __syncthreads(EMULATE_WHERE_ARGS) { emulate::barrier(emulate::B_SYNC, 0, EMULATE_HERE); }
static inline int __syncthreads_or(int p, EMULATE_WHERE_ARGS) { return emulate::barrier(emulate::B_OR, p, EMULATE_HERE); }
static inline int __syncthreads_and(int p, EMULATE_WHERE_ARGS) { return emulate::barrier(emulate::B_AND, p, EMULATE_HERE); }
static inline int __syncthreads_count(int p, EMULATE_WHERE_ARGS) { return emulate::barrier(emulate::B_COUNT, p, EMULATE_HERE); }
static inline void __syncwarp(unsigned m = ~0u, EMULATE_WHERE_ARGS) { emulate::collective(emulate::SYNCWARP, m, 0, 0, 32, EMULATE_HERE); }
static inline unsigned __activemask(EMULATE_WHERE_ARGS) { return (unsigned)emulate::collective(emulate::ACTIVE, ~0u, 0, 0, 32, EMULATE_HERE); }
static inline void __threadfence() { emulate::fence(); }
static inline void __threadfence_block() { emulate::fence(); }

#define EMULATE_SHFL(name, OP, A)                                                                       \
  template <class T> static inline T name(unsigned m, T v, A arg, int width = 32, EMULATE_WHERE_ARGS) {  \
    return emulate::unbits<T>(emulate::collective(OP, m, emulate::bits(v), (int)arg, width, EMULATE_HERE));          \
  }
EMULATE_SHFL(__shfl_sync, emulate::SHFL, int)
EMULATE_SHFL(__shfl_up_sync, emulate::SHFL_UP, unsigned)
EMULATE_SHFL(__shfl_down_sync, emulate::SHFL_DOWN, unsigned)
EMULATE_SHFL(__shfl_xor_sync, emulate::SHFL_XOR, int)
static inline unsigned __ballot_sync(unsigned m, int p, EMULATE_WHERE_ARGS) { return (unsigned)emulate::collective(emulate::BALLOT, m, p != 0, 0, 32, EMULATE_HERE); }
static inline int __any_sync(unsigned m, int p, EMULATE_WHERE_ARGS) { return (int)emulate::collective(emulate::ANY, m, p != 0, 0, 32, EMULATE_HERE); }
static inline int __all_sync(unsigned m, int p, EMULATE_WHERE_ARGS) { return (int)emulate::collective(emulate::ALL, m, p != 0, 0, 32, EMULATE_HERE); }
template <class T> static inline unsigned __match_any_sync(unsigned m, T v, EMULATE_WHERE_ARGS) { return (unsigned)emulate::collective(emulate::MATCH_ANY, m, emulate::bits(v), 0, 32, EMULATE_HERE); }
#define EMULATE_RED(name, OP) \
  static inline unsigned name(unsigned m, unsigned v, EMULATE_WHERE_ARGS) { return (unsigned)emulate::collective(OP, m, v, 0, 32, EMULATE_HERE); }
EMULATE_RED(__reduce_add_sync, emulate::RED_ADD) EMULATE_RED(__reduce_min_sync, emulate::RED_MIN) EMULATE_RED(__reduce_max_sync, emulate::RED_MAX)
EMULATE_RED(__reduce_and_sync, emulate::RED_AND) EMULATE_RED(__reduce_or_sync, emulate::RED_OR) EMULATE_RED(__reduce_xor_sync, emulate::RED_XOR)

static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __ffsll(long long v) { return __builtin_ffsll(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
static inline unsigned __brev(unsigned v) { unsigned r = 0; for (int i = 0; i < 32; i++) r |= ((v >> i) & 1u) << (31 - i); return r; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)(((unsigned __int128)a * b) >> 64); }
template <class T> static inline T __ldg(const T* p) { return *p; }
template <class T> static inline T __ldcs(const T* p) { return *p; }
template <class T> static inline void __stcs(T* p, T v) { *p = v; }
static inline unsigned __float_as_uint(float f) { return emulate::unbits<unsigned>(emulate::bits(f)); }
static inline float __uint_as_float(unsigned u) { return emulate::unbits<float>(emulate::bits(u)); }
static inline int __float_as_int(float f) { return emulate::unbits<int>(emulate::bits(f)); }
static inline float __int_as_float(int u) { return emulate::unbits<float>(emulate::bits(u)); }
// glibc declares functions of these names
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline void __trap() { emulate::fail(emulate::LAUNCH_FAILURE, "__trap()"); }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
#undef assert
#define assert(c) ((c) ? (void)0 : ::emulate::fail(::emulate::ASSERT, "%s:%d: assertion failed: %s", __FILE__, __LINE__, #c))

// ---- 16-bit floats -------------------------------------------------------------------------
namespace emulate {
inline float half_to_float(uint16_t h) {
  uint32_t s = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff, u;
  if (e == 31) u = s | 0x7f800000u | (m << 13);
  else if (e) u = s | ((e + 112) << 23) | (m << 13);
  else return unbits<float>(bits(s | bits(ldexpf((float)m, -24))));
  return unbits<float>(bits(u));
}
inline uint16_t float_to_half(float f) {  // round to nearest even
  uint32_t u = (uint32_t)bits(f), s = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return 0x7fff;
  if (a >= 0x477ff000u) return s | 0x7c00;
  if (a < 0x38800000u) {  // subnormal or zero: let the FPU round to a multiple of 2^-24
    float r = nearbyintf(ldexpf(fabsf(f), 24));
    return s | (uint16_t)r;
  }
  a += 0xfff + ((a >> 13) & 1);
  return s | (uint16_t)((a - 0x38000000u) >> 13);
}
inline float bf16_to_float(uint16_t h) { return unbits<float>(bits((uint32_t)h << 16)); }
inline uint16_t float_to_bf16(float f) {
  uint32_t u = (uint32_t)bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
}  // namespace emulate
#define EMULATE_F16(T, T2, TO, FROM)                                                          \
  struct T {                                                                              \
    uint16_t b;                                                                           \
    T() = default;                                                                        \
    T(float f) : b(emulate::FROM(f)) {}                                                       \
    operator float() const { return emulate::TO(b); }                                         \
    T& operator+=(T o) { return *this = T(float(*this) + float(o)); }                     \
  };                                                                                      \
  struct alignas(4) T2 { T x, y; };                                                       \
  static inline T operator+(T a, T b) { return T(float(a) + float(b)); }                  \
  static inline T operator-(T a, T b) { return T(float(a) - float(b)); }                  \
  static inline T operator*(T a, T b) { return T(float(a) * float(b)); }                  \
  static inline T operator/(T a, T b) { return T(float(a) / float(b)); }
EMULATE_F16(__half, __half2, half_to_float, float_to_half)
EMULATE_F16(__nv_bfloat16, __nv_bfloat162, bf16_to_float, float_to_bf16)
using half = __half;
static inline float __half2float(__half h) { return h; }
static inline __half __float2half(float f) { return __half(f); }
static inline __half __float2half_rn(float f) { return __half(f); }
static inline float __bfloat162float(__nv_bfloat16 h) { return h; }
static inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
static inline float2 __half22float2(__half2 h) { return {h.x, h.y}; }
static inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {h.x, h.y}; }

// ---- atomics -------------------------------------------------------------------------------
#define EMULATE_ATOMIC(name, EXPR)                                                               \
  template <class T> static inline T name(T* p, std::common_type_t<T> v) {                   \
    return emulate::unbits<T>(emulate::atomic_rmw(p, sizeof(T), [](uint64_t o_, uint64_t a_, uint64_t) -> uint64_t { \
      T o = emulate::unbits<T>(o_), a = emulate::unbits<T>(a_); (void)o; (void)a;                    \
      return emulate::bits<T>((T)(EXPR)); }, emulate::bits<T>(v), 0));                               \
  }
EMULATE_ATOMIC(atomicAdd, o + a)
EMULATE_ATOMIC(atomicSub, o - a)
EMULATE_ATOMIC(atomicExch, a)
EMULATE_ATOMIC(atomicMin, a < o ? a : o)
EMULATE_ATOMIC(atomicMax, o < a ? a : o)
EMULATE_ATOMIC(atomicAnd, o & a)
EMULATE_ATOMIC(atomicOr, o | a)
EMULATE_ATOMIC(atomicXor, o ^ a)
EMULATE_ATOMIC(atomicInc, o >= a ? 0 : o + 1)
EMULATE_ATOMIC(atomicDec, (o == 0 || o > a) ? a : o - 1)
template <class T> static inline T atomicCAS(T* p, std::common_type_t<T> cmp, std::common_type_t<T> v) {
  return emulate::unbits<T>(emulate::atomic_rmw(p, sizeof(T), [](uint64_t o, uint64_t c, uint64_t n) -> uint64_t { return o == c ? n : o; },
                                        emulate::bits<T>(cmp), emulate::bits<T>(v)));
}

#define COHOP_LAUNCH(kernel, grid, block, smem, stream, ...) \
  ((void)(stream), ::emulate::launch(#kernel, dim3(grid), dim3(block), (smem), kernel, ##__VA_ARGS__))
#define COHOP_SHARED(T, name, dims)                                                 \
  using name##_emulate_t = T dims;                                                    \
  name##_emulate_t& name = *static_cast<name##_emulate_t*>(::emulate::shared(                 \
      [] { static const char key = 0; return static_cast<const void*>(&key); }(), sizeof(name##_emulate_t)))
#define COHOP_DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(::emulate::grd->dyn)
static inline int cohop_last_error() { return emulate::take_error(); }
using cudaStream_t = void*;
