#include "livegnn/graph_store.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace livegnn {
namespace {

constexpr size_t kKeptItems = 1 << 18;  // of the largest batch whose memory is kept for the next

void check_nodes(const GraphStore::Trees::Saved& from, size_t num_nodes) {
  uint32_t highest = 0;
  for (uint32_t id : from.ids) highest = std::max(highest, id);
  if (!from.ids.empty() && highest >= num_nodes) {
    throw std::runtime_error("adjacency: no such node as " + std::to_string(highest) + " among " +
                             std::to_string(num_nodes));
  }
}

void check_count(size_t listed, size_t expected) {
  if (listed != expected) {
    throw std::runtime_error("adjacency: the lists hold " + std::to_string(listed) + " edges, expected " +
                             std::to_string(expected));
  }
}

}  // namespace

GraphStore::GraphStore(EdgeOptions options)
    : options_(options),
      out_(options.columns, options.samtree),
      in_(options.columns, options.samtree),
      out_updater_(&out_),
      in_updater_(&in_) {
  const SamtreeOptions& samtree = options.samtree;
  if (samtree.capacity < 4 || samtree.capacity > SamtreeOptions::kMaxCapacity || samtree.slack > samtree.capacity / 4) {
    throw std::invalid_argument("a samtree's capacity must be 4 to " + std::to_string(SamtreeOptions::kMaxCapacity) +
                                " and its slack at most a quarter of it, got " + std::to_string(samtree.capacity) +
                                " and " + std::to_string(samtree.slack));
  }
}

void GraphStore::throw_no_in_lists() { throw std::logic_error("this edge type keeps no lists of in-neighbours"); }

void GraphStore::resize(size_t num_sources, size_t num_targets) {
  out_.resize(num_sources);
  num_targets_ = num_targets;
  if (lists_in()) in_.resize(num_targets);
}

bool GraphStore::upsert(uint32_t source, uint32_t target, EdgeValue value) {
  const bool added = out_.upsert(source, target, value);
  if (lists_in()) {
    in_.upsert(target, source, value);
  } else if (options_.undirected && source != target) {
    out_.upsert(target, source, value);
  }
  num_edges_ += added ? 1 : 0;
  return added;
}

bool GraphStore::remove(uint32_t source, uint32_t target) {
  if (!out_.remove(source, target)) return false;
  if (lists_in()) {
    in_.remove(target, source);
  } else if (options_.undirected && source != target) {
    out_.remove(target, source);
  }
  --num_edges_;
  return true;
}

void GraphStore::prepare(std::span<const EdgeUpdate> updates, ThreadPool* pool) {
  items_.clear();
  int64_t loops = 0;  // more than before; an undirected loop is in one list, all else in two
  for (const EdgeUpdate& update : updates) {
    items_.push_back({update.source, {update.target, update.has, update.value}});
    if (!options_.undirected) continue;
    if (update.source != update.target) {
      items_.push_back({update.target, {update.source, update.has, update.value}});
    } else {
      loops += (update.has ? 1 : 0) - (find(update.source, update.target) ? 1 : 0);
    }
  }
  out_updater_.prepare(items_, pool);
  growth_ = options_.undirected ? (out_updater_.growth() + loops) / 2 : out_updater_.growth();
  if (!lists_in()) return;
  for (size_t i = 0; i < updates.size(); ++i) {
    items_[i].node = updates[i].target;
    items_[i].change.id = updates[i].source;
  }
  try {
    in_updater_.prepare(items_, pool);
  } catch (...) {
    abandon();
    throw;
  }
}

void GraphStore::commit() {
  out_updater_.commit();
  in_updater_.commit();
  num_edges_ = static_cast<size_t>(static_cast<int64_t>(num_edges_) + growth_);
  growth_ = 0;
}

void GraphStore::settle() {
  out_updater_.settle();
  in_updater_.settle();
  if (items_.capacity() > kKeptItems) items_ = {};
}

void GraphStore::abandon() {
  out_updater_.abandon();
  in_updater_.abandon();
  growth_ = 0;
}

bool GraphStore::prepare_compaction() {
  const bool out = out_updater_.prepare_compaction();
  try {
    return in_updater_.prepare_compaction() || out;
  } catch (...) {
    abandon();
    throw;
  }
}

GraphStore::Memory GraphStore::memory() const {
  return {out_.bytes() + in_.bytes(),
          items_.capacity() * sizeof(BatchUpdater::Item) + out_updater_.bytes() + in_updater_.bytes()};
}

size_t GraphStore::num_loops() const {
  size_t loops = 0;
  for (uint32_t node = 0; node < out_.size(); ++node) loops += find(node, node).has_value() ? 1 : 0;
  return loops;
}

void GraphStore::load(const Trees::Saved& out, const Trees::Saved& in, size_t num_edges) {
  check_nodes(out, num_targets());
  if (lists_in()) check_nodes(in, num_sources());
  out_.load(out);
  if (options_.undirected) {
    check_count(out.ids.size() + num_loops(), 2 * num_edges);
  } else {
    check_count(out.ids.size(), num_edges);
  }
  if (lists_in()) {
    in_.load(in);
    check_count(in.ids.size(), num_edges);
  }
  num_edges_ = num_edges;
}

void GraphStore::check() const {
  out_.check();
  in_.check();
}

}  // namespace livegnn
