// The edges whose row of an edge output a prepared batch changes, in any bit.
//
//   new rows at the sources ─► out-edges ─┐
//   new rows at the targets ─► in-edges  ─┼─► scores before the batch, scores after it ─► those that differ
//   edges of the batch ───────────────────┘
//
// Both scores are computed, so none is kept: between batches there is nothing to store for an edge.
//
// Thread safety: the one writer calls it, between `prepare` and `commit` of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "inference/engine.h"

namespace livegnn {

// Edges by the ids of their nodes. An undirected edge is named in both directions, unless it is a loop.
struct EdgeIds {
  std::vector<int64_t> sources, targets;
  std::vector<uint32_t> keys;  // 0 in a type without keys

  size_t size() const { return keys.size(); }
};

struct ChangedScores {
  // How many edges may have another score, at most: an edge at both of whose ends a row changes may count twice.
  size_t reached = 0;
  bool complete = true;  // false: more were reached than were asked for, and nothing is listed
  // Edges that are in the graph after the batch: those that it adds, and those whose score differs. Each is named once.
  EdgeIds edges;
  std::vector<float> rows;  // `edge_output_width` floats for each
  // Edges that the batch removes. One that is added again, with an end that is removed and added again, is in `edges`.
  EdgeIds removed;
};

// most: how many edges to compare. Requires: the engine is not lazy, and the graph has edges of the output's type, with
// lists of in-neighbours if the output reads rows at targets. Throws what functions of the model throw.
ChangedScores changed_scores(const Engine& engine, const Prepared& prepared, size_t edge_output, size_t most);

}  // namespace livegnn
