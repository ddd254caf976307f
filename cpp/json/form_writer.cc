#include "json/form_writer.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace livegnn {
namespace {

constexpr size_t kNumberBytes = 32;
constexpr float kLargeNumber = 1 << 24;  // all integers below are float32

}  // namespace

void write_integer(std::string* out, int64_t number) {
  char text[kNumberBytes];
  out->append(text, static_cast<size_t>(std::to_chars(text, text + kNumberBytes, number).ptr - text));
}

void write_number(std::string* out, float number) {
  if (!std::isfinite(number)) {
    *out += "null";
    return;
  }
  char text[kNumberBytes];
  // Without an exponent, digits that float32 does not have would follow, and a float64 of them is another number.
  const bool is_large = std::abs(number) >= kLargeNumber;
  const char* const end = is_large ? std::to_chars(text, text + kNumberBytes, number, std::chars_format::scientific).ptr
                                   : std::to_chars(text, text + kNumberBytes, number).ptr;
  const std::string_view written(text, static_cast<size_t>(end - text));
  *out += written;
  if (written.find_first_of(".e") == std::string_view::npos) *out += ".0";  // else its reader has an integer
}

void write_rows(std::string* out, std::span<const float> rows, size_t count) {
  const size_t width = rows.size() / count;
  for (size_t i = 0; i < count; ++i) {
    *out += i > 0 ? ",[" : "[[";
    for (size_t j = 0; j < width; ++j) {
      if (j > 0) *out += ',';
      write_number(out, rows[i * width + j]);
    }
    *out += ']';
  }
  *out += ']';
}

}  // namespace livegnn
