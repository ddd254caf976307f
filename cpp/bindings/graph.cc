#include "livegnn/graph.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <tuple>

#include "arrays.h"
#include "livegnn/engine.h"
#include "livegnn/stage.h"

namespace livegnn::bindings {
namespace {

// Source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack, width, expires.
using EdgeTypeTuple = std::tuple<uint32_t, uint32_t, bool, bool, bool, bool, bool, uint32_t, uint32_t, size_t, bool>;

// NumPy's texts are rows of UTF-32, padded with zeros.
std::string utf8(const uint32_t* text, size_t width) {
  std::string out;
  for (size_t i = 0; i < width && text[i] != 0; ++i) {
    uint32_t c = text[i];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

void copy_rows(const Table& table, float* to) {
  if (table.width() == 0) return;
  for (size_t i = 0; i < table.rows(); ++i) {
    std::memcpy(to + i * table.width(), table.row(i), table.width() * sizeof(float));
  }
}

nb::object read_rows(const Table& table, const uint32_t* nodes, size_t count) {
  auto out = rows<float>(count, table.width());
  for (size_t i = 0; i < count && table.width() > 0; ++i) {
    std::memcpy(out.data() + i * table.width(), table.row(nodes[i]), table.width() * sizeof(float));
  }
  return nb::cast(out);
}

// All rows without padding. What lies in a file since it outgrows memory is copied to a file too, which goes with the
// array.
nb::object read_all_rows(const Table& table) {
  const size_t floats = table.rows() * table.width();
  if (table.file() == nullptr || floats == 0) {
    auto out = rows<float>(table.rows(), table.width());
    copy_rows(table, out.data());
    return nb::cast(out);
  }
  auto file = std::make_unique<ScratchFile>(table.file()->directory());
  file->reserve(floats);
  file->map();
  copy_rows(table, file->data());
  float* data = file->data();
  nb::capsule owner(file.release(), [](void* p) noexcept { delete static_cast<ScratchFile*>(p); });
  return nb::cast(OutRows<float>(data, {table.rows(), table.width()}, owner));
}

nb::tuple neighbors(const Graph& graph, uint32_t edge_type, uint32_t node, bool incoming) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  std::vector<uint32_t> ids, rows;
  std::vector<float> weights;
  std::vector<double> times;
  auto collect = [&](NeighborSpan span) {
    ids.insert(ids.end(), span.ids, span.ids + span.size);
    if (span.weights != nullptr) weights.insert(weights.end(), span.weights, span.weights + span.size);
    if (span.times != nullptr) times.insert(times.end(), span.times, span.times + span.size);
    if (span.rows != nullptr) rows.insert(rows.end(), span.rows, span.rows + span.size);
  };
  std::shared_lock lock(graph.lock);
  if (incoming) {
    type.store->scan_in(node, collect);
  } else {
    type.store->scan_out(node, collect);
  }
  return nb::make_tuple(copy(ids), copy(weights), copy(times),
                        read_rows(type.features.table(), rows.data(), rows.size()));
}

// Every edge in the direction of its message; an undirected one in both.
nb::tuple coo(const Graph& graph, uint32_t edge_type) {
  const GraphStore& store = *graph.edges[edge_type].store;
  std::vector<uint32_t> source, target, rows;
  std::vector<float> weights;
  std::shared_lock lock(graph.lock);
  for (uint32_t node = 0; node < store.num_sources(); ++node) {
    store.scan_out(node, [&](NeighborSpan span) {
      source.insert(source.end(), span.size, node);
      target.insert(target.end(), span.ids, span.ids + span.size);
      if (span.weights != nullptr) weights.insert(weights.end(), span.weights, span.weights + span.size);
      if (span.rows != nullptr) rows.insert(rows.end(), span.rows, span.rows + span.size);
    });
  }
  return nb::make_tuple(copy(source), copy(target), copy(weights),
                        read_rows(graph.edges[edge_type].features.table(), rows.data(), source.size()));
}

// The features of edges; and the position of the first edge that is not there, their number if all are.
nb::tuple edge_features(const Graph& graph, uint32_t edge_type, In<uint32_t> source, In<uint32_t> target) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  std::vector<uint32_t> rows;
  std::shared_lock lock(graph.lock);
  for (size_t i = 0; i < source.shape(0); ++i) {
    const auto value = type.store->find(source.data()[i], target.data()[i]);
    if (!value) break;
    rows.push_back(value->row);
  }
  const size_t found = rows.size();
  return nb::make_tuple(read_rows(type.features.table(), rows.data(), rows.size()), found);
}

nb::tuple expired(Graph& graph, uint32_t edge_type, double horizon) {
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  {
    nb::gil_scoped_release release;
    edges = graph.expired(edge_type, horizon);
  }
  auto source = array<uint32_t>(edges.size()), target = array<uint32_t>(edges.size());
  for (size_t i = 0; i < edges.size(); ++i) std::tie(source.data()[i], target.data()[i]) = edges[i];
  return nb::make_tuple(source, target);
}

using Saved = GraphStore::Trees::Saved;

nb::tuple columns_out(const Saved& columns) {
  return nb::make_tuple(copy(columns.shape), copy(columns.keys), copy(columns.ids), copy(columns.weights),
                        copy(columns.times), copy(columns.rows));
}

using ColumnsIn = std::tuple<In<uint32_t>, In<uint32_t>, In<uint32_t>, In<float>, In<double>, In<uint32_t>>;

Saved columns_in(const ColumnsIn& from) {
  const auto& [shape, keys, ids, weights, times, rows] = from;
  return {vector_of(shape), vector_of(keys), vector_of(ids), vector_of(weights), vector_of(times), vector_of(rows)};
}

}  // namespace

void bind_graph(nb::module_& module) {
  static nb::object event_error = nb::steal(PyErr_NewException("livegnn._core.EventError", PyExc_ValueError, nullptr));
  module.attr("EventError") = event_error;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const EventError& error) {
      nb::tuple args = nb::make_tuple(static_cast<int>(error.kind), error.what(), error.id, error.node_type);
      PyErr_SetObject(event_error.ptr(), args.ptr());
    }
  });

  nb::class_<TextIds>(module, "TextIds")
      .def(nb::init<>())
      .def("intern",
           [](TextIds& self, InRows<uint32_t> texts) {
             auto out = array<int64_t>(texts.shape(0));
             for (size_t i = 0; i < texts.shape(0); ++i) {
               out.data()[i] = self.intern(utf8(texts.data() + i * texts.shape(1), texts.shape(1)));
             }
             return out;
           })
      .def("find",
           [](const TextIds& self, InRows<uint32_t> texts) {
             auto out = array<int64_t>(texts.shape(0));
             for (size_t i = 0; i < texts.shape(0); ++i) {
               out.data()[i] = self.find(utf8(texts.data() + i * texts.shape(1), texts.shape(1)));
             }
             return out;
           })
      .def("texts", [](const TextIds& self, In<int64_t> numbers) {
        std::vector<std::string> out;
        for (size_t i = 0; i < numbers.shape(0); ++i) out.push_back(self.text(numbers.data()[i]));
        return out;
      });

  nb::class_<Delta>(module, "Delta")
      .def_ro("num_events", &Delta::num_events)
      .def("added", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].added_ids); })
      .def("added_indices", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].added); })
      .def("removed", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].removed_ids); })
      .def("removed_indices", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].removed); })
      .def("featured", [](const Delta& self, uint32_t type) { return copy(self.nodes[type].featured); })
      .def("num_edge_changes", [](const Delta& self, uint32_t type) { return self.edges[type].size(); })
      .def("edge_features",
           [](const Delta& self, uint32_t type, size_t width) {
             const EdgeFeaturesDelta& delta = self.edge_features[type];
             auto x = rows<float>(delta.featured.size(), width);
             for (size_t i = 0; i < delta.featured.size(); ++i) {
               std::memcpy(x.data() + i * width, delta.features.data() + i * row_stride(width), width * sizeof(float));
             }
             return nb::make_tuple(copy(delta.featured), x);
           })
      .def("edges", [](const Delta& self, uint32_t type) {
        const auto& changes = self.edges[type];
        auto source = array<uint32_t>(changes.size()), target = array<uint32_t>(changes.size());
        auto had = array<bool>(changes.size()), has = array<bool>(changes.size());
        auto old_weight = array<float>(changes.size()), new_weight = array<float>(changes.size());
        for (size_t i = 0; i < changes.size(); ++i) {
          source.data()[i] = changes[i].source;
          target.data()[i] = changes[i].target;
          had.data()[i] = changes[i].had;
          has.data()[i] = changes[i].has;
          old_weight.data()[i] = changes[i].old_weight;
          new_weight.data()[i] = changes[i].new_weight;
        }
        return nb::make_tuple(source, target, had, has, old_weight, new_weight);
      });

  nb::class_<Stage>(module, "Stage")
      .def(nb::init<const Graph&>(), nb::keep_alive<1, 2>())
      .def(
          "add_edges",
          [](Stage& self, uint32_t type, In<int64_t> source, In<int64_t> target, std::optional<In<float>> weight,
             std::optional<In<double>> time, std::optional<InRows<float>> x) {
            self.add_edges(type, source.data(), target.data(), weight ? weight->data() : nullptr,
                           time ? time->data() : nullptr, x ? x->data() : nullptr, x ? x->shape(1) : 0,
                           source.shape(0));
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg().none())
      .def("remove_edges",
           [](Stage& self, uint32_t type, In<int64_t> source, In<int64_t> target) {
             self.remove_edges(type, source.data(), target.data(), source.shape(0));
           })
      .def("set_features",
           [](Stage& self, uint32_t type, In<int64_t> ids, InRows<float> x) {
             self.set_features(type, ids.data(), x.data(), x.shape(1), ids.shape(0));
           })
      .def(
          "add_nodes",
          [](Stage& self, uint32_t type, In<int64_t> ids, std::optional<InRows<float>> x) {
            self.add_nodes(type, ids.data(), x ? x->data() : nullptr, x ? x->shape(1) : 0, ids.shape(0));
          },
          nb::arg(), nb::arg(), nb::arg().none())
      .def("remove_nodes",
           [](Stage& self, uint32_t type, In<int64_t> ids) { self.remove_nodes(type, ids.data(), ids.shape(0)); })
      .def("finish", &Stage::finish);

  nb::class_<Graph>(module, "Graph")
      .def("__init__",
           [](Graph* self, const std::vector<size_t>& widths, const std::vector<EdgeTypeTuple>& edge_types,
              size_t threads, const std::string& features_directory) {
             std::vector<EdgeTypeSpec> specs;
             for (const auto& [source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack,
                               width, expires] : edge_types) {
               specs.push_back({source,
                                target,
                                {{weighted, timed, width > 0}, undirected, accumulate, in_lists, {capacity, slack}},
                                width,
                                expires});
             }
             new (self) Graph(widths, specs, threads, features_directory);
           })
      .def("prepare", &Graph::prepare, nb::call_guard<nb::gil_scoped_release>())
      .def("abandon", &Graph::abandon)
      .def("commit",
           [](Graph& self, const Delta& delta, const std::vector<std::pair<Engine*, Prepared*>>& views) {
             nb::gil_scoped_release release;
             {
               std::unique_lock lock(self.lock);
               self.commit(delta);
               for (const auto& [engine, prepared] : views) engine->commit(delta, *prepared);
             }
             self.settle();
           })
      .def("num_nodes", [](const Graph& self, uint32_t type) { return self.nodes[type].ids.size(); })
      .def("capacity", [](const Graph& self, uint32_t type) { return self.nodes[type].ids.capacity(); })
      .def("num_edges", [](const Graph& self, uint32_t type) { return self.edges[type].store->num_edges(); })
      .def("indices",
           [](const Graph& self, uint32_t type) {
             std::shared_lock lock(self.lock);
             const IdMap& ids = self.nodes[type].ids;
             auto out = array<uint32_t>(ids.size());
             size_t n = 0;
             for (uint32_t i = 0; i < ids.capacity(); ++i) {
               if (ids.in_use(i)) out.data()[n++] = i;
             }
             return out;
           })
      .def("ids_of",
           [](const Graph& self, uint32_t type, In<uint32_t> indices) {
             std::shared_lock lock(self.lock);
             auto out = array<int64_t>(indices.shape(0));
             for (size_t i = 0; i < indices.shape(0); ++i)
               out.data()[i] = self.nodes[type].ids.id_of(indices.data()[i]);
             return out;
           })
      .def("indices_of",
           [](const Graph& self, uint32_t type, In<int64_t> ids) {
             std::shared_lock lock(self.lock);
             auto out = array<uint32_t>(ids.shape(0));
             for (size_t i = 0; i < ids.shape(0); ++i) out.data()[i] = self.nodes[type].ids.index_of(ids.data()[i]);
             return out;
           })
      .def("features",
           [](const Graph& self, uint32_t type, In<uint32_t> indices) {
             std::shared_lock lock(self.lock);
             return read_rows(self.nodes[type].features, indices.data(), indices.shape(0));
           })
      .def("neighbors", &neighbors)
      .def("degrees",
           [](const Graph& self, uint32_t type, In<uint32_t> indices, bool incoming) {
             std::shared_lock lock(self.lock);
             const GraphStore& store = *self.edges[type].store;
             auto out = array<int64_t>(indices.shape(0));
             for (size_t i = 0; i < indices.shape(0); ++i) {
               uint32_t node = indices.data()[i];
               out.data()[i] = incoming ? store.degree_in(node) : store.degree_out(node);
             }
             return out;
           })
      .def("edge_features", &edge_features)
      .def("coo", &coo)
      .def("expired", &expired)
      .def_rw("latest_time", &Graph::latest_time)
      .def("check",
           [](const Graph& self) {
             for (const auto& type : self.edges) type.store->check();
           })
      .def("memory",
           [](const Graph& self) {
             nb::list types, stores;
             for (const auto& type : self.nodes) {
               types.append(nb::make_tuple(type.ids.bytes(), type.features.bytes(), type.features.mapped_bytes()));
             }
             for (const auto& type : self.edges) {
               const auto [lists, batches] = type.store->memory();
               stores.append(nb::make_tuple(lists + type.earliest.bytes(), batches, type.features.bytes(),
                                            type.features.table().mapped_bytes()));
             }
             return nb::make_tuple(types, stores);
           })
      .def("save_nodes",
           [](const Graph& self, uint32_t type) {
             const auto& nodes = self.nodes[type];
             return nb::make_tuple(copy(nodes.ids.ids()), copy(nodes.ids.free_list()), read_all_rows(nodes.features));
           })
      .def("load_nodes",
           [](Graph& self, uint32_t type, In<int64_t> ids, In<uint32_t> free, InRows<float> x) {
             auto& nodes = self.nodes[type];
             if (x.shape(0) != ids.shape(0) || x.shape(1) != nodes.features.width()) {
               throw std::runtime_error("features that do not fit their nodes");
             }
             nodes.ids.restore(vector_of(ids), vector_of(free));
             nodes.features.resize(x.shape(0));
             for (size_t i = 0; i < x.shape(0); ++i) nodes.features.write(i, x.data() + i * x.shape(1));
           })
      .def("save_edges",
           [](const Graph& self, uint32_t type) {
             const GraphStore& store = *self.edges[type].store;
             return nb::make_tuple(columns_out(store.save_out()), columns_out(store.save_in()));
           })
      .def("load_edges",
           [](Graph& self, uint32_t type, ColumnsIn out, ColumnsIn in, size_t num_edges) {
             auto& edges = self.edges[type];
             const size_t sources = self.nodes[edges.spec.source_type].ids.capacity();
             edges.store->resize(sources, self.nodes[edges.spec.target_type].ids.capacity());
             edges.store->load(columns_in(out), columns_in(in), num_edges);
             if (!edges.spec.expires) return;
             edges.earliest.resize(sources);
             edges.earliest.forget();
           })
      .def("save_edge_features",
           [](const Graph& self, uint32_t type) {
             const EdgeFeatures& features = self.edges[type].features;
             return nb::make_tuple(copy(features.free_list()), read_all_rows(features.table()));
           })
      .def("load_edge_features", [](Graph& self, uint32_t type, In<uint32_t> free, InRows<float> x) {
        if (x.shape(1) != self.edges[type].spec.width) throw std::runtime_error("features that do not fit their edges");
        self.load_edge_features(type, x.data(), x.shape(0), vector_of(free));
      });
}

}  // namespace livegnn::bindings
