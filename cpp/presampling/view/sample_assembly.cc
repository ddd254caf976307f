#include "presampling/view/sample_assembly.h"

#include "memory/prefetch.h"
#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

constexpr size_t kLine = 64 / sizeof(float);  // of the cache, in floats

// The cells of one query of a view (`SampleWalk::run`).
struct ViewCells {
  ViewCells(const PresamplingView& view, size_t query, bool attributes)
      : view(view),
        query(query),
        keyed(view.is_keyed(query)),
        attributes(attributes),
        asked(view.plan()[query]),
        towards_key(asked.towards_key),
        ids(view.graph().nodes[asked.neighbor_type].ids),
        features(view.graph().nodes[asked.neighbor_type].features),
        featured(attributes && features.width() > 0) {
    const EdgeColumns columns = view.graph().edges[asked.edge_type].spec.options.columns;
    valued = columns.featured || (attributes && (columns.weighted || columns.timed));
  }

  void prefetch_root(uint32_t node) const { view.prefetch_root(query, node); }
  void prefetch_cell(uint32_t node) const { view.prefetch_cell(query, node); }
  CellView find(uint32_t node) const { return view.cell(query, node); }
  uint32_t node_of(uint64_t id) const { return keyed ? end_of(id) : static_cast<uint32_t>(id); }
  void reached(uint32_t node) const {
    prefetch(&ids.ids()[node]);
    for (size_t line = 0; featured && line < features.width(); line += kLine) prefetch(features.row(node) + line);
  }
  // Weights and times are in the cell; the rows of features are the store's.
  void add_values(const CellView& cell, uint32_t key, SampleWalk<uint32_t>::EdgesOfType* edges) const {
    const GraphStore& store = *view.graph().edges[asked.edge_type].store;
    const CellFormat& format = view.format(query);
    const bool with_rows = store.options().columns.featured;
    for (uint32_t i = 0; i < cell.size; ++i) {
      if (attributes && asked.weighted) edges->weights.push_back(cell.weights[i]);
      if (attributes && asked.timed) edges->times.push_back(format.time_at(cell, i));
      if (!with_rows) continue;
      const uint64_t id = cell.ids[i];
      const uint32_t other = node_of(id), edge_key = keyed ? static_cast<uint32_t>(id) : 0;
      const auto value = asked.incoming ? store.find(other, key, edge_key) : store.find(key, other, edge_key);
      edges->rows.push_back(value ? value->row : kNoRow);
    }
  }

  bool valued = false;
  const PresamplingView& view;
  size_t query;
  bool keyed, attributes;
  const OneHopQuery& asked;
  bool towards_key;
  const IdMap& ids;
  const NodeFeatures& features;
  bool featured;
};

}  // namespace

void SampleAssembly::sample(std::span<const int64_t> ids, bool attributes, Subgraph* out) {
  walk_.begin(ids.size());
  indices_.clear();
  resolve(view_.graph(), view_.plan().seed_type(), ids, &indices_);
  out->inverse.resize(1);
  Column<int64_t>& inverse = out->inverse[0];
  inverse.open(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) inverse[i] = walk_.add_seed(indices_[i]);
  walk_.run([&](size_t query) { return ViewCells(view_, query, attributes); });
  write_nodes(attributes, out);
  write_edges(attributes, out);
}

void SampleAssembly::write_nodes(bool attributes, Subgraph* out) const {
  const Graph& graph = view_.graph();
  out->nodes.resize(walk_.nodes().size());
  for (size_t t = 0; t < walk_.nodes().size(); ++t) {
    const auto& type = walk_.nodes()[t];
    auto& to = out->nodes[t];
    to.num_sampled = type.num_sampled;
    to.ids.open(type.nodes.size());
    write_ids(graph.nodes[t].ids, type.nodes, to.ids.data());
    const NodeFeatures& table = graph.nodes[t].features;
    if (!attributes || table.width() == 0) continue;
    to.features.open(type.nodes.size() * table.width());
    write_features(table, type.nodes, to.features.data());
  }
}

void SampleAssembly::write_edges(bool attributes, Subgraph* out) const {
  const Graph& graph = view_.graph();
  out->edges.resize(walk_.edges().size());
  for (size_t e = 0; e < walk_.edges().size(); ++e) {
    const auto& type = walk_.edges()[e];
    auto& to = out->edges[e];
    to.edge_type = type.edge_type;
    to.num_sampled = type.num_sampled;
    copy_to(type.source, &to.row);
    copy_to(type.target, &to.col);
    const Graph::EdgeType& edge_type = graph.edges[type.edge_type];
    const EdgeColumns columns = edge_type.spec.options.columns;
    if (columns.featured) {
      if (!to.edge) to.edge.emplace();
      to.edge->open(type.rows.size());
      write_rows(type.rows, to.edge->data());
    }
    if (!attributes) continue;
    if (columns.weighted) copy_to(type.weights, &to.weight);
    if (columns.timed) copy_to(type.times, &to.time);
    const Table& table = edge_type.features.table();
    if (table.width() == 0) continue;
    to.features.open(type.rows.size() * table.width());
    write_features(table, type.rows, to.features.data());
  }
}

}  // namespace livegnn
