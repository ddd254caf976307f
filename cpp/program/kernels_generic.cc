#define LIVEGNN_ISA generic
#define LIVEGNN_ISA_NAME "generic"
#define LIVEGNN_LANES 4
#include "program/kernels_impl.h"
