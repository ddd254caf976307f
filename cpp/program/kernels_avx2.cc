#define LIVEGNN_ISA avx2
#define LIVEGNN_ISA_NAME "avx2"
#define LIVEGNN_LANES 8
#include "program/kernels_impl.h"
