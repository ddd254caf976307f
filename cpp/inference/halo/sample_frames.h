// Samples of messages (sample.h) as the parts of a graph send them.
//
// Thread safety: plain functions.
#pragma once

#include <cstddef>

#include "inference/halo/exchange.h"
#include "inference/rounding/sample.h"

namespace livegnn {

// `width`: of rows and sums, in floats.
void put_sample(const MessageSample& sample, size_t width, FrameWriter* frame);
// The rows stay in the frame. Throws std::runtime_error.
MessageSample get_sample(size_t width, FrameReader* frame);

}  // namespace livegnn
