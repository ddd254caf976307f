// Samples that are put together from those of parts.
#include "inference/rounding/sample.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "testing/testing.h"

namespace livegnn::sample_test {

using namespace testing;

namespace {

std::vector<SampledTarget> some_targets(double density, Random* random) {
  std::vector<SampledTarget> targets;
  for (uint32_t turn = 0; turn < kTried; ++turn) {
    if (random->chance(density)) targets.push_back({turn, static_cast<uint32_t>(random->below(1000)), 1});
  }
  return targets;
}

// What a part finds: whole rounds, until one has given enough.
std::vector<SampledTarget> found_in(const std::vector<SampledTarget>& part) {
  std::vector<SampledTarget> found;
  for (uint32_t end = kTriedInRound; end <= kTried && found.size() < kChosen; end += kTriedInRound) {
    for (const SampledTarget& target : part) {
      if (target.turn < end && target.turn >= end - kTriedInRound) found.push_back(target);
    }
  }
  return found;
}

// In-edges of the targets, by turn: a message is a row of one number.
struct Lists {
  explicit Lists(Random* random) {
    const uint64_t most = random->chance(0.5) ? 20 : 1000;
    for (uint32_t turn = 0; turn < kTried; ++turn) {
      messages.push_back(random->floats(1 + random->below(most)));
      scanned.push_back(random->chance(0.1) ? random->below(SampleLimit::kMostScanned) : messages.back().size());
    }
  }

  // As a reader collects them.
  MessageSample collect(const std::vector<SampledTarget>& targets, size_t each) const {
    MessageSample sample;
    SampleLimit limit;
    for (const SampledTarget& target : targets) {
      MessageSample::Target& added = sample.targets.emplace_back(target);
      const size_t left = std::min(each, limit.left());
      if (left == 0) continue;
      const std::vector<float>& list = messages[target.turn];
      added.scanned = scanned[target.turn];
      added.count = std::min(left, list.size());
      limit.take(added.scanned, added.count);
      for (size_t i = 0; i < added.count; ++i) {
        sample.rows.push_back(&list[i]);
        sample.weights.push_back(static_cast<float>(i));
      }
    }
    return sample;
  }

  std::vector<std::vector<float>> messages;
  std::vector<size_t> scanned;
};

}  // namespace

TEST(targets_are_chosen_from_whole_rounds_and_spread_over_them) {
  Random random;
  for (int round = 0; round < 200; ++round) {
    const std::vector<SampledTarget> all = some_targets(random.between(0, 1), &random), found = found_in(all);
    const std::vector<SampledTarget> chosen = choose_targets(found);
    CHECK_EQ(chosen.size(), std::min(found.size(), kChosen));
    for (size_t i = 0; i < chosen.size(); ++i) CHECK(chosen[i] == found[i * found.size() / chosen.size()]);
    CHECK(choose_targets(all) == chosen);
  }
}

TEST(a_sample_merged_from_any_division_is_that_of_the_whole) {
  Random random;
  size_t limited = 0;
  for (int round = 0; round < 200; ++round) {
    const std::vector<SampledTarget> all = some_targets(random.between(0, 1), &random);
    std::vector<std::vector<SampledTarget>> divided(1 + random.below(6));
    for (const SampledTarget& target : all) divided[random.below(divided.size())].push_back(target);
    std::vector<SampledTarget> found;
    for (const auto& part : divided) {
      const std::vector<SampledTarget> own = found_in(part);
      found.insert(found.begin(), own.begin(), own.end());
    }
    const std::vector<SampledTarget> chosen = choose_targets(found);
    CHECK(chosen == choose_targets(found_in(all)));
    const Lists lists(&random);
    const size_t each = random.chance(0.5) ? 2 : SampleLimit::kMostMessages;
    const MessageSample expected = lists.collect(chosen, each);
    std::deque<MessageSample> parts;
    std::vector<const MessageSample*> places;
    for (const auto& part : divided) {
      std::vector<SampledTarget> own;
      for (const SampledTarget& target : chosen) {
        if (std::find(part.begin(), part.end(), target) != part.end()) own.push_back(target);
      }
      places.push_back(&parts.emplace_back(lists.collect(own, each)));
    }
    const MessageSample merged = merge_samples(places);
    CHECK(merged.rows == expected.rows);
    CHECK(merged.weights == expected.weights);
    CHECK_EQ(merged.targets.size(), expected.targets.size());
    for (size_t t = 0; t < merged.targets.size(); ++t) {
      CHECK_EQ(merged.targets[t].turn, expected.targets[t].turn);
      CHECK_EQ(merged.targets[t].count, expected.targets[t].count);
    }
    limited += !expected.targets.empty() && expected.targets.back().count == 0;
  }
  CHECK(limited > 10);
}

}  // namespace livegnn::sample_test
