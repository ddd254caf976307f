#include "sampling/neighbor_draws.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sampling/choice.h"
#include "sampling/hub_draws.h"
#include "store/graph_store.h"

namespace livegnn {
namespace {

// A group of draws works on a few hundred places at once: more than the processor's outstanding misses, but few enough
// for the nearest cache.
constexpr size_t kNodesAtOnce = 64;
constexpr size_t kDrawsAtOnce = 512;

constexpr size_t kLine = 64;
// Limit on prefetching of a block that is read sequentially: beyond it the hardware prefetcher takes over.
constexpr size_t kMostAhead = 16 * kLine;

void prefetch(const void* from, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(from) / kLine;
  const auto last = (reinterpret_cast<uintptr_t>(from) + (bytes > 0 ? bytes - 1 : 0)) / kLine;
  for (uintptr_t line = first; line <= last; ++line) __builtin_prefetch(reinterpret_cast<const void*>(line * kLine));
}

// Rejections after which draws for a node with many neighbours use hub_draws.h.
constexpr size_t kToleratedInHub = 32;

// Whether looking up this many neighbours of a node costs less than reading all.
bool is_a_small_share(size_t some, uint32_t degree) { return some <= degree / 64; }

// Prefetches what `Leaf::id` reads.
template <class Id>
void prefetch_id(const Leaf<Id>* leaf, const uint8_t* ids, uint32_t entry) {
  for (uint32_t part : {8u, 4u, 2u, 1u}) {
    if ((leaf->bits / 8 & part) == 0) continue;
    __builtin_prefetch(ids + entry * part);
    ids += leaf->room * part;
  }
  if (leaf->bits % 8 != 0) __builtin_prefetch(ids + entry * (leaf->bits % 8) / 8);
}

template <class T>
void gather(const std::vector<T>& from, std::span<const uint32_t> chosen, std::vector<T>* to) {
  if (from.empty()) return;
  for (uint32_t i : chosen) to->push_back(from[i]);
}

// Collected ids keep the key of parallel edges; a sample contains only the other end.
template <class Id>
void push(Id id, std::vector<Id>* to) {
  to->push_back(id);
}
void push(uint64_t id, std::vector<uint32_t>* to) { to->push_back(end_of(id)); }

}  // namespace

template <class Id>
struct NeighborDraws::Scratch {
  enum class Way : uint8_t { kNothing, kDraw, kHub, kScan };

  struct Node {
    uint32_t node = 0;
    SamtreeRoot root;
    RandomStream random;
    double weight_sum = 0;
    double until = 0;
    uint32_t taken = 0, rejected = 0;
    size_t first_taken = 0;  // first of its places in `taken`
    Way way = Way::kNothing;
    bool hub = false;  // a tree of leaves
  };
  struct Draw {
    LeafView<Id> in;
    double rest;     // remainder of the drawn sum of weights, within the part that is still to be searched
    uint32_t node;   // in the group
    uint32_t entry;  // in the leaf; before it is known, the run
  };
  struct Taken {
    const Leaf<Id>* leaf;
    uint32_t entry;
    Id id;
  };

  static constexpr auto kUniform = SampleBy::kUniform, kWeight = SampleBy::kWeight, kLatest = SampleBy::kLatest;

  Scratch() : nodes(kNodesAtOnce), drawn(kNodesAtOnce) {}

  void draw_group(std::span<const uint32_t> group, std::span<const double> until, Places places);
  void choose_ways();
  void start_round();
  void prefetch_sums(const Leaf<Id>* leaf, uint32_t size) const;
  void choose_entries();
  void prefetch_entries();
  bool accept_entries();
  void emit(size_t i);
  void emit_taken(size_t i);
  template <class To>
  void emit_ids(size_t i, EdgeColumns keep, BasicNeighborColumns<To>* into);
  void draw_from_hub(size_t i);
  void forget_but_taken(size_t i);
  template <class To>
  void collect(size_t i, EdgeColumns keep, bool distinct, BasicNeighborColumns<To>* into);
  void scan(size_t i);
  bool needs_all(const Node& node) const {
    return task.strategy.count == NeighborStrategy::kAll || (!task.strategy.replace && node.root.degree <= count);
  }

  // State of the current call.
  Task task;
  const Samtrees<Id>* trees = nullptr;
  EdgeColumns columns;
  size_t count = 0;  // as in the strategy; undefined if that asks for all
  bool bounded = false;
  NeighborColumns* to = nullptr;

  // State of the current group.
  size_t size = 0;
  std::vector<Node> nodes;
  std::vector<NumberSet<Id>> drawn;  // for each node: positions in the order of a scan (uniform), or ids (by weight)
  std::vector<Draw> draws;
  std::vector<Taken> taken;  // `count` places for each node that is drawn from

  // State of the current scan.
  BasicNeighborColumns<Id> pool;
  std::vector<uint32_t> chosen;
  Choice choice;
  HubDraws<Id> hub_draws;
  std::vector<Id> hub_ids;
  std::vector<typename TimeOrder<Id>::Entry> entries;

  size_t leaves = 0;  // leaves read, in all calls

  size_t need = 0;  // of the current call, in places
  RecentNeeds needs{size_t{1} << 16};

  size_t bytes() const {
    size_t bytes = bytes_of(nodes) + bytes_of(drawn) + bytes_of(draws) + bytes_of(taken) + pool.bytes() +
                   bytes_of(chosen) + choice.bytes() + hub_draws.bytes() + bytes_of(hub_ids) + bytes_of(entries);
    for (const NumberSet<Id>& one : drawn) bytes += one.bytes();
    return bytes;
  }
};

NeighborDraws::NeighborDraws() = default;
NeighborDraws::~NeighborDraws() = default;

size_t NeighborDraws::bytes() const {
  return (scratch_ ? scratch_->bytes() : 0) + (keyed_scratch_ ? keyed_scratch_->bytes() : 0);
}
size_t NeighborDraws::leaves_looked_at() const {
  return (scratch_ ? scratch_->leaves : 0) + (keyed_scratch_ ? keyed_scratch_->leaves : 0);
}

void NeighborDraws::draw(const Task& task, std::span<const uint32_t> nodes, std::span<const double> until,
                         Places places, NeighborColumns* to) {
  if (task.keyed != nullptr) {
    draw_from(*task.keyed, task, nodes, until, places, &keyed_scratch_, to);
  } else {
    draw_from(*task.trees, task, nodes, until, places, &scratch_, to);
  }
}

template <class Id>
void NeighborDraws::draw_from(const Samtrees<Id>& trees, const Task& task, std::span<const uint32_t> nodes,
                              std::span<const double> until, Places places, std::unique_ptr<Scratch<Id>>* scratch,
                              NeighborColumns* to) {
  if (!*scratch) *scratch = std::make_unique<Scratch<Id>>();
  Scratch<Id>& work = **scratch;
  work.task = task;
  work.trees = &trees;
  work.columns = trees.columns();
  work.count = task.strategy.count > 0 ? static_cast<size_t>(task.strategy.count) : 0;
  work.bounded = !until.empty();
  work.to = to;
  to->clear();
  const size_t at_once = std::clamp<size_t>(kDrawsAtOnce / std::max<size_t>(1, work.count), 1, kNodesAtOnce);
  for (uint32_t node : nodes.first(std::min(at_once, nodes.size()))) trees.prefetch_root(node);
  for (size_t begin = 0; begin < nodes.size(); begin += at_once) {
    const auto rest = nodes.subspan(begin);
    const auto group = rest.first(std::min(at_once, rest.size()));
    const auto after = rest.subspan(group.size());
    for (uint32_t node : after.first(std::min(at_once, after.size()))) trees.prefetch_root(node);
    work.draw_group(group, until.size() > 1 ? until.subspan(begin, group.size()) : until, places.from(begin));
  }
  if (!work.needs.outgrown(std::exchange(work.need, 0))) return;
  auto fresh = std::make_unique<Scratch<Id>>();
  fresh->needs = work.needs;
  fresh->leaves = work.leaves;
  *scratch = std::move(fresh);
}

template <class Id>
void NeighborDraws::Scratch<Id>::draw_group(std::span<const uint32_t> group, std::span<const double> until,
                                            Places places) {
  size = group.size();
  for (size_t i = 0; i < size; ++i) {
    Node& node = nodes[i];
    node = {group[i], trees->root(group[i]), RandomStream(task.seed, task.purpose, places[i])};
    node.until = until.empty() ? std::numeric_limits<double>::infinity() : until[until.size() > 1 ? i : 0];
    if (node.root.node != 0) __builtin_prefetch(trees->address(group[i]));
  }
  choose_ways();
  for (bool more = true; more;) {
    start_round();
    if (draws.empty()) break;
    choose_entries();
    prefetch_entries();
    more = accept_entries();
  }
  for (size_t i = 0; i < size; ++i) emit(i);
}

template <class Id>
void NeighborDraws::Scratch<Id>::choose_ways() {
  const NeighborStrategy strategy = task.strategy;
  for (size_t i = 0; i < size; ++i) {
    Node& node = nodes[i];
    if (node.root.degree == 0 || strategy.count == 0) continue;
    const bool scanned = strategy.by == kLatest || needs_all(node) ||
                         (!strategy.replace && draws_a_large_share(node.root.degree, count));
    node.way = scanned ? Way::kScan : Way::kDraw;
    const auto* top = static_cast<const SamtreeNode*>(trees->address(node.node));
    node.hub = top->height > 0;
    if (node.hub && strategy.by == kLatest && strategy.count != NeighborStrategy::kAll &&
        is_a_small_share(count, node.root.degree))
      node.way = Way::kHub;
    if (node.hub) {
      prefetch(top, std::min(Inner<Id>::bytes(columns, top->size), kMostAhead));
      continue;
    }
    const auto* leaf = reinterpret_cast<const Leaf<Id>*>(top);
    if (scanned) {
      prefetch(leaf, std::min(Leaf<Id>::bytes(columns, leaf->room, leaf->bits), kMostAhead));
    } else if (strategy.by == kWeight) {
      prefetch_sums(leaf, node.root.degree);
    }
  }
  for (size_t i = 0; i < size; ++i) {
    Node& node = nodes[i];
    if (node.way != Way::kDraw) continue;
    if (!strategy.replace) drawn[i].clear(count);
    if (strategy.by != kWeight) continue;
    node.weight_sum = trees->weight_sum(node.node);
    if (!(node.weight_sum > 0)) node.way = Way::kNothing;
  }
  // A request for more neighbours than a node has must not cost more: such a node is scanned, and takes no place.
  size_t places = 0;
  for (size_t i = 0; i < size; ++i) {
    nodes[i].first_taken = places;
    if (nodes[i].way == Way::kDraw) places += count;
  }
  taken.resize(places);
  need = std::max(need, places);
}

// Makes the draws that each node still needs, down to the leaf that they fall into.
template <class Id>
void NeighborDraws::Scratch<Id>::start_round() {
  draws.clear();
  for (uint32_t i = 0; i < size; ++i) {
    Node& node = nodes[i];
    if (node.way != Way::kDraw) continue;
    for (size_t missing = count - node.taken; missing > 0; --missing) {
      Draw draw{{}, 0, i, 0};
      if (task.strategy.by == kWeight) {
        draw.rest = node.random.uniform() * node.weight_sum;
        draw.in = trees->leaf_at_weight(node.root, &draw.rest);
      } else {
        do {
          draw.entry = static_cast<uint32_t>(node.random.below(node.root.degree));
        } while (!task.strategy.replace && !drawn[i].insert(draw.entry));
        draw.in = trees->leaf_of(node.root, &draw.entry);
      }
      __builtin_prefetch(draw.in.leaf);
      draws.push_back(draw);
    }
  }
}

// Prefetches what the sum of a leaf's weights reads: the table, and the incomplete run.
template <class Id>
void NeighborDraws::Scratch<Id>::prefetch_sums(const Leaf<Id>* leaf, uint32_t size) const {
  const uint32_t runs = FSTable::size(size), summed = runs * FSTable::kRun;
  prefetch(leaf->sums(columns), runs * sizeof(float));
  prefetch(leaf->weights(columns) + summed, (size - summed) * sizeof(float));
}

template <class Id>
void NeighborDraws::Scratch<Id>::choose_entries() {
  leaves += draws.size();
  if (task.strategy.by != kWeight) return;
  for (const Draw& draw : draws) {
    prefetch(draw.in.leaf->sums(columns), FSTable::size(draw.in.size) * sizeof(float));
  }
  for (Draw& draw : draws) {
    draw.entry = FSTable::find_run(draw.in.size, draw.in.leaf->sums(columns), &draw.rest);
    prefetch(draw.in.leaf->weights(columns) + draw.entry * FSTable::kRun, FSTable::kRun * sizeof(float));
  }
  for (Draw& draw : draws) {
    draw.entry = FSTable::find_in_run(draw.in.leaf->weights(columns), draw.in.size, draw.entry, draw.rest);
  }
}

template <class Id>
void NeighborDraws::Scratch<Id>::prefetch_entries() {
  const bool times = bounded || task.wanted.timed;
  for (const Draw& draw : draws) {
    const Leaf<Id>* leaf = draw.in.leaf;
    prefetch_id(leaf, leaf->ids(columns), draw.entry);
    if (times) __builtin_prefetch(leaf->times() + draw.entry);
    if (task.wanted.weighted) __builtin_prefetch(leaf->weights(columns) + draw.entry);
    if (task.wanted.featured) __builtin_prefetch(leaf->rows(columns) + draw.entry);
  }
}

// Returns false when no node needs more draws.
template <class Id>
bool NeighborDraws::Scratch<Id>::accept_entries() {
  const bool distinct_ids = task.strategy.by == kWeight && !task.strategy.replace;
  for (const Draw& draw : draws) {
    Node& node = nodes[draw.node];
    // Rounding can lead into a run whose weights are all 0.
    bool good = draw.entry < draw.in.size;
    if (good && bounded) good = draw.in.leaf->times()[draw.entry] <= node.until;
    const Id id = good ? draw.in.id(columns, draw.entry) : 0;
    if (good && distinct_ids) good = drawn[draw.node].insert(id);
    if (good) {
      taken[node.first_taken + node.taken++] = {draw.in.leaf, draw.entry, id};
    } else {
      ++node.rejected;
    }
  }
  bool more = false;
  for (size_t i = 0; i < size; ++i) {
    Node& node = nodes[i];
    if (node.way != Way::kDraw || node.taken == count) continue;
    const bool by_hub = node.hub && (bounded || task.strategy.by == kWeight);
    const size_t tolerated = by_hub ? count + kToleratedInHub : tolerated_rejections(node.root.degree, count);
    // If each place is drawn once, the next round needs as many places as there are missing draws.
    const bool used_up =
        task.strategy.by == kUniform && !task.strategy.replace && node.rejected + count > node.root.degree;
    if (node.rejected > tolerated || used_up) {
      node.way = by_hub ? Way::kHub : Way::kScan;
    } else {
      more = true;
    }
  }
  return more;
}

template <class Id>
void NeighborDraws::Scratch<Id>::emit(size_t i) {
  const size_t before = to->ids.size();
  if (nodes[i].taken > 0) emit_taken(i);
  if (nodes[i].way == Way::kHub) draw_from_hub(i);
  if (nodes[i].way == Way::kScan) scan(i);
  to->counts.push_back(static_cast<uint32_t>(to->ids.size() - before));
}

template <class Id>
void NeighborDraws::Scratch<Id>::emit_taken(size_t i) {
  const EdgeColumns wanted = task.wanted;
  for (const Taken& one : std::span(taken).subspan(nodes[i].first_taken, nodes[i].taken)) {
    push(one.id, &to->ids);
    if (wanted.weighted) to->weights.push_back(one.leaf->weights(columns)[one.entry]);
    if (wanted.timed) to->times.push_back(one.leaf->times()[one.entry]);
    if (wanted.featured) to->rows.push_back(one.leaf->rows(columns)[one.entry]);
  }
}

// The neighbours `hub_ids`, with their columns.
template <class Id>
template <class To>
void NeighborDraws::Scratch<Id>::emit_ids(size_t i, EdgeColumns keep, BasicNeighborColumns<To>* into) {
  need = std::max(need, hub_ids.size());
  for (Id id : hub_ids) {
    const LeafView<Id> view = trees->leaf_with(nodes[i].root, id);
    const EdgeValue value = view.value(columns, view.leaf->find(columns, view.size, id));
    ++leaves;
    push(id, &into->ids);
    if (keep.weighted) into->weights.push_back(value.weight);
    if (keep.timed) into->times.push_back(value.time);
    if (keep.featured) into->rows.push_back(value.row);
  }
}

template <class Id>
void NeighborDraws::Scratch<Id>::forget_but_taken(size_t i) {
  drawn[i].clear(count);
  for (const Taken& one : std::span(taken).subspan(nodes[i].first_taken, nodes[i].taken)) drawn[i].insert(one.id);
}

// Makes the missing draws without reading all neighbours.
template <class Id>
void NeighborDraws::Scratch<Id>::draw_from_hub(size_t i) {
  Node& node = nodes[i];
  const NeighborStrategy strategy = task.strategy;
  const auto order = trees->order_of(node.root);
  const uint32_t first = bounded                  ? trees->by_time().rank(order, node.until, &leaves)
                         : strategy.by == kLatest ? node.root.degree
                                                  : 0;
  const bool distinct = !strategy.replace && strategy.by != kLatest;
  if (strategy.by == kUniform && distinct && draws_a_large_share(first, count)) {
    scan(i);
    return;
  }
  if (distinct) forget_but_taken(i);
  const typename HubDraws<Id>::Task rest{trees,        node.root, count - node.taken, distinct ? &drawn[i] : nullptr,
                                         &node.random, &leaves};
  hub_ids.clear();
  if (strategy.by == kLatest) {
    hub_draws.latest(rest, first, &hub_ids);
  } else if (strategy.by == kUniform) {
    hub_draws.alike(rest, first, &hub_ids);
  } else if (bounded) {
    hub_draws.by_weight(rest, first, &hub_ids);
  } else {
    hub_draws.by_weight(rest, &hub_ids);
  }
  emit_ids(i, task.wanted, to);
}

// Collects all candidates; if only a few are early enough, by the order of times.
template <class Id>
template <class To>
void NeighborDraws::Scratch<Id>::collect(size_t i, EdgeColumns keep, bool distinct, BasicNeighborColumns<To>* into) {
  const Node& node = nodes[i];
  const bool by_weight = task.strategy.by == kWeight;
  if (bounded && node.hub) {
    const auto order = trees->order_of(node.root);
    const uint32_t first = trees->by_time().rank(order, node.until, &leaves);
    if (is_a_small_share(first, node.root.degree)) {
      entries.clear();
      hub_ids.clear();
      trees->by_time().list(order, 0, first, &entries, &leaves);
      for (const auto& entry : entries) {
        if ((by_weight && !(entry.weight > 0)) || (distinct && drawn[i].contains(entry.id))) continue;
        hub_ids.push_back(entry.id);
      }
      emit_ids(i, keep, into);
      return;
    }
  }
  trees->scan(node.node, [&](const BasicNeighborSpan<Id>& span) {
    ++leaves;
    for (size_t j = 0; j < span.size; ++j) {
      if (bounded && !(span.times[j] <= node.until)) continue;
      if (by_weight && !(span.weights[j] > 0)) continue;
      if (distinct && drawn[i].contains(span.ids[j])) continue;
      push(span.ids[j], &into->ids);
      if (keep.weighted) into->weights.push_back(span.weights[j]);
      if (keep.timed) into->times.push_back(span.times[j]);
      if (keep.featured) into->rows.push_back(span.rows[j]);
    }
  });
}

// Reads all neighbours, and makes the missing draws.
template <class Id>
void NeighborDraws::Scratch<Id>::scan(size_t i) {
  Node& node = nodes[i];
  const NeighborStrategy strategy = task.strategy;
  const bool direct = strategy.by != kLatest && needs_all(node);
  EdgeColumns keep = task.wanted;
  keep.weighted = keep.weighted || (!direct && strategy.by == kWeight);
  keep.timed = keep.timed || strategy.by == kLatest;
  const bool distinct = !strategy.replace && node.taken > 0;
  if (distinct) forget_but_taken(i);
  if (direct) {
    collect(i, keep, distinct, to);
    return;
  }
  pool.clear();
  collect(i, keep, distinct, &pool);
  need = std::max(need, pool.ids.size());
  chosen.clear();
  const size_t missing = strategy.count == NeighborStrategy::kAll ? pool.ids.size() : count - node.taken;
  if (strategy.by == kLatest) {
    choice.latest(pool.times, std::span<const Id>(pool.ids), missing, &chosen);
  } else if (strategy.by == kWeight) {
    choice.by_weight(std::span<const float>(pool.weights), missing, strategy.replace, &node.random, &chosen);
  } else {
    choice.uniform(pool.ids.size(), missing, strategy.replace, &node.random, &chosen);
  }
  for (uint32_t one : chosen) push(pool.ids[one], &to->ids);
  if (task.wanted.weighted) gather(pool.weights, chosen, &to->weights);
  if (task.wanted.timed) gather(pool.times, chosen, &to->times);
  if (task.wanted.featured) gather(pool.rows, chosen, &to->rows);
}

}  // namespace livegnn
