// A register of floats; part of kernels_impl.h, compiled for each instruction set.
#pragma once

#if LIVEGNN_LANES > 4
#include <immintrin.h>
#endif

#include "program/kernels.h"

namespace livegnn::LIVEGNN_ISA {
namespace {

constexpr size_t kLanes = LIVEGNN_LANES;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
constexpr size_t kVectors = kPanel / kLanes;

inline float larger(float a, float b) { return a > b ? a : b; }
inline float magnitude(float a) { return __builtin_fabsf(a); }
inline Vector load(const float* p) { return *reinterpret_cast<const Vector*>(p); }
inline void store(float* p, Vector v) { *reinterpret_cast<Vector*>(p) = v; }
inline Vector broadcast(float value) { return value - Vector{}; }

inline Vector fused(Vector a, Vector b, Vector c) {
#if LIVEGNN_LANES == 16
  return _mm512_fmadd_ps(a, b, c);
#elif LIVEGNN_LANES == 8
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace
}  // namespace livegnn::LIVEGNN_ISA
