#include "sampling/one_hops.h"

#include <string>
#include <utility>

#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

[[noreturn]] void refuse(size_t position, const std::string& what) {
  throw SampleError(BadSample::kRequest, "one-hop query " + std::to_string(position) + ": " + what);
}

uint32_t hop_of(const std::vector<PlannedHop>& earlier, const PlannedHop& one) {
  if (one.parents.empty()) refuse(earlier.size(), "it must have a parent, got none");
  uint32_t hop = 0;
  for (size_t i = 0; i < one.parents.size(); ++i) {
    const int32_t parent = one.parents[i];
    if (parent < OneHop::kSeeds || parent >= static_cast<int32_t>(earlier.size())) {
      refuse(earlier.size(), "a parent must be an earlier one-hop query, got " + std::to_string(parent));
    }
    const uint32_t after = parent == OneHop::kSeeds ? 0 : earlier[parent].hop + 1;
    if (i > 0 && after != hop) refuse(earlier.size(), "its parents must be of one hop");
    hop = after;
  }
  return hop;
}

}  // namespace

std::vector<PlannedHop> plan_one_hops(const Graph& graph, std::vector<OneHop> one_hops, bool bounded) {
  std::vector<PlannedHop> plan;
  for (OneHop& given : one_hops) {
    PlannedHop one{std::move(given)};
    check_strategy(graph, one.edge_type, one.incoming, one.strategy, bounded);
    const EdgeTypeSpec& spec = graph.edges[one.edge_type].spec;
    one.key_type = one.incoming ? spec.target_type : spec.source_type;
    one.neighbor_type = one.incoming ? spec.source_type : spec.target_type;
    one.hop = hop_of(plan, one);
    plan.push_back(std::move(one));
  }
  const size_t hops = num_hops(plan), types = graph.edges.size();
  for (size_t q = 0; q < plan.size(); ++q) {
    // Two that draw along one edge type in one hop, in two directions, need random numbers of their own.
    size_t repeats = 0;
    for (size_t p = 0; p < q; ++p) repeats += plan[p].hop == plan[q].hop && plan[p].edge_type == plan[q].edge_type;
    plan[q].purpose = 1 + (plan[q].hop + hops * repeats) * types + plan[q].edge_type;
  }
  return plan;
}

}  // namespace livegnn
