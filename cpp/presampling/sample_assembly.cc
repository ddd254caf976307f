#include "presampling/sample_assembly.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "sampling/sampling_scratch.h"

namespace livegnn {
namespace {

constexpr size_t kFewestSlots = 64, kMostSlotsAtFirst = size_t{1} << 16;
constexpr size_t kLine = 64 / sizeof(float);  // of the cache, in floats
// How far ahead of the current node to fetch: its root, and the cell that the root refers to.
constexpr size_t kRootsAhead = 64, kCellsAhead = 32;

template <class To, class From>
Column<To> column_of(const std::vector<From>& from) {
  Column<To> column(from.size());
  std::copy(from.begin(), from.end(), column.data());
  return column;
}

}  // namespace

void NodeNumbers::begin(size_t expected) {
  const size_t slots = std::clamp(std::bit_ceil(2 * expected + 1), kFewestSlots, kMostSlotsAtFirst);
  if (slots_.size() < slots) slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  std::fill_n(slots_.begin(), slots, 0);
}

void NodeNumbers::grow() {
  std::vector<uint64_t> held(slots_.begin(), slots_.begin() + static_cast<ptrdiff_t>(mask_ + 1));
  const size_t slots = 2 * (mask_ + 1);
  if (slots_.size() < slots) slots_.resize(slots);
  mask_ = slots - 1;
  --shift_;
  std::fill_n(slots_.begin(), slots, 0);
  for (uint64_t one : held) {
    if (one != 0) *find(static_cast<uint32_t>(one >> 32)) = one;
  }
}

SampleAssembly::SampleAssembly(const PresamplingView& view)
    : view_(view), nodes_(view.graph().nodes.size()), found_(view.plan().size()) {
  std::set<uint32_t> types;
  for (const OneHopQuery& query : view.plan().queries()) types.insert(query.edge_type);
  for (uint32_t type : types) edges_.push_back({type, {}, {}, {}, {}, {}, {}});
  for (const OneHopQuery& query : view.plan().queries()) {
    edges_of_.push_back(static_cast<size_t>(std::distance(types.begin(), types.find(query.edge_type))));
  }
}

Subgraph SampleAssembly::sample(std::span<const int64_t> ids, bool attributes) {
  const QueryPlan& plan = view_.plan();
  Subgraph out;
  begin(ids, &out);
  for (uint32_t hop = 0; hop < plan.num_hops(); ++hop) {
    before_.clear();
    for (const auto& type : nodes_) before_.push_back(type.nodes.size());
    for (const auto& type : edges_) before_.push_back(type.source.size());
    for (size_t q = 0; q < plan.size(); ++q) {
      if (plan[q].hop != hop) continue;
      const NodesOfType& there = nodes_[plan[q].neighbor_type];
      const size_t first = there.nodes.size();
      keys_.clear();
      if (plan[q].of_seeds()) keys_.push_back({0, static_cast<size_t>(nodes_[plan[q].key_type].num_sampled[0])});
      for (uint32_t parent : plan[q].parents) append_range(found_[parent], &keys_);
      for (const NodeRange& keys : keys_) look_up(q, keys, attributes);
      found_[q] = {first, there.nodes.size()};
    }
    auto before = before_.begin();
    for (auto& type : nodes_) type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size() - *before++));
    for (auto& type : edges_) type.num_sampled.push_back(static_cast<int64_t>(type.source.size() - *before++));
  }
  write_nodes(attributes, &out);
  write_edges(attributes, &out);
  return out;
}

void SampleAssembly::begin(std::span<const int64_t> ids, Subgraph* out) {
  const QueryPlan& plan = view_.plan();
  const uint64_t most = plan.max_feature_lookups();
  const size_t expected = most > kMostSlotsAtFirst ? kMostSlotsAtFirst : ids.size() * static_cast<size_t>(most);
  num_lookups_ = 0;
  for (auto& type : nodes_) {
    type.nodes.clear();
    type.num_sampled.clear();
    type.numbers.begin(expected);
  }
  for (auto& type : edges_) {
    for (auto* column : {&type.source, &type.target, &type.rows}) column->clear();
    type.weights.clear();
    type.times.clear();
    type.num_sampled.clear();
  }
  indices_.clear();
  resolve(view_.graph(), plan.seed_type(), ids, &indices_);
  NodesOfType& seeds = nodes_[plan.seed_type()];
  auto& inverse = out->inverse.emplace_back(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto next = static_cast<uint32_t>(seeds.nodes.size());
    inverse[i] = seeds.numbers.number(indices_[i], next);
    if (inverse[i] == next) seeds.nodes.push_back(indices_[i]);
  }
  for (auto& type : nodes_) type.num_sampled.push_back(static_cast<int64_t>(type.nodes.size()));
}

void SampleAssembly::look_up(size_t query, NodeRange keys, bool attributes) {
  const OneHopQuery& asked = view_.plan()[query];
  const auto& here = nodes_[asked.key_type].nodes;
  NodesOfType& there = nodes_[asked.neighbor_type];
  EdgesOfType& edges = edges_[edges_of_[query]];
  const bool incoming = view_.is_incoming(query), keyed = view_.is_keyed(query);
  auto& key_column = incoming ? edges.target : edges.source;
  auto& other_column = incoming ? edges.source : edges.target;
  const EdgeColumns columns = view_.graph().edges[asked.edge_type].spec.options.columns;
  const bool valued = columns.featured || (attributes && (columns.weighted || columns.timed));
  const IdMap& ids = view_.graph().nodes[asked.neighbor_type].ids;
  const Table& features = view_.graph().nodes[asked.neighbor_type].features;
  const bool featured = attributes && features.width() > 0;
  for (size_t i = keys.begin; i < std::min(keys.end, keys.begin + kRootsAhead); ++i)
    view_.prefetch_root(query, here[i]);
  for (size_t i = keys.begin; i < std::min(keys.end, keys.begin + kCellsAhead); ++i)
    view_.prefetch_cell(query, here[i]);
  for (size_t i = keys.begin; i < keys.end; ++i) {
    if (i + kRootsAhead < keys.end) view_.prefetch_root(query, here[i + kRootsAhead]);
    if (i + kCellsAhead < keys.end) view_.prefetch_cell(query, here[i + kCellsAhead]);
    const CellView cell = view_.cell(query, here[i]);
    ++num_lookups_;
    if (valued) add_values(query, cell, here[i], attributes, &edges);
    key_column.insert(key_column.end(), cell.size, static_cast<uint32_t>(i));
    for (uint32_t j = 0; j < cell.size; ++j) {
      const auto node = keyed ? end_of(cell.ids[j]) : static_cast<uint32_t>(cell.ids[j]);
      const auto next = static_cast<uint32_t>(there.nodes.size());
      const uint32_t number = there.numbers.number(node, next);
      if (number == next) {
        there.nodes.push_back(node);
        prefetch(&ids.ids()[node]);
        for (size_t line = 0; featured && line < features.width(); line += kLine) prefetch(features.row(node) + line);
      }
      other_column.push_back(number);
    }
  }
}

// What the edges of a cell carry. Weights and times are in the cell; the rows of features are the store's.
void SampleAssembly::add_values(size_t query, const CellView& cell, uint32_t key, bool attributes,
                                EdgesOfType* edges) const {
  const OneHopQuery& asked = view_.plan()[query];
  const GraphStore& store = *view_.graph().edges[asked.edge_type].store;
  const CellFormat& format = view_.format(query);
  const bool featured = store.options().columns.featured;
  for (uint32_t i = 0; i < cell.size; ++i) {
    if (attributes && asked.weighted) edges->weights.push_back(cell.weights[i]);
    if (attributes && asked.timed) edges->times.push_back(format.time_at(cell, i));
    if (!featured) continue;
    const uint64_t id = cell.ids[i];
    const bool keyed = view_.is_keyed(query);
    const uint32_t other = keyed ? end_of(id) : static_cast<uint32_t>(id);
    const uint32_t edge_key = keyed ? static_cast<uint32_t>(id) : 0;
    const auto value = asked.incoming ? store.find(other, key, edge_key) : store.find(key, other, edge_key);
    edges->rows.push_back(value ? value->row : kNoRow);
  }
}

void SampleAssembly::write_nodes(bool attributes, Subgraph* out) const {
  const Graph& graph = view_.graph();
  for (size_t t = 0; t < nodes_.size(); ++t) {
    const NodesOfType& type = nodes_[t];
    auto& to = out->nodes.emplace_back();
    to.num_sampled = type.num_sampled;
    to.ids = Column<int64_t>(type.nodes.size());
    write_ids(graph.nodes[t].ids, type.nodes, to.ids.data());
    const Table& table = graph.nodes[t].features;
    if (!attributes || table.width() == 0) continue;
    to.features = Column<float>(type.nodes.size() * table.width());
    write_features(table, type.nodes, to.features.data());
  }
}

void SampleAssembly::write_edges(bool attributes, Subgraph* out) const {
  const Graph& graph = view_.graph();
  for (const EdgesOfType& type : edges_) {
    auto& to = out->edges.emplace_back();
    to.edge_type = type.edge_type;
    to.num_sampled = type.num_sampled;
    to.row = column_of<int64_t>(type.source);
    to.col = column_of<int64_t>(type.target);
    const Graph::EdgeType& edge_type = graph.edges[type.edge_type];
    const EdgeColumns columns = edge_type.spec.options.columns;
    if (columns.featured) {
      to.edge.emplace(type.rows.size());
      write_rows(type.rows, to.edge->data());
    }
    if (!attributes) continue;
    if (columns.weighted) to.weight = column_of<float>(type.weights);
    if (columns.timed) to.time = column_of<double>(type.times);
    const Table& table = edge_type.features.table();
    if (table.width() == 0) continue;
    to.features = Column<float>(type.rows.size() * table.width());
    write_features(table, type.rows, to.features.data());
  }
}

size_t SampleAssembly::bytes() const {
  size_t bytes = bytes_of(found_) + bytes_of(keys_) + bytes_of(indices_) + bytes_of(before_) + bytes_of(edges_of_);
  for (const auto& type : nodes_) bytes += bytes_of(type.nodes) + type.numbers.bytes();
  for (const auto& type : edges_) {
    bytes += bytes_of(type.source) + bytes_of(type.target) + bytes_of(type.rows) + bytes_of(type.weights) +
             bytes_of(type.times);
  }
  return bytes;
}

}  // namespace livegnn
