#include "store/samtree/batch_updater.h"

#include <algorithm>
#include <memory>

#include "store/graph_store_model.h"
#include "testing/testing.h"
#include "threads/parallel.h"

namespace livegnn::batch_updater_test {
namespace {

using testing::check_against;
using testing::Edge;
using testing::EdgeModel;
using testing::kept;
using testing::named;
using testing::Random;
using testing::same_columns;

constexpr uint32_t kNodes = 2500;
constexpr uint32_t kHub = 0;

struct Saved {
  GraphStore::Trees::Saved out, in;
  size_t num_edges;
  explicit Saved(const GraphStore& store) : out(store.save_out()), in(store.save_in()), num_edges(store.num_edges()) {}
  bool operator==(const Saved& other) const {
    return same_columns(out, other.out) && same_columns(in, other.in) && num_edges == other.num_edges;
  }
};

// Small trees, so that a few thousand edges make several levels.
const std::vector<EdgeOptions>& all_options() {
  static const std::vector<EdgeOptions> options = {
      {{}, false, false, true, {8, 2, true}},
      {{true, false, false}, false, false, true, {8, 2, true}},
      {{true, true, true}, true, false, true, {16, 4, true}},
      {{true, false, false}, true, false, true, {4, 1, true}},
      {{false, true, false}, false, false, false, {16, 0, false}},
      {{true, false, true}, false, false, false, {}},
  };
  return options;
}

// Events in order, several to an edge; what they come to is the batch. `model` becomes what it is after it.
std::vector<EdgeUpdate> random_batch(size_t num_events, double growth, double hub, const EdgeOptions& options,
                                     Random* random, EdgeModel* model) {
  std::map<Edge, EdgeUpdate> net;
  std::vector<Edge> touched;
  for (size_t i = 0; i < num_events; ++i) {
    uint32_t source = random->chance(hub) ? kHub : random->index(random->index(kNodes) + 1);
    uint32_t target = random->index(kNodes);
    if (random->chance(0.01)) target = source;
    if (random->chance(0.2) && !touched.empty()) {
      const Edge& again = touched[random->index(touched.size())];
      source = again.source, target = again.target;
    }
    const bool has = random->chance(growth);
    if (!has && random->chance(0.8)) {
      // One that is there.
      const auto found = model->lower_bound(Edge{source, target});
      if (found != model->end()) source = found->first.source, target = found->first.target;
    }
    if (options.undirected && random->chance(0.3)) std::swap(source, target);
    const Edge edge = named({source, target}, options.undirected);
    const EdgeValue value =
        kept({random->between(-1, 9), random->between(0, 1e6f), random->index(1000)}, options.columns);
    net[edge] = {source, target, has, value};
    touched.push_back(edge);
    if (has) {
      (*model)[edge] = value;
    } else {
      model->erase(edge);
    }
  }
  std::vector<EdgeUpdate> updates;
  for (const auto& [edge, update] : net) updates.push_back(update);
  for (size_t i = updates.size(); i > 1; --i) std::swap(updates[i - 1], updates[random->index(i)]);
  return updates;
}

// All edges but one in `rest`.
std::vector<EdgeUpdate> all_but_few(size_t rest, Random* random, EdgeModel* model) {
  std::vector<EdgeUpdate> updates;
  std::erase_if(*model, [&](const auto& entry) {
    if (random->index(rest) == 0) return false;
    updates.push_back({entry.first.source, entry.first.target, false, {}});
    return true;
  });
  return updates;
}

std::vector<EdgeUpdate> nth_batch(int turn, const EdgeOptions& options, Random* random, EdgeModel* model) {
  constexpr size_t kSizes[] = {5000, 1, 5000, 40, 700, 3};
  if (turn % 7 == 6) return all_but_few(turn % 14 == 6 ? 50 : SIZE_MAX, random, model);
  const double growth = turn % 4 == 3 ? 0.2 : 0.75;
  return random_batch(kSizes[turn % 6], growth, turn % 3 == 1 ? 0 : 0.5, options, random, model);
}

uint32_t changes_to_hub(const std::vector<EdgeUpdate>& updates, bool undirected) {
  return static_cast<uint32_t>(std::count_if(updates.begin(), updates.end(), [&](const EdgeUpdate& update) {
    return update.source == kHub || (undirected && update.target == kHub);
  }));
}

// As `Graph::settle` does.
bool settle(GraphStore* store) {
  store->settle();
  if (!store->prepare_compaction()) return false;
  store->commit();
  store->settle();
  return true;
}

}  // namespace

TEST(batch_agrees_with_a_map) {
  Random random;
  ThreadPool pool(2);
  for (const EdgeOptions& options : all_options()) {
    GraphStore store(options);
    store.resize(kNodes, kNodes);
    EdgeModel model;
    bool shared = false;  // whether a hub's leaves were shared among threads
    for (int turn = 0; turn < 14; ++turn) {
      const EdgeModel before = model;
      const Saved saved(store);
      const auto updates = nth_batch(turn, options, &random, &model);
      const uint32_t hub_degree = store.degree_out(kHub);
      shared |= hub_degree > options.samtree.capacity && changes_to_hub(updates, options.undirected) >= 1024;
      store.prepare(updates, &pool);
      CHECK(saved == Saved(store));
      if (turn % 3 == 0) check_against(store, before);
      if (turn % 5 == 2) {
        store.abandon();
        check_against(store, before);
        CHECK(saved == Saved(store));
        store.prepare(updates, &pool);
        CHECK(saved == Saved(store));
      }
      store.commit();
      check_against(store, model);
      settle(&store);
      check_against(store, model);
    }
    CHECK(shared);
  }
}

TEST(batch_gives_the_same_bits_on_any_number_of_threads) {
  Random random;
  ThreadPool one(1), two(2), three(3);
  for (const EdgeOptions& options : all_options()) {
    std::vector<std::unique_ptr<GraphStore>> stores;
    for (int i = 0; i < 4; ++i) stores.push_back(std::make_unique<GraphStore>(options));
    for (auto& store : stores) store->resize(kNodes, kNodes);
    EdgeModel model;
    for (int turn = 0; turn < 10; ++turn) {
      auto updates = nth_batch(turn, options, &random, &model);
      stores[0]->apply(updates, &one);
      stores[1]->apply(updates, &two);
      stores[2]->apply(updates, &three);
      // Neither the order of a batch nor one that was given up before it matters.
      EdgeModel other_model = model;
      stores[3]->prepare(random_batch(300, 0.5, 0.5, options, &random, &other_model), &three);
      stores[3]->abandon();
      std::reverse(updates.begin(), updates.end());
      stores[3]->apply(updates, turn % 2 == 0 ? &one : &three);
      const Saved expected(*stores[0]);
      for (auto& store : stores) CHECK(expected == Saved(*store));
    }
    check_against(*stores[2], model);
  }
}

TEST(batch_compaction_shows_nothing_and_memory_follows_the_edges) {
  const size_t large = testing::draws(15'000, 40'000);
  Random random;
  ThreadPool pool(2);
  for (const EdgeOptions& options : {EdgeOptions{{true, false, false}, false, false, true, {32, 8, true}},
                                     EdgeOptions{{false, true, false}, true, false, true, {}}}) {
    GraphStore store(options);
    store.resize(kNodes, kNodes);
    EdgeModel model;
    for (int batch = 0; batch < 6; ++batch) {
      store.apply(random_batch(large, 1, 0.05, options, &random, &model), &pool);
    }
    const size_t full = store.memory().lists;
    store.apply(all_but_few(20, &random, &model), &pool);
    CHECK(store.num_edges() * 15 < 6 * large);
    check_against(store, model);
    // What a batch has freed is kept for the next one like it; it takes a few small ones to see that none comes.
    bool compacted = false;
    for (int batch = 0; batch < 60; ++batch) {
      store.apply(random_batch(10, 0.5, 0, options, &random, &model), &pool);
      const Saved saved(store);
      if (!store.prepare_compaction()) continue;
      compacted = true;
      CHECK(saved == Saved(store));
      if (batch % 2 == 0) {
        store.abandon();
        store.check();
        CHECK(saved == Saved(store));
        continue;
      }
      store.commit();
      CHECK(saved == Saved(store));
      store.settle();
      CHECK(saved == Saved(store));
    }
    CHECK(compacted);
    while (store.prepare_compaction()) {
      store.commit();
      store.settle();
    }
    check_against(store, model);
    CHECK(store.memory().lists < full / 3);
    // And up again, over what was given back.
    store.apply(random_batch(large, 1, 0.05, options, &random, &model), &pool);
    check_against(store, model);
  }
}

TEST(batch_that_was_abandoned_leaves_no_memory_behind) {
  Random random;
  ThreadPool pool(2);
  const EdgeOptions options{{true, false, false}, false, false, true, {16, 4, true}};
  GraphStore store(options);
  store.resize(kNodes, kNodes);
  EdgeModel model;
  store.apply(random_batch(5000, 0.9, 0.3, options, &random, &model), &pool);
  EdgeModel other = model;
  const auto updates = random_batch(5000, 0.6, 0.3, options, &random, &other);
  auto give_up = [&] {
    store.prepare(updates, &pool);
    store.abandon();
  };
  // Which thread works on which bucket is chance, and each has blocks of its own.
  for (int i = 0; i < 20; ++i) give_up();
  const size_t before = store.memory().lists;
  for (int i = 0; i < 200; ++i) give_up();
  CHECK(store.memory().lists < 2 * before);
  check_against(store, model);
}

}  // namespace livegnn::batch_updater_test
