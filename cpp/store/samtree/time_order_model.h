// Reference model for the tests of orders by time: a sorted list.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "store/samtree/time_order.h"
#include "testing/testing.h"

namespace livegnn::testing {

template <class Id>
struct OrderedModel {
  using Order = TimeOrder<Id>;
  using Entry = typename Order::Entry;

  BlockHeap heap;
  bool weighted;
  Order order{&heap, weighted};
  typename Order::Tree tree;
  typename Order::Lane work;
  BlockLane lane;
  std::map<Id, Entry> model;

  explicit OrderedModel(bool has_weights) : weighted(has_weights) {}

  std::vector<Entry> sorted() const {
    std::vector<Entry> entries;
    for (const auto& [id, entry] : model) entries.push_back(entry);
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.time, ~a.id) < std::pair(b.time, ~b.id); });
    return entries;
  }

  // Applies the changes that a samtree would report for new values and for removed ids.
  void change(const std::map<Id, Entry>& news, const std::set<Id>& gone) {
    std::vector<typename Order::Change> changes;
    for (Id id : gone) {
      if (model.contains(id)) changes.push_back({model.at(id), false}), model.erase(id);
    }
    for (const auto& [id, entry] : news) {
      const auto old = model.find(id);
      if (old != model.end() && old->second.time != entry.time) changes.push_back({old->second, false});
      changes.push_back({entry, true});
      model[id] = entry;
    }
    std::sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.entry.before(b.entry); });
    if (tree.root == 0) {
      tree = {order.build(sorted(), &lane), static_cast<uint32_t>(model.size())};
    } else {
      tree = {order.rebuild(tree, changes, &work, &lane), static_cast<uint32_t>(model.size())};
    }
    for (BlockRef ref : lane.retired) heap.free(ref);
    lane.made.clear(), lane.retired.clear();
    order.check(tree);
  }

  void check(Random* random) const {
    const auto expected = sorted();
    size_t leaves = 0;
    std::vector<Entry> listed;
    if (tree.root == 0) {
      CHECK(expected.empty());
      return;
    }
    auto same = [&](const Entry& a, const Entry& b) {
      return a.time == b.time && a.id == b.id && a.weight == (weighted ? b.weight : 1.0f);
    };
    auto begin = random->index(tree.count), end = begin + random->index(tree.count);
    order.list(tree, begin, end, &listed, &leaves);
    end = std::min(end, tree.count);
    CHECK_EQ(listed.size(), size_t{end} - begin);
    for (uint32_t i = begin; i < end; ++i) CHECK(same(listed[i - begin], expected[i]));
    const double until = random->chance(0.5) ? expected[begin].time : random->between(-5, 60);
    const auto rank = static_cast<uint32_t>(
        std::count_if(expected.begin(), expected.end(), [&](const Entry& e) { return e.time <= until; }));
    CHECK_EQ(order.rank(tree, until, &leaves), rank);
    CHECK(same(order.at(tree, begin, &leaves), expected[begin]));
    if (weighted) check_parts(expected, rank, random);
  }

  // Checks that parts hold the same weights, however often they are divided.
  void check_parts(const std::vector<Entry>& expected, uint32_t rank, Random* random) const {
    std::set<Id> drawn;
    size_t leaves = 0;
    auto skip = [&](Id id) { return drawn.contains(id); };
    std::vector<WeightPart<Id>> parts;
    order.parts(tree, rank, skip, &parts, &leaves);
    double left = 0;
    for (uint32_t i = 0; i < rank; ++i) left += std::max(0.0f, expected[i].weight);
    for (int round = 0; round < 5; ++round) {
      double sum = 0;
      for (const auto& part : parts) sum += part.sum;
      CHECK(std::abs(sum - left) <= 1e-12 * left + 1e-300);
      if (parts.empty()) return;
      const uint32_t p = random->index(static_cast<uint32_t>(parts.size()));
      const auto part = parts[p];
      const double rest = random->between(0, 1) * part.sum * 0.999;
      Id id = part.id;
      if (part.node != 0) CHECK(order.find(part, rest, &id, &leaves));
      const Entry& found = model.at(id);
      CHECK(found.weight > 0);
      CHECK(std::binary_search(expected.begin(), expected.begin() + rank, found,
                               [](const Entry& a, const Entry& b) { return a.before(b); }));
      CHECK(drawn.insert(id).second);
      parts.erase(parts.begin() + p);
      if (part.node != 0) order.take_apart(part, rest, skip, &parts, &leaves);
      left -= found.weight;
    }
  }
};

// One batch: a growing stream, late events, or expiring edges; single ones and many at once. Times of events that are
// not late continue from `now`.
template <class Id>
void change_at_random(OrderedModel<Id>* ordered, int turn, uint32_t spread, double* now, Random* random) {
  std::map<Id, typename OrderedModel<Id>::Entry> news;
  std::set<Id> gone;
  const uint32_t count = turn % 5 == 0 ? random->index(2'000) : 1 + random->index(30);
  for (uint32_t i = 0; i < count; ++i) {
    const Id id = static_cast<Id>(random->index(spread)) << (sizeof(Id) * 4);
    const double time = turn % 3 == 0 ? std::floor(random->between(0, 50)) : (*now += random->index(2));
    const float weight = random->chance(0.1) ? 0 : random->chance(0.05) ? -1 : random->between(0, 2);
    news[id] = {time, id, weight};
  }
  const double loss = turn % 4 == 3 ? (turn % 8 == 7 ? 0.9 : 0.3) : 0.01;
  for (const auto& [id, entry] : ordered->model) {
    if (!news.contains(id) && random->chance(loss)) gone.insert(id);
  }
  if (turn == 100) {
    for (const auto& [id, entry] : ordered->model) gone.insert(id);
    news.clear();
  }
  ordered->change(news, gone);
}

}  // namespace livegnn::testing
