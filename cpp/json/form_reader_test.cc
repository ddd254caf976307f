#include "json/form_reader.h"

#include <string_view>

#include "testing/testing.h"

namespace livegnn::form_reader_test {
namespace {

bool is_real(std::string_view text, double expected) {
  FormReader reader(text);
  double number;
  return take_real(reader, &number) && reader.ended() && number == expected;
}

bool is_refused(std::string_view text) {
  FormReader reader(text);
  double number;
  return !take_real(reader, &number) || !reader.ended();
}

}  // namespace

TEST(numbers_are_the_nearest_of_float64) {
  CHECK(is_real("0.1", 0.1) && is_real(" -2.5e-3", -2.5e-3) && is_real("1E+22", 1e22) && is_real("-0.0", 0.0));
  CHECK(is_real("123456789.123456789", 123456789.123456789) && is_real("1e-310", 1e-310) && is_real("7", 7));
  for (const char* wrong : {"", "-", "01", ".5", "1.", "1e", "1e+", "+1", "nan", "1e999", "-0", "1234567890123456"}) {
    CHECK(is_refused(wrong));
  }
}

}  // namespace livegnn::form_reader_test
