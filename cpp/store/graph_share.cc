#include "store/graph_share.h"

#include <tsl/robin_map.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "store/part_features.h"

namespace livegnn {
namespace {

// The rows of these nodes, without padding. features_of(node): where they are.
template <class FeaturesOf>
std::vector<float> read_rows(const std::vector<uint32_t>& nodes, size_t width, const FeaturesOf& features_of) {
  std::vector<float> all;
  all.reserve(nodes.size() * width);
  for (uint32_t node : nodes) {
    const float* const row = features_of(node).row(node);
    all.insert(all.end(), row, row + width);
  }
  return all;
}

std::vector<uint32_t> all_indices(const Graph::NodeType& type) {
  std::vector<uint32_t> all(type.ids.capacity());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

void take_features(const NodeFeatures& from, uint32_t node_type, Graph* part) {
  const std::vector<uint32_t> held = held_nodes(*part, node_type);
  const std::vector<float> x = read_rows(held, from.width(), [&](uint32_t) -> const NodeFeatures& { return from; });
  part->load_held_features(node_type, held, x.data(), held.size(), from.width());
}

// Numbers the rows of the edges that a part keeps anew, without gaps, in the order of the lists. Returns them in this
// order.
template <class Id>
std::vector<uint32_t> number_rows(size_t rows, GraphStore::Share<Id>* share) {
  std::vector<uint32_t> numbers(rows, kNoRow), kept;
  for (auto* column : {&share->out.rows, &share->in.rows}) {
    for (uint32_t& row : *column) {
      if (numbers[row] == kNoRow) {
        numbers[row] = static_cast<uint32_t>(kept.size());
        kept.push_back(row);
      }
      row = numbers[row];
    }
  }
  return kept;
}

template <class Id>
void take_edges(const Graph::EdgeType& from, uint32_t edge_type, GraphStore::Share<Id> share, Graph* part) {
  const Table& features = from.features.table();
  const std::vector<uint32_t> kept = number_rows(features.rows(), &share);
  part->load_edges(edge_type, share.out, share.in, share.num_edges);
  std::vector<float> values;
  values.reserve(kept.size() * features.width());
  for (uint32_t row : kept) values.insert(values.end(), features.row(row), features.row(row) + features.width());
  part->load_edge_features(edge_type, values.data(), kept.size(), features.width(), {});
}

// Numbers the rows of all edges, which each part has numbered alone. Both lists of an edge get the same row, whose
// features are returned.
template <class Id>
class RowJoin {
 public:
  RowJoin(std::span<const Graph* const> parts, uint32_t edge_type) : parts_(parts), edge_type_(edge_type) {}

  // Visits the lists of all nodes of one side. `degree(node)`: the length of a list.
  template <class Degree>
  void number(bool out, size_t nodes, const GraphStore::OwnerOf& owner, const Degree& degree,
              typename Samtrees<Id>::Saved* lists) {
    const bool undirected = parts_[0]->edges[edge_type_].spec.options.undirected;
    size_t at = 0;
    for (uint32_t node = 0; node < nodes; ++node) {
      const size_t end = at + degree(node);
      for (; at < end; ++at) {
        const Id id = lists->ids[at];
        uint32_t source = out ? node : end_of(id), target = out ? end_of(id) : node;
        if (undirected && target < source) std::swap(source, target);
        const EdgeName edge{source, target, sizeof(Id) == sizeof(uint32_t) ? 0 : static_cast<uint32_t>(id)};
        const auto [found, is_new] = rows_.try_emplace(edge, static_cast<uint32_t>(rows_.size()));
        if (is_new) append(owner(node), lists->rows[at]);
        lists->rows[at] = found->second;
      }
    }
  }
  const std::vector<float>& features() const { return features_; }
  size_t rows() const { return rows_.size(); }

 private:
  struct Hash {
    size_t operator()(const EdgeName& edge) const {
      return MixHash{}(MixHash{}(uint64_t{edge.source} << 32 | edge.target) ^ edge.key);
    }
  };

  void append(size_t part, uint32_t row) {
    const Table& table = parts_[part]->edges[edge_type_].features.table();
    features_.insert(features_.end(), table.row(row), table.row(row) + table.width());
  }

  const std::span<const Graph* const> parts_;
  const uint32_t edge_type_;
  tsl::robin_map<EdgeName, uint32_t, Hash> rows_;
  std::vector<float> features_;
};

template <class Id>
void give_edges(std::span<const Graph* const> parts, uint32_t edge_type, GraphStore::Share<Id> joined,
                const GraphStore::OwnerOf& source_owner, const GraphStore::OwnerOf& target_owner, Graph* whole) {
  const GraphStore& store = *parts[0]->edges[edge_type].store;
  RowJoin<Id> join(parts, edge_type);
  const auto store_of = [&](size_t part) -> const GraphStore& { return *parts[part]->edges[edge_type].store; };
  if (!joined.out.rows.empty()) {
    const auto degree_out = [&](uint32_t node) { return store_of(source_owner(node)).degree_out(node); };
    join.number(true, store.num_sources(), source_owner, degree_out, &joined.out);
  }
  if (!joined.in.rows.empty()) {
    const auto degree_in = [&](uint32_t node) { return store_of(target_owner(node)).degree_in(node); };
    join.number(false, store.num_targets(), target_owner, degree_in, &joined.in);
  }
  whole->load_edges(edge_type, joined.out, joined.in, joined.num_edges);
  whole->load_edge_features(edge_type, join.features().data(), join.rows(),
                            parts[0]->edges[edge_type].features.table().width(), {});
}

void check_parts(std::span<const Graph* const> parts, const Graph& whole) {
  bool all = !parts.empty() && whole.part == nullptr;
  for (size_t i = 0; i < parts.size() && all; ++i) {
    all = parts[i]->part != nullptr && parts[i]->part->self() == i && parts[i]->part->parts() == parts.size();
  }
  if (!all) throw std::invalid_argument("an undivided graph is joined from all parts of one, by number");
}

}  // namespace

void take_share(const Graph& whole, Graph* part) {
  if (part->part == nullptr || whole.part != nullptr) {
    throw std::invalid_argument("a part takes its share of an undivided graph");
  }
  part->latest_time = whole.latest_time;
  for (uint32_t n = 0; n < whole.nodes.size(); ++n) {
    const Graph::NodeType& type = whole.nodes[n];
    if (part->nodes[n].ids.capacity() > 0) throw std::invalid_argument("a part takes its share before it has nodes");
    std::vector<uint32_t> nodes;
    if (!part->shares_features()) nodes = all_indices(type);
    const size_t width = type.features.width();
    const auto from = [&](uint32_t) -> const NodeFeatures& { return type.features; };
    const std::vector<float> x = read_rows(nodes, width, from);
    part->load_nodes(n, type.ids.ids(), type.ids.free_list(), x.data(), nodes.size(), width);
    if (type.times.kept()) part->load_feature_times(n, type.times.values());
  }
  for (uint32_t e = 0; e < whole.edges.size(); ++e) {
    const Graph::EdgeType& type = whole.edges[e];
    const auto owns_source = [&](uint32_t node) { return part->part->owns(type.spec.source_type, node); };
    const auto owns_target = [&](uint32_t node) { return part->part->owns(type.spec.target_type, node); };
    if (type.spec.options.keyed) {
      take_edges(type, e, type.store->keyed_share(owns_source, owns_target), part);
    } else {
      take_edges(type, e, type.store->share(owns_source, owns_target), part);
    }
  }
  for (uint32_t n = 0; n < whole.nodes.size() && part->shares_features(); ++n) {
    take_features(whole.nodes[n].features, n, part);
  }
}

void join_shares(std::span<const Graph* const> parts, Graph* whole) {
  check_parts(parts, *whole);
  const Graph& first = *parts[0];
  whole->latest_time = first.latest_time;
  for (uint32_t n = 0; n < first.nodes.size(); ++n) {
    const Graph::NodeType& type = first.nodes[n];
    const std::vector<uint32_t> nodes = all_indices(type);
    const size_t width = type.features.width();
    const std::vector<float> x = read_rows(nodes, width, [&](uint32_t node) -> const NodeFeatures& {
      const uint32_t owner = first.part->owner(n, node);
      return parts[owner == Owners::kNoOwner ? 0 : owner]->nodes[n].features;
    });
    whole->load_nodes(n, type.ids.ids(), type.ids.free_list(), x.data(), nodes.size(), width);
    if (type.times.kept()) whole->load_feature_times(n, type.times.values());
  }
  for (uint32_t e = 0; e < first.edges.size(); ++e) {
    const EdgeTypeSpec& spec = first.edges[e].spec;
    const auto owner_in = [&](uint32_t node_type) {
      return [&first, node_type](uint32_t node) {
        const uint32_t owner = first.part->owner(node_type, node);
        return owner == Owners::kNoOwner ? size_t{0} : size_t{owner};
      };
    };
    const GraphStore::OwnerOf source_owner = owner_in(spec.source_type), target_owner = owner_in(spec.target_type);
    std::vector<const GraphStore*> stores;
    for (const Graph* part : parts) stores.push_back(part->edges[e].store.get());
    if (spec.options.keyed) {
      give_edges(parts, e, GraphStore::keyed_join(stores, source_owner, target_owner), source_owner, target_owner,
                 whole);
    } else {
      give_edges(parts, e, GraphStore::join(stores, source_owner, target_owner), source_owner, target_owner, whole);
    }
  }
}

}  // namespace livegnn
