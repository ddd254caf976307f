#include "store/stage.h"

#include <nanobind/stl/optional.h>

#include <cstring>
#include <optional>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

nb::tuple edge_features(const Delta& batch, uint32_t type, size_t width) {
  const EdgeFeaturesDelta& delta = batch.edge_features[type];
  auto x = rows<float>(delta.featured.size(), width);
  for (size_t i = 0; i < delta.featured.size(); ++i) {
    std::memcpy(x.data() + i * width, delta.features.data() + i * row_stride(width), width * sizeof(float));
  }
  return nb::make_tuple(copy(delta.featured), x);
}

nb::tuple edges(const Delta& delta, uint32_t type) {
  const auto& changes = delta.edges[type];
  auto source = array<uint32_t>(changes.size()), target = array<uint32_t>(changes.size());
  auto had = array<bool>(changes.size()), has = array<bool>(changes.size());
  auto key = array<uint32_t>(changes.size());
  auto old_weight = array<float>(changes.size()), new_weight = array<float>(changes.size());
  auto time = array<double>(changes.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    source.data()[i] = changes[i].source;
    target.data()[i] = changes[i].target;
    had.data()[i] = changes[i].had;
    has.data()[i] = changes[i].has;
    old_weight.data()[i] = changes[i].old_weight;
    new_weight.data()[i] = changes[i].new_weight;
    key.data()[i] = changes[i].key;
    time.data()[i] = changes[i].new_time;
  }
  return nb::make_tuple(source, target, had, has, old_weight, new_weight, key, time);
}

void bind_delta(nb::module_& module) {
  nb::class_<Delta>(module, "Delta")
      .def_ro("num_events", &Delta::num_events)
      .def_ro("late_features", &Delta::late_features)
      .def("added", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].added_ids); })
      .def("added_indices", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].added); })
      .def("removed", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].removed_ids); })
      .def("removed_indices", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].removed); })
      .def("placed", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].placed); })
      .def("owners", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].owners); })
      .def("featured", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].featured); })
      .def("num_edge_changes", [](const Delta& self, uint32_t type) { return self.edges[type].size(); })
      .def("edge_features", &edge_features)
      .def("edges", &edges);
}

}  // namespace

void bind_stage(nb::module_& module) {
  bind_delta(module);
  // Other threads run while a batch is staged: the arrays belong to the caller, which holds the graph's writer lock in
  // Python.
  nb::class_<Stage>(module, "Stage")
      .def(nb::init<const Graph&, bool, bool>(), nb::keep_alive<1, 2>(), nb::arg(), nb::arg(), nb::arg() = false)
      .def(
          "add_edges",
          [](Stage& self, uint32_t type, In<int64_t> source, In<int64_t> target, std::optional<In<float>> weight,
             std::optional<In<double>> time, std::optional<InRows<float>> x, std::optional<In<uint32_t>> key) {
            as_writer(source.shape(0), [&] {
              self.add_edges(type, source.data(), target.data(), weight ? weight->data() : nullptr,
                             time ? time->data() : nullptr, x ? x->data() : nullptr, x ? x->shape(1) : 0,
                             source.shape(0), key ? key->data() : nullptr);
            });
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def(
          "remove_edges",
          [](Stage& self, uint32_t type, In<int64_t> source, In<int64_t> target, std::optional<In<uint32_t>> key) {
            as_writer(source.shape(0), [&] {
              self.remove_edges(type, source.data(), target.data(), source.shape(0), key ? key->data() : nullptr);
            });
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def(
          "set_features",
          [](Stage& self, uint32_t type, In<int64_t> ids, InRows<float> x, std::optional<In<double>> time) {
            as_writer(ids.shape(0), [&] {
              self.set_features(type, ids.data(), x.data(), x.shape(1), ids.shape(0), time ? time->data() : nullptr);
            });
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def(
          "add_nodes",
          [](Stage& self, uint32_t type, In<int64_t> ids, std::optional<InRows<float>> x,
             std::optional<In<double>> time) {
            as_writer(ids.shape(0), [&] {
              self.add_nodes(type, ids.data(), x ? x->data() : nullptr, x ? x->shape(1) : 0, ids.shape(0),
                             time ? time->data() : nullptr);
            });
          },
          nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def(
          "add_unknown",
          [](Stage& self, uint32_t type, In<int64_t> ids, std::optional<In<float>> row) {
            as_writer(ids.shape(0), [&] {
              self.add_unknown(type, ids.data(), row ? row->data() : nullptr, row ? row->shape(0) : 0, ids.shape(0));
            });
          },
          nb::arg(), nb::arg(), nb::arg().none())
      .def("remove_nodes",
           [](Stage& self, uint32_t type, In<int64_t> ids) {
             as_writer([&] { self.remove_nodes(type, ids.data(), ids.shape(0)); });
           })
      .def("finish", [](Stage& self) { return as_writer(self.num_events(), [&] { return self.finish(); }); });
}

}  // namespace livegnn::bindings
