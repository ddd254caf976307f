#include <map>
#include <numeric>
#include <span>

#include "sampling/subgraph_sample.h"

namespace livegnn {
namespace {

// The one-hop queries that fan-outs stand for: each hop draws for all nodes that the hop before has added.
std::vector<OneHop> spelled_out(const SubgraphRequest& request) {
  std::vector<OneHop> all;
  const size_t each = request.fan_outs.size(), hops = each == 0 ? 0 : request.fan_outs[0].counts.size();
  std::vector<int32_t> parents = {OneHop::kSeeds};
  for (size_t hop = 0; hop < hops; ++hop) {
    for (const auto& [edge_type, counts] : request.fan_outs) {
      all.push_back({edge_type, request.incoming, {request.by, request.replace, counts[hop]}, parents});
    }
    parents.resize(each);
    std::iota(parents.begin(), parents.end(), static_cast<int32_t>(hop * each));
  }
  return all;
}

}  // namespace

SubgraphSample::SubgraphSample(const Graph& graph, const SubgraphRequest& request)
    : graph_(graph), request_(request), workers_(request.threads), types_(graph.nodes.size()) {
  check();
  const bool given = !request.one_hops.empty();
  plan_ = plan_one_hops(graph, given ? request.one_hops : spelled_out(request), bounded());
  std::map<uint32_t, size_t> places;
  for (const PlannedHop& one : plan_) places[one.edge_type] = 0;
  if (given) {
    for (auto& [edge_type, place] : places) {
      place = outputs_.size();
      outputs_.push_back({edge_type, 0, {}});
    }
  }
  for (size_t f = 0; f < request.fan_outs.size() && !given; ++f) {
    places[request.fan_outs[f].edge_type] = f;
    outputs_.push_back({request.fan_outs[f].edge_type, 0, {}});
  }
  for (const PlannedHop& one : plan_) output_of_.push_back(places[one.edge_type]);
  found_.resize(plan_.size());
}

void SubgraphSample::check() const {
  size_t seeds = 0;
  for (const auto& run : request_.seeds) {
    check_node_type(graph_, run.node_type);
    seeds += run.ids.size();
  }
  check_bounds(request_.until, seeds);
  if (request_.until.size() > 1 && !request_.disjoint) {
    throw SampleError(
        BadSample::kRequest,
        "a time for each seed needs disjoint subgraphs: a node that two seeds share has no time of its own");
  }
  for (const auto& fan_out : request_.fan_outs) {
    if (fan_out.edge_type >= graph_.edges.size()) {
      throw SampleError(BadSample::kRequest, "there is no such edge type", fan_out.edge_type);
    }
    if (fan_out.counts.size() != request_.fan_outs[0].counts.size()) {
      throw SampleError(BadSample::kRequest, "num_neighbors must have as many hops for each edge type, got " +
                                                 std::to_string(request_.fan_outs[0].counts.size()) + " and " +
                                                 std::to_string(fan_out.counts.size()));
    }
  }
}

void SubgraphSample::begin(SampleScratch* scratch) {
  scratch->numberings.resize(graph_.nodes.size());
  for (size_t t = 0; t < types_.size(); ++t) {
    scratch->numberings[t].begin(graph_.nodes[t].ids.capacity(), request_.disjoint);
  }
  uint32_t seed = 0;
  for (const auto& run : request_.seeds) {
    scratch->indices.clear();
    resolve(graph_, run.node_type, run.ids, &scratch->indices);
    auto& inverse = inverse_.emplace_back(run.ids.size());
    for (size_t i = 0; i < run.ids.size(); ++i, ++seed) {
      inverse[i] = number(&scratch->numberings[run.node_type], &types_[run.node_type], scratch->indices[i], seed);
    }
  }
  for (auto& type : types_) type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size()));
}

// One range, unless other nodes were added between those of its parents.
void SubgraphSample::add_frontiers(size_t q, std::vector<Frontier>* to) const {
  const PlannedHop& one = plan_[q];
  if (one.strategy.count == 0) return;
  std::vector<NodeRange> all;
  for (int32_t parent : one.parents) {
    const bool seeds = parent == OneHop::kSeeds;
    if (!seeds && plan_[parent].neighbor_type != one.key_type) continue;
    const NodeRange range =
        seeds ? NodeRange{0, static_cast<size_t>(types_[one.key_type].num_sampled[0])} : found_[parent];
    append_range(range, &all);
  }
  size_t place = 0;
  for (const NodeRange& keys : all) {
    to->push_back({q, keys, place});
    place += keys.end - keys.begin;
  }
}

std::vector<Frontier> SubgraphSample::frontiers(size_t hop) const {
  std::vector<Frontier> all;
  for (size_t q = 0; q < plan_.size(); ++q) {
    if (plan_[q].hop == hop) add_frontiers(q, &all);
  }
  return all;
}

void SubgraphSample::take(const Frontier& frontier, const DrawnBlocks& drawn, SampleScratch* scratch) {
  const PlannedHop& one = plan_[frontier.query];
  const size_t place = output_of_[frontier.query];
  auto& output = outputs_[place];
  drawn_.push_back({frontier.query, place, drawn, frontier.keys.begin, output.size});
  const auto blocks = std::span(scratch->blocks).subspan(drawn.first, drawn.count);
  number_drawn(blocks, frontier.keys.begin, types_[one.key_type], &scratch->numberings[one.neighbor_type],
               &types_[one.neighbor_type]);
  for (const auto& block : blocks) output.size += block.ids.size();
}

// Replaces nodes by their numbers.
void SubgraphSample::number_drawn(std::span<NeighborColumns> blocks, size_t node, const NodesOfType& here,
                                  Numbering* numbering, NodesOfType* there) {
  constexpr size_t kAhead = 24;
  for (auto& block : blocks) {
    auto& ids = block.ids;
    size_t i = 0;
    for (uint32_t count : block.counts) {
      const uint32_t seed = request_.disjoint ? here.batch[node] : 0;
      for (const size_t end = i + count; i < end; ++i) {
        if (i + kAhead < ids.size()) numbering->prefetch(ids[i + kAhead]);
        ids[i] = number(numbering, there, ids[i], seed);
      }
      ++node;
    }
  }
}

// Of nodes, by type, then of edges.
void SubgraphSample::note_sizes(std::vector<size_t>* sizes) const {
  for (const auto& type : types_) sizes->push_back(type.nodes.size());
  for (const auto& output : outputs_) sizes->push_back(output.size);
}

void SubgraphSample::end_hop(const std::vector<size_t>& before) {
  auto was = before.begin();
  for (auto& type : types_) type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size() - *was++));
  for (auto& output : outputs_) output.num_sampled.push_back(static_cast<int64_t>(output.size - *was++));
}

Subgraph SubgraphSample::finish(SampleScratch* scratch, bool rows_here) {
  Subgraph out;
  out.inverse = std::move(inverse_);
  for (auto& output : outputs_) {
    auto& to = out.edges.emplace_back();
    to.edge_type = output.edge_type;
    to.row = Column<int64_t>(output.size);
    to.col = Column<int64_t>(output.size);
    const auto columns = graph_.edges[output.edge_type].store->options().columns;
    if (columns.featured && rows_here) to.edge.emplace(output.size);
    if (request_.attributes) {
      if (columns.weighted) to.weight = Column<float>(output.size);
      if (columns.timed) to.time = Column<double>(output.size);
      to.features = Column<float>(output.size * edge_features(output.edge_type).width());
    }
    to.num_sampled = std::move(output.num_sampled);
  }
  for (const Drawn& drawn : drawn_) {
    const auto blocks =
        std::span<const NeighborColumns>(scratch->blocks).subspan(drawn.blocks.first, drawn.blocks.count);
    write_edges(drawn, blocks, rows_here, &out.edges[drawn.output]);
  }
  for (size_t t = 0; t < types_.size(); ++t) write_nodes(t, rows_here, &out.nodes.emplace_back());
  return out;
}

void SubgraphSample::write_nodes(size_t t, bool rows_here, Subgraph::Nodes* to) {
  auto& type = types_[t];
  to->num_sampled = std::move(type.num_sampled);
  to->ids = Column<int64_t>(type.nodes.size());
  const NodeFeatures& table = graph_.nodes[t].features;
  const size_t width = request_.attributes && rows_here ? table.width() : 0;
  to->features = Column<float>(type.nodes.size() * width);
  constexpr size_t kBlock = 4096;
  const double cost = (4.0 + static_cast<double>(width)) * static_cast<double>(type.nodes.size());
  workers_.run((type.nodes.size() + kBlock - 1) / kBlock, cost, [&](size_t b) {
    auto nodes = std::span<const uint32_t>(type.nodes).subspan(b * kBlock);
    nodes = nodes.first(std::min(kBlock, nodes.size()));
    write_ids(graph_.nodes[t].ids, nodes, to->ids.data() + b * kBlock);
    if (width > 0) write_features(table, nodes, to->features.data() + b * kBlock * width);
  });
  if (!request_.disjoint) return;
  to->batch = Column<int64_t>(type.batch.size());
  std::copy(type.batch.begin(), type.batch.end(), to->batch.data());
}

void SubgraphSample::write_edges(const Drawn& drawn, std::span<const NeighborColumns> blocks, bool rows_here,
                                 Subgraph::Edges* to) {
  std::vector<size_t> begins;
  size_t end = drawn.first_edge;
  for (const auto& block : blocks) {
    begins.push_back(end);
    end += block.ids.size();
  }
  const bool incoming = plan_[drawn.query].incoming;
  int64_t* here = (incoming ? to->col : to->row).data();
  int64_t* there = (incoming ? to->row : to->col).data();
  const Table& table = edge_features(to->edge_type);
  const size_t width = request_.attributes && rows_here ? table.width() : 0;
  const double cost = (2.0 + static_cast<double>(width)) * static_cast<double>(end - drawn.first_edge);
  workers_.run(blocks.size(), cost, [&](size_t b) {
    const NeighborColumns& block = blocks[b];
    std::copy(block.ids.begin(), block.ids.end(), there + begins[b]);
    auto node = static_cast<int64_t>(drawn.first_node + b * drawn.blocks.nodes);
    int64_t* at = here + begins[b];
    for (uint32_t count : block.counts) at = std::fill_n(at, count, node++);
    if (to->edge) write_rows(block.rows, to->edge->data() + begins[b]);
    std::copy(block.weights.begin(), block.weights.end(), to->weight.data() + begins[b]);
    std::copy(block.times.begin(), block.times.end(), to->time.data() + begins[b]);
    if (width > 0) write_features(table, block.rows, to->features.data() + begins[b] * width);
  });
}

Subgraph Sampler::subgraph(const SubgraphRequest& request) {
  SubgraphSample sample(graph_, request);
  Lease lease(this);
  SampleScratch* scratch = lease.scratch.get();
  sample.begin(scratch);
  size_t used = 0;
  const size_t hops = sample.num_hops();
  for (size_t hop = 0; hop < hops; ++hop) {
    sample.make_hop(hop, scratch, [&](const Frontier& frontier) {
      const PlannedHop& one = sample.query(frontier.query);
      const auto task = draws_from(graph_, one.edge_type, one.incoming, one.strategy, sample.wanted(frontier.query),
                                   request.seed, one.purpose);
      const auto keys = sample.keys_of(frontier);
      const DrawnBlocks drawn{used, SampleScratch::num_blocks(keys.size()), SampleScratch::kBlockNodes};
      scratch->draw_blocks(
          task, keys, sample.num_bounds(frontier), [&](size_t i) { return sample.bound(frontier, i); }, drawn.first,
          frontier.place, sample.workers());
      used += drawn.count;
      return drawn;
    });
  }
  return sample.finish(scratch, true);
}

}  // namespace livegnn
