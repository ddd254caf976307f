// Values of events, and of requests that have the same ones: the usual forms of ids, float32 and types of edges.
//
// Thread safety: functions of their arguments.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "json/form_reader.h"

namespace livegnn {

// An integer, or a text, valid while the text that it was read from is.
struct FormId {
  std::string_view text;  // if it has one
  int64_t number = 0;

  bool is_text() const { return text.data() != nullptr; }
};

// All of these skip blanks first.
bool take_id(FormReader& reader, FormId* id);
bool take_float(FormReader& reader, float* number);
// A list of numbers, of which there is one at least, to the end of `row`.
bool take_row(FormReader& reader, std::vector<float>* row);
bool take_edge_type(FormReader& reader, std::array<std::string_view, 3>* names);

}  // namespace livegnn
