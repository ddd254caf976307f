// Helpers for the tests of divided graphs: events that several graphs take, engines of all parts of a graph, and the
// comparison of what they keep with what the engine of the undivided graph keeps.
#pragma once

#include <exception>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "inference/engine_model.h"
#include "inference/halo/local_exchange.h"
#include "store/graph_share.h"

namespace livegnn::testing {

// A batch as a list of what each event does to a stage.
using StagedEvents = std::vector<std::function<void(Stage*)>>;

// `owners`: of the nodes that they add, if the rule of the parts does not say it.
inline Delta stage_all(const Graph& graph, const StagedEvents& events, const std::vector<uint16_t>& owners = {}) {
  if (!owners.empty()) graph.part->give(0, owners);
  Stage stage(graph);
  for (const auto& event : events) event(&stage);
  return stage.finish();
}

// Random batches on nodes with few ids, so that edges and nodes are added, changed and removed again and again. Knows
// its nodes, so every event is valid; an edge may be added twice or removed where there is none.
class SharedStream {
 public:
  struct Kind {
    float magnitude = 1, least = -1;  // of features; the smallest weight
    size_t edge_features = 0;
    bool keyed = false;
  };
  explicit SharedStream(size_t number) : SharedStream(number, Kind()) {}
  SharedStream(size_t number, const Kind& kind) : kind_(kind) {
    for (size_t i = 0; i < number; ++i) random_.below(2);
  }

  StagedEvents next(size_t events) {
    StagedEvents batch;
    before_ = ids_;
    for (size_t i = 0; i < events; ++i) {
      const uint64_t kind = random_.below(100);
      if (kind < 12 || ids_.size() < 4) {
        add_node(&batch);
      } else if (kind < 60) {
        add_edge(&batch);
      } else if (kind < 78) {
        const auto [source, target] = ends();
        const std::optional<uint32_t> key = some_key();
        batch.push_back([=](Stage* stage) { stage->remove_edges(0, &source, &target, 1, key ? &*key : nullptr); });
      } else if (kind < 95) {
        const int64_t id = ids_[random_.below(ids_.size())];
        Floats x = features();
        batch.push_back([=](Stage* stage) { stage->set_features(0, &id, x.data(), kFeatures, 1); });
      } else {
        const auto at = ids_.begin() + static_cast<std::ptrdiff_t>(random_.below(ids_.size()));
        const int64_t id = *at;
        ids_.erase(at);
        batch.push_back([=](Stage* stage) { stage->remove_nodes(0, &id, 1); });
      }
    }
    return batch;
  }
  // The last batch was refused.
  void undo() { ids_ = before_; }

 private:
  Floats features(size_t width = kFeatures) {
    Floats x = random_.floats(width);
    const float scale = random_.chance(0.1) ? kind_.magnitude * 1000 : kind_.magnitude;
    for (float& value : x) value *= scale;
    return x;
  }
  void add_node(StagedEvents* batch) {
    const int64_t id = random_.chance(0.2) && next_id_ > 0
                           ? static_cast<int64_t>(random_.below(static_cast<uint64_t>(next_id_)))
                           : next_id_++;
    if (std::find(ids_.begin(), ids_.end(), id) == ids_.end()) ids_.push_back(id);
    const bool has_features = random_.chance(0.9);
    Floats x = features();
    batch->push_back([=](Stage* stage) { stage->add_nodes(0, &id, has_features ? x.data() : nullptr, kFeatures, 1); });
  }
  void add_edge(StagedEvents* batch) {
    const auto [source, target] = ends();
    const float weight = random_.between(kind_.least, 2);
    const double time = ++now_;
    const size_t width = kind_.edge_features;
    const bool has_features = width > 0 && random_.chance(0.8);
    const Floats x = features(width);
    const std::optional<uint32_t> key = some_key();
    batch->push_back([=](Stage* stage) {
      stage->add_edges(0, &source, &target, &weight, &time, has_features ? x.data() : nullptr, width, 1,
                       key ? &*key : nullptr);
    });
  }
  // Without one, an edge gets the next, and the last one is removed.
  std::optional<uint32_t> some_key() {
    if (!kind_.keyed || random_.chance(0.5)) return std::nullopt;
    return static_cast<uint32_t>(random_.below(3));
  }
  // Some nodes are hubs, and some edges are loops.
  std::pair<int64_t, int64_t> ends() {
    const int64_t source = ids_[random_.below(ids_.size())];
    const int64_t target = ids_[random_.below(random_.chance(0.3) ? std::min<size_t>(3, ids_.size()) : ids_.size())];
    return random_.chance(0.3) ? std::pair(target, source) : std::pair(source, target);
  }

  Random random_;
  const Kind kind_;
  std::vector<int64_t> ids_, before_;
  int64_t next_id_ = 0;
  double now_ = 0;
};

// A graph in parts, each with its engine, prepared by a thread for each part.
class DividedGraph {
 public:
  struct Part {
    Part(const EdgeTypeSpec& spec, Program program, const Owners& owners, uint32_t self, const Graph* whole = nullptr)
        : graph({kFeatures}, {spec}), engine(graph_of(owners, self, whole), std::move(program), 1) {
      engine.set_guard(true);
    }
    Graph& graph_of(const Owners& owners, uint32_t self, const Graph* whole) {
      graph.divide(std::make_unique<GraphPart>(owners, self, 1));
      if (whole != nullptr) take_share(*whole, &graph);
      return graph;
    }

    Graph graph;
    Engine engine;
    Preparation prepared;
    Delta delta;
  };

  template <class MakeProgram>
  DividedGraph(const EdgeTypeSpec& spec, const MakeProgram& make, const Owners& owners) : exchange(owners.workers()) {
    for (uint32_t self = 0; self < owners.workers(); ++self) {
      parts.push_back(std::make_unique<Part>(spec, make(), owners, self));
      parts.back()->engine.join(&exchange.of(self), &parts.back()->graph);
      parts.back()->engine.initialize();
    }
  }
  // The parts of a graph, with all rows.
  template <class MakeProgram>
  DividedGraph(const Graph& whole, const MakeProgram& make, const Owners& owners) : exchange(owners.workers()) {
    for (uint32_t self = 0; self < owners.workers(); ++self) {
      parts.push_back(std::make_unique<Part>(whole.edges[0].spec, make(), owners, self, &whole));
      parts.back()->engine.initialize();  // does nothing yet
      parts.back()->engine.join(&exchange.of(self), &parts.back()->graph);
    }
    initialize();
  }

  void initialize() {
    run([](size_t, Part* part) { part->engine.initialize(); });
  }

  // Runs `body(part)` for all parts at once. A part that throws ends the batch for all; the first one's exception that
  // is not about another's is thrown again.
  template <class Body>
  void run(const Body& body) {
    exchange.begin();
    std::vector<std::exception_ptr> failures(parts.size());
    std::vector<std::thread> threads;
    std::latch all(static_cast<std::ptrdiff_t>(parts.size()));  // an allocation that fails must not be that of a thread
    for (size_t i = 0; i < parts.size(); ++i) {
      threads.emplace_back([&, i] {
        all.arrive_and_wait();
        try {
          body(i, parts[i].get());
        } catch (...) {
          failures[i] = std::current_exception();
          exchange.end();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::exception_ptr first;
    for (const std::exception_ptr& failure : failures) {
      if (failure == nullptr) continue;
      try {
        std::rethrow_exception(failure);
      } catch (const ExchangeEnded&) {
        if (first == nullptr) first = failure;
      } catch (...) {
        std::rethrow_exception(failure);
      }
    }
    if (first != nullptr) std::rethrow_exception(first);
  }

  void stage(const StagedEvents& events, const std::vector<uint16_t>& owners = {}) {
    for (const auto& part : parts) part->delta = stage_all(part->graph, events, owners);
  }
  void prepare() {
    run([](size_t, Part* part) {
      part->graph.prepare(part->delta);
      part->engine.prepare(part->delta, &part->prepared);
      part->engine.reserve(part->delta, part->prepared);
    });
  }
  void abandon() {
    for (const auto& part : parts) {
      part->graph.abandon();
      part->engine.release();
    }
  }
  void commit() {
    for (const auto& part : parts) {
      {
        std::unique_lock lock(part->graph.lock);
        check_allocates_nothing([&] {
          part->graph.commit(part->delta);
          part->engine.commit(part->delta, part->prepared);
        });
      }
      part->engine.release();
      part->graph.settle();
    }
  }

  LocalExchange exchange;
  std::vector<std::unique_ptr<Part>> parts;
};

// The other ends, keys, weights and features of a node's edges, in the order of a scan.
inline std::vector<std::tuple<uint32_t, uint32_t, float, Floats>> list_of(const Graph& graph, uint32_t node, bool in) {
  const GraphStore& store = *graph.edges[0].store;
  const Table& features = graph.edges[0].features.table();
  std::vector<std::tuple<uint32_t, uint32_t, float, Floats>> list;
  const auto visit = [&](const NeighborSpan& span) {
    for (size_t i = 0; i < span.size; ++i) {
      const float* const x = span.rows == nullptr ? nullptr : features.row(span.rows[i]);
      list.emplace_back(span.ids[i], span.keys == nullptr ? 0 : span.keys[i],
                        span.weights == nullptr ? 1 : span.weights[i],
                        x == nullptr ? Floats() : Floats(x, x + features.width()));
    }
  };
  in ? store.scan_in(node, visit) : store.scan_out(node, visit);
  return list;
}

// The features of the nodes that a part owns, and of those that it reads, and of no others.
inline void check_features(const Graph& part, const Graph& whole) {
  const NodeFeatures &features = part.nodes[0].features, &expected = whole.nodes[0].features;
  const bool undirected = part.edges[0].spec.options.undirected;
  for (uint32_t node = 0; node < whole.nodes[0].ids.capacity(); ++node) {
    bool read = false;
    for (bool reversed : {false, true}) {
      if (!part.part->reads_features(reversed)) continue;
      read = read || !list_of(part, node, reversed && !undirected).empty();
    }
    const bool owned = part.part->owns(0, node);
    if (!owned) CHECK_EQ(features.holds(node), read);
    if (!owned && !read) continue;
    CHECK(std::equal(features.row(node), features.row(node) + features.stride(), expected.row(node)));
  }
}

// Everything that the parts keep of the nodes that they own, and what the engine of the undivided graph keeps of them.
inline void check_equal_to_one(const DividedGraph& divided, const Engine& one) {
  const Graph& whole = one.graph();
  const Program& program = one.program();
  const std::vector<uint32_t> nodes = nodes_in_use(one);
  size_t owned = 0;
  for (const auto& part : divided.parts) {
    const Engine& engine = part->engine;
    const RoundingState &rounding = engine.state().rounding, &expected = one.state().rounding;
    CHECK(part->graph.nodes[0].ids.ids() == whole.nodes[0].ids.ids());
    check_features(part->graph, whole);
    CHECK_EQ(rounding.moments.batches, expected.moments.batches);
    CHECK_EQ(rounding.moments.measured, expected.moments.measured);
    CHECK_EQ(rounding.moments.touched, expected.moments.touched);
    for (size_t p = 0; p < program.propagations.size(); ++p) {
      CHECK(rounding.scales[p].saved() == expected.scales[p].saved());
    }
    std::vector<uint32_t> own;
    for (uint32_t node : nodes) {
      if (part->graph.part->owns(0, node)) own.push_back(node);
    }
    owned += own.size();
    for (uint32_t v = 0; v < program.values.size(); ++v) {
      const size_t bytes = program.values[v].width * sizeof(float);
      for (uint32_t node : own) {
        CHECK(std::memcmp(engine.state().rows.stored_row(v, node), one.state().rows.stored_row(v, node), bytes) == 0);
      }
    }
    for (uint32_t node : own) {
      for (bool in : {false, true}) {
        CHECK(list_of(part->graph, node, in) == list_of(whole, node, in));
      }
      for (size_t p = 0; p < program.propagations.size(); ++p) {
        const Table &errors = rounding.errors[p], &others = expected.errors[p];
        const Floats zeros(errors.width());
        const float* const bounds = node < errors.rows() ? errors.row(node) : zeros.data();
        const float* const other = node < others.rows() ? others.row(node) : zeros.data();
        CHECK(errors.width() == 0 || std::memcmp(bounds, other, errors.width() * sizeof(float)) == 0);
      }
      for (size_t c = 0; c < program.contexts.size(); ++c) {
        const std::vector<double>&sums = engine.state().degrees.sums[c], &others = one.state().degrees.sums[c];
        CHECK(sums.size() <= node || std::memcmp(&sums[node], &others[node], sizeof(double)) == 0);
      }
    }
  }
  CHECK_EQ(owned, nodes.size());
}

}  // namespace livegnn::testing
