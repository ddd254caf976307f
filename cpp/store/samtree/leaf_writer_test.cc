#include "store/samtree/leaf_writer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "testing/testing.h"

namespace livegnn::leaf_writer_test {
namespace {

using testing::Random;

// The leaves of one node, side by side, beside a map of what they should hold.
template <class Id>
struct Leaves {
  using Writer = LeafWriter<Id>;
  using Child = typename Writer::Child;
  using Change = typename Writer::Change;
  using Model = std::map<Id, EdgeValue>;

  EdgeColumns columns;
  SamtreeOptions options;
  BlockHeap heap;
  Writer writer{columns, options, &heap};
  typename Writer::Lane lane;
  std::vector<Child> leaves;
  Model model;

  Leaves(EdgeColumns columns, SamtreeOptions options) : columns(columns), options(options) {}

  Model read(const Child& child) const {
    const auto* leaf = static_cast<const Leaf<Id>*>(heap.at(child.node));
    std::vector<Id> ids(child.count);
    leaf->decode(columns, child.count, ids.data());
    Model held;
    for (uint32_t i = 0; i < child.count; ++i) CHECK(held.emplace(ids[i], leaf->value(columns, i)).second);
    return held;
  }

  static bool same(const Model& a, const Model& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.weight == y.second.weight && x.second.time == y.second.time &&
             x.second.row == y.second.row;
    });
  }

  // What is left of a value where there are not all columns.
  EdgeValue kept(EdgeValue value) const {
    return {columns.weighted ? value.weight : 1.0f, columns.timed ? value.time : 0.0,
            columns.featured ? value.row : kNoRow};
  }

  // Changes of distinct ids to the leaf at `at`; whoever reads the old leaf sees nothing of them.
  void change(size_t at, std::span<const Change> changes) {
    const Child old = leaves.empty() ? Child{} : leaves[at];
    Model before;
    if (old.node != 0) before = read(old);
    std::vector<Child> made;
    writer.update(old, changes, &lane, &made);
    if (old.node != 0) CHECK(same(read(old), before));
    for (const Change& change : changes) {
      if (change.has) {
        model[change.id] = kept(change.value);
      } else {
        model.erase(change.id);
      }
    }
    if (!leaves.empty()) leaves.erase(leaves.begin() + static_cast<std::ptrdiff_t>(at));
    leaves.insert(leaves.begin() + static_cast<std::ptrdiff_t>(at), made.begin(), made.end());
    free_retired();
  }

  void join(size_t at) {
    std::vector<Child> made;
    writer.join(leaves[at], leaves[at + 1], &lane, &made);
    lane.retired.insert(lane.retired.end(), {leaves[at].node, leaves[at + 1].node});
    const auto first = leaves.begin() + static_cast<std::ptrdiff_t>(at);
    leaves.insert(leaves.erase(first, first + 2), made.begin(), made.end());
    free_retired();
  }

  void free_retired() {
    for (BlockRef ref : lane.retired) heap.free(ref);
    lane.retired.clear();
    lane.made.clear();
  }

  void check() const {
    Model held;
    size_t bytes = 0;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Child& child = leaves[i];
      const Model own = read(child);
      CHECK(child.count > 0 && child.count <= options.capacity);
      CHECK(i == 0 || own.begin()->first >= child.key);
      CHECK(i + 1 == leaves.size() || own.rbegin()->first < leaves[i + 1].key);
      double sum = 0;
      for (const auto& [id, value] : own) sum += std::max(0.0f, value.weight);
      CHECK(std::abs(child.sum - sum) <= 1e-6 * sum);
      held.insert(own.begin(), own.end());
      bytes += heap.size_of(child.node);
    }
    CHECK(same(held, model));
    CHECK_EQ(heap.live_bytes(), bytes);
  }
};

template <class Id>
Id random_id(Random* random, uint64_t spread) {
  if (random->chance(0.01)) return random->chance(0.5) ? std::numeric_limits<Id>::max() : 0;
  return static_cast<Id>((Id{random->index(2)} << (sizeof(Id) * 8 - 2)) + random->below(spread));
}

template <class Id>
void change_at_random(EdgeColumns columns, SamtreeOptions options, Random* random) {
  Leaves<Id> leaves(columns, options);
  const size_t turns = testing::draws(100, 300);
  for (size_t turn = 0; turn < turns; ++turn) {
    if (leaves.leaves.size() > 1 && random->chance(0.2)) {
      leaves.join(random->index(leaves.leaves.size() - 1));
    } else {
      const size_t at = random->index(leaves.leaves.size());
      std::map<Id, typename Leaves<Id>::Change> changes;
      const size_t count = 1 + random->below(random->chance(0.3) ? 3 * options.capacity : 10);
      const bool removes = random->chance(0.5);
      for (size_t i = 0; i < count; ++i) {
        Id id = random_id<Id>(random, 6 * options.capacity);
        const auto known = leaves.model.lower_bound(id);
        if (removes && known != leaves.model.end()) id = known->first;
        if (at > 0 && id < leaves.leaves[at].key) continue;
        if (at + 1 < leaves.leaves.size() && id >= leaves.leaves[at + 1].key) continue;
        changes[id] = {id,
                       !removes || random->chance(0.2),
                       {random->between(-1, 9), random->between(0, 1e6f), random->index(1000)}};
      }
      std::vector<typename Leaves<Id>::Change> list;
      for (const auto& [id, change] : changes) list.push_back(change);
      if (!list.empty()) leaves.change(at, list);
    }
    leaves.check();
  }
}

}  // namespace

TEST(leaf_writer_agrees_with_a_map) {
  Random random;
  for (EdgeColumns columns : {EdgeColumns{}, {true, false, false}, {false, true, false}, {true, true, true}}) {
    for (SamtreeOptions options : {SamtreeOptions{4, 0, true}, {8, 2, true}, {64, 16, false}, {}}) {
      change_at_random<uint32_t>(columns, options, &random);
      change_at_random<uint64_t>(columns, options, &random);
    }
  }
}

// Leaves of a split differ by the slack at most, and by less than one piece where there are more than two.
TEST(leaf_writer_parts_evenly) {
  Random random;
  const SamtreeOptions options{64, 8, true};
  for (int i = 0; i < 300; ++i) {
    Leaves<uint32_t> leaves({}, options);
    std::vector<LeafWriter<uint32_t>::Change> changes;
    const uint32_t count = 1 + random.index(6 * options.capacity);
    for (uint32_t id = 0; id < count; ++id) changes.push_back({id * 7 + random.index(7), true, {}});
    leaves.change(0, changes);
    leaves.check();
    CHECK_EQ(leaves.leaves.size(), (count + options.capacity - 1) / options.capacity);
    for (const auto& leaf : leaves.leaves) {
      CHECK(leaves.leaves.size() == 1 || leaf.count + options.slack + 1 >= count / leaves.leaves.size());
      CHECK(leaves.leaves.size() == 1 || leaf.count >= options.min_leaf());
    }
  }
}

// Appending moves a leaf every sixteenth time or so.
TEST(leaf_writer_appends_in_place) {
  Leaves<uint32_t> leaves({true, true, false}, {});
  size_t moves = 0;
  for (uint32_t id = 0; id < 256; ++id) {
    const BlockRef before = id == 0 ? 0 : leaves.leaves[0].node;
    const LeafWriter<uint32_t>::Change change{1000 + id * 3, true, {1, 2, 0}};
    leaves.change(0, {&change, 1});
    moves += leaves.leaves[0].node != before;
  }
  leaves.check();
  CHECK(moves < 70);
}

}  // namespace livegnn::leaf_writer_test
