#include "inference/halo/sample_frames.h"

#include <cstdint>
#include <cstring>

namespace livegnn {
namespace {

struct SentTarget {
  int64_t degree;
  uint64_t scanned, count;
  uint32_t turn, has_sum;
};

}  // namespace

void put_sample(const MessageSample& sample, size_t width, FrameWriter* frame) {
  frame->put<uint64_t>(sample.targets.size());
  for (const MessageSample::Target& target : sample.targets) {
    frame->put(SentTarget{target.degree, target.scanned, target.count, target.turn, target.sum != nullptr});
  }
  for (const MessageSample::Target& target : sample.targets) {
    if (target.sum != nullptr) frame->put_all(std::span(target.sum, width));
  }
  frame->put<uint64_t>(sample.rows.size());
  frame->put_all(std::span<const float>(sample.weights));
  for (const float* row : sample.rows) frame->put_all(std::span(row, width));
}

MessageSample get_sample(size_t width, FrameReader* frame) {
  MessageSample sample;
  const auto count = frame->get<uint64_t>();
  std::vector<bool> has_sum;
  for (uint64_t t = 0; t < count; ++t) {
    const auto sent = frame->get<SentTarget>();
    MessageSample::Target& target = sample.targets.emplace_back(SampledTarget{sent.turn, 0, sent.degree});
    target.scanned = sent.scanned;
    target.count = sent.count;
    has_sum.push_back(sent.has_sum != 0);
  }
  for (uint64_t t = 0; t < count; ++t) {
    if (has_sum[t]) sample.targets[t].sum = frame->get_all<float>(width).data();
  }
  const auto messages = frame->get<uint64_t>();
  const std::span<const float> weights = frame->get_all<float>(messages);
  sample.weights.assign(weights.begin(), weights.end());
  for (uint64_t i = 0; i < messages; ++i) sample.rows.push_back(frame->get_all<float>(width).data());
  return sample;
}

}  // namespace livegnn
