#include "inference/halo/gathered_samples.h"

#include <utility>

#include "inference/halo/sample_frames.h"

namespace livegnn {
namespace {

MessageSample merge_with(const MessageSample& own, const std::vector<MessageSample>& received) {
  std::vector<const MessageSample*> parts{&own};
  for (const MessageSample& sample : received) parts.push_back(&sample);
  return merge_samples(parts);
}

}  // namespace

GatheredSamples::GatheredSamples(const RowState& rows, const RoundingState& rounding, const BatchChanges* changes,
                                 const OwnersAfter& owners, Exchange* exchange)
    : owners_(owners), exchange_(*exchange) {
  for (size_t p = 0; p < rows.program.propagations.size(); ++p) {
    const PropagateStep& step = rows.program.propagations[p];
    if (step.aggregate != Aggregate::kSum) continue;
    const Value& value = rows.program.values[step.output];
    const SampleReader reader(rows, rounding, step, changes);
    sums_.emplace(p, Sum{reader, value.node_type, value.width, {}, {}, {}, {}, {}, {}, {}});
  }
  choose_together();
  FrameWriter own;
  for (auto& [_, sum] : sums_) {
    sum.own_few = sum.reader.few(sum.targets);
    put_sample(sum.own_few, sum.width, &own);
  }
  // Copied, because the next round replaces what was received.
  kept_.reserve(exchange_.parts());
  swap_same(&exchange_, owners_.self(), own, [&](const Frame& frame) {
    FrameReader from(kept_.emplace_back(frame));
    for (auto& [_, sum] : sums_) sum.received_few.push_back(get_sample(sum.width, &from));
  });
  for (auto& [_, sum] : sums_) sum.few = merge_with(sum.own_few, sum.received_few);
}

void GatheredSamples::choose_together() {
  FrameWriter own;
  for (auto& [_, sum] : sums_) {
    sum.targets = sum.reader.find([&](uint32_t node) { return owners_.owns(sum.node_type, node); });
    own.put<uint64_t>(sum.targets.size());
    own.put_all(std::span<const SampledTarget>(sum.targets));
  }
  swap_same(&exchange_, owners_.self(), own, [&](const Frame& frame) {
    FrameReader from(frame);
    for (auto& [_, sum] : sums_) {
      const auto count = from.get<uint64_t>();
      const auto others = from.get_all<SampledTarget>(count);
      sum.targets.insert(sum.targets.end(), others.begin(), others.end());
    }
  });
  for (auto& [_, sum] : sums_) {
    sum.targets = choose_targets(std::move(sum.targets));
    std::erase_if(sum.targets, [&](const SampledTarget& target) { return !owners_.owns(sum.node_type, target.node); });
  }
}

MessageSample GatheredSamples::many(size_t propagation) {
  Sum& sum = sums_.at(propagation);
  sum.own_many = sum.reader.many(sum.targets);
  sum.received_many.clear();
  sum.kept.clear();
  sum.kept.reserve(exchange_.parts());
  FrameWriter own;
  put_sample(sum.own_many, sum.width, &own);
  swap_same(&exchange_, owners_.self(), own, [&](const Frame& frame) {
    FrameReader from(sum.kept.emplace_back(frame));
    sum.received_many.push_back(get_sample(sum.width, &from));
  });
  return merge_with(sum.own_many, sum.received_many);
}

}  // namespace livegnn
