#include <algorithm>
#include <map>

#include "fuzz/fuzz.h"
#include "store/samtree/samtree.h"

namespace livegnn {
namespace {

template <class Id>
using Model = std::map<Id, EdgeValue>;

constexpr size_t kNodes = 2;

// That the order by time holds what the leaves do, `trees.check()` has seen.
template <class Id>
void check_order(const Samtrees<Id>& trees, SamtreeRoot root, const Model<Id>& model, fuzz::Input* input) {
  const auto order = trees.order_of(root);
  if (order.root == 0) return;
  const double until = input->byte();
  size_t leaves = 0;
  const uint32_t rank = trees.by_time().rank(order, until, &leaves);
  const auto early = [&](const auto& edge) { return edge.second.time <= until; };
  CHECK_EQ(rank, static_cast<uint32_t>(std::count_if(model.begin(), model.end(), early)));
  std::vector<typename TimeOrder<Id>::Entry> entries;
  trees.by_time().list(order, 0, rank, &entries, &leaves);
  CHECK_EQ(entries.size(), size_t{rank});
  for (size_t i = 0; i < entries.size(); ++i) {
    CHECK(i == 0 || entries[i - 1].before(entries[i]));
    CHECK_EQ(model.at(entries[i].id).time, entries[i].time);
  }
  if (rank == 0) return;
  const uint32_t at = input->below(rank);
  CHECK_EQ(trees.by_time().at(order, at, &leaves).id, entries[at].id);
}

template <class Id>
void check_node(const Samtrees<Id>& trees, size_t node, const Model<Id>& model, fuzz::Input* input) {
  const EdgeColumns columns = trees.columns();
  const SamtreeRoot root = trees.root(node);
  CHECK_EQ(trees.degree(node), model.size());
  std::vector<Id> order;
  std::vector<double> before{0};  // running sums of weights, in the order of a scan
  trees.scan(node, [&](BasicNeighborSpan<Id> span) {
    CHECK(span.size > 0);
    if (!order.empty()) {
      CHECK(*std::min_element(span.ids, span.ids + span.size) > *std::max_element(order.begin(), order.end()));
    }
    for (size_t i = 0; i < span.size; ++i) {
      const auto found = model.find(span.ids[i]);
      CHECK(found != model.end());
      const EdgeValue value = found->second;
      CHECK_EQ(span.weights ? span.weights[i] : 1.0f, columns.weighted ? value.weight : 1.0f);
      CHECK_EQ(span.times ? span.times[i] : 0.0, columns.timed ? value.time : 0.0);
      CHECK_EQ(span.rows ? span.rows[i] : kNoRow, columns.featured ? value.row : kNoRow);
      order.push_back(span.ids[i]);
      before.push_back(before.back() + (columns.weighted ? std::max(0.0f, value.weight) : 1.0f));
    }
  });
  CHECK_EQ(order.size(), model.size());
  // 2^-30 for the tree, and for each leaf what its table and its float take.
  const double tolerance = 32 * std::ldexp(before.back(), -24) + 1e-36;
  CHECK_NEAR(trees.weight_sum(node), before.back(), tolerance);

  const Id other = fuzz::read_id<Id>(input);
  CHECK_EQ(trees.find(node, other).has_value(), model.contains(other));
  if (order.empty()) return;
  const uint32_t place = input->below(static_cast<uint32_t>(order.size()));
  CHECK(trees.find(node, order[place]).has_value());
  uint32_t at = place;
  const auto by_place = trees.leaf_of(root, &at);
  CHECK(at < by_place.size);
  CHECK_EQ(by_place.id(columns, at), order[place]);
  check_order(trees, root, model, input);
  if (!columns.weighted) return;
  const double sum = trees.weight_sum(node) * input->byte() / 256;
  double rest = sum;
  const auto by_weight = trees.leaf_at_weight(root, &rest);
  const uint32_t drawn = by_weight.at_weight(columns, rest);
  if (!(before.back() > 0)) return;
  CHECK(drawn < by_weight.size);
  const auto index =
      static_cast<size_t>(std::find(order.begin(), order.end(), by_weight.id(columns, drawn)) - order.begin());
  CHECK(index < order.size());
  CHECK(by_weight.value(columns, drawn).weight > 0);
  CHECK(before[index] <= sum + tolerance);
  CHECK(before[index + 1] >= sum - tolerance);
}

template <class Id>
bool same(const typename Samtrees<Id>::Saved& a, const typename Samtrees<Id>::Saved& b) {
  return a.shape == b.shape && a.keys == b.keys && a.ids == b.ids && a.weights == b.weights && a.times == b.times &&
         a.rows == b.rows && a.sums == b.sums && a.orders == b.orders;
}

template <class Id>
struct Fuzzed {
  Samtrees<Id> trees;
  Model<Id> models[kNodes];
  typename Samtrees<Id>::Lane lane;

  Fuzzed(EdgeColumns columns, SamtreeOptions options) : trees(columns, options) { trees.resize(kNodes); }

  void check(fuzz::Input* input) {
    trees.check();
    for (size_t node = 0; node < kNodes; ++node) check_node(trees, node, models[node], input);
  }

  void change_one(fuzz::Input* input) {
    const size_t node = input->below(kNodes);
    Model<Id>& model = models[node];
    Id id = fuzz::read_id<Id>(input);
    if (input->byte() < 150) {
      const EdgeValue value = fuzz::read_value(input);
      CHECK_EQ(trees.upsert(node, id, value), !model.contains(id));
      model[id] = value;
      return;
    }
    const auto found = model.lower_bound(id);
    if (found != model.end()) id = found->first;
    CHECK_EQ(trees.remove(node, id), model.erase(id) == 1);
  }

  // Runs of ids, so that many changes fit into few bytes.
  std::vector<typename Samtrees<Id>::Change> read_changes(const Model<Id>& model, fuzz::Input* input) {
    std::map<Id, typename Samtrees<Id>::Change> changes;
    for (uint32_t runs = 1 + input->below(8); runs > 0 && input->more(); --runs) {
      const uint8_t kind = input->byte();
      Id id = fuzz::read_id<Id>(input);
      const Id step = static_cast<Id>(1 + input->below(100));
      const EdgeValue value = fuzz::read_value(input);
      auto at = model.lower_bound(id);
      for (uint32_t n = 1 + input->below(kind % 16 == 0 ? 256 : 16); n > 0; --n) {
        if (kind < 120) {
          changes[id] = {id, true, value};
        } else if (kind < 160) {
          changes[id] = {id, false, {}};
        } else if (at != model.end()) {
          // Those that are there, one after another.
          changes[at->first] = {at->first, kind < 200, value};
          ++at;
        }
        id = static_cast<Id>(id + step);
      }
    }
    std::vector<typename Samtrees<Id>::Change> list;
    for (const auto& [id, change] : changes) list.push_back(change);
    return list;
  }

  void change_many(fuzz::Input* input) {
    const size_t node = input->below(kNodes);
    const auto changes = read_changes(models[node], input);
    if (changes.empty()) return;
    const SamtreeRoot from = trees.root(node);
    const auto before = trees.save();
    const uint8_t way = input->byte();
    auto rebuild = [&] {
      if (way % 2 == 0 || from.degree <= trees.options().capacity) return trees.rebuild(from, changes, &lane);
      auto work = trees.split(from, changes);
      for (auto& piece : work) trees.run(&piece, &lane);
      return trees.join(from, changes, work, &lane);
    };
    SamtreeRoot root = rebuild();
    CHECK(same<Id>(before, trees.save()));
    if (way >= 192) {
      trees.free_made(&lane);
      CHECK(same<Id>(before, trees.save()));
      if (way >= 224) return;
      root = rebuild();
    }
    trees.set_root(node, root);
    trees.free_retired(&lane);
    trees.note_batch();
    for (const auto& change : changes) {
      if (change.has) {
        models[node][change.id] = change.value;
      } else {
        models[node].erase(change.id);
      }
    }
  }

  void compact(fuzz::Input* input) {
    if (!trees.begin_compaction()) return;
    const auto before = trees.save();
    SamtreeRoot roots[kNodes];
    for (size_t node = 0; node < kNodes; ++node) roots[node] = trees.relocate(trees.root(node), &lane);
    CHECK(same<Id>(before, trees.save()));
    if (input->byte() % 4 == 0) {
      trees.free_made(&lane);
    } else {
      for (size_t node = 0; node < kNodes; ++node) trees.set_root(node, roots[node]);
      trees.free_retired(&lane);
    }
    trees.end_compaction();
    CHECK(same<Id>(before, trees.save()));
  }

  void save_and_load() {
    const auto saved = trees.save();
    Samtrees<Id> other(trees.columns(), trees.options());
    other.resize(kNodes);
    other.upsert(0, 7, {});
    other.load(saved);
    other.check();
    CHECK(same<Id>(saved, other.save()));
    trees.load(saved);
    CHECK(same<Id>(saved, trees.save()));
  }
};

template <class Id>
void change(fuzz::Input* input) {
  const uint8_t kind = input->byte();
  const uint32_t capacity = 4 + (input->byte() % 4 == 0 ? input->below(300) : input->below(12));
  Fuzzed<Id> fuzzed({(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0},
                    {capacity, input->below(capacity / 4 + 1), (kind & 24) != 0});
  while (input->more()) {
    const uint8_t operation = input->byte();
    if (operation < 110) {
      fuzzed.change_one(input);
    } else if (operation < 230) {
      fuzzed.change_many(input);
    } else if (operation < 245) {
      fuzzed.compact(input);
    } else {
      fuzzed.save_and_load();
    }
    fuzzed.check(input);
  }
}

void body(fuzz::Input* input) {
  if (input->byte() % 2 == 0) {
    change<uint32_t>(input);
  } else {
    change<uint64_t>(input);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
