#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
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

// The ids of a node's neighbours, and the values of the edges to them; None if there is no such node.
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

// Every edge in the direction of its messages; an undirected edge in both directions.
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

// The ends of every edge in the order of `coo`, as internal numbers of nodes.
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

// All edges into some nodes, given by index, or, in reverse, from them: the number of edges of each node, and for each
// edge its other end, weight, time, features and key. Only the one writer may call it.
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

// The edges from the first of some nodes: of as many nodes as have `most` edges together, of one at least. The number
// of edges of each, 0 of a node that does not exist; and of each edge, the target's id and the key.
nb::tuple edges_from(const Graph& graph, uint32_t edge_type, const GivenIds& ids, size_t most) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  const IdMap& sources = graph.nodes[type.spec.source_type].ids;
  const IdMap& targets = graph.nodes[type.spec.target_type].ids;
  const size_t count = count_of(ids);
  std::vector<int64_t> degrees;
  std::vector<uint32_t> keys;
  Names names;
  read(graph, SIZE_MAX, [&] {
    for (size_t i = 0; i < count; ++i) {
      const uint32_t node = sources.index_of(number_of(graph, ids, i));
      const size_t degree = node == kNoIndex ? 0 : type.store->degree_out(node);
      if (i > 0 && keys.size() + degree > most) break;
      degrees.push_back(static_cast<int64_t>(degree));
      if (degree == 0) continue;
      type.store->scan_out(node, [&](NeighborSpan span) {
        for (size_t j = 0; j < span.size; ++j) {
          names.numbers.push_back(targets.id_of(span.ids[j]));
          keys.push_back(key_at(span, j));
        }
      });
    }
    names.find_texts(graph);
  });
  return nb::make_tuple(given(std::move(degrees)), std::move(names).given(graph), given(std::move(keys)));
}

// The times of existing edges; 0 in a type without times. Only the one writer may call it, because the ends are
// indices.
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

// The features and weights of edges, 1 each in a type without weights; and the position of the first edge that does not
// exist, their number if all exist. Only the one writer may call it, because the ends are indices.
nb::tuple edge_columns(const Graph& graph, uint32_t edge_type, In<uint32_t> source, In<uint32_t> target,
                       std::optional<In<uint32_t>> key) {
  const Graph::EdgeType& type = graph.edges[edge_type];
  std::vector<uint32_t> rows;
  std::vector<float> features, weights;
  read(graph, size_of(type.features.table(), source.shape(0)), [&] {
    for (size_t i = 0; i < source.shape(0); ++i) {
      const uint32_t ends[] = {source.data()[i], target.data()[i]};
      const auto value =
          key ? type.store->find(ends[0], ends[1], key->data()[i]) : type.store->find_any(ends[0], ends[1]);
      if (!value) break;
      rows.push_back(value->row);
      weights.push_back(value->weight);
    }
    features = read_rows(type.features.table(), rows);
  });
  const size_t found = rows.size();
  return nb::make_tuple(given(std::move(features), found, type.features.table().width()), given(std::move(weights)),
                        found);
}

// The features alone, by ids; and, for the first pair that is not an edge, what is missing: its source, its target or
// the edge itself.
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

// Degrees after the batch; only the one writer may call it, between `prepare` and `commit`. Nodes are indices.
nb::object degrees_after(const Graph& graph, uint32_t edge_type, In<uint32_t> nodes, bool incoming) {
  const GraphStore& store = *graph.edges[edge_type].store;
  auto degrees = array<int64_t>(nodes.shape(0));
  for (size_t i = 0; i < nodes.shape(0); ++i) {
    const uint32_t node = nodes.data()[i];
    degrees.data()[i] = incoming ? store.degree_in_after(node) : store.degree_out_after(node);
  }
  return nb::cast(degrees);
}

// The other ends of a node's edges after the batch, and their weights, times and keys.
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

nb::object degrees(const Graph& graph, uint32_t type, In<uint32_t> indices, bool incoming) {
  const GraphStore& store = *graph.edges[type].store;
  auto out = array<int64_t>(indices.shape(0));
  read(graph, indices.shape(0), [&] {
    for (size_t i = 0; i < indices.shape(0); ++i) {
      const uint32_t node = indices.data()[i];
      out.data()[i] = incoming ? store.degree_in(node) : store.degree_out(node);
    }
  });
  return nb::cast(out);
}

nb::object degrees_of(const Graph& graph, uint32_t type, const GivenIds& ids, bool incoming) {
  const Graph::EdgeType& edges = graph.edges[type];
  const size_t count = count_of(ids);
  auto out = array<int64_t>(count);
  const size_t known = read(graph, count, [&] {
    const auto [indices, known] = indices_of(graph, incoming ? edges.spec.target_type : edges.spec.source_type, ids);
    for (size_t i = 0; i < known; ++i) {
      out.data()[i] = incoming ? edges.store->degree_in(indices[i]) : edges.store->degree_out(indices[i]);
    }
    return known;
  });
  return known == count ? nb::cast(out) : nb::cast(known);
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

}  // namespace

void bind_edges(nb::class_<Graph>& graph) {
  graph
      .def("num_edges",
           [](const Graph& self, uint32_t type) {
             return read(self, 1, [&] { return self.edges[type].store->num_edges(); });
           })
      .def("neighbors", &neighbors)
      .def("degrees", &degrees)
      .def("degrees_of", &degrees_of)
      .def("edges_of", &edges_of)
      .def("edges_from", &edges_from)
      .def("degrees_after", &degrees_after)
      .def("edges_after", &edges_after)
      .def("edge_times", &edge_times)
      .def("edge_columns", &edge_columns, nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("edge_features_of", &edge_features_of, nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def("coo", &coo)
      .def("edge_numbers", &edge_numbers)
      .def("expired", &expired);
}

}  // namespace livegnn::bindings
