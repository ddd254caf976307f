#include "store/graph_store.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace livegnn {
namespace {

template <class Saved>
void check_nodes(const Saved& from, size_t num_nodes) {
  uint32_t highest = 0;
  for (const auto id : from.ids) highest = std::max(highest, end_of(id));
  if (!from.ids.empty() && highest >= num_nodes) {
    throw std::runtime_error("ids: expected nodes below " + std::to_string(num_nodes) + ", got " +
                             std::to_string(highest));
  }
}

void check_count(size_t listed, size_t expected) {
  if (listed != expected) {
    throw std::runtime_error("ids: expected " + std::to_string(expected) + " edges, got " + std::to_string(listed));
  }
}

template <class Saved>
void check_none(const Saved& from) {
  const std::pair<const char*, size_t> columns[] = {{"shape", from.shape.size()}, {"keys", from.keys.size()},
                                                    {"ids", from.ids.size()},     {"weight", from.weights.size()},
                                                    {"time", from.times.size()},  {"row", from.rows.size()},
                                                    {"sums", from.sums.size()},   {"orders", from.orders.size()}};
  for (const auto& [column, size] : columns) {
    if (size == 0) continue;
    throw std::runtime_error(std::string(column) + ": expected nothing, as this edge type has no lists of " +
                             "in-neighbours, got " + std::to_string(size));
  }
}

// Names the side of what `load` refuses.
template <class Load>
void load_side(const char* side, const Load& load) {
  try {
    load();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string(side) + "/" + error.what());
  }
}

}  // namespace

GraphStore::GraphStore(EdgeOptions options) : options_(options), lists_(options) {
  if (options.keyed) keyed_ = std::make_unique<EdgeLists<uint64_t>>(options);
  const SamtreeOptions& samtree = options.samtree;
  if (samtree.capacity < 4 || samtree.capacity > SamtreeOptions::kMaxCapacity || samtree.slack > samtree.capacity / 4) {
    throw std::invalid_argument("a samtree's capacity must be 4 to " + std::to_string(SamtreeOptions::kMaxCapacity) +
                                " and its slack at most a quarter of it, got " + std::to_string(samtree.capacity) +
                                " and " + std::to_string(samtree.slack));
  }
}

void GraphStore::throw_no_in_lists() { throw std::logic_error("this edge type keeps no lists of in-neighbours"); }

void GraphStore::prepare_nodes(size_t num_sources, size_t num_targets) {
  with([&](auto& lists) {
    lists.out.prepare_size(num_sources);
    if (lists_in()) lists.in.prepare_size(num_targets);
  });
}

void GraphStore::resize(size_t num_sources, size_t num_targets) {
  num_targets_ = num_targets;
  with([&](auto& lists) {
    lists.out.resize(num_sources);
    if (lists_in()) lists.in.resize(num_targets);
  });
}

bool GraphStore::upsert(uint32_t source, uint32_t target, EdgeValue value, uint32_t key) {
  const bool added = with([&]<class Id>(EdgeLists<Id>& lists) {
    const bool fresh = lists.out.upsert(source, list_id<Id>(target, key), value);
    if (lists_in()) {
      lists.in.upsert(target, list_id<Id>(source, key), value);
    } else if (options_.undirected && source != target) {
      lists.out.upsert(target, list_id<Id>(source, key), value);
    }
    return fresh;
  });
  num_edges_ += added ? 1 : 0;
  return added;
}

bool GraphStore::remove(uint32_t source, uint32_t target, uint32_t key) {
  const bool removed = with([&]<class Id>(EdgeLists<Id>& lists) {
    if (!lists.out.remove(source, list_id<Id>(target, key))) return false;
    if (lists_in()) {
      lists.in.remove(target, list_id<Id>(source, key));
    } else if (options_.undirected && source != target) {
      lists.out.remove(target, list_id<Id>(source, key));
    }
    return true;
  });
  num_edges_ -= removed ? 1 : 0;
  return removed;
}

template <class Id>
void GraphStore::prepare_lists(EdgeLists<Id>* lists, std::span<const EdgeUpdate> updates, ThreadPool* pool) {
  auto& items = lists->items;
  items.clear();
  items.reserve(options_.undirected ? 2 * updates.size() : updates.size());
  int64_t loops = 0;  // increase in their number; an undirected loop is in one list, every other edge in two
  for (const EdgeUpdate& update : updates) {
    items.push_back({update.source, {list_id<Id>(update.target, update.key), update.has, update.value}});
    if (!options_.undirected) continue;
    if (update.source != update.target) {
      items.push_back({update.target, {list_id<Id>(update.source, update.key), update.has, update.value}});
    } else {
      loops += (update.has ? 1 : 0) - (find(update.source, update.target, update.key) ? 1 : 0);
    }
  }
  lists->out_updater.prepare(items, pool);
  growth_ = options_.undirected ? (lists->out_updater.growth() + loops) / 2 : lists->out_updater.growth();
  if (!lists_in()) return;
  for (size_t i = 0; i < updates.size(); ++i) {
    items[i].node = updates[i].target;
    items[i].change.id = list_id<Id>(updates[i].source, updates[i].key);
  }
  try {
    lists->in_updater.prepare(items, pool);
  } catch (...) {
    abandon();
    throw;
  }
}

void GraphStore::prepare(std::span<const EdgeUpdate> updates, ThreadPool* pool) {
  with([&](auto& lists) { prepare_lists(&lists, updates, pool); });
}

void GraphStore::commit() noexcept {
  with([](auto& lists) {
    lists.out_updater.commit();
    lists.in_updater.commit();
  });
  num_edges_ = static_cast<size_t>(static_cast<int64_t>(num_edges_) + growth_);
  growth_ = 0;
}

size_t GraphStore::settle() noexcept {
  return with([this](auto& lists) {
    size_t bytes = lists.out_updater.settle() + lists.in_updater.settle();
    lists.out.settle_size();
    lists.in.settle_size();
    if (needs_.outgrown(lists.items.size())) {
      bytes += bytes_of(lists.items);
      give_back(&lists.items);
    }
    lists.items.clear();
    return bytes;
  });
}

void GraphStore::abandon() noexcept {
  with([](auto& lists) {
    lists.out_updater.abandon();
    lists.in_updater.abandon();
    lists.out.settle_size();
    lists.in.settle_size();
    lists.items.clear();
  });
  growth_ = 0;
}

bool GraphStore::prepare_compaction() {
  try {
    return with([](auto& lists) {
      const bool out = lists.out_updater.prepare_compaction();
      return lists.in_updater.prepare_compaction() || out;
    });
  } catch (...) {
    abandon();
    throw;
  }
}

bool GraphStore::is_moved() const {
  return with([](const auto& lists) { return lists.out_updater.is_moved() || lists.in_updater.is_moved(); });
}

GraphStore::Memory GraphStore::memory() const {
  return with([](const auto& lists) -> Memory {
    return {lists.out.bytes() + lists.in.bytes(),
            lists.items.capacity() * sizeof(lists.items[0]) + lists.out_updater.bytes() + lists.in_updater.bytes()};
  });
}

size_t GraphStore::num_loops() const {
  size_t loops = 0;
  for (uint32_t node = 0; node < num_sources(); ++node) scan_between(node, node, [&](auto...) { ++loops; });
  return loops;
}

template <class Id>
void GraphStore::load_lists(EdgeLists<Id>* lists, const typename Samtrees<Id>::Saved& out,
                            const typename Samtrees<Id>::Saved& in, size_t num_edges) {
  load_side("out", [&] {
    check_nodes(out, num_targets());
    lists->out.load(out);
    if (options_.undirected) {
      check_count(out.ids.size() + num_loops(), 2 * num_edges);
    } else {
      check_count(out.ids.size(), num_edges);
    }
  });
  load_side("in", [&] {
    if (!lists_in()) return check_none(in);
    check_nodes(in, num_sources());
    lists->in.load(in);
    check_count(in.ids.size(), num_edges);
  });
  num_edges_ = num_edges;
}

void GraphStore::load(const Trees::Saved& out, const Trees::Saved& in, size_t num_edges) {
  load_lists(&lists_, out, in, num_edges);
}

void GraphStore::load(const KeyedTrees::Saved& out, const KeyedTrees::Saved& in, size_t num_edges) {
  load_lists(keyed_.get(), out, in, num_edges);
}

void GraphStore::check() const {
  with([](const auto& lists) {
    lists.out.check();
    lists.in.check();
  });
}

}  // namespace livegnn
