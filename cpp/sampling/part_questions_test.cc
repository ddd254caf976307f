// Questions of one batch to parts that show another one.
#include "sampling/part_questions.h"

#include <vector>

#include "sampling/divided_model.h"
#include "testing/testing.h"

namespace livegnn::part_questions_test {

using namespace testing;

TEST(parts_of_another_batch_answer_nothing) {
  Divided divided(2);
  const std::vector<uint32_t> users = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto answered = [&] {
    PartQuestions questions(divided.names->graph);
    questions.want({kFollows, false, {SampleBy::kUniform, false, 3}, {}, 1, 0, 0, users, {}});
    const std::vector<Frame> answers = divided.answer(questions.ask());
    return questions.begin_answers(spans(answers));
  };
  CHECK(answered());
  Stage part(divided.parts[1]->graph);
  apply(&divided.parts[1]->graph, &part);
  CHECK(!answered());
  Stage names(divided.names->graph);
  apply(&divided.names->graph, &names);
  CHECK(!answered());  // now the other part is behind
  Stage other(divided.parts[0]->graph);
  apply(&divided.parts[0]->graph, &other);
  CHECK(answered());
}

TEST(a_sample_ends_when_the_names_go_on) {
  Divided divided(2);
  const SubgraphRequest request = request_of(SampleBy::kUniform, false, false, 1);
  DividedSample sample(divided.asking.get(), divided.names->graph, request, kSeeds, {});
  const std::vector<Frame> answers = divided.answer(*sample.ask());
  Stage none(divided.names->graph);
  apply(&divided.names->graph, &none);
  CHECK(!sample.take(spans(answers)));
  CHECK(!sample.ask().has_value());
  CHECK(!sample.finish().has_value());
}

}  // namespace livegnn::part_questions_test
