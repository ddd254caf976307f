#include "inference/halo/readers.h"

#include <algorithm>
#include <utility>

namespace livegnn {

Readers::Readers(const Graph& graph, std::vector<bool> has_direction)
    : graph_(graph),
      has_direction_(std::move(has_direction)),
      counts_(graph.nodes.size()),
      masks_(graph.nodes.size()),
      edges_(graph.edges.size()),
      steps_(graph.nodes.size()),
      begun_(graph.nodes.size()),
      new_readers_(graph.nodes.size()),
      changed_edges_(graph.edges.size()),
      edges_after_(graph.edges.size()) {}

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
  const EdgeTypeSpec& spec = graph_.edges[edge_type].spec;
  const bool undirected = spec.options.undirected;
  const bool forward = has_direction_[edge_type], backward = has_direction_[edges_.size() + edge_type];
  edges_after_[edge_type] = edges_[edge_type];
  for (const EdgeChange& change : delta.edges[edge_type]) {
    const uint32_t from = owners.of(spec.source_type, change.source), to = owners.of(spec.target_type, change.target);
    const int difference = int{change.has} - int{change.had};
    const uint32_t owner = undirected && change.source < change.target ? from : to;
    if (owner == owners.self()) {
      ++changed_edges_[edge_type];
      edges_after_[edge_type] += static_cast<size_t>(difference);
    }
    if (difference == 0 || from == to) continue;
    // An undirected edge in each direction, and so in both of these alike.
    const bool sends = forward || (undirected && backward), sends_back = backward || (undirected && forward);
    if (sends && from == owners.self()) steps_[spec.source_type].push_back({key_of(change.source, to), difference});
    if (sends_back && to == owners.self()) {
      steps_[spec.target_type].push_back({key_of(change.target, from), difference});
    }
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
