// For the tests of samples of a graph in parts: one, beside the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "sampling/divided_sample.h"
#include "sampling/sampling.h"
#include "sampling/sampling_model.h"

namespace livegnn::testing {

inline constexpr size_t kUsers = 60, kItems = 40, kEdges = 2000;

inline std::unique_ptr<GraphPart> part_of(uint32_t parts, uint32_t number) {
  return std::make_unique<GraphPart>(Owners(OwnerRule::kJump, parts), number, 2);
}

// A graph, its names, and its parts.
struct Divided {
  explicit Divided(uint32_t count) : whole(kUsers, kItems, kEdges), sampler(whole.graph) {
    names = std::make_unique<Shop>(kUsers, kItems, kEdges, part_of(count, GraphPart::kNone));
    asking = std::make_unique<Sampler>(names->graph);
    for (uint32_t part = 0; part < count; ++part) {
      parts.push_back(std::make_unique<Shop>(kUsers, kItems, kEdges, part_of(count, part)));
      samplers.push_back(std::make_unique<Sampler>(parts.back()->graph));
    }
  }

  std::vector<Frame> answer(const std::vector<Frame>& questions) {
    std::vector<Frame> answers;
    for (size_t part = 0; part < parts.size(); ++part) {
      answers.push_back(questions[part].empty() ? Frame() : samplers[part]->answer(questions[part], 1));
    }
    return answers;
  }

  Shop whole;
  Sampler sampler;
  std::unique_ptr<Shop> names;
  std::unique_ptr<Sampler> asking;
  std::vector<std::unique_ptr<Shop>> parts;
  std::vector<std::unique_ptr<Sampler>> samplers;
};

inline std::vector<std::span<const std::byte>> spans(const std::vector<Frame>& frames) {
  return {frames.begin(), frames.end()};
}

inline SubgraphRequest request_of(SampleBy by, bool replace, bool disjoint, uint64_t seed) {
  SubgraphRequest request;
  request.fan_outs = {{kFollows, {5, 3}}, {kBuys, {4, 2}}};
  request.by = by;
  request.replace = replace;
  request.incoming = false;
  request.disjoint = disjoint;
  request.attributes = true;
  request.seed = seed;
  return request;
}

inline const std::vector<std::pair<uint32_t, std::vector<int64_t>>> kSeeds = {{0, {0, 30, 590, 30}}, {1, {10}}};

}  // namespace livegnn::testing
