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
#include "store/part_features.h"

namespace livegnn::bindings {

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
