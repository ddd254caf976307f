#include "inference/evaluation/edge_scores.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/prediction_work.h"
#include "bindings/table_rows.h"
#include "inference/engine.h"
#include "store/indices_after.h"

namespace livegnn::bindings {
namespace {

using Keys = std::optional<In<uint32_t>>;
using GivenWeights = std::optional<In<float>>;
using GivenFeatures = std::optional<InRows<float>>;

// What is missing for a score: a node at an end, or the edge.
enum Missing { kNone, kNoSource, kNoTarget, kNoEdge };

// The nodes of some pairs, up to the first pair that lacks something.
struct FoundPairs {
  std::vector<uint32_t> sources, targets;
  Missing missing = kNone;
};

// Call it inside a read, or as the one writer. `at_source` and `at_target` know the indices of ids.
template <class Indices>
FoundPairs find_pairs(const Graph& graph, const GivenIds& sources, const GivenIds& targets, const Indices& at_source,
                      const Indices& at_target) {
  FoundPairs found;
  const size_t count = count_of(sources);
  found.sources.reserve(count);
  found.targets.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t source = at_source.index_of(number_of(graph, sources, i));
    const uint32_t target = at_target.index_of(number_of(graph, targets, i));
    found.missing = source == kNoIndex ? kNoSource : target == kNoIndex ? kNoTarget : kNone;
    if (found.missing != kNone) break;
    found.sources.push_back(source);
    found.targets.push_back(target);
  }
  return found;
}

// The columns of some edges of the graph.
struct FoundColumns {
  std::vector<float> features, weights;  // without weights, each is 1
};

// Call it inside a read. Ends at the first pair that is no edge.
FoundColumns read_columns(const Graph& graph, const EdgeOutput& output, const Keys& keys, FoundPairs* pairs) {
  const Graph::EdgeType& type = graph.edges[output.edge_type];
  FoundColumns columns;
  std::vector<uint32_t> rows;
  for (size_t i = 0; i < pairs->sources.size(); ++i) {
    const uint32_t source = pairs->sources[i], target = pairs->targets[i];
    const auto value = keys ? type.store->find(source, target, keys->data()[i]) : type.store->find_any(source, target);
    if (!value) {
      pairs->sources.resize(i);
      pairs->missing = kNoEdge;
      return columns;
    }
    columns.weights.push_back(value->weight);
    rows.push_back(value->row);
  }
  if (pairs->missing == kNone && reads(output, MessageSource::kFeatures)) {
    columns.features = read_rows(type.features.table(), rows);
  }
  return columns;
}

size_t scoring_work(const Engine& engine, const EdgeOutput& output, size_t count) {
  size_t work = count;
  for (const auto& [side, value] : output.sources) {
    if (side == MessageSource::kSource || side == MessageSource::kTarget) {
      work = std::max(work, prediction_work(engine, count, value));
    }
  }
  return work;
}

void score_present(const Engine& engine, size_t edge_output, const ScoredPairs& pairs, float* out) {
  score_pairs(
      engine.program(), edge_output, pairs,
      [&](std::span<const uint32_t> nodes, size_t output, float* rows) { engine.predict(nodes, rows, output); }, out);
}

// Python has checked the lengths and widths of all arrays.
ScoredPairs pairs_of(const In<uint32_t>& sources, const In<uint32_t>& targets, const GivenFeatures& features,
                     const GivenWeights& weights) {
  return {{sources.data(), sources.shape(0)}, {targets.data(), targets.shape(0)}, data_of(features), data_of(weights)};
}

// Computes the rows of an edge output at one state of the graph. `score(pairs, out)` runs under the lock. Returns the
// rows; or what the first pair without a row lacks, and its position; None of an engine that the graph goes on without.
// at_once: None instead of what is missing, too, and if it would have to wait or may take long.
template <class Score>
nb::object score_together(const Engine& engine, size_t edge_output, const GivenIds& sources, const GivenIds& targets,
                          size_t least_work, bool at_once, const Score& score) {
  const EdgeOutput& output = engine.program().edge_outputs.at(edge_output);
  const size_t count = count_of(sources);
  auto out = rows<float>(count, edge_output_width(engine.program(), edge_output));
  bool retired = true;
  FoundPairs pairs;
  const auto work = [&] { return std::max(least_work, scoring_work(engine, output, count)); };
  const auto compute = [&] {
    retired = engine.retired();
    if (retired) return false;
    const auto& nodes = engine.graph().nodes;
    pairs = find_pairs(engine.graph(), sources, targets, nodes[output.source_type].ids, nodes[output.target_type].ids);
    score(output, &pairs, out.data());
    return pairs.missing == kNone;
  };
  const bool done = at_once ? try_read(engine.graph(), [&] { return work() <= kQuick && compute(); })
                            : read(engine.graph(), work, compute);
  if (done) return nb::cast(out);
  if (at_once || retired) return nb::none();
  return nb::make_tuple(static_cast<int>(pairs.missing), pairs.sources.size());
}

// With the given columns of edges that need not exist.
nb::object score(const Engine& engine, size_t edge_output, const GivenIds& sources, const GivenIds& targets,
                 const GivenFeatures& features, const GivenWeights& weights, bool at_once) {
  return score_together(
      engine, edge_output, sources, targets, 0, at_once, [&](const EdgeOutput&, FoundPairs* pairs, float* out) {
        if (pairs->missing != kNone) return;
        score_present(engine, edge_output, {pairs->sources, pairs->targets, data_of(features), data_of(weights)}, out);
      });
}

// With the columns of edges of the graph; of parallel ones those with the greatest key if there are no keys.
nb::object predict_edges(const Engine& engine, size_t edge_output, const GivenIds& sources, const GivenIds& targets,
                         const Keys& keys, bool at_once) {
  const EdgeOutput& output = engine.program().edge_outputs.at(edge_output);
  const Table& table = engine.graph().edges[output.edge_type].features.table();
  const size_t work = reads(output, MessageSource::kFeatures) ? size_of(table, 0) : 0;
  const auto score = [&](const EdgeOutput& output, FoundPairs* pairs, float* out) {
    const FoundColumns columns = read_columns(engine.graph(), output, keys, pairs);
    if (pairs->missing != kNone) return;
    score_present(engine, edge_output,
                  {pairs->sources, pairs->targets, columns.features.data(), columns.weights.data()}, out);
  };
  return score_together(engine, edge_output, sources, targets, work, at_once, score);
}

// The indices that nodes of a type have. Call it inside a read.
std::vector<uint32_t> present(const Graph& graph, uint32_t type, const In<uint32_t>& indices) {
  const IdMap& ids = graph.nodes[type].ids;
  std::vector<uint32_t> found;
  found.reserve(indices.shape(0));
  for (size_t i = 0; i < indices.shape(0); ++i) {
    const uint32_t index = indices.data()[i];
    if (index < ids.capacity() && ids.in_use(index)) found.push_back(index);
  }
  return found;
}

// Marks the targets to which an edge of the output's type leads from the source.
std::vector<uint8_t> linked(const Graph& graph, const EdgeOutput& output, uint32_t source,
                            const std::vector<uint32_t>& targets) {
  std::vector<uint8_t> marks(targets.size(), 0);
  if (output.edge_type == kNoIndex) return marks;
  const auto& store = *graph.edges[output.edge_type].store;
  if (store.degree_out(source) > targets.size()) {
    for (size_t i = 0; i < targets.size(); ++i) marks[i] = store.find_any(source, targets[i]).has_value() ? 1 : 0;
    return marks;
  }
  std::vector<uint32_t> neighbors;
  store.scan_out(source, [&](NeighborSpan span) { neighbors.insert(neighbors.end(), span.ids, span.ids + span.size); });
  std::sort(neighbors.begin(), neighbors.end());
  for (size_t i = 0; i < targets.size(); ++i) {
    marks[i] = std::binary_search(neighbors.begin(), neighbors.end(), targets[i]) ? 1 : 0;
  }
  return marks;
}

// The nodes that have the given indices as targets of one source, at one state of the graph: their indices and numbers,
// scores, marks of those to which an edge leads already, and features if they are wanted. The number of commits that
// the state reflects is that of the view. None if the source does not exist.
nb::object score_targets(const Engine& engine, size_t edge_output, int64_t source, In<uint32_t> indices,
                         const GivenFeatures& features, std::optional<float> weight, bool links, bool attributes) {
  const Graph& graph = engine.graph();
  const EdgeOutput& output = engine.program().edge_outputs.at(edge_output);
  const size_t width = edge_output_width(engine.program(), edge_output);
  const NodeFeatures& table = graph.nodes[output.target_type].features;
  std::vector<uint32_t> targets;
  std::vector<int64_t> numbers;
  std::vector<float> scores, x;
  std::vector<uint8_t> marks;
  size_t columns = 0;
  const auto work = [&] { return scoring_work(engine, output, indices.shape(0)); };
  const bool known = read(graph, work, [&] {
    const uint32_t node = engine.retired() ? kNoIndex : graph.nodes[output.source_type].ids.index_of(source);
    if (node == kNoIndex) return false;
    targets = present(graph, output.target_type, indices);
    numbers.reserve(targets.size());
    for (uint32_t target : targets) numbers.push_back(graph.nodes[output.target_type].ids.id_of(target));
    const std::vector<uint32_t> sources(targets.size(), node);
    const std::vector<float> weights(weight ? targets.size() : 0, weight.value_or(1.0f));
    std::vector<float> rows;
    for (size_t i = 0; features && i < targets.size(); ++i) {
      rows.insert(rows.end(), features->data(), features->data() + features->shape(1));
    }
    scores.resize(targets.size() * width);
    score_present(engine, edge_output, {sources, targets, rows.data(), weight ? weights.data() : nullptr},
                  scores.data());
    if (links) marks = linked(graph, output, node, targets);
    if (attributes) {
      columns = table.width();
      x = read_rows(table, targets);
    }
    return true;
  });
  if (!known) return nb::none();
  const size_t count = targets.size();
  return nb::make_tuple(given(std::move(targets)), given(std::move(numbers)), given(std::move(scores), count, width),
                        given(std::move(marks)), given(std::move(x), attributes ? count : 0, columns));
}

// The rows of an edge output that reads its targets alone, of the nodes that have the given indices, and these indices.
nb::object target_rows(const Engine& engine, size_t edge_output, In<uint32_t> indices) {
  const Graph& graph = engine.graph();
  const EdgeOutput& output = engine.program().edge_outputs.at(edge_output);
  const size_t width = edge_output_width(engine.program(), edge_output);
  std::vector<uint32_t> targets;
  std::vector<float> rows;
  const auto work = [&] { return scoring_work(engine, output, indices.shape(0)); };
  read(graph, work, [&] {
    if (engine.retired()) return;
    targets = present(graph, output.target_type, indices);
    rows.resize(targets.size() * width);
    score_present(engine, edge_output, {targets, targets}, rows.data());
  });
  const size_t count = targets.size();
  return nb::make_tuple(given(std::move(targets)), given(std::move(rows), count, width));
}

// As `score`, at the state after a batch that was prepared. Only the one writer may call it.
nb::object score_prepared(const Engine& engine, const Prepared& prepared, const Delta& delta, size_t edge_output,
                          const GivenIds& sources, const GivenIds& targets, const GivenFeatures& features,
                          const GivenWeights& weights) {
  const EdgeOutput& output = engine.program().edge_outputs.at(edge_output);
  const size_t count = count_of(sources);
  auto out = rows<float>(count, edge_output_width(engine.program(), edge_output));
  FoundPairs pairs;
  as_writer([&] {
    const IndicesAfter at_source(engine.graph(), delta, output.source_type);
    const IndicesAfter at_target(engine.graph(), delta, output.target_type);
    pairs = find_pairs(engine.graph(), sources, targets, at_source, at_target);
    if (pairs.missing != kNone) return;
    const auto read = [&](std::span<const uint32_t> nodes, size_t value, float* rows) {
      engine.predict_prepared(prepared, nodes, rows, value);
    };
    const ScoredPairs scored{pairs.sources, pairs.targets, data_of(features), data_of(weights)};
    score_pairs(engine.program(), edge_output, scored, read, out.data());
  });
  if (pairs.missing == kNone) return nb::cast(out);
  return nb::make_tuple(static_cast<int>(pairs.missing), pairs.sources.size());
}

using GivenOutput = std::pair<size_t, InRows<float>>;

// From rows of the outputs that are read at either end, each with its position: `sources` and `targets` are places
// among the rows of each output that is read there. Python has checked all numbers.
OutRows<float> score_rows(const Program& program, size_t edge_output, const In<uint32_t>& sources,
                          const In<uint32_t>& targets, const std::vector<GivenOutput>& outputs,
                          const GivenFeatures& features, const GivenWeights& weights) {
  auto out = rows<float>(sources.shape(0), edge_output_width(program, edge_output));
  const ReadOutput read = [&](std::span<const uint32_t> places, size_t output, float* to) {
    const auto given =
        std::find_if(outputs.begin(), outputs.end(), [&](const auto& one) { return one.first == output; });
    const size_t width = given->second.shape(1);
    for (uint32_t place : places) to = std::copy_n(given->second.data() + place * width, width, to);
  };
  const ScoredPairs pairs = pairs_of(sources, targets, features, weights);
  const auto run = [&] { score_pairs(program, edge_output, pairs, read, out.data()); };
  if (pairs.sources.size() <= kQuick) {
    run();
  } else {
    WithoutGil release;
    run();
  }
  return out;
}

}  // namespace

void bind_edge_decoding(nb::class_<Program>& program) {
  program.def("score_rows", &score_rows, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
              nb::arg().none());
}

void bind_edge_scores(nb::class_<Engine>& engine) {
  engine.def("score", &score, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg())
      .def("predict_edges", &predict_edges, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
      .def("score_targets", &score_targets, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(),
           nb::arg(), nb::arg())
      .def("target_rows", &target_rows)
      // The next two take indices of nodes, so only the one writer may call them.
      .def(
          "score_indices",
          [](const Engine& self, size_t edge_output, In<uint32_t> sources, In<uint32_t> targets,
             const GivenFeatures& features, const GivenWeights& weights) {
            auto out = rows<float>(sources.shape(0), edge_output_width(self.program(), edge_output));
            as_writer(
                [&] { score_present(self, edge_output, pairs_of(sources, targets, features, weights), out.data()); });
            return out;
          },
          nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("score_prepared", &score_prepared, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg().none());
}

}  // namespace livegnn::bindings
