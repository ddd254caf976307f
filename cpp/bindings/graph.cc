#include "store/graph.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <system_error>
#include <tuple>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "store/stage.h"
#include "threads/parallel.h"
#include "views/commit.h"

namespace livegnn::bindings {
namespace {

// Source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack, width, expires, keyed.
using EdgeTypeTuple =
    std::tuple<uint32_t, uint32_t, bool, bool, bool, bool, bool, uint32_t, uint32_t, size_t, bool, bool>;

void copy_rows(const Table& table, float* to) {
  if (table.width() == 0) return;
  for (size_t i = 0; i < table.rows(); ++i) {
    std::memcpy(to + i * table.width(), table.row(i), table.width() * sizeof(float));
  }
}

void read_rows(const Table& table, const uint32_t* indices, size_t count, float* out) {
  for (size_t i = 0; i < count && table.width() > 0; ++i) {
    std::memcpy(out + i * table.width(), table.row(indices[i]), table.width() * sizeof(float));
  }
}

std::vector<float> read_rows(const Table& table, const std::vector<uint32_t>& indices) {
  std::vector<float> out(indices.size() * table.width());
  read_rows(table, indices.data(), indices.size(), out.data());
  return out;
}

// How much it is to read so many rows: what lies in a file may have to come from a disk.
size_t size_of(const Table& table, size_t count) { return table.file() == nullptr ? count : SIZE_MAX; }

// All rows without padding. What lies in a file since it outgrows memory is copied to a file too, which goes with the
// array.
nb::object read_all_rows(const Table& table) {
  const size_t floats = table.rows() * table.width();
  if (table.file() == nullptr || floats == 0) {
    std::vector<float> rows = as_writer([&] {
      std::vector<float> all;
      all.reserve(floats);
      for (size_t i = 0; i < table.rows(); ++i) all.insert(all.end(), table.row(i), table.row(i) + table.width());
      return all;
    });
    return nb::cast(given(std::move(rows), table.rows(), table.width()));
  }
  auto file = as_writer([&] {
    auto made = std::make_unique<ScratchFile>(table.file()->directory());
    made->reserve(floats);
    made->adopt();
    copy_rows(table, made->data());
    return made;
  });
  float* data = file->data();
  nb::capsule owner(file.release(), [](void* p) noexcept { delete static_cast<ScratchFile*>(p); });
  return nb::cast(OutRows<float>(data, {table.rows(), table.width()}, owner));
}

// Ids of neighbours, and what the edges to them carry; None if there is no such node.
nb::object neighbors(const Graph& graph, uint32_t edge_type, const GivenIds& id, bool incoming) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  const uint32_t here = incoming ? type.spec.target_type : type.spec.source_type;
  const uint32_t there = incoming ? type.spec.source_type : type.spec.target_type;
  bool known = false;
  Names names;
  std::vector<uint32_t> rows, keys;
  std::vector<float> weights, features;
  std::vector<double> times;
  auto collect = [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) names.numbers.push_back(graph.nodes[there].ids.id_of(span.ids[i]));
    if (span.weights != nullptr) weights.insert(weights.end(), span.weights, span.weights + span.size);
    if (span.times != nullptr) times.insert(times.end(), span.times, span.times + span.size);
    if (span.rows != nullptr) rows.insert(rows.end(), span.rows, span.rows + span.size);
    if (span.keys != nullptr) keys.insert(keys.end(), span.keys, span.keys + span.size);
  };
  auto size = [&]() -> size_t {
    const uint32_t node = graph.nodes[here].ids.index_of(number_of(graph, id, 0));
    if (node == kNoIndex) return 0;
    const auto degree = static_cast<size_t>(incoming ? type.store->degree_in(node) : type.store->degree_out(node));
    return size_of(type.features.table(), degree);
  };
  read(graph, size, [&] {
    const uint32_t node = graph.nodes[here].ids.index_of(number_of(graph, id, 0));
    known = node != kNoIndex;
    if (!known) return;
    if (incoming) {
      type.store->scan_in(node, collect);
    } else {
      type.store->scan_out(node, collect);
    }
    names.find_texts(graph);
    features = read_rows(type.features.table(), rows);
  });
  if (!known) return nb::none();
  const size_t count = rows.size(), width = type.features.table().width();
  return nb::make_tuple(std::move(names).given(graph), given(std::move(weights)), given(std::move(times)),
                        given(std::move(features), count, width), given(std::move(keys)));
}

// Every edge in the direction of its message; an undirected one in both.
nb::tuple coo(const Graph& graph, uint32_t edge_type) {
  const GraphStore& store = *graph.edges[edge_type].store;
  std::vector<uint32_t> source, target, rows, keys;
  std::vector<float> weights, features;
  read(graph, SIZE_MAX, [&] {
    for (uint32_t node = 0; node < store.num_sources(); ++node) {
      store.scan_out(node, [&](NeighborSpan span) {
        source.insert(source.end(), span.size, node);
        target.insert(target.end(), span.ids, span.ids + span.size);
        if (span.weights != nullptr) weights.insert(weights.end(), span.weights, span.weights + span.size);
        if (span.rows != nullptr) rows.insert(rows.end(), span.rows, span.rows + span.size);
        if (span.keys != nullptr) keys.insert(keys.end(), span.keys, span.keys + span.size);
      });
    }
    features = read_rows(graph.edges[edge_type].features.table(), rows);
  });
  const size_t count = source.size(), width = graph.edges[edge_type].features.table().width();
  return nb::make_tuple(given(std::move(source)), given(std::move(target)), given(std::move(weights)),
                        given(std::move(features), count, width), given(std::move(keys)));
}

// The ends of every edge as `coo` lists them, by the numbers of nodes.
nb::tuple edge_numbers(const Graph& graph, uint32_t edge_type) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  const IdMap& sources = graph.nodes[type.spec.source_type].ids;
  const IdMap& targets = graph.nodes[type.spec.target_type].ids;
  std::vector<int64_t> source, target;
  read(graph, SIZE_MAX, [&] {
    for (uint32_t node = 0; node < type.store->num_sources(); ++node) {
      type.store->scan_out(node, [&](NeighborSpan span) {
        source.insert(source.end(), span.size, sources.id_of(node));
        for (size_t i = 0; i < span.size; ++i) target.push_back(targets.id_of(span.ids[i]));
      });
    }
  });
  return nb::make_tuple(given(std::move(source)), given(std::move(target)));
}

// All edges into some nodes, which are indices, or, in reverse, from them: how many each of them has, and of each edge
// its other end, weight, time, features and key. For the one writer.
nb::tuple edges_of(const Graph& graph, uint32_t edge_type, In<uint32_t> nodes, bool reverse) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  std::vector<int64_t> degrees;
  std::vector<uint32_t> others, rows, keys;
  std::vector<float> weights, features;
  std::vector<double> times;
  auto add = [&](NeighborSpan span) {
    others.insert(others.end(), span.ids, span.ids + span.size);
    for (size_t j = 0; j < span.size; ++j) {
      weights.push_back(span.weights != nullptr ? span.weights[j] : 1.0f);
      times.push_back(span.times != nullptr ? span.times[j] : 0.0);
      keys.push_back(key_at(span, j));
    }
    if (span.rows != nullptr) rows.insert(rows.end(), span.rows, span.rows + span.size);
  };
  read(graph, SIZE_MAX, [&] {
    for (size_t i = 0; i < nodes.shape(0); ++i) {
      const size_t before = others.size();
      if (reverse) {
        type.store->scan_out(nodes.data()[i], add);
      } else {
        type.store->scan_in(nodes.data()[i], add);
      }
      degrees.push_back(static_cast<int64_t>(others.size() - before));
    }
    features = read_rows(type.features.table(), rows);
  });
  const size_t count = others.size(), width = type.features.table().width();
  return nb::make_tuple(given(std::move(degrees)), given(std::move(others)), given(std::move(weights)),
                        given(std::move(times)), given(std::move(features), count, width), given(std::move(keys)));
}

// The times of edges that are there; 0 in a type without. For the one writer: the ends are indices.
nb::object edge_times(const Graph& graph, uint32_t edge_type, In<uint32_t> source, In<uint32_t> target,
                      In<uint32_t> key) {
  const GraphStore& store = *graph.edges[edge_type].store;
  std::vector<double> times;
  read(graph, source.shape(0), [&] {
    for (size_t i = 0; i < source.shape(0); ++i) {
      const auto value = store.find(source.data()[i], target.data()[i], key.data()[i]);
      times.push_back(value ? value->time : 0.0);
    }
  });
  return nb::cast(given(std::move(times)));
}

// The features of edges; and the position of the first edge that is not there, their number if all are. For the one
// writer: the ends are indices.
nb::tuple edge_features(const Graph& graph, uint32_t edge_type, In<uint32_t> source, In<uint32_t> target,
                        std::optional<In<uint32_t>> key) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  std::vector<uint32_t> rows;
  std::vector<float> features;
  read(graph, size_of(type.features.table(), source.shape(0)), [&] {
    for (size_t i = 0; i < source.shape(0); ++i) {
      const uint32_t ends[] = {source.data()[i], target.data()[i]};
      const auto value =
          key ? type.store->find(ends[0], ends[1], key->data()[i]) : type.store->find_any(ends[0], ends[1]);
      if (!value) break;
      rows.push_back(value->row);
    }
    features = read_rows(type.features.table(), rows);
  });
  const size_t found = rows.size();
  return nb::make_tuple(given(std::move(features), found, type.features.table().width()), found);
}

// The same by ids; and what the first pair lacks that is not an edge: its source, its target or the edge itself.
nb::tuple edge_features_of(const Graph& graph, uint32_t edge_type, const GivenIds& sources, const GivenIds& targets,
                           std::optional<In<uint32_t>> keys) {
  enum Lacks { kNothing, kSource, kTarget, kEdge };
  const Graph::EdgeType& type = graph.edges[edge_type];
  const size_t count = count_of(sources);
  std::vector<uint32_t> rows;
  std::vector<float> features;
  Lacks lacks = kNothing;
  read(graph, size_of(type.features.table(), count), [&] {
    for (size_t i = 0; i < count && lacks == kNothing; ++i) {
      const uint32_t source = graph.nodes[type.spec.source_type].ids.index_of(number_of(graph, sources, i));
      const uint32_t target = graph.nodes[type.spec.target_type].ids.index_of(number_of(graph, targets, i));
      lacks = source == kNoIndex ? kSource : target == kNoIndex ? kTarget : kNothing;
      if (lacks != kNothing) break;
      const auto value =
          keys ? type.store->find(source, target, keys->data()[i]) : type.store->find_any(source, target);
      if (value) {
        rows.push_back(value->row);
      } else {
        lacks = kEdge;
      }
    }
    features = read_rows(type.features.table(), rows);
  });
  const size_t found = rows.size();
  return nb::make_tuple(given(std::move(features), found, type.features.table().width()), static_cast<int>(lacks),
                        found);
}

// Between `prepare` and `commit`, by the one writer: as lists of neighbours will be. Nodes are indices.
nb::object degrees_after(const Graph& graph, uint32_t edge_type, In<uint32_t> nodes, bool incoming) {
  const GraphStore& store = *graph.edges[edge_type].store;
  auto degrees = array<int64_t>(nodes.shape(0));
  for (size_t i = 0; i < nodes.shape(0); ++i) {
    const uint32_t node = nodes.data()[i];
    degrees.data()[i] = incoming ? store.degree_in_after(node) : store.degree_out_after(node);
  }
  return nb::cast(degrees);
}

// The other ends of a node's edges, and their weights, times and keys.
nb::tuple edges_after(const Graph& graph, uint32_t edge_type, uint32_t node, bool incoming) {
  const GraphStore& store = *graph.edges[edge_type].store;
  std::vector<uint32_t> others, keys;
  std::vector<float> weights;
  std::vector<double> times;
  auto add = [&](NeighborSpan span) {
    others.insert(others.end(), span.ids, span.ids + span.size);
    for (size_t i = 0; i < span.size; ++i) {
      weights.push_back(span.weights != nullptr ? span.weights[i] : 1.0f);
      times.push_back(span.times != nullptr ? span.times[i] : 0.0);
      keys.push_back(key_at(span, i));
    }
  };
  as_writer([&] { incoming ? store.scan_in_after(node, add) : store.scan_out_after(node, add); });
  return nb::make_tuple(given(std::move(others)), given(std::move(weights)), given(std::move(times)),
                        given(std::move(keys)));
}

std::vector<uint32_t> used_indices(const IdMap& ids) {
  std::vector<uint32_t> used;
  used.reserve(ids.size());
  for (uint32_t i = 0; i < ids.capacity(); ++i) {
    if (ids.in_use(i)) used.push_back(i);
  }
  return used;
}

nb::tuple expired(Graph& graph, uint32_t edge_type, double horizon) {
  const auto edges = as_writer([&] { return graph.expired(edge_type, horizon); });
  auto source = array<uint32_t>(edges.size()), target = array<uint32_t>(edges.size());
  auto key = array<uint32_t>(edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    source.data()[i] = edges[i].source;
    target.data()[i] = edges[i].target;
    key.data()[i] = edges[i].key;
  }
  return nb::make_tuple(source, target, key);
}

template <class Id>
nb::tuple columns_out(typename Samtrees<Id>::Saved&& columns) {
  return nb::make_tuple(given(std::move(columns.shape)), given(std::move(columns.keys)), given(std::move(columns.ids)),
                        given(std::move(columns.weights)), given(std::move(columns.times)),
                        given(std::move(columns.rows)), given(std::move(columns.sums)),
                        given(std::move(columns.orders)));
}

template <class Id>
using ColumnsIn =
    std::tuple<In<uint32_t>, In<Id>, In<Id>, In<float>, In<double>, In<uint32_t>, In<double>, In<uint64_t>>;

template <class Id>
typename Samtrees<Id>::Saved columns_in(const ColumnsIn<Id>& from) {
  const auto& [shape, keys, ids, weights, times, rows, sums, orders] = from;
  return {vector_of(shape), vector_of(keys), vector_of(ids),  vector_of(weights),
          vector_of(times), vector_of(rows), vector_of(sums), vector_of(orders)};
}

template <class Id>
void load_edges(Graph& graph, uint32_t type, const ColumnsIn<Id>& out, const ColumnsIn<Id>& in, size_t num_edges) {
  graph.load_edges(type, columns_in<Id>(out), columns_in<Id>(in), num_edges);
}

}  // namespace

void bind_graph(nb::module_& module) {
  static nb::object event_error = nb::steal(PyErr_NewException("livegnn._core.EventError", PyExc_ValueError, nullptr));
  module.attr("EventError") = event_error;
  static nb::object thread_error = nb::steal(PyErr_NewException("livegnn._core.ThreadError", PyExc_OSError, nullptr));
  module.attr("ThreadError") = thread_error;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const EventError& error) {
      nb::tuple args = nb::make_tuple(static_cast<int>(error.kind), error.what(), error.id, error.type, error.target);
      PyErr_SetObject(event_error.ptr(), args.ptr());
    } catch (const ThreadError& error) {
      nb::object args = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(thread_error.ptr(), args.ptr());
    } catch (const std::system_error& error) {
      nb::object args = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, args.ptr());
    }
  });

  nb::class_<TextIds>(module, "TextIds")
      .def(nb::init<>())
      .def("intern",
           [](TextIds& self, InRows<uint32_t> texts) {
             auto out = array<int64_t>(texts.shape(0));
             const uint32_t* from = texts.data();
             const size_t width = texts.shape(1);
             run(texts.shape(0) > TextIds::kAtOnce, [&] {
               self.intern(texts.shape(0), [&](size_t i) { return utf8(from + i * width, width); }, out.data());
             });
             return out;
           })
      .def("find",
           [](const TextIds& self, InRows<uint32_t> texts) {
             auto out = array<int64_t>(texts.shape(0));
             const uint32_t* from = texts.data();
             const size_t width = texts.shape(1);
             run(texts.shape(0) > TextIds::kAtOnce, [&] {
               self.find(texts.shape(0), [&](size_t i) { return utf8(from + i * width, width); }, out.data());
             });
             return out;
           })
      .def("texts",
           [](const TextIds& self, In<int64_t> numbers) {
             std::vector<std::string> out(numbers.shape(0));
             self.read(numbers.data(), numbers.shape(0), [&](size_t i, const std::string* text) {
               if (text == nullptr)
                 throw std::out_of_range("no text has the number " + std::to_string(numbers.data()[i]));
               out[i] = *text;
             });
             return out;
           })
      // As UTF-8, one after the other, and how long each is.
      .def("encode",
           [](const TextIds& self, In<int64_t> numbers) {
             std::vector<uint8_t> bytes;
             std::vector<int64_t> lengths;
             as_writer([&] {
               self.read(numbers.data(), numbers.shape(0), [&](size_t i, const std::string* text) {
                 if (text == nullptr)
                   throw std::out_of_range("no text has the number " + std::to_string(numbers.data()[i]));
                 bytes.insert(bytes.end(), text->begin(), text->end());
                 lengths.push_back(static_cast<int64_t>(text->size()));
               });
             });
             return nb::make_tuple(given(std::move(bytes)), given(std::move(lengths)));
           })
      .def("collect", [](TextIds& self) { run(true, [&] { self.collect(); }); })
      .def("__len__", &TextIds::size)
      .def("bytes", &TextIds::bytes);

  nb::class_<TextPin>(module, "TextPin")
      .def(nb::init<std::shared_ptr<TextIds>>(), nb::arg().none())
      .def("close", &TextPin::close)
      .def("let_go", &TextPin::let_go)
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](TextPin& self, nb::args) { self.let_go(); });

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
      });

  // Others go on while a batch is read: the arrays are the caller's, who holds the graph's writer lock in Python.
  nb::class_<Stage>(module, "Stage")
      .def(nb::init<const Graph&, bool>(), nb::keep_alive<1, 2>())
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
      .def("set_features",
           [](Stage& self, uint32_t type, In<int64_t> ids, InRows<float> x) {
             as_writer(ids.shape(0), [&] { self.set_features(type, ids.data(), x.data(), x.shape(1), ids.shape(0)); });
           })
      .def(
          "add_nodes",
          [](Stage& self, uint32_t type, In<int64_t> ids, std::optional<InRows<float>> x) {
            as_writer(ids.shape(0), [&] {
              self.add_nodes(type, ids.data(), x ? x->data() : nullptr, x ? x->shape(1) : 0, ids.shape(0));
            });
          },
          nb::arg(), nb::arg(), nb::arg().none())
      .def("remove_nodes",
           [](Stage& self, uint32_t type, In<int64_t> ids) {
             as_writer([&] { self.remove_nodes(type, ids.data(), ids.shape(0)); });
           })
      .def("finish", [](Stage& self) { return as_writer(self.num_events(), [&] { return self.finish(); }); });

  nb::class_<Graph>(module, "Graph")
      .def("__init__",
           [](Graph* self, const std::vector<size_t>& widths, const std::vector<EdgeTypeTuple>& edge_types,
              size_t threads, const std::string& features_directory) {
             std::vector<EdgeTypeSpec> specs;
             for (const auto& [source, target, weighted, timed, undirected, accumulate, in_lists, capacity, slack,
                               width, expires, keyed] : edge_types) {
               specs.push_back(
                   {source,
                    target,
                    {{weighted, timed, width > 0}, undirected, accumulate, in_lists, {capacity, slack}, keyed},
                    width,
                    expires});
             }
             new (self) Graph(widths, specs, threads, features_directory);
           })
      .def("use_texts", [](Graph& self, std::shared_ptr<TextIds> texts) { self.texts = std::move(texts); })
      .def("prepare",
           [](Graph& self, const Delta& delta) {
             as_writer([&] {
               self.abandon();  // a batch that was left between `prepare` and `commit`
               self.prepare(delta);
             });
           })
      .def("abandon", [](Graph& self) { as_writer([&] { self.abandon(); }); })
      .def("commit", [](Graph& self, const Delta& delta,
                        const std::vector<View*>& views) { as_writer([&] { commit(&self, delta, views); }); })
      .def("num_nodes",
           [](const Graph& self, uint32_t type) { return read(self, 1, [&] { return self.nodes[type].ids.size(); }); })
      .def("capacity", [](const Graph& self,
                          uint32_t type) { return read(self, 1, [&] { return self.nodes[type].ids.capacity(); }); })
      .def("num_edges",
           [](const Graph& self, uint32_t type) {
             return read(self, 1, [&] { return self.edges[type].store->num_edges(); });
           })
      .def("indices",
           [](const Graph& self, uint32_t type) {
             return given(read(
                 self, [&] { return self.nodes[type].ids.capacity(); },
                 [&] { return used_indices(self.nodes[type].ids); }));
           })
      .def("ids",
           [](const Graph& self, uint32_t type) {
             const IdMap& ids = self.nodes[type].ids;
             return read(
                        self, [&] { return ids.capacity(); },
                        [&] {
                          const std::vector<uint32_t> used = used_indices(ids);
                          return Names::of(self, used.size(), [&](size_t i) { return ids.id_of(used[i]); });
                        })
                 .given(self);
           })
      .def("numbers",
           [](const Graph& self, uint32_t type) {
             const IdMap& ids = self.nodes[type].ids;
             return given(read(
                 self, [&] { return ids.capacity(); },
                 [&] {
                   std::vector<int64_t> numbers;
                   for (uint32_t index : used_indices(ids)) numbers.push_back(ids.id_of(index));
                   return numbers;
                 }));
           })
      .def("ids_of",
           [](const Graph& self, uint32_t type, In<uint32_t> indices) {
             auto out = array<int64_t>(indices.shape(0));
             read(self, indices.shape(0), [&] {
               const IdMap& ids = self.nodes[type].ids;
               for (size_t i = 0; i < indices.shape(0); ++i) {
                 const uint32_t index = indices.data()[i];
                 out.data()[i] = index < ids.capacity() ? ids.id_of(index) : kNoId;
               }
             });
             return out;
           })
      .def("indices_of",
           [](const Graph& self, uint32_t type, const GivenIds& ids) {
             auto out = array<uint32_t>(count_of(ids));
             read(self, count_of(ids), [&] {
               for (size_t i = 0; i < count_of(ids); ++i) {
                 out.data()[i] = self.nodes[type].ids.index_of(number_of(self, ids, i));
               }
             });
             return out;
           })
      .def("features",
           [](const Graph& self, uint32_t type, In<uint32_t> indices) {
             const Table& table = self.nodes[type].features;
             auto out = rows<float>(indices.shape(0), table.width());
             read(self, size_of(table, indices.shape(0)),
                  [&] { read_rows(table, indices.data(), indices.shape(0), out.data()); });
             return out;
           })
      .def("features_of",
           [](const Graph& self, uint32_t type, const GivenIds& ids) -> nb::object {
             const Table& table = self.nodes[type].features;
             const size_t count = count_of(ids);
             auto out = rows<float>(count, table.width());
             const size_t known = read(self, size_of(table, count), [&] {
               const auto [indices, known] = indices_of(self, type, ids);
               if (known == count) read_rows(table, indices.data(), count, out.data());
               return known;
             });
             return known == count ? nb::cast(out) : nb::cast(known);
           })
      .def("neighbors", &neighbors)
      .def("degrees",
           [](const Graph& self, uint32_t type, In<uint32_t> indices, bool incoming) {
             const GraphStore& store = *self.edges[type].store;
             auto out = array<int64_t>(indices.shape(0));
             read(self, indices.shape(0), [&] {
               for (size_t i = 0; i < indices.shape(0); ++i) {
                 const uint32_t node = indices.data()[i];
                 out.data()[i] = incoming ? store.degree_in(node) : store.degree_out(node);
               }
             });
             return out;
           })
      .def("degrees_of",
           [](const Graph& self, uint32_t type, const GivenIds& ids, bool incoming) -> nb::object {
             const Graph::EdgeType& edges = self.edges[type];
             const size_t count = count_of(ids);
             auto out = array<int64_t>(count);
             const size_t known = read(self, count, [&] {
               const auto [indices, known] =
                   indices_of(self, incoming ? edges.spec.target_type : edges.spec.source_type, ids);
               for (size_t i = 0; i < known; ++i) {
                 out.data()[i] = incoming ? edges.store->degree_in(indices[i]) : edges.store->degree_out(indices[i]);
               }
               return known;
             });
             return known == count ? nb::cast(out) : nb::cast(known);
           })
      .def("edges_of", &edges_of)
      .def("degrees_after", &degrees_after)
      .def("edges_after", &edges_after)
      .def("edge_times", &edge_times)
      .def("edge_features", &edge_features, nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("edge_features_of", &edge_features_of, nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("coo", &coo)
      .def("edge_numbers", &edge_numbers)
      .def("expired", &expired)
      .def_prop_rw(
          "latest_time", [](const Graph& self) { return read(self, 1, [&] { return self.latest_time; }); },
          [](Graph& self, double time) { alone(self, [&] { self.latest_time = time; }, [] {}); })
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
             return nb::make_tuple(types, stores, self.updates_bytes(), self.sampling_bytes.load());
           })
      .def("save_nodes",
           [](const Graph& self, uint32_t type) {
             const auto& nodes = self.nodes[type];
             auto [ids, free] = as_writer([&] { return std::make_pair(nodes.ids.ids(), nodes.ids.free_list()); });
             return nb::make_tuple(given(std::move(ids)), given(std::move(free)), read_all_rows(nodes.features));
           })
      .def("load_nodes",
           [](Graph& self, uint32_t type, In<int64_t> ids, In<uint32_t> free, InRows<float> x) {
             auto& nodes = self.nodes[type];
             if (x.shape(0) != ids.shape(0) || x.shape(1) != nodes.features.width()) {
               throw std::runtime_error("features that do not fit their nodes");
             }
             nodes.ids.restore(vector_of(ids), vector_of(free));
             if (self.texts) self.texts->retain(nodes.ids.ids());
             nodes.features.resize(x.shape(0));
             for (size_t i = 0; i < x.shape(0); ++i) nodes.features.write(i, x.data() + i * x.shape(1));
           })
      .def("save_edges",
           [](const Graph& self, uint32_t type) {
             const GraphStore& store = *self.edges[type].store;
             if (store.options().keyed) {
               auto [out, in] =
                   as_writer([&] { return std::make_pair(store.save_keyed_out(), store.save_keyed_in()); });
               return nb::make_tuple(columns_out<uint64_t>(std::move(out)), columns_out<uint64_t>(std::move(in)));
             }
             auto [out, in] = as_writer([&] { return std::make_pair(store.save_out(), store.save_in()); });
             return nb::make_tuple(columns_out<uint32_t>(std::move(out)), columns_out<uint32_t>(std::move(in)));
           })
      .def("load_edges", &load_edges<uint32_t>)
      .def("load_keyed_edges", &load_edges<uint64_t>)
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
