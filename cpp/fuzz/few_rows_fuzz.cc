#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "json/few_rows.h"

namespace livegnn {
namespace {

// What is read of any bytes is written so that it is read again as the same.
void check(std::string_view text, bool are_texts) {
  for (const auto& ids : {read_body(text, are_texts), read_parameters(text, are_texts)}) {
    if (!ids) continue;
    CHECK(ids->count > 0 && ids->count <= kFewRows);
    const std::vector<float> rows(ids->count, 0.5F);
    const std::string answer = write_answer(ids->min_seq, *ids, are_texts, rows);
    const size_t first = answer.find("\"ids\""), end = answer.find(",\"predictions\"");
    const std::string body = "{" + answer.substr(first, end - first) + "}";
    const auto again = read_body(body, are_texts);
    CHECK(again && again->count == ids->count);
    for (size_t i = 0; i < ids->count; ++i) CHECK(again->texts[i] == ids->texts[i]);
  }
}

// Parts of requests, so that few bytes make one, and any bytes between them.
constexpr std::string_view kParts[] = {
    "{\"ids\":[", "ids=", "{",       "}",           "[",         "]", ",",  ":",
    "\"",         " ",    "\"ids\"", "\"min_seq\"", "&min_seq=", "0", "17", "999999999999999999",
    "a",          "\\"};

void body(fuzz::Input* input) {
  const bool are_texts = input->once_in(2);
  std::string text;
  while (input->more()) {
    const uint32_t part = input->below(32);
    if (part < std::size(kParts)) {
      text += kParts[part];
    } else {
      text += static_cast<char>(input->byte());
    }
  }
  check(text, are_texts);
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
