// Answers and questions that no part and no asker sends.
#include <stdexcept>
#include <vector>

#include "sampling/divided_model.h"
#include "testing/testing.h"

namespace livegnn::part_answers_test {

using namespace testing;

// However an answer is cut or changed, or a question is cut, it is refused, or read within its bounds.
TEST(frames_that_are_none_are_refused) {
  Divided divided(2);
  const SubgraphRequest request = request_of(SampleBy::kWeight, false, false, 1);
  RandomStream random(1, 2, 3);
  for (int round = 0; round < 400; ++round) {
    DividedSample sample(divided.asking.get(), divided.names->graph, request, kSeeds, {0.5});
    std::vector<Frame> questions = *sample.ask();
    std::vector<Frame> answers = divided.answer(questions);
    const size_t part = questions[0].empty() ? 1 : 0;
    Frame& spoiled = round % 2 == 0 ? answers[part] : questions[part];
    if (round % 4 != 0) {
      spoiled.resize(random.below(spoiled.size()) / 8 * 8);
    } else {
      spoiled[random.below(spoiled.size())] ^= std::byte{static_cast<uint8_t>(1 + random.below(255))};
    }
    try {
      if (round % 2 == 0) {
        sample.take(spans(answers));
      } else {
        divided.samplers[part]->answer(questions[part], 1);
      }
    } catch (const std::exception&) {
    }
  }
}

}  // namespace livegnn::part_answers_test
