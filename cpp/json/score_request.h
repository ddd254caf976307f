// Requests for the scores of a few pairs of nodes as they would be after a few events, and their answers, as text: the
// usual form of them, and nothing else.
//
// A request is {"sources":[1],"targets":[2],"edge_attr":[[0.5]],"events":[{"event":"add_edge","src":1,"dst":2}]}, with
// "edge_weight", "edge_type", "output" and "min_seq" or without, in any order. Its values have the forms of
// usual_events.h. Whatever else is valid, and all that is not, is for a reader that knows the reasons. The answer is
// {"seq":3,"scores":[[0.5]]}.
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
#include <vector>

#include "json/form_values.h"
#include "json/usual_events.h"

namespace livegnn {

inline constexpr size_t kFewPairs = 16;

// Texts are valid while the request is.
struct ScoreRequest {
  std::vector<FormId> sources, targets;  // as many of each, and all of one kind
  std::vector<float> edge_attr;          // a row for each pair, all as wide
  std::vector<float> edge_weight;        // one for each pair, or none
  std::string_view output;               // empty: none is named
  std::optional<std::array<std::string_view, 3>> edge_type;
  int64_t min_seq = 0;
  std::vector<EventRun> events;  // at most `kFewPairs` of them

  size_t count() const { return sources.size(); }
};

// bytes: the most of a request, as of `EventLimits`. None for another form.
std::optional<ScoreRequest> read_score_request(std::string_view text, size_t bytes);

// scores: [count, width]. Numbers are as `write_number` writes them.
std::string write_scores(int64_t seq, std::span<const float> scores, size_t count);

}  // namespace livegnn
