#include <memory>

#include "fuzz/fuzz.h"
#include "store/graph_store.h"
#include "store/graph_store_model.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

using testing::check_against;
using testing::Edge;
using testing::EdgeModel;
using testing::kept;
using testing::named;
using testing::same_columns;

struct Fuzzed {
  GraphStore store;
  EdgeModel model;
  ThreadPool pool{1};

  explicit Fuzzed(const EdgeOptions& options) : store(options) {}

  Edge read_edge(fuzz::Input* input) {
    const auto sources = static_cast<uint32_t>(store.num_sources()),
               targets = static_cast<uint32_t>(store.num_targets());
    // Half of them at one node, for it to have a tree.
    const uint32_t source = input->byte() % 2 == 0 ? 0 : input->below(sources), target = input->below(targets);
    return {source, target, store.options().keyed ? read_key(input) : 0};
  }
  // Mostly few, for edges to meet; some at the ends of what there is.
  static uint32_t read_key(fuzz::Input* input) {
    const uint8_t kind = input->byte();
    return kind < 200 ? kind % 5 : fuzz::read_id<uint32_t>(input);
  }
  // One that is there, if any edge is.
  Edge read_old_edge(fuzz::Input* input) {
    const Edge edge = read_edge(input);
    const auto found = model.lower_bound(named(edge, store.options().undirected));
    return found == model.end() ? edge : found->first;
  }

  void change_one(fuzz::Input* input) {
    const bool undirected = store.options().undirected;
    if (input->byte() < 160) {
      const Edge edge = read_edge(input), name = named(edge, undirected);
      const EdgeValue value = kept(fuzz::read_value(input), store.options().columns);
      CHECK_EQ(store.upsert(edge.source, edge.target, value, edge.key), !model.contains(name));
      model[name] = value;
    } else {
      auto [source, target, key] = read_old_edge(input);
      const bool was = model.erase(named({source, target, key}, undirected)) == 1;
      if (undirected && input->byte() % 2 == 0) std::swap(source, target);
      CHECK_EQ(store.remove(source, target, key), was);
    }
  }

  void change_many(fuzz::Input* input) {
    const EdgeOptions& options = store.options();
    std::map<Edge, EdgeUpdate> net;
    const uint8_t removing = input->byte();
    for (uint32_t n = input->below(200); n > 0 && input->more(); --n) {
      const bool has = input->byte() >= removing;
      auto [source, target, key] = has ? read_edge(input) : read_old_edge(input);
      const Edge edge = named({source, target, key}, options.undirected);
      if (options.undirected && input->byte() % 2 == 0) std::swap(source, target);
      const EdgeValue value = has ? kept(fuzz::read_value(input), options.columns) : EdgeValue{};
      net[edge] = {source, target, has, value, key};
    }
    std::vector<EdgeUpdate> updates;
    for (const auto& [edge, update] : net) updates.push_back(update);
    const EdgeModel before = model;
    store.prepare(updates, &pool);
    check_against(store, before);
    if (input->once_in(4)) {
      store.abandon();
      return;
    }
    store.commit();
    for (const auto& [edge, update] : net) {
      if (update.has) {
        model[edge] = update.value;
      } else {
        model.erase(edge);
      }
    }
    check_against(store, model);
    store.settle();
  }

  void grow(fuzz::Input* input) {
    const size_t sources = store.num_sources() + input->below(8);
    store.resize(sources, store.options().undirected ? sources : store.num_targets() + input->below(8));
  }

  void save_and_load() {
    if (store.options().keyed) {
      come_back([](const GraphStore& of) { return std::pair(of.save_keyed_out(), of.save_keyed_in()); });
    } else {
      come_back([](const GraphStore& of) { return std::pair(of.save_out(), of.save_in()); });
    }
  }
  template <class Save>
  void come_back(const Save& save) {
    const auto [out, in] = save(store);
    GraphStore other(store.options());
    other.resize(store.num_sources(), store.num_targets());
    other.load(out, in, store.num_edges());
    check_against(other, model);
    const auto [other_out, other_in] = save(other);
    CHECK(same_columns(out, other_out));
    CHECK(same_columns(in, other_in));
    store.load(out, in, store.num_edges());
  }
};

void body(fuzz::Input* input) {
  const uint8_t kind = input->byte();
  EdgeOptions options;
  options.columns = {(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0};
  options.undirected = (kind & 8) != 0;
  options.in_lists = (kind & 48) != 0;
  options.keyed = (kind & 64) != 0;
  options.samtree.capacity = 4 + input->below(12);
  options.samtree.slack = input->below(options.samtree.capacity / 4 + 1);
  Fuzzed fuzzed(options);
  fuzzed.store.resize(100, 100);
  while (input->more()) {
    const uint8_t operation = input->byte();
    if (operation < 100) {
      fuzzed.change_one(input);
    } else if (operation < 230) {
      fuzzed.change_many(input);
    } else if (operation < 240) {
      fuzzed.grow(input);
    } else {
      fuzzed.save_and_load();
    }
    check_against(fuzzed.store, fuzzed.model);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
