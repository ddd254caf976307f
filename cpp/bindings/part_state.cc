// What parts of a graph take from an undivided one, and what their states say beside a graph's and an engine's.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "inference/engine.h"
#include "store/graph_share.h"

namespace livegnn::bindings {
namespace {

// The nodes of a type whose rows a part holds, by index: its own, and those of others to or from which it keeps edges.
std::vector<uint32_t> held_nodes(const Graph& graph, uint32_t node_type) {
  const size_t capacity = graph.nodes[node_type].ids.capacity();
  std::vector<bool> held(capacity);
  for (uint32_t node = 0; node < capacity; ++node) held[node] = graph.part->owns(node_type, node);
  for (const Graph::EdgeType& type : graph.edges) {
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

}  // namespace

void bind_part_states(nb::module_& module) {
  module.def("is_part", [](const Graph& self) { return self.part != nullptr; });
  module.def("take_share", [](const Graph& whole, Graph& part) { as_writer([&] { take_share(whole, &part); }); });
  module.def("join_shares", [](const std::vector<const Graph*>& parts, Graph& whole) {
    as_writer([&] { join_shares(parts, &whole); });
  });
  // The owners of the nodes that are loaded next, by index.
  module.def("load_owners", [](Graph& self, uint32_t node_type, In<uint16_t> owners) {
    self.part->give_loaded(node_type, vector_of(owners));
  });
  module.def("held_nodes", [](const Graph& self, uint32_t node_type) {
    return given(as_writer([&] { return held_nodes(self, node_type); }));
  });
  module.def("arrays_by_node", [](const Engine& self) { return self.state().arrays_by_node(); });
}

}  // namespace livegnn::bindings
