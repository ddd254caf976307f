// What every contestant is put through, in the same words: batches, draws, draws beside batches, subgraphs.
//
// Thread safety: one call at a time. `draw_beside_batches` has two threads of its own making: a reader, and a writer
// that lets the reader finish its call before it commits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "batch.h"
#include "sampler.h"
#include "threads/fair_lock.h"
#include "threads/parallel.h"

namespace livegnn::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Store>
class Contest {
 public:
  template <class... Arguments>
  Contest(size_t nodes, size_t threads, Arguments... arguments)
      : store_(nodes, arguments...), numbering_(nodes), pool_(threads) {}

  const Store& store() const { return store_; }

  // Seconds of each batch of `batch_size` changes, on so many threads; 0: those that it was made with.
  std::vector<double> apply(const Batch& all, size_t batch_size, size_t threads) {
    std::optional<ThreadPool> other;
    if (threads != 0) other.emplace(threads);
    ThreadPool* pool = other ? &*other : &pool_;
    std::vector<double> seconds;
    for (size_t begin = 0; begin < all.size; begin += batch_size) {
      const Batch batch = part(all, begin, batch_size);
      const auto start = Clock::now();
      store_.prepare(batch, pool);
      store_.commit(batch, pool);
      store_.settle();
      if (store_.prepare_compaction()) {
        store_.commit(batch, pool);
        store_.settle();
      }
      seconds.push_back(seconds_since(start));
    }
    return seconds;
  }

  std::vector<uint32_t> draw(std::span<const uint32_t> seeds, uint32_t k, bool by_weight, uint64_t seed) {
    std::vector<uint32_t> drawn(seeds.size() * k);
    store_.sample(seeds, k, by_weight, seed, drawn.data());
    return drawn;
  }

  struct Beside {
    double seconds;                 // of the reader
    size_t drawn;                   // by it
    size_t applied;                 // changes that the writer applied meanwhile
    std::vector<double> latencies;  // seconds of each of the reader's calls, the wait for the writer included
  };

  // One thread draws `k` for each of `seeds`, `call` seeds at a time, over and over, for `duration` seconds; another
  // applies a batch every `interval` seconds, or as fast as it can if that is slower. No changes: it draws alone.
  Beside draw_beside_batches(std::span<const uint32_t> seeds, size_t call, uint32_t k, bool by_weight, uint64_t seed,
                             const Batch& changes, size_t batch_size, double interval, double duration) {
    FairLock lock;
    std::atomic<bool> done{false};
    std::atomic<size_t> applied{0};
    const auto start = Clock::now();
    std::thread writer([&] {
      ThreadPool alone(1);
      auto due = start;
      for (size_t begin = 0; begin < changes.size && !done; begin += batch_size) {
        std::this_thread::sleep_until(due);
        due += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval));
        const Batch batch = part(changes, begin, batch_size);
        store_.prepare(batch, &alone);
        {
          std::lock_guard writing(lock);
          store_.commit(batch, &alone);
        }
        store_.settle();  // who read before the commit is gone
        if (store_.prepare_compaction()) {
          {
            std::lock_guard writing(lock);
            store_.commit(batch, &alone);
          }
          store_.settle();
        }
        if (!done) applied += batch.size;
      }
    });
    std::vector<uint32_t> drawn(call * k);
    Beside result{0, 0, 0, {}};
    for (size_t begin = 0; result.seconds < duration; begin = begin + call < seeds.size() ? begin + call : 0) {
      const auto now = seeds.subspan(begin, std::min(call, seeds.size() - begin));
      const double before = seconds_since(start);
      {
        std::shared_lock reading(lock);
        store_.sample(now, k, by_weight, ++seed, drawn.data());
      }
      result.drawn += now.size() * k;
      result.seconds = seconds_since(start);
      result.latencies.push_back(result.seconds - before);
    }
    done = true;
    writer.join();
    result.applied = applied;
    return result;
  }

  // A subgraph, and the seconds that it took.
  std::pair<Subgraph, double> subgraph(std::span<const uint32_t> seeds, std::span<const uint32_t> fan_outs,
                                       uint64_t seed) {
    const auto start = Clock::now();
    auto graph = store_.subgraph(seeds, fan_outs, seed, &numbering_, &pool_);
    const double seconds = seconds_since(start);
    return {Store::columns_of(std::move(graph)), seconds};
  }

 private:
  static Batch part(const Batch& all, size_t begin, size_t size) {
    const auto from = [&](const auto* column) { return column == nullptr ? nullptr : column + begin; };
    return {all.sources + begin, all.targets + begin, from(all.weights), from(all.removed),
            std::min(size, all.size - begin)};
  }

  Store store_;
  Numbering numbering_;
  ThreadPool pool_;
};

}  // namespace livegnn::bench
