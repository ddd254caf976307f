#include "inference/rounding/sample.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace livegnn {

std::vector<SampledTarget> choose_targets(std::vector<SampledTarget> found) {
  std::sort(found.begin(), found.end(), [](const SampledTarget& a, const SampledTarget& b) { return a.turn < b.turn; });
  // A part cannot know when the whole has enough.
  size_t count = 0;
  for (uint32_t end = kTriedInRound; end <= kTried && count < kChosen; end += kTriedInRound) {
    while (count < found.size() && found[count].turn < end) ++count;
  }
  const size_t chosen = std::min(count, kChosen);
  for (size_t i = 0; i < chosen; ++i) found[i] = found[i * count / chosen];
  found.resize(chosen);
  return found;
}

float MessageSample::magnitude(size_t message, size_t channel) const {
  return std::fabs(weights[message] * rows[message][channel]);
}

MessageSample merge_samples(std::span<const MessageSample* const> parts) {
  struct Place {
    const MessageSample* part;
    const MessageSample::Target* target;
    size_t first;  // of its messages
  };
  std::vector<Place> places;
  for (const MessageSample* part : parts) {
    size_t first = 0;
    for (const MessageSample::Target& target : part->targets) {
      places.push_back({part, &target, first});
      first += target.count;
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.target->turn < b.target->turn; });
  MessageSample merged;
  SampleLimit limit;
  for (const Place& place : places) {
    // A part ends later than the whole.
    MessageSample::Target target = *place.target;
    target.count = std::min(target.count, limit.left());
    limit.take(target.scanned, target.count);
    merged.targets.push_back(target);
    for (size_t i = place.first; i < place.first + target.count; ++i) {
      merged.rows.push_back(place.part->rows[i]);
      merged.weights.push_back(place.part->weights[i]);
    }
  }
  return merged;
}

}  // namespace livegnn
