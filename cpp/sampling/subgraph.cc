#include <map>
#include <numeric>
#include <span>

#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

// The draws of a one-hop query for one range of nodes.
struct Drawn {
  size_t query, output;
  size_t first_block, num_blocks;
  size_t first_node;  // in its type: the node of the first draws
  size_t first_edge;  // in the output
};

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

class SubgraphSample {
 public:
  SubgraphSample(const Graph& graph, const SubgraphRequest& request)
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

  Subgraph run(SampleScratch* scratch) {
    begin(scratch);
    const size_t hops = num_hops(plan_);
    for (size_t hop = 0; hop < hops; ++hop) {
      std::vector<size_t> nodes, edges;
      for (const auto& type : types_) nodes.push_back(type.nodes.size());
      for (const auto& output : outputs_) edges.push_back(output.size);
      for (size_t q = 0; q < plan_.size(); ++q) {
        if (plan_[q].hop == hop) draw(q, scratch);
      }
      for (size_t t = 0; t < types_.size(); ++t) {
        types_[t].num_sampled.push_back(static_cast<int64_t>(types_[t].nodes.size() - nodes[t]));
      }
      for (size_t e = 0; e < outputs_.size(); ++e) {
        outputs_[e].num_sampled.push_back(static_cast<int64_t>(outputs_[e].size - edges[e]));
      }
    }
    return finish(scratch);
  }

 private:
  struct NodesOfType {
    std::vector<uint32_t> nodes, batch;
    std::vector<int64_t> num_sampled;
  };
  struct Output {
    uint32_t edge_type;
    size_t size;
    std::vector<int64_t> num_sampled;
  };

  void check() const {
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

  bool bounded() const { return !request_.until.empty(); }

  uint32_t number(Numbering* numbering, NodesOfType* type, uint32_t node, uint32_t seed) {
    const auto next = static_cast<uint32_t>(type->nodes.size());
    const uint32_t number = numbering->number(node, seed, next);
    if (number == next) {
      if (next == kNoIndex)
        throw SampleError(BadSample::kRequest, "a subgraph holds at most 4294967295 nodes of a type");
      type->nodes.push_back(node);
      if (request_.disjoint) type->batch.push_back(seed);
    }
    return number;
  }

  void begin(SampleScratch* scratch) {
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

  // The nodes that a one-hop query draws for: one range, unless others were added between those of its parents.
  std::vector<NodeRange> keys_of(const PlannedHop& one) const {
    std::vector<NodeRange> all;
    for (int32_t parent : one.parents) {
      const bool seeds = parent == OneHop::kSeeds;
      if (!seeds && plan_[parent].neighbor_type != one.key_type) continue;
      const NodeRange range =
          seeds ? NodeRange{0, static_cast<size_t>(types_[one.key_type].num_sampled[0])} : found_[parent];
      append_range(range, &all);
    }
    return all;
  }

  void draw(size_t q, SampleScratch* scratch) {
    const size_t before = types_[plan_[q].neighbor_type].nodes.size();
    size_t place = 0;
    if (plan_[q].strategy.count != 0) {
      for (const NodeRange& keys : keys_of(plan_[q])) {
        draw_for(keys, q, place, scratch);
        place += keys.end - keys.begin;
      }
    }
    found_[q] = {before, types_[plan_[q].neighbor_type].nodes.size()};
  }

  void draw_for(const NodeRange& keys, size_t q, size_t place, SampleScratch* scratch) {
    const PlannedHop& one = plan_[q];
    auto& output = outputs_[output_of_[q]];
    const auto& here = types_[one.key_type];
    const auto nodes = std::span<const uint32_t>(here.nodes).subspan(keys.begin, keys.end - keys.begin);
    const EdgeColumns columns = graph_.edges[one.edge_type].store->options().columns;
    const EdgeColumns wanted{request_.attributes && columns.weighted, request_.attributes && columns.timed,
                             columns.featured};
    const auto task = draws_from(graph_, one.edge_type, one.incoming, one.strategy, wanted, request_.seed, one.purpose);
    const auto& until = request_.until;
    auto bound = [&](size_t i) { return until[until.size() > 1 ? here.batch[keys.begin + i] : 0]; };
    const size_t bounds = until.size() > 1 ? nodes.size() : until.size();
    const Drawn drawn{q, output_of_[q], num_blocks_, SampleScratch::num_blocks(nodes.size()), keys.begin, output.size};
    scratch->draw_blocks(task, nodes, bounds, bound, drawn.first_block, place, &workers_);
    num_blocks_ += drawn.num_blocks;
    drawn_.push_back(drawn);
    const auto blocks = std::span(scratch->blocks).subspan(drawn.first_block, drawn.num_blocks);
    number_drawn(blocks, keys.begin, here, &scratch->numberings[one.neighbor_type], &types_[one.neighbor_type]);
    for (const auto& block : blocks) output.size += block.ids.size();
  }

  // Replaces nodes by their numbers.
  void number_drawn(std::span<NeighborColumns> blocks, size_t node, const NodesOfType& here, Numbering* numbering,
                    NodesOfType* there) {
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

  Subgraph finish(SampleScratch* scratch) {
    Subgraph out;
    out.inverse = std::move(inverse_);
    for (auto& output : outputs_) {
      auto& to = out.edges.emplace_back();
      to.edge_type = output.edge_type;
      to.row = Column<int64_t>(output.size);
      to.col = Column<int64_t>(output.size);
      const auto columns = graph_.edges[output.edge_type].store->options().columns;
      if (columns.featured) to.edge.emplace(output.size);
      if (request_.attributes) {
        if (columns.weighted) to.weight = Column<float>(output.size);
        if (columns.timed) to.time = Column<double>(output.size);
        to.features = Column<float>(output.size * edge_features(output.edge_type).width());
      }
      to.num_sampled = std::move(output.num_sampled);
    }
    for (const Drawn& drawn : drawn_) {
      const auto blocks =
          std::span<const NeighborColumns>(scratch->blocks).subspan(drawn.first_block, drawn.num_blocks);
      write_edges(drawn, blocks, SampleScratch::kBlockNodes, &out.edges[drawn.output]);
    }
    for (size_t t = 0; t < types_.size(); ++t) {
      auto& type = types_[t];
      auto& to = out.nodes.emplace_back();
      to.num_sampled = std::move(type.num_sampled);
      to.ids = Column<int64_t>(type.nodes.size());
      const Table& table = graph_.nodes[t].features;
      const size_t width = request_.attributes ? table.width() : 0;
      to.features = Column<float>(type.nodes.size() * width);
      constexpr size_t kBlock = 4096;
      const double cost = (4.0 + static_cast<double>(width)) * static_cast<double>(type.nodes.size());
      workers_.run((type.nodes.size() + kBlock - 1) / kBlock, cost, [&](size_t b) {
        auto nodes = std::span<const uint32_t>(type.nodes).subspan(b * kBlock);
        nodes = nodes.first(std::min(kBlock, nodes.size()));
        write_ids(graph_.nodes[t].ids, nodes, to.ids.data() + b * kBlock);
        if (width > 0) write_features(table, nodes, to.features.data() + b * kBlock * width);
      });
      if (!request_.disjoint) continue;
      to.batch = Column<int64_t>(type.batch.size());
      std::copy(type.batch.begin(), type.batch.end(), to.batch.data());
    }
    return out;
  }

  void write_edges(const Drawn& drawn, std::span<const NeighborColumns> blocks, size_t block_nodes,
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
    const size_t width = request_.attributes ? table.width() : 0;
    const double cost = (2.0 + static_cast<double>(width)) * static_cast<double>(end - drawn.first_edge);
    workers_.run(blocks.size(), cost, [&](size_t b) {
      const NeighborColumns& block = blocks[b];
      std::copy(block.ids.begin(), block.ids.end(), there + begins[b]);
      auto node = static_cast<int64_t>(drawn.first_node + b * block_nodes);
      int64_t* at = here + begins[b];
      for (uint32_t count : block.counts) at = std::fill_n(at, count, node++);
      if (to->edge) write_rows(block.rows, to->edge->data() + begins[b]);
      std::copy(block.weights.begin(), block.weights.end(), to->weight.data() + begins[b]);
      std::copy(block.times.begin(), block.times.end(), to->time.data() + begins[b]);
      if (width > 0) write_features(table, block.rows, to->features.data() + begins[b] * width);
    });
  }

  const Table& edge_features(uint32_t edge_type) const { return graph_.edges[edge_type].features.table(); }

  const Graph& graph_;
  const SubgraphRequest& request_;
  Workers workers_;
  std::vector<NodesOfType> types_;
  std::vector<PlannedHop> plan_;
  std::vector<size_t> output_of_;  // by one-hop query: its place in `outputs_`
  std::vector<Output> outputs_;
  std::vector<NodeRange> found_;  // by one-hop query: the nodes that it has added, of its neighbor type
  std::vector<Drawn> drawn_;
  std::vector<Column<int64_t>> inverse_;
  size_t num_blocks_ = 0;
};

}  // namespace

Subgraph Sampler::subgraph(const SubgraphRequest& request) {
  SubgraphSample sample(graph_, request);
  Lease scratch(this);
  return sample.run(scratch.scratch.get());
}

}  // namespace livegnn
