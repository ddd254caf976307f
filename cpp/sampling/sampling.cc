#include "sampling/sampling.h"

#include <cmath>
#include <numeric>

#include "sampling/choice.h"
#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

// How far ahead of the current node to prefetch: its root, and the block that the root refers to.
constexpr uint32_t kRootsAhead = 32, kBlocksAhead = 16;

template <class Id>
std::vector<double> weight_sums(const Samtrees<Id>& trees) {
  std::vector<double> sums(trees.size());
  for (uint32_t i = 0; i < sums.size(); ++i) {
    trees.prefetch_root(i + kRootsAhead);
    __builtin_prefetch(trees.address(i + kBlocksAhead));
    sums[i] = trees.weight_sum(i);
  }
  return sums;
}

template <class Id>
std::vector<double> degrees(const Samtrees<Id>& trees) {
  std::vector<double> sums(trees.size());
  for (uint32_t i = 0; i < sums.size(); ++i) sums[i] = trees.degree(i);
  return sums;
}

}  // namespace

void check_node_type(const Graph& graph, uint32_t node_type) {
  if (node_type >= graph.nodes.size()) throw SampleError(BadSample::kRequest, "there is no such node type", node_type);
}

void check_strategy(const Graph& graph, uint32_t edge_type, bool incoming, const NeighborStrategy& strategy,
                    bool bounded) {
  if (edge_type >= graph.edges.size()) throw SampleError(BadSample::kRequest, "there is no such edge type", edge_type);
  const GraphStore& store = *graph.edges[edge_type].store;
  const EdgeColumns columns = store.options().columns;
  if (strategy.count < NeighborStrategy::kAll) {
    throw SampleError(BadSample::kRequest,
                      "num_neighbors must be at least -1, which is all, got " + std::to_string(strategy.count));
  }
  if (strategy.by == SampleBy::kLatest && strategy.replace) {
    throw SampleError(BadSample::kRequest, "the latest neighbors are not drawn, so they know no replacement");
  }
  if (strategy.by == SampleBy::kWeight && !columns.weighted) {
    throw SampleError(BadSample::kEdgeType, "has no weights to draw by", edge_type);
  }
  if (strategy.by == SampleBy::kLatest && !columns.timed) {
    throw SampleError(BadSample::kEdgeType, "has no times, so it has no latest neighbors", edge_type);
  }
  if (bounded && !columns.timed) {
    throw SampleError(BadSample::kEdgeType, "has no times that a bound could be on", edge_type);
  }
  if (incoming && !store.has_in()) {
    throw SampleError(BadSample::kEdgeType, "keeps no in-neighbors, so only direction \"out\" can be sampled",
                      edge_type);
  }
}

void check_bounds(std::span<const double> until, size_t seeds) {
  if (until.size() > 1 && until.size() != seeds) {
    throw SampleError(BadSample::kRequest, "until must be one time, or one for each of " + std::to_string(seeds) +
                                               " nodes, got " + std::to_string(until.size()));
  }
  for (double bound : until) {
    if (std::isnan(bound)) throw SampleError(BadSample::kRequest, "until must be a time, got NaN");
  }
}

void resolve(const Graph& graph, uint32_t node_type, std::span<const int64_t> ids, std::vector<uint32_t>* indices) {
  const IdMap& map = graph.nodes[node_type].ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint32_t index = map.index_of(ids[i]);
    if (index == kNoIndex) throw SampleError(BadSample::kUnknownNode, "there is no such node", node_type, i);
    indices->push_back(index);
  }
}

Sampler::Sampler(const Graph& graph) : graph_(graph) {}
Sampler::~Sampler() { count(-bytes_); }

Column<int64_t> Sampler::nodes(const NodeRequest& request) const {
  uint32_t node_type = request.type;
  RandomStream random(request.seed, 0, 0);
  Choice choice;
  std::vector<uint32_t> chosen;
  if (request.by == NodesBy::kUniform) {
    check_node_type(graph_, node_type);
    const IdMap& ids = graph_.nodes[node_type].ids;
    choice.uniform(ids.size(), request.count, request.replace, &random, &chosen);
    if (ids.size() < ids.capacity()) {
      std::vector<uint32_t> in_use;
      for (uint32_t i = 0; i < ids.capacity(); ++i) {
        if (ids.in_use(i)) in_use.push_back(i);
      }
      for (uint32_t& node : chosen) node = in_use[node];
    }
  } else {
    NeighborStrategy strategy;
    if (request.by == NodesBy::kWeight) strategy.by = SampleBy::kWeight;
    check_strategy(graph_, request.type, request.incoming, strategy, false);
    const EdgeTypeSpec& spec = graph_.edges[request.type].spec;
    node_type = request.incoming ? spec.target_type : spec.source_type;
    const auto task = draws_from(graph_, request.type, request.incoming, strategy, {}, 0, 0);
    auto weights_of = [&](const auto& trees) {
      return request.by == NodesBy::kWeight ? weight_sums(trees) : degrees(trees);
    };
    const auto weights = task.keyed != nullptr ? weights_of(*task.keyed) : weights_of(*task.trees);
    choice.by_weight(std::span<const double>(weights), request.count, request.replace, &random, &chosen);
  }
  Column<int64_t> out(chosen.size());
  write_ids(graph_.nodes[node_type].ids, chosen, out.data());
  return out;
}

NeighborSample Sampler::neighbors(const NeighborRequest& request, std::span<const int64_t> ids) {
  const auto& until = request.until;
  check_strategy(graph_, request.edge_type, request.incoming, request.strategy, !until.empty());
  check_bounds(until, ids.size());
  const EdgeTypeSpec& spec = graph_.edges[request.edge_type].spec;
  const EdgeColumns columns = graph_.edges[request.edge_type].store->options().columns;
  Lease scratch(this);
  scratch->indices.clear();
  resolve(graph_, request.incoming ? spec.target_type : spec.source_type, ids, &scratch->indices);

  EdgeColumns wanted = request.wanted;
  wanted.weighted = wanted.weighted && columns.weighted;
  wanted.timed = wanted.timed && columns.timed;
  wanted.featured = wanted.featured && columns.featured;
  Workers workers(request.threads);
  const auto task = draws_from(graph_, request.edge_type, request.incoming, request.strategy, wanted, request.seed, 0);
  scratch->draw_blocks(task, scratch->indices, until.size(), [&](size_t i) { return until[i]; }, 0, 0, &workers);

  NeighborSample out;
  out.rowptr = Column<int64_t>(ids.size() + 1);
  const size_t num_blocks = SampleScratch::num_blocks(ids.size());
  std::vector<size_t> begins(num_blocks + 1, 0);
  out.rowptr[0] = 0;
  for (size_t block = 0, at = 0; block < num_blocks; ++block) {
    for (uint32_t count : scratch->blocks[block].counts) {
      out.rowptr[at + 1] = out.rowptr[at] + count;
      ++at;
    }
    begins[block + 1] = static_cast<size_t>(out.rowptr[at]);
  }
  const size_t total = begins.back();
  out.ids = Column<int64_t>(total);
  if (wanted.weighted) out.weight = Column<float>(total);
  if (wanted.timed) out.time = Column<double>(total);
  if (wanted.featured) out.edge = Column<int64_t>(total);
  const IdMap& map = graph_.nodes[request.incoming ? spec.source_type : spec.target_type].ids;
  workers.run(num_blocks, 4.0 * static_cast<double>(total), [&](size_t block) {
    const NeighborColumns& from = scratch->blocks[block];
    const size_t begin = begins[block];
    write_ids(map, from.ids, out.ids.data() + begin);
    std::copy(from.weights.begin(), from.weights.end(), out.weight.data() + begin);
    std::copy(from.times.begin(), from.times.end(), out.time.data() + begin);
    write_rows(from.rows, out.edge.data() + begin);
  });
  return out;
}

}  // namespace livegnn
