#include "json/few_rows.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "testing/testing.h"

namespace livegnn::few_rows_test {
namespace {

using testing::Random;

std::vector<int64_t> numbers_of(const std::optional<FewIds>& ids) {
  if (!ids) return {-1};
  return {ids->numbers.begin(), ids->numbers.begin() + static_cast<ptrdiff_t>(ids->count)};
}

bool is_body(std::string_view text) { return read_body(text, false).has_value(); }

bool are_parameters(std::string_view text) { return read_parameters(text, false).has_value(); }

}  // namespace

TEST(usual_bodies_are_read) {
  CHECK(numbers_of(read_body("{\"ids\":[5]}", false)) == std::vector<int64_t>{5});
  const auto ids = read_body(" { \"ids\" : [ 0 ,\t7, 999999999999999999 ] , \"min_seq\" : 12 } \n", false);
  CHECK(numbers_of(ids) == (std::vector<int64_t>{0, 7, 999999999999999999}));
  CHECK_EQ(ids->min_seq, 12);
  const auto texts = read_body("{\"ids\":[\"a b\",\"\"]}", true);
  CHECK_EQ(texts->count, size_t{2});
  CHECK(texts->texts[0] == "a b" && texts->texts[1].empty());
}

TEST(other_bodies_are_left_to_another_reader) {
  for (const char* other :
       {"", "{}", "[1]", "{\"ids\":[]}", "{\"ids\":[1,]}", "{\"ids\":[1] 2}", "{\"ids\":[1]}}", "{\"ids\":[01]}",
        "{\"ids\":[-1]}", "{\"ids\":[1.0]}", "{\"ids\":[1000000000000000000]}", "{\"ids\":[\"1\"]}", "{\"ids\":[1}",
        "{\"ids\":[1],\"ids\":[2]}", "{\"min_seq\":1,\"ids\":[2]}", "{\"ids\":[1],\"min_seq\":-1}",
        "{\"ids\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}"}) {
    CHECK(!is_body(other));
  }
  CHECK(!read_body("{\"ids\":[1]}", true));
  CHECK(!read_body("{\"ids\":[\"\\u0061\"]}", true));
  CHECK(!read_body("{\"ids\":[\"\xC3\xA4\"]}", true));
}

TEST(usual_parameters_are_read_and_others_are_not) {
  const auto ids = read_parameters("ids=5,7&min_seq=3", false);
  CHECK(numbers_of(ids) == (std::vector<int64_t>{5, 7}));
  CHECK_EQ(ids->min_seq, 3);
  for (const char* other : {"", "ids=", "ids=5,", "ids=5&ids=6", "ids=%35", "ids=+5", "ids=5&min_seq=", "ids=5&model=a",
                            "ids=05", "x=1&ids=5"}) {
    CHECK(!are_parameters(other));
  }
  CHECK(read_parameters("ids=a-1,b.~_", true)->texts[1] == "b.~_");
  CHECK(!read_parameters("ids=a%20b", true));
}

TEST(answers_hold_the_shortest_numbers_that_are_read_back) {
  Random random;
  const FewIds ids = *read_body("{\"ids\":[3,4]}", false);
  for (int round = 0; round < 2000; ++round) {
    float rows[2];
    for (float& number : rows) {
      do {
        const auto bits = static_cast<uint32_t>(random.index(size_t{1} << 32));
        std::memcpy(&number, &bits, sizeof number);
      } while (!std::isfinite(number));
    }
    const std::string answer = write_answer(9, ids, false, rows);
    const char* at = answer.c_str() + std::strlen("{\"seq\":9,\"ids\":[3,4],\"predictions\":[[");
    char* end;
    CHECK_EQ(std::strtof(at, &end), rows[0]);
    CHECK_EQ(std::strtof(end + std::strlen("],["), &end), rows[1]);
    CHECK(std::string_view(end) == "]]}");
  }
  CHECK(write_answer(0, *read_body("{\"ids\":[3]}", false), false, std::vector<float>{123456789.0F, -16777216.0F}) ==
        "{\"seq\":0,\"ids\":[3],\"predictions\":[[1.2345679e+08,-1.6777216e+07]]}");
  const float rows[] = {1, std::numeric_limits<float>::quiet_NaN(), -0.0F, 1e20F};
  CHECK(write_answer(0, ids, false, rows) == "{\"seq\":0,\"ids\":[3,4],\"predictions\":[[1.0,null],[-0.0,1e+20]]}");
}

}  // namespace livegnn::few_rows_test
