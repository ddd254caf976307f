#include "inference/halo/readers.h"

#include <algorithm>
#include <utility>

namespace livegnn {

Readers::Readers(const Graph& graph, std::vector<bool> has_direction)
    : graph_(&graph),
      has_direction_(std::move(has_direction)),
      counts_(graph.nodes.size()),
      masks_(graph.nodes.size()),
      edges_(graph.edges.size()),
      steps_(graph.nodes.size()),
      begun_(graph.nodes.size()),
      new_readers_(graph.nodes.size()),
      changed_edges_(graph.edges.size()),
      edges_after_(graph.edges.size()) {
  count_all();
}

void Readers::count_all() {
  const GraphPart& part = *graph_->part;
  for (size_t n = 0; n < masks_.size(); ++n) masks_[n].resize(graph_->nodes[n].ids.capacity());
  for (uint32_t e = 0; e < edges_.size(); ++e) {
    const Graph::EdgeType& type = graph_->edges[e];
    for (uint32_t source = 0; source < type.store->num_sources(); ++source) {
      const uint32_t from = part.owner(type.spec.source_type, source);
      type.store->scan_out(source, [&](const NeighborSpan& span) {
        for (size_t i = 0; i < span.size; ++i) {
          const uint32_t target = span.ids[i], to = part.owner(type.spec.target_type, target);
          if (type.spec.options.undirected && target < source) continue;  // in the lists of both ends
          edges_[e] += is_counted(e, source, target, from, to);
          for_each_reader(e, source, target, from, to, [&](uint32_t node_type, uint32_t node, uint32_t reader) {
            ++counts_[node_type][key_of(node, reader)];
            masks_[node_type][node] |= uint64_t{1} << reader;
          });
        }
      });
    }
  }
}

template <class Visit>
void Readers::for_each_reader(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t from, uint32_t to,
                              const Visit& visit) const {
  if (from == to) return;
  const EdgeTypeSpec& spec = graph_->edges[edge_type].spec;
  const bool forward = has_direction_[edge_type], backward = has_direction_[edges_.size() + edge_type];
  // An undirected edge in each direction, and so in both of these alike.
  const bool either = spec.options.undirected && (forward || backward);
  if ((forward || either) && from == graph_->part->self()) visit(spec.source_type, source, to);
  if ((backward || either) && to == graph_->part->self()) visit(spec.target_type, target, from);
}

bool Readers::is_counted(uint32_t edge_type, uint32_t source, uint32_t target, uint32_t from, uint32_t to) const {
  const bool undirected = graph_->edges[edge_type].spec.options.undirected;
  return (undirected && source < target ? from : to) == graph_->part->self();
}

void Readers::prepare(const Delta& delta, const OwnersAfter& owners) {
  abandon();
  for (size_t n = 0; n < masks_.size(); ++n) {
    if (masks_[n].size() < delta.nodes[n].capacity) masks_[n].resize(delta.nodes[n].capacity);
  }
  for (uint32_t e = 0; e < edges_.size(); ++e) collect(e, delta, owners);
  for (uint32_t n = 0; n < counts_.size(); ++n) count(n);
}

// Lists by how much the messages of own nodes to other parts become more or fewer.
void Readers::collect(uint32_t edge_type, const Delta& delta, const OwnersAfter& owners) {
  const EdgeTypeSpec& spec = graph_->edges[edge_type].spec;
  edges_after_[edge_type] = edges_[edge_type];
  for (const EdgeChange& change : delta.edges[edge_type]) {
    const uint32_t from = owners.of(spec.source_type, change.source), to = owners.of(spec.target_type, change.target);
    const int difference = int{change.has} - int{change.had};
    if (is_counted(edge_type, change.source, change.target, from, to)) {
      ++changed_edges_[edge_type];
      edges_after_[edge_type] += static_cast<size_t>(difference);
    }
    if (difference == 0) continue;
    for_each_reader(edge_type, change.source, change.target, from, to,
                    [&](uint32_t node_type, uint32_t node, uint32_t reader) {
                      steps_[node_type].push_back({key_of(node, reader), difference});
                    });
  }
}

void Readers::count(uint32_t node_type) {
  std::vector<Step>& steps = steps_[node_type];
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.key < b.key; });
  changes_.reserve(changes_.size() + steps.size());
  for (size_t i = 0; i < steps.size();) {
    const uint64_t key = steps[i].key;
    int difference = 0;
    for (; i < steps.size() && steps[i].key == key; ++i) difference += steps[i].difference;
    if (difference == 0) continue;
    const auto node = static_cast<uint32_t>(key >> 16), part = static_cast<uint32_t>(key & 0xffff);
    // A place for it now: the commit must not fail.
    const auto [found, is_new] = counts_[node_type].try_emplace(key, 0);
    const uint32_t before = found->second, after = before + static_cast<uint32_t>(difference);
    changes_.push_back({node_type, node, part, after});
    if (before > 0) continue;
    const uint64_t bit = uint64_t{1} << part;
    new_readers_[node_type][node] |= bit;
    if (begun_[node_type].empty() || begun_[node_type].back().node != node) begun_[node_type].push_back({node, 0});
    begun_[node_type].back().parts |= bit;
  }
}

uint64_t Readers::of(uint32_t node_type, uint32_t node) const {
  const uint64_t before = masks_[node_type][node];
  if (new_readers_[node_type].empty()) return before;
  const auto added = new_readers_[node_type].find(node);
  return added == new_readers_[node_type].end() ? before : before | added->second;
}

void Readers::commit() noexcept {
  for (const Change& change : changes_) {
    uint64_t& mask = masks_[change.node_type][change.node];
    const uint64_t key = key_of(change.node, change.part), bit = uint64_t{1} << change.part;
    if (change.count == 0) {
      counts_[change.node_type].erase(key);
      mask &= ~bit;
    } else {
      counts_[change.node_type].find(key).value() = change.count;
      mask |= bit;
    }
  }
  edges_ = edges_after_;
  changes_.clear();
}

void Readers::abandon() noexcept {
  for (const Change& change : changes_) {
    const auto found = counts_[change.node_type].find(key_of(change.node, change.part));
    if (found != counts_[change.node_type].end() && found->second == 0) counts_[change.node_type].erase(found);
  }
  changes_.clear();
  for (auto& steps : steps_) steps.clear();
  for (auto& begun : begun_) begun.clear();
  for (auto& readers : new_readers_) readers.clear();
  std::fill(changed_edges_.begin(), changed_edges_.end(), size_t{0});
}

}  // namespace livegnn
