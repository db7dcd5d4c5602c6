// CUDA's vector types.
#pragma once

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Alignments are CUDA's: a vector of 3 is aligned as its elements.
#define EMULATE_VECTORS(T, name, alignment_of_2, alignment_of_4)                  \
  struct alignas(alignment_of_2) name##2 {                                        \
    T x, y;                                                                       \
  };                                                                              \
  struct name##3 {                                                                \
    T x, y, z;                                                                    \
  };                                                                              \
  struct alignas(alignment_of_4) name##4 {                                        \
    T x, y, z, w;                                                                 \
  };                                                                              \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                      \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }              \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATE_VECTORS(float, float, 8, 16)
EMULATE_VECTORS(int, int, 8, 16)
EMULATE_VECTORS(unsigned, uint, 8, 16)
EMULATE_VECTORS(double, double, 16, 16)
#undef EMULATE_VECTORS
