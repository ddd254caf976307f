#include "inference/halo/sample_frames.h"

#include <cstring>

#include "testing/testing.h"

namespace livegnn::sample_frames_test {

TEST(a_sample_that_was_sent_is_the_sample) {
  constexpr size_t kWidth = 5;
  testing::Random random;
  for (int draw = 0; draw < 20; ++draw) {
    const std::vector<float> floats = random.floats(40 * kWidth);
    MessageSample sample;
    size_t next = 0;
    for (uint32_t t = 0; t < random.below(6); ++t) {
      auto& target = sample.targets.emplace_back(SampledTarget{3 * t, 7, random.index(20) + 1});
      target.scanned = random.below(100);
      target.count = random.below(3);
      if (random.chance(0.5)) target.sum = floats.data() + kWidth * next++;
      for (size_t i = 0; i < target.count; ++i) {
        sample.rows.push_back(floats.data() + kWidth * next++);
        sample.weights.push_back(random.between(-1, 1));
      }
    }
    FrameWriter frame;
    put_sample(sample, kWidth, &frame);
    frame.put<uint64_t>(draw);
    const Frame sent = frame.take();
    FrameReader from(sent);
    const MessageSample received = get_sample(kWidth, &from);
    CHECK_EQ(from.get<uint64_t>(), static_cast<uint64_t>(draw));
    const auto same_row = [](const float* a, const float* b) {
      return (a == nullptr) == (b == nullptr) && (a == nullptr || std::memcmp(a, b, kWidth * sizeof(float)) == 0);
    };
    CHECK_EQ(received.targets.size(), sample.targets.size());
    for (size_t t = 0; t < sample.targets.size(); ++t) {
      const auto &target = received.targets[t], &expected = sample.targets[t];
      CHECK_EQ(target.turn, expected.turn);
      CHECK_EQ(target.degree, expected.degree);
      CHECK_EQ(target.scanned, expected.scanned);
      CHECK_EQ(target.count, expected.count);
      CHECK(same_row(target.sum, expected.sum));
    }
    CHECK(received.weights == sample.weights);
    CHECK_EQ(received.rows.size(), sample.rows.size());
    for (size_t i = 0; i < sample.rows.size(); ++i) CHECK(same_row(received.rows[i], sample.rows[i]));
  }
}

}  // namespace livegnn::sample_frames_test
