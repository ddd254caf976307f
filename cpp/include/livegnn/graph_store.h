// The edges of one edge type: who points at whom, with weights, times and features where the type has them.
//
//   out: source ─► samtree of targets        (out-neighbours)
//   in:  target ─► samtree of sources        (in-neighbours; an undirected type has none: its out-neighbours are both)
//
// Invariants: an edge is in the out-list of its source if and only if it is in the in-list of its target, with the same
// values; an undirected edge is in the lists of both ends, a loop in one; there are no parallel edges.
// The order of a scan depends only on the history of the batches, and survives saving and loading.
//
// Thread safety: any number of readers. A batch is built aside by `prepare`, beside readers; `commit`, which is short,
// and all other changes are alone; `settle` comes when no reader is left who began before `commit`. A reader therefore
// sees the edges before a batch or after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "livegnn/batch_updater.h"
#include "livegnn/samtree.h"

namespace livegnn {

struct EdgeOptions {
  EdgeColumns columns{};
  bool undirected = false;
  bool accumulate = false;  // an edge that is added again adds its weight to the old one
  bool in_lists = true;     // false: a directed type that nobody asks for in-neighbours
  SamtreeOptions samtree{};
};

// What becomes of one edge: it has these values, or it is not there.
struct EdgeUpdate {
  uint32_t source, target;
  bool has;
  EdgeValue value;
};

class GraphStore {
 public:
  using Trees = Samtrees<uint32_t>;

  explicit GraphStore(EdgeOptions options);
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;

  const EdgeOptions& options() const { return options_; }
  size_t num_edges() const { return num_edges_; }
  size_t num_sources() const { return out_.size(); }
  size_t num_targets() const { return options_.undirected ? out_.size() : num_targets_; }
  const Trees& out() const { return out_; }
  // Throws std::logic_error where there are no in-lists.
  const Trees& in() const {
    if (!has_in()) throw_no_in_lists();
    return options_.undirected ? out_ : in_;
  }
  bool has_in() const { return options_.undirected || options_.in_lists; }

  // Nodes come into being without edges. Both numbers only grow.
  void resize(size_t num_sources, size_t num_targets);

  // -- one edge at once

  std::optional<EdgeValue> find(uint32_t source, uint32_t target) const { return out_.find(source, target); }
  // True if the edge was not there before, or was there.
  bool upsert(uint32_t source, uint32_t target, EdgeValue value);
  bool remove(uint32_t source, uint32_t target);

  // -- a batch; no edge may occur twice in it, an undirected one in neither direction

  void prepare(std::span<const EdgeUpdate> updates, ThreadPool* pool);
  void commit();
  void settle();
  void abandon();
  void apply(std::span<const EdgeUpdate> updates, ThreadPool* pool) {
    prepare(updates, pool);
    commit();
    settle();
  }
  // The same three steps for compaction, when `settle` has left much memory free between blocks: false if it has not.
  bool prepare_compaction();

  // -- reading

  uint32_t degree_out(uint32_t node) const { return out_.degree(node); }
  uint32_t degree_in(uint32_t node) const { return in().degree(node); }

  // `visit(NeighborSpan)` sees every neighbour once, a leaf at a time. A span is good until `visit` returns.
  template <class Visit>
  void scan_out(uint32_t node, Visit&& visit) const {
    out_.scan(node, visit);
  }
  template <class Visit>
  void scan_in(uint32_t node, Visit&& visit) const {
    in().scan(node, visit);
  }

  // The first block of a node's out-neighbours, null if it has none: what a scan reads first.
  const void* out_leaf(uint32_t node) const { return out_.address(node); }

  // Two steps, because the second needs what the first brings: the root of a list, then its first block.
  void prefetch_out(uint32_t node) const { out_.prefetch_root(node); }
  void prefetch_out_leaf(uint32_t node) const { __builtin_prefetch(out_.address(node)); }
  void prefetch_in(uint32_t node) const { in().prefetch_root(node); }
  void prefetch_in_leaf(uint32_t node) const { __builtin_prefetch(in().address(node)); }

  // Bytes of memory: `lists` are what the edges take, `batches` what the last batch was prepared in.
  struct Memory {
    size_t lists, batches;
  };
  Memory memory() const;

  // -- keeping

  Trees::Saved save_out() const { return out_.save(); }
  Trees::Saved save_in() const { return in_.save(); }
  // Throws std::runtime_error where the columns do not fit together or the two sides differ in their number of edges.
  void load(const Trees::Saved& out, const Trees::Saved& in, size_t num_edges);

  // Throws std::logic_error naming the invariant that does not hold.
  void check() const;

 private:
  [[noreturn]] static void throw_no_in_lists();
  bool lists_in() const { return !options_.undirected && options_.in_lists; }
  size_t num_loops() const;

  EdgeOptions options_;
  Trees out_, in_;
  BatchUpdater out_updater_, in_updater_;
  std::vector<BatchUpdater::Item> items_;
  size_t num_edges_ = 0, num_targets_ = 0;
  int64_t growth_ = 0;  // of num_edges_ at the next commit
};

}  // namespace livegnn
