// Scores of a few pairs of nodes as they would be after a few events, from the text of a request to the text of its
// answer in one call:
//
//   text ─► events, pairs ─► staged ─► prepared ─► scored ─► text
//
// The steps are those that a what-if takes one by one (inference/what_if.py), and so are the bits of the scores.
// Requests that are not of the usual form (json/score_request.h), are wrong, or reach too much have no answer here: the
// caller takes the steps itself, and knows the reasons.
//
// Invariant: graph and engine stay as they are.
// Thread safety: one thread at a time, which keeps others from changing the graph meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inference/engine.h"
#include "json/score_request.h"
#include "store/stage.h"

namespace livegnn {

// The names that requests may use, with the positions that they stand for; several may stand for one.
struct RequestNames {
  using EdgeType = std::array<std::string, 3>;
  std::vector<std::pair<std::string, uint32_t>> node_types;
  std::vector<std::pair<EdgeType, uint32_t>> edge_types;
  std::vector<std::pair<std::string, EdgeType>> outputs;  // the edge outputs, in their order
};

// bytes: of a request, as of `read_score_request`. numbers: of an answer. work: rows and edges that events may reach.
struct RequestLimits {
  size_t bytes, numbers, work;
};

class SupposedScores {
 public:
  // Requires: the engine, which outlives it, computes at once, on a graph in one piece, and calls no functions.
  SupposedScores(Engine* engine, RequestNames names);

  // seq: the event that the graph is at.
  std::optional<std::string> answer(std::string_view text, int64_t seq, const RequestLimits& limits);

 private:
  uint32_t find_output(const ScoreRequest& request) const;
  bool stage(const ScoreRequest& request, Stage* stage);
  bool stage_edges(const EventRun& run, Stage* stage) const;
  bool stage_nodes(const EventRun& run, Stage* stage) const;
  bool find_numbers(const EventIds& ids, std::vector<int64_t>* numbers) const;
  bool find_pairs(const ScoreRequest& request, const Delta& delta, const EdgeOutput& output);

  Engine& engine_;
  const RequestNames names_;
  std::unique_ptr<Prepared> prepared_;       // its memory is used again
  std::vector<uint32_t> sources_, targets_;  // of the current request, as indices
};

}  // namespace livegnn
