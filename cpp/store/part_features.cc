#include "store/part_features.h"

#include <utility>

namespace livegnn {
namespace {

// Whether the node sends to own ones along edges whose messages need features; `after` the batch that is prepared.
bool is_read(const Graph& part, uint32_t node_type, uint32_t node, bool after) {
  const size_t count = part.edges.size();
  for (size_t e = 0; e < count; ++e) {
    const EdgeTypeSpec& spec = part.edges[e].spec;
    const GraphStore& store = *part.edges[e].store;
    const bool forward = part.part->reads_features(e), backward = part.part->reads_features(count + e);
    const bool undirected = spec.options.undirected;
    if (spec.source_type == node_type && (forward || (undirected && backward)) &&
        (after ? store.degree_out_after(node) : store.degree_out(node)) > 0) {
      return true;
    }
    if (spec.target_type == node_type && !undirected && backward &&
        (after ? store.degree_in_after(node) : store.degree_in(node)) > 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<uint32_t> held_nodes(const Graph& part, uint32_t node_type) {
  const size_t capacity = part.nodes[node_type].ids.capacity();
  std::vector<bool> held(capacity);
  for (uint32_t node = 0; node < capacity; ++node) held[node] = part.part->owns(node_type, node);
  for (const Graph::EdgeType& type : part.edges) {
    for (uint32_t node = 0; type.spec.source_type == node_type && node < type.store->num_sources(); ++node) {
      if (type.store->degree_out(node) > 0) held[node] = true;
    }
    if (!type.store->has_in() || type.spec.target_type != node_type) continue;
    for (uint32_t node = 0; node < type.store->num_targets(); ++node) {
      if (type.store->degree_in(node) > 0) held[node] = true;
    }
  }
  std::vector<uint32_t> nodes;
  for (uint32_t node = 0; node < capacity; ++node) {
    if (held[node]) nodes.push_back(node);
  }
  return nodes;
}

void hold_features(Graph* part) {
  for (uint32_t n = 0; n < part->nodes.size(); ++n) {
    Graph::NodeType& type = part->nodes[n];
    std::vector<uint32_t> nodes;
    for (uint32_t node = 0; type.features.width() > 0 && node < type.ids.capacity(); ++node) {
      if (part->part->owns(n, node) || (type.ids.in_use(node) && is_read(*part, n, node, false))) nodes.push_back(node);
    }
    type.features.hold(nodes, type.ids.capacity());
  }
}

void prepare_features(const Delta& delta, const OwnersAfter& owners, Graph* part) {
  std::vector<std::vector<uint32_t>> ends(part->nodes.size());  // of other parts, of edges that arrive or leave
  for (size_t e = 0; e < part->edges.size(); ++e) {
    const EdgeTypeSpec& spec = part->edges[e].spec;
    for (const EdgeChange& change : delta.edges[e]) {
      if (change.had == change.has) continue;
      for (const auto& [node_type, node] :
           {std::pair(spec.source_type, change.source), std::pair(spec.target_type, change.target)}) {
        if (!owners.owns(node_type, node)) ends[node_type].push_back(node);
      }
    }
  }
  for (uint32_t n = 0; n < part->nodes.size(); ++n) {
    const NodeDelta& nodes = delta.nodes[n];
    NodeFeatures& features = part->nodes[n].features;
    std::vector<uint32_t> written, leaving = nodes.removed;
    for (uint32_t node : nodes.featured) {
      if (owners.owns(n, node)) written.push_back(node);
    }
    for (uint32_t node : ends[n]) {
      (features.width() > 0 && is_read(*part, n, node, true) ? written : leaving).push_back(node);
    }
    features.prepare(std::move(written), std::move(leaving), nodes.capacity);
  }
}

}  // namespace livegnn
