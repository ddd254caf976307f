// Measures the typical magnitudes of the messages of a sum on a sample of them (rounding_scales.h). They follow from
// the sample and nothing else.
//
// Thread safety: constant.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "inference/rounding/sample.h"
#include "program/program.h"

namespace livegnn {

inline constexpr float kLeastScale = 1e-30f, kMostScale = 1e30f;

class Measurement {
 public:
  // Returns a sample of many messages of the same targets.
  using More = std::function<MessageSample()>;

  // `few`: a sample of a few messages of each target, of all nodes. Requires: it outlives this object.
  Measurement(const Program& program, const PropagateStep& step, const MessageSample& few);

  // Whether `scales` and `mean` would return those given here, or others that differ from them by less than `factor`.
  // It only counts, which costs a fraction of what a median does; false is always a valid answer.
  bool confirms(std::span<const float> scales, float mean, float factor) const;
  // Typical magnitudes by channel.
  std::vector<float> typical() const;
  // The same; if a channel had a scale before and seems to have none now, from more messages.
  std::vector<float> scales(std::span<const float> before, const More& more) const;
  // The typical mean of messages relative to the scale, for the channel where it is smallest; at most 1. 0 unless only
  // means are read.
  float mean(std::span<const float> scales) const;
  // Whether in some channel most messages are several times as large as what they differ by from others.
  bool is_offset() const;

 private:
  bool confirms_scales(std::span<const float> scales, float factor) const;
  bool confirms_mean(std::span<const float> scales, float mean, float factor) const;

  const size_t width_;
  const bool averaged_;
  const MessageSample& few_;
};

}  // namespace livegnn
