// One sampling worker (Helios, sections 5.2 and 5.3): the reservoir tables of the nodes that it owns, their features,
// and who needs them. It is driven without a graph: events in, messages out.
//
//   edges, removals ─► lists ─► cells ─► what was added and removed ─┬─► references ─► owners of the neighbours
//   features        ─► rows ──────────────────────────┐              │        └─► subscriptions, here or elsewhere
//   blocks of other sampling workers ─► subscriptions ┴──────────────┴─► samples and features ─► serving workers
//
// What is asked of a node together lies together: `NodeTable` has one row for it on each side (an edge type, seen from
// one end), with the words of the cells of all queries there and of the counts of who needs them.
//
//   row | id | cell of query 0 | cell of query 1 | who needs it | who needs its features |
//
// A node belongs to one sampling worker, and a seed to one serving worker, by hashes of its id; while seeds are moved,
// to its old and its new one. A serving worker needs the samples of all its seeds, for the queries of the first hop,
// and their features; this follows from the id, and takes no table. Of what else a node has, it needs what the samples
// that it has lead to, and that is counted: if a node comes into or goes out of a sample that a worker has, the node's
// owner is told (`PublicationWriter::reference`), for each worker that has the sample.
//
// Invariants: once all blocks are delivered, each serving worker has been told of exactly the samples and features that
// a full walk from its seeds meets, as they are now. The count of (query, node, worker) in a subscription table is the
// number of samples of the query's parents that the worker has and that hold the node; features are counted for seeds
// too, which a worker may lose later. With `keep_edges`, a cell is a
// function of the node's present neighbours; without, the place of a removed neighbour is empty until another comes.
// Cells, subscriptions, features and lists are a function of the calls in their order.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ids/owners.h"
#include "presampling/samples/publication.h"
#include "presampling/samples/query_plan.h"
#include "presampling/tables/cell_table.h"
#include "presampling/tables/feature_table.h"
#include "presampling/tables/neighbor_lists.h"
#include "presampling/tables/node_table.h"
#include "presampling/tables/subscription_table.h"

namespace livegnn {

static_assert(Owners::kMaxWorkers <= kMaxServingWorkers);

struct ShardOptions {
  uint32_t worker = 0, sampling_workers = 1;
  uint32_t serving_workers = 1;  // at the beginning: see `begin_move`
  uint64_t seed = 0;
  bool keep_edges = true;
  std::vector<size_t> feature_widths;  // by node type; 0: its nodes have no features
};

// Edges of one type. A column that a type lacks may be empty.
struct EdgeBatch {
  std::span<const uint64_t> sources, targets;
  std::span<const float> weights = {};
  std::span<const double> times = {};
};

class SamplingShard {
 public:
  // Throws std::invalid_argument.
  SamplingShard(QueryPlan plan, ShardOptions options);

  const QueryPlan& plan() const { return plan_; }
  const ShardOptions& options() const { return options_; }
  const CellTable& cells(size_t query) const { return *cells_[query]; }
  const SubscriptionTable& subscriptions(size_t query) const { return *subscriptions_[query]; }
  const SubscriptionTable& feature_subscriptions(size_t node_type) const { return *feature_subscriptions_[node_type]; }
  const FeatureTable& features(size_t node_type) const { return *features_[node_type]; }
  size_t bytes() const;

  // -- events. What concerns nodes of other workers is passed over, so all workers may be given all events; of an edge,
  // the owners of the ends at which queries begin need it. Each throws std::invalid_argument, and changes nothing, if
  // columns are missing, of other lengths, or not finite.

  // Adds edges, or gives them other weights and times. As in the graph, an edge that is there with a later time stays.
  void add_edges(uint32_t edge_type, const EdgeBatch& edges);
  void remove_edges(uint32_t edge_type, const EdgeBatch& edges);
  // `rows`: [nodes, width].
  void set_features(uint32_t node_type, std::span<const uint64_t> nodes, std::span<const float> rows);
  // Gives `row` to those of the nodes that this worker owns and that have no features: to nodes that nobody announced.
  void add_missing(uint32_t node_type, std::span<const uint64_t> nodes, std::span<const float> row);
  // Removes nodes with their edges and features. All workers must be told, because samples of any may hold them. It
  // goes through all cells and lists in which nodes of this type can be, so tell of many at once.
  void remove_nodes(uint32_t node_type, std::span<const uint64_t> nodes);
  // Removes the edges of this type whose time is less than `before`: from lists and the cells drawn from them; without
  // lists, from cells. It goes through all of them, so call it seldom. Throws std::invalid_argument if times are not
  // kept: of lists if no query of theirs has any, without lists if one has none.
  void expire(uint32_t edge_type, double before);
  // Whole blocks that other sampling workers have written for this one; those that were read before are passed over.
  // Throws std::runtime_error if one is spoiled, or some before it are missing; those before that one are read.
  void receive(std::span<const uint8_t> blocks);
  // Tells a serving worker that has lost its cache all that it needs. The numbers of its blocks begin at 0 again.
  void publish_all(uint32_t serving_worker);

  // -- seeds that change hands (sampling_shard_owners.cc). Sampling workers may be told one after the other.

  const Owners& owners() const { return owners_; }
  // From now on workers have their seeds by `next` as well, and are told of those that are new to them. Throws
  // std::invalid_argument if a move has not ended, or if `next` is no jump hash.
  void begin_move(Owners next);
  // From now on workers have their seeds by `next` alone, or, if that is not `taken`, by what was before; what they
  // need no longer is taken back. Throws std::invalid_argument if no move has begun.
  void end_move(bool taken);

  // -- what is to be sent: whole blocks, until `clear_outbox`

  // The blocks that events have made so far are completed.
  void finish();
  uint32_t num_serving() const { return static_cast<uint32_t>(serving_.size()); }  // workers that were told of ever
  std::span<const uint8_t> for_serving(uint32_t worker) const { return serving_[worker].bytes(); }
  std::span<const uint8_t> for_sampling(uint32_t worker) const { return sampling_[worker].bytes(); }
  void clear_outbox() noexcept;
  size_t records_written() const;

  // The whole state. `save` throws std::invalid_argument if the outbox is not empty. `load` throws std::runtime_error
  // if the arrays are not the state of such a worker; then nothing can be done with it but to load another.
  void save(Arrays* to) const;
  void load(const ArrayViews& from);

 private:
  static constexpr uint32_t kAllWorkers = UINT32_MAX;

  struct Side {  // an edge type, seen from one end
    uint32_t edge_type;
    bool incoming, undirected;
    std::vector<uint32_t> queries;
    std::unique_ptr<NeighborLists> lists;  // null without `keep_edges`
    std::unique_ptr<NodeTable> nodes;      // the cells of its queries, and who needs them, node by node
    bool timed = false;                    // some query has times, so lists have
    bool ids_alone = true;                 // cells of all queries are ids alone
    size_t collected = 0;                  // works of the event that are made already
  };
  struct Work {  // one edge at one of its ends
    const Side* side;
    uint64_t node, hash;
    Neighbor neighbor;
    uint64_t* row = nullptr;  // as long as rows have not moved
    uint64_t moves = 0;
    size_t change = 0;  // which of the side's list it is
  };
  struct Works {
    std::vector<Work> all;
    std::vector<CellTable::Draw> draws;  // of each work, for each query of its side
  };
  struct Tables {  // of a query, as its side has them
    NodeTable* nodes;
    CellTable* cells;
    SubscriptionTable* subscriptions;
    bool of_seeds, ids_alone;
    bool refers;  // its neighbours' owners count something
  };
  struct Removal {  // of a neighbour from a cell
    uint32_t query;
    uint64_t node, neighbor;
  };
  struct Reference {
    uint64_t node, hash;
    int64_t change;
    uint64_t* row;  // in the first table in which something is counted of the node; as long as rows have not moved
    uint32_t query, worker, owner;
    uint32_t moves;  // the last bits
  };
  struct Referred {  // what is counted of a neighbour in one table of nodes
    NodeTable* nodes;
    std::vector<uint32_t> children;  // queries
    bool features = false;           // of its features too
  };
  struct Touched {  // a sample, or a row of features, that somebody may have to be told of
    uint32_t what, worker;
    uint64_t node;
    uint64_t* row = nullptr;  // of a sample; as long as rows have not moved
    uint64_t moves = UINT64_MAX;
  };

  void make_sides();
  void make_tables();
  void make_referred();
  // Whether a query has times: its cells are drawn by them, or carry them.
  static bool has_times(const OneHopQuery& query) { return query.timed || query.by == SampleBy::kLatest; }
  bool owns(uint64_t node) const { return node_owners_.of_id(node) == options_.worker; }
  void check_features(uint32_t node_type, size_t rows, std::span<const float> values) const;
  void check_edges(uint32_t edge_type, const EdgeBatch& edges, bool values) const;
  template <class Visit>
  void for_each_end(const Side& side, const EdgeBatch& edges, size_t i, const Visit& visit) const;
  void change_lists(const Side& side, const EdgeBatch& edges, bool has);
  void change_edges(uint32_t edge_type, const EdgeBatch& edges, bool has);
  void collect(uint32_t edge_type, const EdgeBatch& edges, size_t begin, Works* to);
  template <class Prepare, class Apply>
  void change_cells(uint32_t edge_type, const EdgeBatch& edges, const Prepare& prepare, const Apply& apply);
  void prepare(Work* work, CellTable::Draw* draws, bool has) const;
  void prepare_ids(Work* work, CellTable::Draw* draws) const;
  void apply(Work* work, const CellTable::Draw* draws, bool has);
  void apply_ids(Work* work, const CellTable::Draw* draws);
  bool is_late(const Work& work, uint32_t query) const;
  void remove_sorted();
  void redraw(uint32_t query, uint64_t node);
  void erase_cell(uint32_t query, uint64_t node);

  const Side& side_of(uint32_t query) const { return sides_[sides_of_[query]]; }
  // `visit(worker)` for each serving worker that has the samples of a node, whose row may be null.
  template <class Visit>
  void for_each_subscriber(uint32_t query, uint64_t node, const uint64_t* row, const Visit& visit) const {
    if (tables_[query].of_seeds) {
      for_each_owner(node, visit);
    } else {
      tables_[query].subscriptions->for_each_worker_at(row, visit);
    }
  }
  // For events that are not about one row.
  template <class Visit>
  void for_each_subscriber(uint32_t query, uint64_t node, const Visit& visit) const {
    for_each_subscriber(query, node, side_of(query).nodes->find(node), visit);
  }
  bool is_seed_of(uint32_t node_type, uint64_t node, uint32_t worker) const {
    return node_type == plan_.seed_type() &&
           (owners_.of_id(node) == worker || (next_owners_ && next_owners_->of_id(node) == worker));
  }
  template <class Visit>
  void for_each_owner(uint64_t node, const Visit& visit) const {
    const uint32_t worker = owners_.of_id(node);
    visit(worker);
    if (!next_owners_) return;
    const uint32_t next = next_owners_->of_id(node);
    if (next != worker) visit(next);
  }
  void tell_owners(const Owners& told, const Owners& other, int64_t change);
  void grow_serving(uint32_t workers);
  // A node is in so many more samples of the query that the worker has: this goes to its owner, when the event is
  // complete. Its row is fetched for then.
  void refer(uint32_t query, uint32_t worker, uint64_t node, int64_t change) {
    const uint32_t owner = node_owners_.of_id(node);
    uint64_t hash = 0;
    if (owner == options_.worker) {
      if (referred_[query].empty()) return;
      hash = NodeTable::hash_of(node);
      for (const Referred& referred : referred_[query]) referred.nodes->prefetch(hash);
    }
    references_.push_back({node, hash, change, nullptr, query, worker, owner, 0});
  }
  // A cell has changed: its neighbours' owners have to know, and whoever has it. Rows may move.
  void tell_change(uint32_t query, uint64_t* row, uint64_t neighbor, CellChange change) {
    const Tables& tables = tables_[query];
    const uint64_t node = row[0];
    bool needed = false;
    for_each_subscriber(query, node, row, [&](uint32_t worker) {
      needed = true;
      if (!tables.refers) return;
      if (change.added) refer(query, worker, neighbor, 1);
      if (change.removed) refer(query, worker, change.removed_id, -1);
    });
    if (change.first) {
      if (needed) {
        touched_samples_.push_back({query, kAllWorkers, node, row, tables.nodes->moves()});
      } else {
        tables.cells->take_at(row);  // nobody waits for it
      }
    }
    if (change.incomplete) redraw(query, node);
  }
  void pass_references();
  void prefetch_referred(Reference* reference) const;
  void apply_reference(const Reference& reference);
  void subscribe(uint32_t query, uint64_t* row, uint32_t worker, int64_t change);
  void subscribe_features(uint32_t type, uint64_t* row, uint32_t worker, int64_t change);
  // After each event: references are passed on, then what was touched is published.
  void complete();
  void publish_samples();
  void publish_sample(uint32_t query, uint64_t node, uint32_t worker, const uint64_t* row);
  void tell_sample(uint32_t query, uint64_t node, uint32_t worker, const CellView& cell);
  void publish_features();
  void publish_row(uint32_t node_type, uint64_t node, uint32_t worker);
  void settle();

  QueryPlan plan_;
  ShardOptions options_;
  Owners node_owners_;                 // sampling workers
  Owners owners_;                      // serving workers
  std::optional<Owners> next_owners_;  // while seeds are moved
  std::vector<Side> sides_;
  std::vector<size_t> sides_of_;                                           // by query
  std::vector<std::unique_ptr<CellTable>> cells_;                          // by query
  std::vector<std::unique_ptr<SubscriptionTable>> subscriptions_;          // by query; none of the first hop has any
  std::vector<std::unique_ptr<SubscriptionTable>> feature_subscriptions_;  // by node type
  std::vector<std::unique_ptr<FeatureTable>> features_;                    // by node type
  std::vector<PublicationWriter> serving_, sampling_;
  std::vector<std::vector<Referred>> referred_;  // by query
  std::vector<Tables> tables_;                   // by query
  size_t most_queries_ = 0;                      // of a side
  BlockOrder received_;

  // Working memory of an event.
  Works works_, next_works_;
  std::vector<Removal> removals_;
  std::vector<NeighborLists::Change> list_changes_;
  std::vector<Reference> references_;
  std::vector<Touched> touched_samples_, touched_features_;
  std::vector<uint64_t> erased_;
};

}  // namespace livegnn
