#include <span>

#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

// The draws of one hop for one edge type.
struct Drawn {
  size_t fan_out;
  size_t first_block, num_blocks;
  size_t first_node;  // in its type: the node of the first draws
  size_t first_edge;  // in the fan-out
};

class SubgraphSample {
 public:
  SubgraphSample(const Graph& graph, const SubgraphRequest& request)
      : graph_(graph), request_(request), workers_(request.threads), types_(graph.nodes.size()) {
    check();
    edges_.resize(request.fan_outs.size());
  }

  Subgraph run(SampleScratch* scratch) {
    begin(scratch);
    const size_t hops = request_.fan_outs.empty() ? 0 : request_.fan_outs[0].counts.size();
    for (size_t hop = 0; hop < hops; ++hop) {
      for (auto& type : types_) type.frontier_end = type.nodes.size();
      for (size_t f = 0; f < request_.fan_outs.size(); ++f) draw(f, hop, scratch);
      for (auto& type : types_) {
        type.frontier = type.frontier_end;
        type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size() - type.frontier_end));
      }
    }
    return finish(scratch);
  }

 private:
  struct NodesOfType {
    std::vector<uint32_t> nodes, batch;
    std::vector<int64_t> num_sampled;
    size_t frontier = 0, frontier_end = 0;  // nodes that the previous hop added
  };
  struct EdgesOfFanOut {
    size_t size = 0;
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
      if (fan_out.counts.size() != request_.fan_outs[0].counts.size()) {
        throw SampleError(BadSample::kRequest, "num_neighbors must have as many hops for each edge type, got " +
                                                   std::to_string(request_.fan_outs[0].counts.size()) + " and " +
                                                   std::to_string(fan_out.counts.size()));
      }
      for (int32_t count : fan_out.counts)
        check_strategy(graph_, fan_out.edge_type, request_.incoming, strategy(count), bounded());
    }
  }

  bool bounded() const { return !request_.until.empty(); }
  NeighborStrategy strategy(int32_t count) const { return {request_.by, request_.replace, count}; }

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

  void draw(size_t f, size_t hop, SampleScratch* scratch) {
    const auto& fan_out = request_.fan_outs[f];
    const EdgeTypeSpec& spec = graph_.edges[fan_out.edge_type].spec;
    auto& here = types_[request_.incoming ? spec.target_type : spec.source_type];
    const uint32_t there_type = request_.incoming ? spec.source_type : spec.target_type;
    auto& there = types_[there_type];
    const auto frontier =
        std::span<const uint32_t>(here.nodes).subspan(here.frontier, here.frontier_end - here.frontier);
    const size_t before = edges_[f].size;
    if (!frontier.empty() && fan_out.counts[hop] != 0) {
      const EdgeColumns columns = graph_.edges[fan_out.edge_type].store->options().columns;
      const EdgeColumns wanted{request_.attributes && columns.weighted, request_.attributes && columns.timed,
                               columns.featured};
      const auto task = draws_from(graph_, fan_out.edge_type, request_.incoming, strategy(fan_out.counts[hop]), wanted,
                                   request_.seed, 1 + hop * graph_.edges.size() + fan_out.edge_type);
      const auto& until = request_.until;
      auto bound = [&](size_t i) { return until[until.size() > 1 ? here.batch[here.frontier + i] : 0]; };
      const size_t bounds = until.size() > 1 ? frontier.size() : until.size();
      const Drawn drawn{f, num_blocks_, SampleScratch::num_blocks(frontier.size()), here.frontier, before};
      scratch->draw_blocks(task, frontier, bounds, bound, drawn.first_block, &workers_);
      num_blocks_ += drawn.num_blocks;
      drawn_.push_back(drawn);
      const auto blocks = std::span(scratch->blocks).subspan(drawn.first_block, drawn.num_blocks);
      number_drawn(blocks, here, &scratch->numberings[there_type], &there);
      for (const auto& block : blocks) edges_[f].size += block.ids.size();
    }
    edges_[f].num_sampled.push_back(static_cast<int64_t>(edges_[f].size - before));
  }

  // Replaces nodes by their numbers.
  void number_drawn(std::span<NeighborColumns> blocks, const NodesOfType& here, Numbering* numbering,
                    NodesOfType* there) {
    constexpr size_t kAhead = 24;
    size_t node = here.frontier;
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
    for (size_t f = 0; f < edges_.size(); ++f) {
      auto& to = out.edges.emplace_back();
      to.row = Column<int64_t>(edges_[f].size);
      to.col = Column<int64_t>(edges_[f].size);
      const auto columns = graph_.edges[request_.fan_outs[f].edge_type].store->options().columns;
      if (columns.featured) to.edge.emplace(edges_[f].size);
      if (request_.attributes) {
        if (columns.weighted) to.weight = Column<float>(edges_[f].size);
        if (columns.timed) to.time = Column<double>(edges_[f].size);
        to.features = Column<float>(edges_[f].size * edge_features(f).width());
      }
      to.num_sampled = std::move(edges_[f].num_sampled);
    }
    for (const Drawn& drawn : drawn_) {
      const auto blocks =
          std::span<const NeighborColumns>(scratch->blocks).subspan(drawn.first_block, drawn.num_blocks);
      write_edges(drawn, blocks, SampleScratch::kBlockNodes, &out.edges[drawn.fan_out]);
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
    int64_t* here = (request_.incoming ? to->col : to->row).data();
    int64_t* there = (request_.incoming ? to->row : to->col).data();
    const Table& table = edge_features(drawn.fan_out);
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

  const Table& edge_features(size_t f) const { return graph_.edges[request_.fan_outs[f].edge_type].features.table(); }

  const Graph& graph_;
  const SubgraphRequest& request_;
  Workers workers_;
  std::vector<NodesOfType> types_;
  std::vector<EdgesOfFanOut> edges_;
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
