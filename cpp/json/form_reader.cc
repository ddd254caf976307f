#include "json/form_reader.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace livegnn {
namespace {

constexpr size_t kExactDigits = 15;      // all such integers are float64
constexpr uint64_t kExact = 1ull << 53;  // and all up to this
constexpr int kExactPower = 22;          // powers of ten up to this are float64, too

}  // namespace

bool take_real(FormReader& reader, double* number) {
  reader.skip_blanks();
  const char* const first = reader.at();
  const bool negative = reader.take('-');
  const std::string_view whole = reader.take_digits();
  if (whole.empty() || (whole.size() > 1 && whole.front() == '0')) return false;
  std::string_view rest;
  const bool has_point = reader.take('.');
  if (has_point && (rest = reader.take_digits()).empty()) return false;
  const bool has_power = reader.take('e') || reader.take('E');
  int power = 0;
  if (has_power) {
    const bool down = reader.take('-');
    if (!down) reader.take('+');
    const std::string_view digits = reader.take_digits();
    if (digits.empty() || digits.size() > 4) return false;
    for (const char c : digits) power = 10 * power + (c - '0');
    if (down) power = -power;
  }
  const bool is_whole = !has_point && !has_power;
  if (is_whole && (whole.size() > kExactDigits || (negative && whole == "0"))) return false;
  if (whole.size() + rest.size() <= FormReader::kMostDigits) {
    uint64_t digits = 0;
    for (const char c : whole) digits = 10 * digits + static_cast<uint64_t>(c - '0');
    for (const char c : rest) digits = 10 * digits + static_cast<uint64_t>(c - '0');
    power -= static_cast<int>(rest.size());
    if (digits <= kExact && std::abs(power) <= kExactPower) {  // then one rounding is the only one
      static constexpr std::array<double, kExactPower + 1> powers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
      const auto exact = static_cast<double>(digits);
      const double by = powers[static_cast<size_t>(std::abs(power))];
      *number = power < 0 ? exact / by : exact * by;
      if (negative) *number = -*number;
      return true;
    }
  }
#ifdef __cpp_lib_to_chars  // with numbers of this kind, too
  const auto [end, error] = std::from_chars(first, reader.at(), *number);
  return error == std::errc{} && end == reader.at() && std::isfinite(*number);
#else
  (void)first;
  return false;
#endif
}

}  // namespace livegnn
