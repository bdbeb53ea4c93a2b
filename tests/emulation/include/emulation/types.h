// The keywords that CUDA C++ adds to C++, and its built-in vector types.
#pragma once

#include <cstddef>
#include <cstdint>

// A kernel is an ordinary function here. The threads of a block run on one host thread, so their
// shared variables are thread_local. This lets src/shared_variables.cpp find them, to fill them
// with NaNs.
#ifdef __SANITIZE_THREAD__
// GCC does not instrument the store of a struct that a call returns, so all calls are inlined.
#define __global__ __attribute__((flatten))
#else
#define __global__
#endif
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define CUDART_VERSION 13000

// Vector types, aligned as on the device, because kernels load each in one access.
struct char2 {
  signed char x, y;
} __align__(2);
struct char4 {
  signed char x, y, z, w;
} __align__(4);
struct uchar2 {
  unsigned char x, y;
} __align__(2);
struct uchar4 {
  unsigned char x, y, z, w;
} __align__(4);
struct short2 {
  short x, y;
} __align__(4);
struct short4 {
  short x, y, z, w;
} __align__(8);
struct ushort2 {
  unsigned short x, y;
} __align__(4);
struct ushort4 {
  unsigned short x, y, z, w;
} __align__(8);
struct int2 {
  int x, y;
} __align__(8);
struct int3 {
  int x, y, z;
};
struct int4 {
  int x, y, z, w;
} __align__(16);
struct uint2 {
  unsigned x, y;
} __align__(8);
struct uint3 {
  unsigned x, y, z;
};
struct uint4 {
  unsigned x, y, z, w;
} __align__(16);
struct longlong2 {
  long long x, y;
} __align__(16);
struct ulonglong2 {
  unsigned long long x, y;
} __align__(16);
struct float2 {
  float x, y;
} __align__(8);
struct float3 {
  float x, y, z;
};
struct float4 {
  float x, y, z, w;
} __align__(16);
struct double2 {
  double x, y;
} __align__(16);

inline char2 make_char2(signed char x, signed char y) {
  return {x, y};
}
inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) {
  return {x, y, z, w};
}
inline uchar2 make_uchar2(unsigned char x, unsigned char y) {
  return {x, y};
}
inline uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w) {
  return {x, y, z, w};
}
inline short2 make_short2(short x, short y) {
  return {x, y};
}
inline short4 make_short4(short x, short y, short z, short w) {
  return {x, y, z, w};
}
inline ushort2 make_ushort2(unsigned short x, unsigned short y) {
  return {x, y};
}
inline ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z,
                            unsigned short w) {
  return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
  return {x, y};
}
inline int3 make_int3(int x, int y, int z) {
  return {x, y, z};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) {
  return {x, y, z};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline longlong2 make_longlong2(long long x, long long y) {
  return {x, y};
}
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
  return {x, y};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float3 make_float3(float x, float y, float z) {
  return {x, y, z};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline double2 make_double2(double x, double y) {
  return {x, y};
}

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
