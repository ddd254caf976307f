// Readers beside a writer: that they see the edges before a batch or after it, and that the thread sanitizer sees
// nothing.
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "store/graph.h"
#include "store/graph_store.h"
#include "store/stage.h"
#include "testing/testing.h"
#include "threads/fair_lock.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

using testing::Random;

// A failed check ends a test only in the thread that runs it.
class Readers {
 public:
  template <class Body>
  Readers(size_t count, const Body& body) {
    for (size_t i = 0; i < count; ++i) {
      threads_.emplace_back([this, body] {
        Random random;
        try {
          while (!stop_.load(std::memory_order_relaxed)) {
            body(&random);
            rounds_.fetch_add(1, std::memory_order_relaxed);
          }
        } catch (const testing::Failure& error) {
          std::lock_guard lock(mutex_);
          failure_ = error.what;
          failed_.store(true, std::memory_order_relaxed);
        }
      });
    }
  }
  ~Readers() { join(); }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // Waits until so many rounds more have been read, which there are as long as no reader has failed.
  void wait_for(size_t rounds) const {
    const size_t until = rounds_.load(std::memory_order_relaxed) + rounds;
    while (!failed() && rounds_.load(std::memory_order_relaxed) < until) std::this_thread::yield();
  }
  void finish() {
    join();
    if (!failure_.empty()) throw testing::Failure{failure_};
  }

 private:
  void join() {
    stop_.store(true, std::memory_order_relaxed);
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  std::atomic<bool> stop_{false}, failed_{false};
  std::atomic<size_t> rounds_{0};
  std::mutex mutex_;
  std::string failure_;
  std::vector<std::thread> threads_;
};

// After batch b, node u < kNodes has the neighbours b, .. b + degree(u) - 1, each with the weight b; the hub is node 0.
// The nodes behind them come and go, so that there is something to compact.
constexpr uint32_t kNodes = 40, kBehind = 4000, kHubDegree = 1500;
uint32_t degree(uint32_t node) { return node == 0 ? kHubDegree : node * 3; }

std::vector<EdgeUpdate> batch_of(uint32_t batch) {
  std::vector<EdgeUpdate> updates;
  const EdgeValue value{static_cast<float>(batch), 0.5 * batch, batch};
  for (uint32_t u = 0; u < kNodes; ++u) {
    if (degree(u) == 0) continue;
    if (batch > 1) updates.push_back({u, batch - 1, false, {}});
    for (uint32_t i = 0; i < degree(u); ++i) updates.push_back({u, batch + i, true, value});
  }
  // Many at once that go again: churn, and then compaction.
  if (batch % 20 < 2) {
    for (uint32_t u = kNodes; u < kNodes + kBehind; ++u) {
      for (uint32_t i = 0; i < 40; ++i) updates.push_back({u, u ^ (i * 97), batch % 20 == 0, value});
    }
  }
  return updates;
}

// The batch that all lists show.
uint32_t read(const GraphStore& store, uint32_t node, Random* random) {
  float weight = -1;
  uint32_t count = 0, lowest = UINT32_MAX;
  uint64_t ids = 0;
  store.scan_out(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      if (weight < 0) weight = span.weights[i];
      CHECK_EQ(span.weights[i], weight);
      CHECK_EQ(span.times[i], 0.5 * weight);
      CHECK_EQ(span.rows[i], static_cast<uint32_t>(weight));
      ids += span.ids[i];
      lowest = std::min(lowest, span.ids[i]);
      ++count;
    }
  });
  const auto batch = static_cast<uint32_t>(weight);
  CHECK_EQ(count, degree(node));
  CHECK_EQ(lowest, batch);
  CHECK_EQ(ids, uint64_t{count} * batch + uint64_t{count} * (count - 1) / 2);

  const auto& trees = store.out();
  const EdgeColumns columns = trees.columns();
  CHECK_EQ(trees.weight_sum(node), static_cast<double>(count) * weight);
  const SamtreeRoot root = trees.root(node);
  CHECK_EQ(root.degree, count);
  for (int i = 0; i < 8; ++i) {
    const uint32_t id = batch + random->index(count);
    CHECK_EQ(store.find(node, id).value().weight, weight);
    CHECK(!store.find(node, batch - 1).has_value());
    uint32_t at = random->index(count);
    const auto by_place = trees.leaf_of(root, &at);
    CHECK(at < by_place.size);
    CHECK(by_place.id(columns, at) - batch < count);
    CHECK_EQ(by_place.value(columns, at).weight, weight);
    double sum = random->between(0, 0.999f) * trees.weight_sum(node);
    const auto by_weight = trees.leaf_at_weight(root, &sum);
    const uint32_t drawn = by_weight.at_weight(columns, sum);
    CHECK(drawn < by_weight.size);
    CHECK_EQ(by_weight.value(columns, drawn).weight, weight);
  }
  return batch;
}

void read_batches(const EdgeOptions& options) {
  constexpr uint32_t kBatches = 60;
  GraphStore store(options);
  FairLock lock;
  ThreadPool pool(2);
  store.resize(kNodes + kBehind, 8192);
  store.apply(batch_of(1), &pool);
  std::atomic<uint32_t> committed{1};
  Readers readers(3, [&](Random* random) {
    const uint32_t at_least = committed.load();
    std::shared_lock shared(lock);
    const uint32_t batch = read(store, 0, random);
    CHECK(batch >= at_least);
    for (int i = 0; i < 3; ++i) CHECK_EQ(read(store, 1 + random->index(kNodes - 1), random), batch);
  });
  size_t compactions = 0;
  auto commit = [&] {
    std::unique_lock alone(lock);
    store.commit();
  };
  for (uint32_t batch = 2; batch <= kBatches && !readers.failed(); ++batch) {
    const auto updates = batch_of(batch);
    if (batch % 9 == 0) {
      store.prepare(updates, &pool);
      readers.wait_for(3);
      store.abandon();
    }
    store.prepare(updates, &pool);
    commit();
    committed.store(batch);
    store.settle();
    readers.wait_for(3);
    if (!store.prepare_compaction()) continue;
    ++compactions;
    readers.wait_for(3);
    commit();
    store.settle();
  }
  readers.finish();
  CHECK(compactions > 0);
  store.check();
}

}  // namespace

TEST(readers_see_a_store_before_a_batch_or_after_it) {
  read_batches({{true, true, true}, false, false, false, {16, 4, true}});
  read_batches({{true, true, true}, false, false, true, {}});
}

// The whole way of an event: `Stage` reads beside readers, too.
TEST(readers_see_a_graph_before_a_batch_or_after_it) {
  constexpr int64_t kMembers = 60, kBatches = 60;
  EdgeOptions options;
  options.columns = {true, true, false};
  options.undirected = true;
  options.samtree = {8, 2, true};
  Graph graph({1}, {{0, 0, options}}, 2);
  auto apply = [&](const auto& add) {
    Stage stage(graph);
    add(&stage);
    const Delta delta = stage.finish();
    graph.prepare(delta);
    {
      std::unique_lock alone(graph.lock);
      graph.commit(delta);
    }
    graph.settle();
  };
  // A ring over all members but the one whose turn it is, with the batch as its weight and as each member's feature.
  auto batch_of = [&](int64_t batch, Stage* stage) {
    const auto value = static_cast<float>(batch);
    const int64_t leaves = batch % kMembers, comes = (batch + kMembers - 1) % kMembers;
    if (batch > 0) stage->remove_nodes(0, &leaves, 1);
    if (batch > 1) stage->add_nodes(0, &comes, &value, 1, 1);
    std::vector<int64_t> members;
    for (int64_t id = 0; id < kMembers; ++id) {
      if (id != leaves || batch == 0) members.push_back(id);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      if (batch == 0) stage->add_nodes(0, &members[i], &value, 1, 1);
      stage->set_features(0, &members[i], &value, 1, 1);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const double time = static_cast<double>(batch);
      const int64_t next = members[(i + 1) % members.size()];
      if (batch > 0) {
        const int64_t over = members[(i + 2) % members.size()];
        stage->remove_edges(0, &members[i], &over, 1);
      }
      stage->add_edges(0, &members[i], &next, &value, &time, nullptr, 0, 1);
    }
  };
  apply([&](Stage* stage) { batch_of(0, stage); });
  Readers readers(3, [&](Random*) {
    std::shared_lock shared(graph.lock);
    const GraphStore& store = *graph.edges[0].store;
    float weight = -1;
    size_t entries = 0, named = 0;
    const IdMap& ids = graph.nodes[0].ids;
    for (uint32_t node = 0; node < store.num_sources(); ++node) {
      // Indices are given out again: in one read an index and its id belong together.
      if (ids.in_use(node)) {
        CHECK_EQ(ids.index_of(ids.id_of(node)), node);
        ++named;
      }
      store.scan_out(node, [&](NeighborSpan span) {
        CHECK_EQ(graph.nodes[0].features.row(node)[0], span.weights[0]);
        for (size_t i = 0; i < span.size; ++i) {
          if (weight < 0) weight = span.weights[i];
          CHECK_EQ(span.weights[i], weight);
          CHECK_EQ(span.times[i], static_cast<double>(weight));
          CHECK(store.find(span.ids[i], node).has_value());
          ++entries;
        }
      });
    }
    CHECK_EQ(named, ids.size());
    CHECK_EQ(entries, 2 * store.num_edges());
    CHECK_EQ(store.num_edges(), static_cast<size_t>(weight > 0 ? kMembers - 1 : kMembers));
  });
  for (int64_t batch = 1; batch <= kBatches && !readers.failed(); ++batch) {
    apply([&](Stage* stage) { batch_of(batch, stage); });
    readers.wait_for(3);
  }
  readers.finish();
  graph.edges[0].store->check();
}

// Each reader keeps the lock until another has it too, or until a good while has gone by because none can come in any
// more. A lock that lets readers pass a waiting writer never lets this writer in, and the test never ends.
TEST(readers_who_overlap_do_not_starve_a_writer) {
  constexpr int kPatience = 2000, kCommits = 50;
  FairLock lock;
  std::atomic<size_t> entries{0};
  size_t a = 0, b = 0;  // equal, but while a writer is at work
  Readers readers(3, [&](Random*) {
    std::shared_lock shared(lock);
    const size_t mine = entries.fetch_add(1) + 1;
    CHECK_EQ(a, b);
    for (int i = 0; i < kPatience && entries.load() == mine; ++i) std::this_thread::yield();
    CHECK_EQ(a, b);
  });
  readers.wait_for(10);
  for (int i = 0; i < kCommits; ++i) {
    std::unique_lock alone(lock);
    const size_t before = entries.load();
    ++a;
    std::this_thread::yield();
    ++b;
    CHECK_EQ(entries.load(), before);
  }
  readers.finish();
  CHECK_EQ(a, static_cast<size_t>(kCommits));
}

// A reader who only tries is refused while somebody commits, and never waits; one who gets in sees no batch half done.
TEST(readers_who_only_try_are_refused_while_a_writer_is_at_work) {
  FairLock lock;
  {
    std::unique_lock alone(lock);
    CHECK(!lock.try_lock_shared());
  }
  {
    std::shared_lock shared(lock);
    CHECK(lock.try_lock_shared());
    lock.unlock_shared();
  }
  std::atomic<size_t> reads{0};
  size_t a = 0, b = 0;  // equal, but while a writer is at work
  Readers readers(3, [&](Random*) {
    if (!lock.try_lock_shared()) return;
    std::shared_lock shared(lock, std::adopt_lock);
    CHECK_EQ(a, b);
    reads.fetch_add(1);
  });
  for (size_t commits = 0; (commits < 200 || reads.load() < 100) && !readers.failed(); ++commits) {
    std::unique_lock alone(lock);
    ++a;
    std::this_thread::yield();
    ++b;
  }
  readers.finish();
}

// What the bindings rely on in their tests: whoever may have to wait is asked first, whether it comes to that or not.
TEST(readers_and_writers_say_that_they_are_about_to_wait) {
  static std::atomic<int> said;
  said = 0;
  Checked<FairLock> lock;
  before_waiting = +[] { said.fetch_add(1); };
  {
    std::unique_lock alone(lock);
  }
  {
    std::shared_lock shared(lock);
  }
  CHECK_EQ(said.load(), 2);
  CHECK(lock.try_lock_shared());
  lock.unlock_shared();
  CHECK_EQ(said.load(), 2);
  before_waiting = nullptr;
}

}  // namespace livegnn
