// The edges of one edge type: their ends, and weights, times and features if the type has them.
//
//   out: source ─► samtree of targets        (out-neighbours)
//   in:  target ─► samtree of sources        (in-neighbours; an undirected type has none, its out-lists serve for both)
//
// In a type that keeps parallel edges (`keyed`), a key distinguishes edges between the same two nodes; a list then
// holds 64-bit numbers, with the other end in the high half and the key in the low half, in separate trees. In other
// types every key is 0 and takes no memory.
//
// Invariants: an edge is in the out-list of its source if and only if it is in the in-list of its target, with the same
// values; an undirected edge is in the lists of both ends, a loop in one; no two edges have the same ends and key.
// The order of a scan depends only on the history of the batches, and survives saving and loading.
//
// Thread safety: any number of readers. `prepare` builds a batch while readers go on; `commit`, which is short, and all
// other changes need exclusive access; `settle` may be called once all readers that began before `commit` have
// finished. A reader therefore sees the edges before a batch or after it.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/prefetch.h"
#include "store/samtree/batch_updater.h"
#include "store/samtree/samtree.h"

namespace livegnn {

struct EdgeOptions {
  EdgeColumns columns{};
  bool undirected = false;
  bool accumulate = false;  // adding an existing edge adds its weight to the old one
  bool in_lists = true;     // false: a directed type whose in-neighbours are never read
  SamtreeOptions samtree{};
  bool keyed = false;  // parallel edges are kept as separate edges
};

// The new state of one edge: it has these values, or it does not exist.
struct EdgeUpdate {
  uint32_t source, target;
  bool has;
  EdgeValue value;
  uint32_t key = 0;
};

// The number that represents an edge in a list.
template <class Id>
Id list_id(uint32_t node, uint32_t key) {
  if constexpr (sizeof(Id) == sizeof(uint32_t)) {
    return node;
  } else {
    return (Id{node} << 32) | key;
  }
}

// The other end of an edge in a list.
template <class Id>
uint32_t end_of(Id id) {
  if constexpr (sizeof(Id) == sizeof(uint32_t)) {
    return id;
  } else {
    return static_cast<uint32_t>(id >> 32);
  }
}

// Both lists of every edge of a type, and what updates them.
template <class Id>
struct EdgeLists {
  using Updater = BasicBatchUpdater<Id>;

  explicit EdgeLists(const EdgeOptions& options)
      : out(options.columns, options.samtree), in(options.columns, options.samtree) {}

  Samtrees<Id> out, in;
  Updater out_updater{&out}, in_updater{&in};
  std::vector<typename Updater::Item> items;
};

class GraphStore {
 public:
  using Trees = Samtrees<uint32_t>;
  using KeyedTrees = Samtrees<uint64_t>;

  explicit GraphStore(EdgeOptions options);
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;

  const EdgeOptions& options() const { return options_; }
  size_t num_edges() const { return num_edges_; }
  size_t num_sources() const { return keyed_ ? keyed_->out.size() : lists_.out.size(); }
  size_t num_targets() const { return options_.undirected ? num_sources() : num_targets_; }
  // Requires: a type without keys.
  const Trees& out() const {
    assert(!keyed_);
    return lists_.out;
  }
  // Throws std::logic_error if there are no in-lists.
  const Trees& in() const { return in_of(lists_); }
  // Requires: a type with keys.
  const KeyedTrees& keyed_out() const {
    assert(keyed_);
    return keyed_->out;
  }
  const KeyedTrees& keyed_in() const {
    assert(keyed_);
    return in_of(*keyed_);
  }
  bool has_in() const { return options_.undirected || options_.in_lists; }

  // New nodes have no edges. Both numbers only grow. `prepare_nodes` allocates memory while readers go on, so that
  // `resize` takes no time and cannot fail; if it throws, nothing has changed.
  void prepare_nodes(size_t num_sources, size_t num_targets);
  void resize(size_t num_sources, size_t num_targets);

  // -- one edge at a time

  std::optional<EdgeValue> find(uint32_t source, uint32_t target, uint32_t key = 0) const {
    return keyed_ ? keyed_->out.find(source, list_id<uint64_t>(target, key)) : lists_.out.find(source, target);
  }
  // The edge with the greatest key among parallel ones.
  std::optional<EdgeValue> find_any(uint32_t source, uint32_t target) const {
    if (!keyed_) return find(source, target);
    const auto key = last_key(source, target);
    return key ? find(source, target, *key) : std::nullopt;
  }
  // Return true if the edge is new (`upsert`), or existed (`remove`).
  bool upsert(uint32_t source, uint32_t target, EdgeValue value, uint32_t key = 0);
  bool remove(uint32_t source, uint32_t target, uint32_t key = 0);

  // `scan_between` visits the edges from one node to another: `visit(key, EdgeValue)`, in any order; `last_key` returns
  // the greatest key up to `most`.
  template <class Visit>
  void scan_between(uint32_t source, uint32_t target, Visit&& visit) const {
    if (!keyed_) {
      if (const auto value = lists_.out.find(source, target)) visit(0u, *value);
      return;
    }
    keyed_->out.scan_range(source, list_id<uint64_t>(target, 0), list_id<uint64_t>(target, UINT32_MAX),
                           [&](uint64_t id, EdgeValue value) { visit(static_cast<uint32_t>(id), value); });
  }
  // Requires: a type with keys.
  std::optional<uint32_t> last_key(uint32_t source, uint32_t target, uint32_t most = UINT32_MAX) const {
    assert(keyed_);
    const auto id = keyed_->out.last_in_range(source, list_id<uint64_t>(target, 0), list_id<uint64_t>(target, most));
    return id ? std::optional(static_cast<uint32_t>(*id)) : std::nullopt;
  }

  // -- a batch. Requires: no edge twice, an undirected one in neither direction; the previous batch is settled or
  // abandoned, and `commit` comes after `prepare`.

  void prepare(std::span<const EdgeUpdate> updates, ThreadPool* pool);
  void commit() noexcept;
  // Returns how many bytes of working memory it has given back (recent_needs.h).
  size_t settle() noexcept;
  void abandon() noexcept;
  void apply(std::span<const EdgeUpdate> updates, ThreadPool* pool) {
    prepare(updates, pool);
    commit();
    settle();
  }
  // The same three phases for a step of compaction, which is needed when batches have left much memory free between
  // blocks; returns false if it is not needed. `commit` may be skipped if no list `is_moved`.
  bool prepare_compaction();
  bool is_moved() const;

  // -- reading

  uint32_t degree_out(uint32_t node) const { return keyed_ ? keyed_->out.degree(node) : lists_.out.degree(node); }
  uint32_t degree_in(uint32_t node) const { return keyed_ ? keyed_in().degree(node) : in().degree(node); }

  // `visit(NeighborSpan)` receives every edge's other end once, one leaf at a time. A span is valid until `visit`
  // returns.
  template <class Visit>
  void scan_out(uint32_t node, Visit&& visit) const {
    keyed_ ? scan_keyed(keyed_->out, node, visit) : lists_.out.scan(node, visit);
  }
  template <class Visit>
  void scan_in(uint32_t node, Visit&& visit) const {
    keyed_ ? scan_keyed(keyed_in(), node, visit) : in().scan(node, visit);
  }

  // The same for the lists after the batch; call them between `prepare` and `commit`.
  uint32_t degree_out_after(uint32_t node) const {
    return (keyed_ ? keyed_->out_updater.root_after(node) : lists_.out_updater.root_after(node)).degree;
  }
  uint32_t degree_in_after(uint32_t node) const {
    return (keyed_ ? in_root_after(*keyed_, node) : in_root_after(lists_, node)).degree;
  }
  template <class Visit>
  void scan_out_after(uint32_t node, Visit&& visit) const {
    keyed_ ? scan_keyed(keyed_->out, keyed_->out_updater.root_after(node), visit)
           : lists_.out.scan(lists_.out_updater.root_after(node), visit);
  }
  template <class Visit>
  void scan_in_after(uint32_t node, Visit&& visit) const {
    keyed_ ? scan_keyed(keyed_in(), in_root_after(*keyed_, node), visit)
           : in().scan(in_root_after(lists_, node), visit);
  }

  // Splits each number of a list into the other end and the key. `from`: a node or a root.
  template <class From, class Visit>
  static void scan_keyed(const KeyedTrees& trees, From from, Visit&& visit) {
    trees.scan(from, [&](const BasicNeighborSpan<uint64_t>& span) {
      uint32_t ids[SamtreeOptions::kMaxCapacity], keys[SamtreeOptions::kMaxCapacity];
      for (size_t i = 0; i < span.size; ++i) {
        ids[i] = end_of(span.ids[i]);
        keys[i] = static_cast<uint32_t>(span.ids[i]);
      }
      visit(NeighborSpan{ids, span.weights, span.times, span.rows, span.size, keys});
    });
  }

  // Address of the first block of a node's out-neighbours, null if it has none; a scan reads it first.
  const void* out_leaf(uint32_t node) const { return keyed_ ? keyed_->out.address(node) : lists_.out.address(node); }

  // Prefetching has two steps, because the second reads what the first fetches: the root of a list, then its first
  // block.
  void prefetch_out(uint32_t node) const { keyed_ ? keyed_->out.prefetch_root(node) : lists_.out.prefetch_root(node); }
  void prefetch_out_leaf(uint32_t node) const { prefetch(out_leaf(node)); }
  void prefetch_in(uint32_t node) const { keyed_ ? keyed_in().prefetch_root(node) : in().prefetch_root(node); }
  void prefetch_in_leaf(uint32_t node) const { prefetch(keyed_ ? keyed_in().address(node) : in().address(node)); }

  // Bytes of memory: `lists` hold the edges, `batches` is the working memory of the last batch.
  struct Memory {
    size_t lists, batches;
  };
  Memory memory() const;

  // -- saving and loading

  Trees::Saved save_out() const { return lists_.out.save(); }
  Trees::Saved save_in() const { return lists_.in.save(); }
  // Throws std::runtime_error if the columns do not fit together or the two sides differ in their number of edges.
  void load(const Trees::Saved& out, const Trees::Saved& in, size_t num_edges);
  // The same for a type with keys.
  KeyedTrees::Saved save_keyed_out() const { return keyed_->out.save(); }
  KeyedTrees::Saved save_keyed_in() const { return keyed_->in.save(); }
  void load(const KeyedTrees::Saved& out, const KeyedTrees::Saved& in, size_t num_edges);

  // What a part of the graph keeps (graph_part.h): the edges with an end that it owns. Lists of owned nodes are saved
  // as they are; those of others are new.
  using Owns = std::function<bool(uint32_t node)>;
  template <class Id>
  struct Share {
    typename Samtrees<Id>::Saved out, in;
    size_t num_edges = 0;
  };
  Share<uint32_t> share(const Owns& owns_source, const Owns& owns_target) const;
  // The same for a type with keys.
  Share<uint64_t> keyed_share(const Owns& owns_source, const Owns& owns_target) const;
  // The reverse: the whole of which the stores have shares, each list from the store of the part that owns its node.
  // Requires: owners are positions among the stores; of a node without edges, any.
  using OwnerOf = std::function<size_t(uint32_t node)>;
  static Share<uint32_t> join(std::span<const GraphStore* const> stores, const OwnerOf& source_owner,
                              const OwnerOf& target_owner);
  static Share<uint64_t> keyed_join(std::span<const GraphStore* const> stores, const OwnerOf& source_owner,
                                    const OwnerOf& target_owner);

  // Throws std::logic_error that names the violated invariant.
  void check() const;

 private:
  [[noreturn]] static void throw_no_in_lists();
  bool lists_in() const { return !options_.undirected && options_.in_lists; }
  size_t num_loops() const;

  template <class Use>
  decltype(auto) with(Use&& use) {
    return keyed_ ? use(*keyed_) : use(lists_);
  }
  template <class Use>
  decltype(auto) with(Use&& use) const {
    return keyed_ ? use(std::as_const(*keyed_)) : use(lists_);
  }
  template <class Id>
  const Samtrees<Id>& in_of(const EdgeLists<Id>& lists) const {
    if (!has_in()) throw_no_in_lists();
    return options_.undirected ? lists.out : lists.in;
  }
  template <class Id>
  SamtreeRoot in_root_after(const EdgeLists<Id>& lists, uint32_t node) const {
    in_of(lists);
    return (options_.undirected ? lists.out_updater : lists.in_updater).root_after(node);
  }
  template <class Id>
  void prepare_lists(EdgeLists<Id>* lists, std::span<const EdgeUpdate> updates, ThreadPool* pool);
  template <class Id>
  const EdgeLists<Id>& lists_of() const;
  template <class Id>
  static Share<Id> join_lists(std::span<const GraphStore* const> stores, const OwnerOf& source_owner,
                              const OwnerOf& target_owner);
  template <class Id>
  Share<Id> share_lists(const EdgeLists<Id>& lists, const Owns& owns_source, const Owns& owns_target) const;
  template <class Id>
  void load_lists(EdgeLists<Id>* lists, const typename Samtrees<Id>::Saved& out, const typename Samtrees<Id>::Saved& in,
                  size_t num_edges);

  EdgeOptions options_;
  EdgeLists<uint32_t> lists_;
  std::unique_ptr<EdgeLists<uint64_t>> keyed_;  // used instead if edges have keys
  RecentNeeds needs_{size_t{1} << 12};          // in items
  size_t num_edges_ = 0, num_targets_ = 0;
  int64_t growth_ = 0;  // change of num_edges_ at the next commit
};

}  // namespace livegnn
