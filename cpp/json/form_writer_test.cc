#include "json/form_writer.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "testing/testing.h"

namespace livegnn::form_writer_test {
namespace {

std::string written(float number) {
  std::string out;
  write_number(&out, number);
  return out;
}

}  // namespace

TEST(numbers_are_the_shortest_that_are_read_back) {
  testing::Random random;
  for (int round = 0; round < 4000; ++round) {
    const auto bits = static_cast<uint32_t>(random.index(size_t{1} << 32));
    float number;
    std::memcpy(&number, &bits, sizeof number);
    if (!std::isfinite(number)) continue;
    const std::string text = written(number);
    CHECK_EQ(std::strtof(text.c_str(), nullptr), number);
    CHECK_EQ(static_cast<float>(std::strtod(text.c_str(), nullptr)), number);
    CHECK(text.find_first_of(".e") != std::string::npos);
  }
  CHECK_EQ(written(1), std::string("1.0"));
  CHECK_EQ(written(-0.0F), std::string("-0.0"));
  CHECK_EQ(written(123456789.0F), std::string("1.2345679e+08"));
  CHECK_EQ(written(std::numeric_limits<float>::infinity()), std::string("null"));
}

TEST(rows_and_integers_are_written_to_the_end) {
  std::string out = "a";
  write_integer(&out, std::numeric_limits<int64_t>::min());
  write_rows(&out, std::vector<float>{1, 2, 3, 4}, 2);
  write_rows(&out, std::vector<float>{0.5F}, 1);
  CHECK_EQ(out, std::string("a-9223372036854775808[[1.0,2.0],[3.0,4.0]][[0.5]]"));
}

}  // namespace livegnn::form_writer_test
