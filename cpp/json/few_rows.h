// Requests for the rows of a few nodes, and their answers, as text: the usual forms of them, and nothing else.
//
// A request is the body {"ids": [5, 7], "min_seq": 3}, with `min_seq` or without, or the parameter ids=5,7 of an
// address. Ids are integers, or texts of printable ASCII without escapes. Whatever else is valid, and all that is not,
// is for a reader that knows the reasons. The answer is {"seq":3,"ids":[5,7],"predictions":[[0.5],[1.25]]}.
//
// Thread safety: functions of their arguments.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace livegnn {

inline constexpr size_t kFewRows = 16;

// numbers: of integers. texts: as they stand in the request, without quotes; valid while the request is.
struct FewIds {
  std::array<int64_t, kFewRows> numbers;
  std::array<std::string_view, kFewRows> texts;
  size_t count = 0;
  int64_t min_seq = 0;
};

// The body of a request; none for another form. are_texts: whether ids must be texts.
std::optional<FewIds> read_body(std::string_view body, bool are_texts);

// The parameters of an address; none for another form. Texts have letters, digits, '.', '_', '~' and '-' alone.
std::optional<FewIds> read_parameters(std::string_view parameters, bool are_texts);

// Each number is the shortest that is read as the same float32; NaN and infinity are null. rows: [count, width].
std::string write_answer(int64_t seq, const FewIds& ids, bool are_texts, std::span<const float> rows);

}  // namespace livegnn
