#include "presampling/samples/query_plan.h"

#include <algorithm>

namespace livegnn {
namespace {

[[noreturn]] void refuse(size_t query, const std::string& what) {
  throw std::invalid_argument("one-hop query " + std::to_string(query) + ": " + what);
}

// Sums and products that stay at the greatest number when they pass it.
uint64_t add(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
uint64_t multiply(uint64_t a, uint64_t b) { return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b; }

}  // namespace

QueryPlan::QueryPlan(uint32_t seed_type, size_t num_node_types, std::span<const PlannedEdgeType> edge_types,
                     std::span<const OneHopRequest> requests)
    : seed_type_(seed_type), num_node_types_(num_node_types) {
  if (seed_type >= num_node_types) {
    throw std::invalid_argument("the seeds are of node type " + std::to_string(seed_type) + ", and there are " +
                                std::to_string(num_node_types));
  }
  if (requests.empty() || requests.size() > kMaxQueries) {
    throw std::invalid_argument("a query needs from 1 to " + std::to_string(kMaxQueries) + " one-hop queries, not " +
                                std::to_string(requests.size()));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    queries_.push_back(checked(i, requests[i], edge_types));
    for (uint32_t parent : queries_[i].parents) queries_[parent].children.push_back(static_cast<uint32_t>(i));
    num_hops_ = std::max(num_hops_, queries_[i].hop + 1);
  }
  count_lookups();
}

OneHopQuery QueryPlan::checked(size_t i, const OneHopRequest& request,
                               std::span<const PlannedEdgeType> edge_types) const {
  if (request.edge_type >= edge_types.size()) {
    refuse(i, "there is no edge type " + std::to_string(request.edge_type));
  }
  const PlannedEdgeType& type = edge_types[request.edge_type];
  if (type.source_type >= num_node_types_ || type.target_type >= num_node_types_) {
    refuse(i, "its edge type has nodes of a type that does not exist");
  }
  if (request.count < 1 || request.count > kMaxCellCount) {
    refuse(i, "a fan-out is from 1 to " + std::to_string(kMaxCellCount) + ", not " + std::to_string(request.count));
  }
  if ((request.by == SampleBy::kWeight || request.weighted) && !type.weighted) {
    refuse(i, "it asks for weights, and its edge type has none");
  }
  if ((request.by == SampleBy::kLatest || request.timed) && !type.timed) {
    refuse(i, "it asks for times, and its edge type has none");
  }
  const bool incoming = request.incoming && !type.undirected;
  OneHopQuery query{request.edge_type,
                    incoming,
                    type.undirected,
                    static_cast<uint32_t>(request.count),
                    request.by,
                    request.weighted,
                    request.timed,
                    request.incoming,
                    0,
                    {},
                    {},
                    type.source_type,
                    type.target_type};
  if (incoming) std::swap(query.key_type, query.neighbor_type);
  if (request.parents.empty()) refuse(i, "its key nodes come from nowhere: it needs parents, or the seeds");
  for (int32_t parent : request.parents) {
    if (parent < kSeeds || parent >= static_cast<int64_t>(i)) {
      refuse(i, "its parent " + std::to_string(parent) + " is no earlier query");
    }
    if (std::count(request.parents.begin(), request.parents.end(), parent) > 1) {
      refuse(i, "its parent " + std::to_string(parent) + " is there twice");
    }
    const uint32_t type_of_keys = parent == kSeeds ? seed_type_ : queries_[parent].neighbor_type;
    if (type_of_keys != query.key_type) {
      refuse(i, "its edges begin at node type " + std::to_string(query.key_type) + ", and its key nodes are of type " +
                    std::to_string(type_of_keys));
    }
    const uint32_t hop = parent == kSeeds ? 0 : queries_[parent].hop + 1;
    if (parent != request.parents[0] && hop != query.hop) refuse(i, "its parents are of different hops");
    query.hop = hop;
    if (parent != kSeeds) query.parents.push_back(static_cast<uint32_t>(parent));
  }
  return query;
}

void QueryPlan::count_lookups() {
  feature_lookups_ = 1;
  std::vector<uint64_t> keys;
  for (const OneHopQuery& query : queries_) {
    uint64_t sum = query.of_seeds() ? 1 : 0;
    for (uint32_t parent : query.parents) sum = add(sum, multiply(keys[parent], queries_[parent].count));
    keys.push_back(sum);
    sample_lookups_ = add(sample_lookups_, sum);
    feature_lookups_ = add(feature_lookups_, multiply(sum, query.count));
  }
}

}  // namespace livegnn
