#define LIVEGNN_ISA avx512
#define LIVEGNN_ISA_NAME "avx512"
#define LIVEGNN_LANES 16
#include "kernels_impl.h"
