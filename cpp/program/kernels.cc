#include "program/kernels.h"

#include <cstring>

namespace livegnn {

namespace generic {
extern const Kernels kKernels;
}
#ifdef LIVEGNN_X86
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

void pack(size_t inner, size_t outputs, const float* weight, float* packed) {
  std::memset(packed, 0, packed_size(inner, outputs) * sizeof(float));
  for (size_t column = 0; column < outputs; ++column) {
    float* panel = packed + column / kPanel * kPanel * inner + column % kPanel;
    for (size_t k = 0; k < inner; ++k) panel[k * kPanel] = weight[column * inner + k];
  }
}

const Kernels& kernels() {
#ifdef LIVEGNN_X86
  static const Kernels& best = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                                   ? avx512::kKernels
                               : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? avx2::kKernels
                                                                                                 : generic::kKernels;
  return best;
#else
  return generic::kKernels;
#endif
}

}  // namespace livegnn
