// Keeps the values of a program right while its graph changes.
//
// `prepare` derives, from the old graph, the old values and a delta, the new rows of every node that the delta reaches;
// it writes them beside the values. `commit` copies them in. Without the commit the same computation answers "what if".
//
//   values (tables)      Changes, one per value
//   ┌──────────┐         nodes   4  9  2        rows reached, in the order in which they were reached
//   │ row 0    │         rows   [..][..][..]    their new contents; a row that came out bit-equal is left out of
//   `nodes` │ ...      │ └──────────┘
//
// Propagation (RIPPLE, section 4.3; NeutronRT, algorithm 1) adds to each affected aggregate
//   sum over changed u -> v of w * (new_u - old_u)   +   sum over changed edges u -> v of (w_new - w_old) * now_u
// with the old graph's edges in the first sum; added and removed edges are those whose old or new weight is nothing.
// Each sum is taken by one thread in a fixed order.
//
// Drift: `errors_` bounds, to first order, the rounding that an aggregate's row has gathered since it was last computed
// from its neighbours, in units of columns; past kDriftTolerance it is computed anew (rounding.h). The units are the
// typical magnitudes of messages, channel by channel: they are measured when the engine is made, and anew after a
// number of batches that depends on nothing else, and are a part of the state (scales.cc). So is the count of batches.
//
// What is not finite does not stay: a row or a bound that is not is computed anew whenever it is touched. A batch that
// would make a row other than finite that was finite is found out in `prepare`; its owner may refuse it.
//
// Maxima have no inverse, so beside each is kept how many messages equal it: it stays while one of them does, and only
// a target that loses the last one, and gets none as large, is computed from all its neighbours (the case of
// InkStream). Counts are a value like any other. Their rows hold uint32 bits rather than floats: behind a ReLU whole
// neighbourhoods tie at 0, and a hub may have more in-edges than the 2^24 up to which a float counts. Nobody calculates
// with such rows, they are copied and compared as bytes.
//
// Thread safety: one `prepare`, `reserve`, `commit` or `release` at a time; `commit` runs under the graph's lock taken
// alone, readers share it, and go on beside the others.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inference/residents.h"
#include "memory/growing_array.h"
#include "program/program.h"
#include "store/graph.h"
#include "views/arrays.h"

namespace livegnn {

class ThreadPool;

inline constexpr float kDriftTolerance = 2e-5f;

// Memory that grows and does not keep what was in it.
class Scratch {
 public:
  float* reserve(size_t floats) {
    if (floats > block_.size()) block_ = FloatBlock(floats + floats / 2);
    return block_.data();
  }
  float* data() { return block_.data(); }
  const float* data() const { return block_.data(); }
  size_t bytes() const { return block_.size() * sizeof(float); }

 private:
  FloatBlock block_;
};

// The rows of one value, where they lie.
struct Rows {
  float* data;
  size_t stride, width, count;

  float* row(size_t i) const { return data + i * stride; }
};

// Memory for rows that are computed to be read once. What was taken stays where it is until `clear`.
class RowArena {
 public:
  float* take(size_t floats) {
    while (block_ < blocks_.size() && blocks_[block_].size() - used_ < floats) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) {
      blocks_.emplace_back(std::max(floats, kBlockFloats));
      floats_ += blocks_.back().size();
      used_ = 0;
    }
    float* rows = blocks_[block_].data() + used_;
    used_ += (floats + 15) / 16 * 16;  // rows begin with a cache line, which may be the end of the block
    used_ = std::min(used_, blocks_[block_].size());
    return rows;
  }
  // Where somebody has all rows of values that are not stored, by value: they need not be computed. Outlives `clear`.
  const std::vector<Rows>* whole = nullptr;

  void clear() {
    // What one large question needed is not held for ever.
    if (floats_ > kKeptFloats) {
      blocks_.clear();
      floats_ = 0;
    }
    block_ = used_ = 0;
  }

 private:
  static constexpr size_t kBlockFloats = size_t{1} << 16, kKeptFloats = size_t{1} << 20;

  std::vector<FloatBlock> blocks_;
  size_t block_ = 0, used_ = 0, floats_ = 0;
};

struct Changes {
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> positions;  // of the row of each node
  Scratch rows;
  const float* external = nullptr;  // rows that lie elsewhere: the delta's features
  size_t stride = 0;
  // Of aggregates: all that the batch reached, by position, and their bounds on rounding. A row that came out as it was
  // is among them: what was added to it may all have been rounded away.
  std::vector<uint32_t> reached;
  std::vector<float> errors;
  std::vector<double> sums;        // of context sums, by position
  std::vector<double> sum_errors;  // bounds on their rounding

  const float* at(size_t position) const { return (external != nullptr ? external : rows.data()) + position * stride; }
  const float* row(size_t i) const { return at(positions[i]); }
  size_t bytes() const {
    return bytes_of(nodes) + bytes_of(positions) + rows.bytes() + bytes_of(reached) + bytes_of(errors) + bytes_of(sums);
  }
};

struct DirectedChange {
  uint32_t source, target;  // in a reversed direction the other way round
  float old_weight, new_weight;
  bool had, has;
  uint32_t key;                              // among the edges between the same two nodes
  const float *old_features, *new_features;  // null in a type without

  uint64_t order() const { return (uint64_t{source} << 32) | key; }  // among those of a target
};

// What a batch does to every value. Reused from batch to batch, so that its memory is.
struct Prepared {
  Prepared() = default;
  Prepared(const Prepared&) = delete;

  std::vector<Changes> changes;                    // by value
  std::vector<std::vector<DirectedChange>> edges;  // by direction, in order of target, source and key
  std::vector<Moves> moves;                        // by direction, where not all aggregates are kept
  std::vector<uint32_t> changed;                   // nodes whose prediction is another, added ones among them
  size_t affected = 0;                             // nodes whose prediction was computed again
  size_t edges_touched = 0;                        // messages added or taken back, and neighbours of recomputed rows
  size_t nodes_touched = 0;                        // rows of aggregates and of what they read, old ones and new ones
  size_t recomputed = 0;                           // aggregates computed from all their neighbours
  // A node that has a row which was finite and would not be, kNoIndex if there is none: the first one of the first step
  // that has any. What comes after that step has not been computed: such a batch must not be committed.
  uint32_t lost = kNoIndex, lost_type = 0;

  // Where scales were measured on what comes of the batch (scales.cc): by propagation what they become, none where they
  // stay; by how much bounds that are counted in them grow; and the rows that are past theirs then.
  struct Units {
    std::vector<float> scales;
    float mean = 0;
    float shrunk = 1;
    std::vector<uint32_t> overdue;
  };
  bool measured = false;
  std::vector<Units> units;

  // Of a batch that a lazy engine (below) has only marked:
  bool marked = false;
  std::vector<std::vector<uint32_t>> reached;  // by lazy step
  std::vector<Changes> before;                 // by eager value: rows that are about to be overwritten

  // Once it is committed: what was much larger than other batches need is given back, all but `changed` and what is
  // counted. Returns how many bytes that was.
  size_t settle();
  size_t held() const { return held_; }  // bytes, after the last `settle`; from any thread

 private:
  RecentNeeds needs_{size_t{1} << 12};  // in `need`
  friend class Engine;
  size_t need() const;   // what the batch touched: rows, messages and edges
  size_t bytes() const;  // now
  std::atomic<size_t> held_{0};
};

// What queries of a lazy engine have computed so far.
struct LazyWork {
  size_t rows, edges, recomputed;  // rows of all values; in-edges looked at; aggregates summed from all neighbours
};

class Engine {
 public:
  // Does not compute anything: `initialize` or `restore` comes next. The graph must outlive the engine. Rows and errors
  // lie in files in `directory`, for when they outgrow memory; an empty name means memory. Throws std::system_error.
  // Where `keep_degree` is not 0, aggregates are kept of nodes with so many in-edges alone; then each must have a slab
  // of its own, and all else must be derived.
  Engine(const Graph& graph, Program program, size_t threads, const std::string& directory = {},
         size_t keep_degree = 0);
  ~Engine();

  // Whether every aggregate that a batch reaches is computed from all its neighbours: what an engine costs that only
  // reuses embeddings (NeutronRT's RTEC-UER), for comparison.
  void set_recompute(bool all) { recompute_all_ = all; }

  // Whether `prepare` looks for rows that a batch makes other than finite.
  void set_guard(bool on) { guard_ = on; }
  bool guarded() const { return guard_; }

  const Program& program() const { return program_; }
  const Graph& graph() const { return graph_; }

  void initialize();
  // If it throws, nothing has happened.
  void prepare(const Delta& delta, Prepared* prepared);
  // The ids of the nodes in `Prepared::changed`, before the commit.
  std::vector<int64_t> changed_ids(const Delta& delta, const Prepared& prepared) const;
  // Before the commit of what `prepare` or `prepare_batch` has made: all that takes memory or space on a disk, aside.
  // If it throws, nothing has happened.
  void reserve(const Delta& delta, const Prepared& prepared);
  // Under the graph's lock, alone. The work is proportional to what was prepared, and needs no memory.
  void commit(const Delta& delta, const Prepared& prepared) noexcept;
  // After `commit`, when the lock has been let go, frees what was replaced; instead of it, what was reserved.
  void release() noexcept;

  // -- lazily (lazy.h)

  // From now on `prepare_batch` computes the first `eager` steps, contexts among them, and only marks what the others
  // would compute. False, and nothing done, if one of those is of a kind that is always computed at once. For engines
  // that keep every row.
  bool be_lazy(size_t eager);
  bool lazy() const { return lazy_ != nullptr; }
  // As `prepare`, for a batch that will be committed. A lazy engine marks; if the batch removes nodes, whose indices
  // will be used again, it settles and computes. `prepare` itself is for engines that are settled.
  void prepare_batch(const Delta& delta, Prepared* prepared);
  // Computes all that is stale, so that every value is as it would be without laziness. Takes the graph's lock. For the
  // one writer, between batches.
  void settle();
  // Whether so much has been recorded, with a batch that is about to come, that it is time to settle.
  bool outgrown_by(const Delta& delta) const;
  size_t pending() const;  // nodes whose prediction is stale
  LazyWork work() const;
  size_t overlay_bytes() const;
  size_t record_bytes() const;
  // What batches are prepared in, beside what each `Prepared` holds, as it was after the last one; from any thread.
  size_t batch_bytes() const { return batch_bytes_; }
  // Of its weights.
  size_t program_bytes() const;

  // To be written to only by the owner of the value: the graph's features are not the engine's. Of a value whose rows
  // are not all kept there are none: ask `stored_rows`.
  Rows rows(uint32_t value) const;
  // Fills a value with rows that were saved. False, and nothing done, if there is not one for every index of the graph.
  bool load(uint32_t value, const float* from, size_t count, size_t width);
  // Of partial values, rows and errors are those of residents, in the order of these.
  std::vector<uint32_t> residents(size_t direction) const;
  // To be called before rows are loaded. False, and nothing done, if the nodes are not ones of the graph in order.
  bool load_residents(size_t direction, std::span<const uint32_t> nodes);
  Rows kept_rows(uint32_t value) const;  // by slot, where the value is partial
  uint32_t slot_of(uint32_t value, uint32_t node) const;
  // Of all rows that are kept of a value, by node.
  std::vector<uint32_t> slots(uint32_t value) const;
  // How many floats the bounds on a row's error take: of the step's output, and as they are saved.
  size_t error_width(const PropagateStep& step) const;
  size_t saved_error_width(size_t propagation) const;
  // Those of all rows that are kept, row by row.
  std::vector<float> errors(size_t propagation) const;
  void load_errors(size_t propagation, std::span<const float> errors);
  std::vector<double>& sums(size_t context) { return sums_[context]; }
  std::vector<double>& sum_errors(size_t context) { return sum_errors_[context]; }
  // The unit of each channel of a sum's messages, 0 where it has had none; and behind them what their means are in
  // these. Nothing of a maximum.
  std::vector<float> scales(size_t propagation) const;
  // False, and nothing done, if they cannot be that.
  bool load_scales(size_t propagation, std::span<const float> scales);
  // How many batches were committed, how many had been when scales were last measured, and how many messages batches
  // have touched since.
  struct Moments {
    size_t batches, measured, touched;
  };
  Moments moments() const { return {batches_, measured_, touched_}; }
  void load_moments(const Moments& moments) {
    batches_ = moments.batches, measured_ = moments.measured, touched_ = moments.touched;
  }

  // All that it keeps but the moments, by name; a lazy engine must be settled. `load` throws std::runtime_error where
  // arrays do not fit the graph, the program or each other; then the engine must be initialized, or loaded again.
  void save(Arrays* to) const;
  void load(const ArrayViews& from);

  // Whether it has a row for every node.
  bool is_stored(uint32_t value) const { return program_.values[value].derived < 0 && partial_[value] < 0; }
  // Where the rows of these nodes lie, as they were before the batch that is being prepared, padding included. Those
  // that are not kept are computed into `arena`. Any number of threads may ask, each with an arena of its own.
  void stored_rows(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const;

  Output output_at(size_t output) const;
  uint32_t output_type(size_t output = 0) const;
  size_t output_width(size_t output = 0) const;
  // An output of nodes that exist, `output_width` floats each. A lazy engine computes what they need, and keeps it.
  void predict(std::span<const uint32_t> nodes, float* out, size_t output = 0) const;
  // As they would be if a prepared batch were committed; nodes that it adds may be asked for.
  void predict_prepared(const Prepared& prepared, std::span<const uint32_t> nodes, float* out, size_t output = 0) const;

  // Rows of an on-demand step for every index of its node type, `width` floats each.
  void evaluate(size_t on_demand, float* out);

  // What a scrub saw of some rows: the largest difference of a channel to the same computed anew, as a part of the
  // channel's magnitude, infinite where only one of the two is finite; and how many kept rows are not finite.
  struct Scrubbed {
    double difference = 0;
    size_t not_finite = 0;
  };
  // Computes the aggregates of `nodes` anew. A channel's magnitude is the largest of its own, the mean one of its
  // messages, and that of as many typical ones. A count of maxima that is wrong is a difference of 1. Changes nothing.
  Scrubbed scrub(size_t propagation, std::span<const uint32_t> nodes);
  // The same of degrees, of sums of weights and of loops.
  Scrubbed scrub_context(size_t context, std::span<const uint32_t> nodes);

  // What the rows of one value take of their slab, in memory or in a file.
  size_t bytes(uint32_t value) const;
  size_t errors_bytes() const;
  size_t sums_bytes() const;
  size_t residents_bytes() const;
  size_t mapped_bytes() const;  // how much of all that lies in files

 private:
  using Whole = std::vector<Rows>;  // by value: all rows of a partial one
  struct Reach;
  struct Scratches;
  struct Terms;
  class MessageSums;
  struct Lazy;
  struct After;
  class NewUnits;
  struct SampledTarget {
    uint32_t node;
    int64_t degree;
  };
  struct Sampled {  // an edge
    uint32_t source, target;
    float weight;
    const float* features;
  };
  // A rows step that runs together with the propagation before it, block by block, so that an aggregate is read while
  // it is in the nearest cache.
  struct Reader {
    const RowsStep* step = nullptr;
    bool output = false;
    double row_cost = 0;
  };

  void initialize_context(size_t position);
  void initialize_propagation(size_t position, Whole* whole);
  void prepare_steps(const Delta& delta, size_t steps, Prepared* prepared);
  void prepare_features(const Delta& delta, Prepared* prepared);
  void prepare_edges(const Delta& delta, Prepared* prepared);
  void prepare_context(const ContextStep& step, size_t context, const Delta& delta, Prepared* prepared);
  void find_frontier(const PropagateStep& step, size_t propagation, const Prepared& prepared);
  // A step makes a row other than finite that was. Any thread may say so.
  void lose(uint32_t node_type, uint32_t node);
  // The same of a row that may have been other than finite already.
  void lose_row(uint32_t value, uint32_t node);
  bool has_lost(Prepared* prepared);
  // These look at the graph and its rows as a batch leaves them; where there is none, as they are.
  std::vector<SampledTarget> sample_targets(const PropagateStep& step, const After* after) const;
  std::vector<Sampled> sample_edges(const PropagateStep& step, std::span<const SampledTarget> targets, size_t each,
                                    const After* after) const;
  float typical_mean(const PropagateStep& step, std::span<const SampledTarget> targets, std::span<const float> scales,
                     const After* after) const;
  std::vector<float> typical(const PropagateStep& step, std::span<const SampledTarget> targets, size_t each,
                             const After* after) const;
  std::vector<float> measure_scales(const PropagateStep& step, std::span<const SampledTarget> targets,
                                    std::span<const float> before, const After* after) const;
  void sample_messages(const PropagateStep& step, std::span<const Sampled> edges, const After* after, size_t stride,
                       float* out) const;
  void rows_after(uint32_t value, std::span<const uint32_t> nodes, const After* after, RowArena* arena,
                  const float** out) const;
  void forget_units(Prepared* prepared) const;
  void measure_first();
  void begin_all_bounds(size_t propagation);
  bool is_measured_after(const Delta& delta, const Prepared& prepared) const;
  bool measure_after(const Delta& delta, Prepared* prepared);
  void find_overdue(size_t propagation, Prepared::Units* units) const;
  void commit_units(const Prepared& prepared) noexcept;
  void commit_bounds(size_t propagation, const Prepared& prepared) noexcept;
  static void fill_scales(std::vector<float>* scales);
  static float shrinkage(std::span<const float> scales, const float* inverses);
  static void invert_scales(std::span<const float> scales, float* inverses);
  void find_edge_sources(const PropagateStep& step, const Prepared& prepared);
  void prepare_sum(const PropagateStep& step, size_t propagation, const Reader& reader, const Delta& delta,
                   Prepared* prepared);
  Reader reader_of(size_t position) const;
  void prepare_max(const PropagateStep& step, Prepared* prepared);
  void initialize_messages(size_t position);
  void write_sums(const PropagateStep& step, MessageSums* sums, size_t target, float* row, float* context) const;
  std::vector<Rows> message_rows(const MessageProgram& program) const;
  MessageSums& sums_of(const PropagateStep& step) const;
  Scrubbed scrub_messages(const PropagateStep& step, std::span<const uint32_t> nodes) const;
  // Of one node, as the graph is; the sum is that of a context of that kind.
  void compute_context(const ContextStep& step, uint32_t node, float* row, double* sum) const;
  void find_terms(const PropagateStep& step, const Prepared& prepared);
  void prepare_messages(const PropagateStep& step, size_t propagation, Prepared* prepared);
  size_t heads_of(const PropagateStep& step) const;
  void prepare_rows(const RowsStep& step, bool output, double row_cost, const Delta& delta, Prepared* prepared);
  void find_reach(const RowsStep& step, const Delta& delta, const Prepared& prepared, uint32_t aggregate);
  void open_rows(const RowsStep& step, bool output, Prepared* prepared);
  void run_rows_block(const RowsStep& step, size_t first, size_t count, Prepared* prepared);
  void run_output_block(const RowsStep& step, size_t first, size_t count, const Prepared& prepared);
  void locate_reach(uint32_t value, size_t source, size_t first, size_t count, const Prepared& prepared,
                    RowArena* arena, const float** out) const;
  void close_rows(const RowsStep& step, bool output, Prepared* prepared);

  void predict_kept(std::span<const uint32_t> nodes, float* out, size_t output) const;
  // `sources` has a pointer for each source and row, source by source; `buffers` a block for each buffer of the step.
  // `widely`: operations whose rows are not finite once more, in float64. True if all rows that came out are finite; it
  // may be false where they are.
  bool run_rows(const RowsStep& step, size_t count, const float* const* sources, float* const* buffers,
                bool widely = false) const;
  void run_lost_row(const RowsStep& step, uint32_t output, size_t row, const float* const* sources, float* to) const;
  void run_widely(const Op& op, const RowsStep& step, std::span<const float* const> rows, float* to) const;
  template <class Row>
  void call(const Op& op, size_t count, const RowsStep& step, const Row& row_of, float* out, size_t stride) const;
  void run_all(const RowsStep& step, size_t block, const Whole* whole, std::vector<float*>* buffers) const;
  // At most kBlockRows rows of a step with one sink, each at `stride` from the one before.
  void run_block(const RowsStep& step, size_t count, const float* const* sources, float* out, size_t stride) const;
  // As `stored_rows`, of many nodes, by all threads, into memory that must stay.
  void stored_rows_of_many(uint32_t value, std::span<const uint32_t> nodes, Scratch* memory,
                           std::vector<const float*>* out) const;
  // The rows of every node: those of the value's own table, or of one that is filled here.
  Rows all_stored_rows(uint32_t value, const Whole* whole, Table* table) const;
  void complete(Whole* whole, std::vector<Table>* tables) const;
  void pull(const PropagateStep& step, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const;
  void initialize_residents();
  void compute_steps(const Delta& delta, size_t steps, Prepared* prepared);
  void prepare_moves(const Delta& delta, Prepared* prepared) const;
  void reserve_moves(const Delta& delta, const Prepared& prepared);
  void commit_moves(const Delta& delta, const Prepared& prepared) noexcept;
  // Whether an aggregate's row is there now, and will be after the batch.
  bool stays(const PropagateStep& step, const Prepared& prepared, uint32_t node) const;
  double context_sum(const ContextStep& step, uint32_t node, std::span<const DirectedChange> changes) const;
  // `counts` may be null, and is of a sum.
  void aggregate_in_order(const PropagateStep& step, const Rows& input, uint32_t node, float* out, float* counts) const;
  void aggregate_all(const PropagateStep& step, const Rows& input, uint32_t node, float* out, float* counts) const;
  void aggregate_computed(const PropagateStep& step, uint32_t node, float* out, float* counts) const;
  void keep_changed(Changes* changes, const std::vector<uint32_t>& nodes, const std::vector<uint8_t>& keep);
  const float* stored_row(uint32_t value, uint32_t node) const;  // of a value that is stored
  bool is_count(uint32_t value) const;
  size_t rows_of(uint32_t value) const;  // how many are kept
  std::vector<uint32_t>& slots(uint32_t node_type, int which);

  const Graph& graph_;
  Program program_;
  std::vector<Table> slabs_;          // several values side by side
  std::vector<uint32_t> columns_;     // by value: where it begins in its slab
  std::vector<int32_t> partial_;      // by value: the propagation whose residents alone have rows; -1: none
  std::vector<bool> has_direction_;   // by direction: in reverse, only where a step goes so
  std::vector<Residents> residents_;  // by direction
  size_t keep_degree_;
  std::vector<double> row_costs_;                // by rows step: nanoseconds a row, roughly
  std::vector<Table> errors_;                    // by propagate step, `error_width` floats a row
  std::vector<std::vector<double>> sums_;        // by context step
  std::vector<std::vector<double>> sum_errors_;  // bounds on their rounding
  std::vector<std::vector<float>> scales_;       // by propagate step
  std::vector<FloatBlock> inverses_;             // one over each scale, padded
  std::vector<float> means_;                     // by propagate step: typical means of messages, in their units
  std::vector<float> shrunk_;                    // by propagate step: 1, but while a batch is prepared in new units
  size_t batches_ = 0, measured_ = 0, touched_ = 0;
  bool guard_ = false;
  // The first node, after its type, whose row the step at hand makes other than finite.
  static constexpr uint64_t kNothingLost = ~uint64_t{0};
  std::atomic<uint64_t> lost_{kNothingLost};
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Scratches> scratches_;
  std::atomic<size_t> batch_bytes_{0};
  std::vector<float> zeros_;
  bool recompute_all_ = false;
  const uint64_t serial_;  // tells this engine from any other
  std::unique_ptr<Lazy> lazy_;
};

}  // namespace livegnn
