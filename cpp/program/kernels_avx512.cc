#define LIVEGNN_ISA avx512
#define LIVEGNN_ISA_NAME "avx512"
#define LIVEGNN_LANES 16
#include "program/kernels_impl.h"
