// Adds columns and types to a graph.
//
//   prepare_growth   wider copies of features, stores of new edge types          takes time, may fail; readers go on
//   commit_growth    moves what there is into longer lists of types              short, cannot fail; exclusive
//   settle_growth    frees the shorter lists
//
// New types come after the old ones, and new columns after the old ones, so all numbers and indices stay as they are.
#include <algorithm>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "store/graph.h"
#include "threads/parallel.h"

namespace livegnn {

struct Graph::Grown {
  struct Wider {
    Table table;
    std::vector<Table> narrower;  // room for those of the type
  };
  std::vector<std::optional<Wider>> wider;  // by old node type
  std::vector<NodeType> new_nodes, nodes;   // `nodes`, `edges`: room for all types
  std::vector<EdgeType> new_edges, edges;
};

Graph::~Graph() {
  if (!texts) return;  // which other graphs may share
  for (const NodeType& type : nodes) texts->release(type.ids.ids());
}

void Graph::prepare_growth(const GraphGrowth& growth) {
  if (part != nullptr) throw std::invalid_argument("a part of a graph cannot grow");
  auto grown = std::make_unique<Grown>();
  grown->wider.resize(nodes.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    const std::vector<float>& added = growth.columns[n];
    if (added.empty()) continue;
    const auto& [ids, features, times] = nodes[n];
    grown->wider[n].emplace();
    grown->wider[n]->narrower.reserve(features.number_of_narrower() + 1);
    grown->wider[n]->table = features.with_columns(features.width() + added.size(), added, features_directory_,
                                                   [&](uint32_t node) { return ids.in_use(node); });
  }
  for (size_t width : growth.widths)
    grown->new_nodes.push_back({{}, NodeFeatures(width, features_directory_), FeatureTimes(false)});
  const auto capacity = [&](uint32_t type) { return type < nodes.size() ? nodes[type].ids.capacity() : 0; };
  for (EdgeTypeSpec spec : growth.edge_types) {
    spec.options.columns.featured = spec.width > 0;
    EdgeType type{spec, std::make_unique<GraphStore>(spec.options), EdgeFeatures(spec.width, features_directory_), {}};
    type.store->resize(capacity(spec.source_type), capacity(spec.target_type));
    if (spec.expires) type.earliest.resize(capacity(spec.source_type));
    grown->new_edges.push_back(std::move(type));
  }
  grown->nodes.reserve(nodes.size() + grown->new_nodes.size());
  grown->edges.reserve(edges.size() + grown->new_edges.size());
  grown_ = std::move(grown);
}

void Graph::abandon_growth() noexcept { grown_.reset(); }

void Graph::commit_growth() noexcept {
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (auto& wider = grown_->wider[n]) nodes[n].features.widen(std::move(wider->table), &wider->narrower);
  }
  for (auto* from : {&nodes, &grown_->new_nodes}) {
    for (NodeType& type : *from) grown_->nodes.push_back(std::move(type));
  }
  for (auto* from : {&edges, &grown_->new_edges}) {
    for (EdgeType& type : *from) grown_->edges.push_back(std::move(type));
  }
  nodes.swap(grown_->nodes);
  edges.swap(grown_->edges);
}

void Graph::settle_growth() noexcept { grown_.reset(); }

void Graph::keep_narrower(uint32_t node_type, size_t width) {
  NodeType& type = nodes[node_type];
  if (type.features.find(width) != nullptr) return;
  if (part != nullptr || width > type.features.width()) {
    throw std::invalid_argument("expected at most " + std::to_string(type.features.width()) +
                                " columns, of a graph in one piece, got " + std::to_string(width));
  }
  Table copy =
      type.features.with_columns(width, {}, features_directory_, [&](uint32_t node) { return type.ids.in_use(node); });
  std::unique_lock alone(lock);
  type.features.keep_narrower(std::move(copy));
}

}  // namespace livegnn
