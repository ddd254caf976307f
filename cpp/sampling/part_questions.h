// The asker's side of the draws that parts of a divided graph make: divides nodes among the owners, and puts the
// answers together in the order of the nodes.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memory/frame.h"
#include "sampling/neighbor_draws.h"
#include "sampling/part_letters.h"
#include "store/graph.h"

namespace livegnn {

// What is wanted of one run of nodes, all of one type, each of which has an owner.
struct DrawsOfNodes {
  uint32_t edge_type = 0;
  bool incoming = false;
  NeighborStrategy strategy;
  EdgeColumns wanted;  // `featured`: the features themselves
  uint64_t seed = 0, purpose = 0, first_place = 0;
  std::span<const uint32_t> nodes;
  std::span<const double> until;  // empty, one bound, or one for each node
};

// One question to each part, and the answers.
class PartQuestions {
 public:
  // Requires: a graph that is divided.
  explicit PartQuestions(const Graph& graph);

  void want(const DrawsOfNodes& draws);
  void want_rows(uint32_t node_type, std::span<const uint32_t> nodes);
  // By part; empty for a part of which nothing is wanted. Call it once, after everything that is wanted.
  std::vector<Frame> ask();

  // Answers, by part, as asked; they must outlive the rest. Returns false if a part shows another batch; then nothing
  // can be taken. Throws std::runtime_error if an answer is missing.
  bool begin_answers(std::span<const std::span<const std::byte>> answers);
  // Take everything in the order in which it was wanted. `features`: of the edges. Throws std::runtime_error if an
  // answer is not one to this question.
  void take(NeighborColumns* to, std::vector<float>* features);
  void take_rows(float* to);

 private:
  // A run of nodes of which something is wanted.
  struct Run {
    size_t first_owner, nodes;
    WantedDraws draws;  // of draws
    uint32_t type = 0;  // of the neighbours, or of the nodes whose rows they are
    size_t width = 0;   // of features
  };
  // The rest of a part's answer to one run of draws.
  struct Cursor {
    const uint32_t *counts = nullptr, *ids = nullptr;
    const float *weights = nullptr, *features = nullptr;
    const double* times = nullptr;
  };

  void divide(uint32_t node_type, std::span<const uint32_t> nodes);
  FrameWriter* begin_run(size_t part, Wanted wanted, size_t bytes);
  std::span<const uint16_t> next_run(const Run** run);
  Cursor open(FrameReader* answer, size_t nodes, const Run& run, size_t* total) const;

  const Graph& graph_;
  const uint64_t commits_;              // of the graph, as of the questions
  std::vector<FrameWriter> questions_;  // by part
  std::vector<uint16_t> owners_;        // of all nodes, as they were wanted
  std::vector<size_t> shares_;          // by part: of the nodes of the current run
  std::vector<Run> runs_;
  std::vector<FrameReader> answers_;
  size_t taken_ = 0;
};

}  // namespace livegnn
