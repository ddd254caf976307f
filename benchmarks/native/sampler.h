// Draws from anything that shows the neighbours of a node as a view: one draw after the other, written plainly.
//
//   view(node): degree(), total() of the weights, at(i) and at_weight(x) as ids, scan(visit(id, weight))
//
// The view of a node is looked up once for all its draws.
// Thread safety: any number of calls beside each other; a `Numbering` belongs to one subgraph at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "batch.h"
#include "threads/parallel.h"

namespace livegnn::bench {

inline constexpr uint32_t kNobody = UINT32_MAX;

template <class View>
uint32_t draw(const View& view, bool by_weight, Random* random) {
  return by_weight ? view.at_weight(static_cast<float>(random->unit() * view.total()))
                   : view.at(random->below(view.degree()));
}

// `k` for each seed with replacement, to `to` [seeds x k]; kNobody where a seed has no neighbours.
template <class Store>
void sample(const Store& store, std::span<const uint32_t> seeds, uint32_t k, bool by_weight, uint64_t seed,
            uint32_t* to) {
  Random random(seed);
  for (const uint32_t node : seeds) {
    const auto view = store.view(node);
    for (uint32_t i = 0; i < k; ++i) *to++ = view.degree() == 0 ? kNobody : draw(view, by_weight, &random);
  }
}

// Up to `k` different neighbours by weight, one after the other (Efraimidis and Spirakis: the k least exponential
// keys); by rejection where the list is long, which comes to the same.
template <class View>
uint32_t draw_distinct(const View& view, uint32_t k, Random* random, uint32_t* to) {
  const uint32_t degree = view.degree();
  if (degree > 2 * k) {
    uint32_t n = 0;
    for (uint32_t tries = 0; n < k && tries < 16 * k; ++tries) {
      const uint32_t id = draw(view, true, random);
      if (std::find(to, to + n, id) == to + n) to[n++] = id;
    }
    if (n == k) return k;
  }
  if (degree <= k) {
    view.scan([&](uint32_t id, float) { *to++ = id; });
    return degree;
  }
  thread_local std::vector<std::pair<double, uint32_t>> keys;
  keys.clear();
  view.scan([&](uint32_t id, float weight) { keys.emplace_back(-std::log(1 - random->unit()) / weight, id); });
  std::nth_element(keys.begin(), keys.begin() + k, keys.end());
  for (uint32_t i = 0; i < k; ++i) to[i] = keys[i].second;
  return k;
}

// The nodes of a subgraph in the order in which they came, and the edges between them as numbers of nodes.
struct Subgraph {
  std::vector<uint32_t> node, row, col;
};

// Which number a node has in the subgraph that is made; kept from one to the next, so that nothing is cleared.
class Numbering {
 public:
  explicit Numbering(size_t nodes) : nodes_(nodes) {}
  void start() {
    number_.resize(nodes_);
    epoch_.resize(nodes_);
    ++now_;
  }
  uint32_t of(uint32_t id, std::vector<uint32_t>* node) {
    if (epoch_[id] != now_) {
      epoch_[id] = now_;
      number_[id] = static_cast<uint32_t>(node->size());
      node->push_back(id);
    }
    return number_[id];
  }

 private:
  size_t nodes_;
  std::vector<uint32_t> number_, epoch_;
  uint32_t now_ = 0;
};

// Hop by hop, by weight and without replacement, for the nodes that the hop before brought in (as PyG's
// NeighborSampler).
template <class Store>
Subgraph sample_subgraph(const Store& store, std::span<const uint32_t> seeds, std::span<const uint32_t> fan_outs,
                         uint64_t seed, Numbering* numbering, ThreadPool* pool) {
  constexpr size_t kBlock = 256;
  Subgraph graph;
  numbering->start();
  for (const uint32_t id : seeds) numbering->of(id, &graph.node);
  std::vector<uint32_t> drawn, counts;
  size_t first = 0;
  for (const uint32_t k : fan_outs) {
    const size_t last = graph.node.size(), frontier = last - first;
    drawn.resize(frontier * k);
    counts.resize(frontier);
    pool->run((frontier + kBlock - 1) / kBlock, 1e9, [&](size_t block) {
      Random random(seed + 0x632be59bd9b4e019ULL * (first + block));
      for (size_t i = block * kBlock; i < std::min(frontier, (block + 1) * kBlock); ++i) {
        counts[i] = draw_distinct(store.view(graph.node[first + i]), k, &random, &drawn[i * k]);
      }
    });
    for (size_t i = 0; i < frontier; ++i) {
      for (uint32_t j = 0; j < counts[i]; ++j) {
        graph.row.push_back(numbering->of(drawn[i * k + j], &graph.node));
        graph.col.push_back(static_cast<uint32_t>(first + i));
      }
    }
    first = last;
  }
  return graph;
}

}  // namespace livegnn::bench
