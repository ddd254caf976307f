// Samples of a divided graph. The owner of a node draws for it, from the same lists and with the same random numbers as
// the undivided graph would, so that a sample has the same bits:
//
//   here   seeds ─► ask ─► numbers of the new nodes ─► ask ─► ...  ─► ask for features ─► finish
//   parts           draw                               draw           read
//
// Here is a graph that knows all ids and owners, and need have no edges. All parts answer as of the batch that the
// sample began with, or the sample has to be drawn again.
//
// Thread safety: one thread uses a sample. Hold `Graph::lock` of the graph here shared during each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sampling/part_questions.h"
#include "sampling/subgraph_sample.h"

namespace livegnn {

using PartAnswers = std::span<const std::span<const std::byte>>;  // by part; empty where nothing was asked

class DividedSample {
 public:
  // `request`: without seeds and bounds, which are given as copies: ids by node type. Throws SampleError.
  DividedSample(Sampler* sampler, const Graph& graph, SubgraphRequest request,
                std::vector<std::pair<uint32_t, std::vector<int64_t>>> seeds, std::vector<double> until);
  DividedSample(const DividedSample&) = delete;
  DividedSample& operator=(const DividedSample&) = delete;

  // The next questions, by part, empty for a part that is not asked; none at all when everything is here. The answers
  // must follow. Without a value if the graph has gone on to another batch.
  std::optional<std::vector<Frame>> ask();
  // Returns false if a part or the graph has gone on to another batch. Throws std::runtime_error if an answer is not
  // one to its question.
  bool take(PartAnswers answers);
  // Requires: `ask` returned none. Without a value as `ask`; then the sample has to be drawn again.
  std::optional<Subgraph> finish();

  bool attributes() const { return request_.attributes; }

 private:
  bool goes_on() const { return graph_.part->commits() == commits_; }
  void want_hop(const std::vector<Frontier>& frontiers);
  bool want_rows();

  const Graph& graph_;
  std::vector<std::pair<uint32_t, std::vector<int64_t>>> seeds_;
  std::vector<double> until_;
  SubgraphRequest request_;
  const uint64_t commits_;
  Sampler::Lease scratch_;
  SubgraphSample sample_;
  size_t hop_ = 0;
  bool wants_rows_ = false;
  std::optional<PartQuestions> questions_;
  std::vector<std::vector<float>> edge_features_;  // by run of draws
  std::vector<Column<float>> features_;            // by node type
};

// Neighbours of nodes of a divided graph: one question to each owner.
class DividedNeighbors {
 public:
  // Throws SampleError.
  DividedNeighbors(const Graph& graph, const NeighborRequest& request, std::span<const int64_t> ids);

  std::vector<Frame> ask() { return questions_.ask(); }
  // Without a value if a part or the graph has gone on to another batch; else without rows of features. Throws
  // std::runtime_error.
  std::optional<NeighborSample> finish(PartAnswers answers);

 private:
  const Graph& graph_;
  uint32_t neighbor_type_ = 0;
  const uint64_t commits_;
  PartQuestions questions_;
};

}  // namespace livegnn
