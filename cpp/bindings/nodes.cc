#include <nanobind/stl/string.h>

#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/table_rows.h"
#include "store/graph.h"

namespace livegnn::bindings {
namespace {

std::vector<uint32_t> used_indices(const IdMap& ids) {
  std::vector<uint32_t> used;
  used.reserve(ids.size());
  for (uint32_t i = 0; i < ids.capacity(); ++i) {
    if (ids.in_use(i)) used.push_back(i);
  }
  return used;
}

nb::object indices(const Graph& graph, uint32_t type) {
  return nb::cast(given(read(
      graph, [&] { return graph.nodes[type].ids.capacity(); }, [&] { return used_indices(graph.nodes[type].ids); })));
}

nb::object ids(const Graph& graph, uint32_t type) {
  const IdMap& ids = graph.nodes[type].ids;
  return read(
             graph, [&] { return ids.capacity(); },
             [&] {
               const std::vector<uint32_t> used = used_indices(ids);
               return Names::of(graph, used.size(), [&](size_t i) { return ids.id_of(used[i]); });
             })
      .given(graph);
}

nb::object numbers(const Graph& graph, uint32_t type) {
  const IdMap& ids = graph.nodes[type].ids;
  return nb::cast(given(read(
      graph, [&] { return ids.capacity(); },
      [&] {
        std::vector<int64_t> numbers;
        for (uint32_t index : used_indices(ids)) numbers.push_back(ids.id_of(index));
        return numbers;
      })));
}

nb::object ids_of(const Graph& graph, uint32_t type, In<uint32_t> indices) {
  auto out = array<int64_t>(indices.shape(0));
  read(graph, indices.shape(0), [&] {
    const IdMap& ids = graph.nodes[type].ids;
    for (size_t i = 0; i < indices.shape(0); ++i) {
      const uint32_t index = indices.data()[i];
      out.data()[i] = index < ids.capacity() ? ids.id_of(index) : kNoId;
    }
  });
  return nb::cast(out);
}

nb::object indices_by_ids(const Graph& graph, uint32_t type, const GivenIds& ids) {
  auto out = array<uint32_t>(count_of(ids));
  read(graph, count_of(ids), [&] {
    for (size_t i = 0; i < count_of(ids); ++i) {
      out.data()[i] = graph.nodes[type].ids.index_of(number_of(graph, ids, i));
    }
  });
  return nb::cast(out);
}

nb::object features(const Graph& graph, uint32_t type, In<uint32_t> indices) {
  const NodeFeatures& table = graph.nodes[type].features;
  auto out = rows<float>(indices.shape(0), table.width());
  read(graph, size_of(table, indices.shape(0)),
       [&] { read_rows(table, indices.data(), indices.shape(0), out.data()); });
  return nb::cast(out);
}

// -inf where no event has set the features.
nb::object feature_times(const Graph& graph, uint32_t type, In<uint32_t> indices) {
  auto out = array<double>(indices.shape(0));
  read(graph, indices.shape(0), [&] {
    for (size_t i = 0; i < indices.shape(0); ++i) out.data()[i] = graph.nodes[type].times.at(indices.data()[i]);
  });
  return nb::cast(out);
}

nb::object features_of(const Graph& graph, uint32_t type, const GivenIds& ids) {
  const NodeFeatures& table = graph.nodes[type].features;
  const size_t count = count_of(ids);
  auto out = rows<float>(count, table.width());
  const size_t known = read(graph, size_of(table, count), [&] {
    const auto [indices, known] = indices_of(graph, type, ids);
    if (known == count) read_rows(table, indices.data(), count, out.data());
    return known;
  });
  return known == count ? nb::cast(out) : nb::cast(known);
}

// As `features_of`.
nb::object feature_times_of(const Graph& graph, uint32_t type, const GivenIds& ids) {
  const FeatureTimes& times = graph.nodes[type].times;
  const size_t count = count_of(ids);
  auto out = array<double>(count);
  const size_t known = read(graph, count, [&] {
    const auto [indices, known] = indices_of(graph, type, ids);
    for (size_t i = 0; i < known; ++i) out.data()[i] = times.at(indices.data()[i]);
    return known;
  });
  return known == count ? nb::cast(out) : nb::cast(known);
}

}  // namespace

void bind_nodes(nb::class_<Graph>& graph) {
  graph
      .def("num_nodes",
           [](const Graph& self, uint32_t type) { return read(self, 1, [&] { return self.nodes[type].ids.size(); }); })
      .def("capacity", [](const Graph& self,
                          uint32_t type) { return read(self, 1, [&] { return self.nodes[type].ids.capacity(); }); })
      .def("indices", &indices)
      .def("ids", &ids)
      .def("numbers", &numbers)
      .def("ids_of", &ids_of)
      .def("indices_of", &indices_by_ids)
      .def("features", &features)
      .def("feature_times", &feature_times)
      .def("features_of", &features_of)
      .def("feature_times_of", &feature_times_of);
}

}  // namespace livegnn::bindings
