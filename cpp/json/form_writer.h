// Writes JSON to the end of a text.
//
// Thread safety: functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace livegnn {

void write_integer(std::string* out, int64_t number);
// The shortest number that is read as the same float32, with a point or an exponent; null for NaN and infinity.
void write_number(std::string* out, float number);
// A list of `count` lists of numbers. rows: [count, width].
void write_rows(std::string* out, std::span<const float> rows, size_t count);

}  // namespace livegnn
