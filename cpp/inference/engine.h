// Keeps the values of a program exact while its graph changes, on the CPU.
//
//   program ─► State       rows, bounds, scales, kept nodes          the stored state
//              Schedule    depths of contexts, propagations, rows    the stages of a batch
//              Preparation changes, edges, workspace                 data of a prepared batch; there may be several
//              Lazy        overlays, records                         marked nodes, computed when they are read
//
// `prepare` derives the new rows of every node that the delta reaches from the old graph, the old values and the delta,
// and writes them beside the values. `commit` copies them to the values. Without the commit, the same computation
// answers what-if queries.
//
// Non-finite values do not persist: a row or a bound that is not finite is computed again whenever a batch touches it.
// `prepare` detects a batch that would make a finite row non-finite; the owner of the engine may then refuse it.
//
// Thread safety: the same as for every back end (backend.h); a lazy engine marks one batch at a time. Rows may be read
// concurrently with everything except `initialize`, `load` and `commit`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inference/backend.h"
#include "inference/halo/halo.h"
#include "inference/lazy/lazy.h"
#include "inference/preparation.h"
#include "inference/propagation/degrees.h"
#include "inference/propagation/node_rows.h"
#include "inference/propagation/propagation.h"
#include "inference/state.h"
#include "threads/parallel.h"

namespace livegnn {

class Engine final : public Backend {
 public:
  // Computes nothing yet: call `initialize` or `load` next. The graph must outlive the engine. `State` documents
  // `directory` and `keep_degree`.
  Engine(const Graph& graph, Program program, size_t threads, const std::string& directory = {},
         size_t keep_degree = 0);
  ~Engine() override;

  // Whether every aggregate that a batch reaches is computed from all its neighbours. For comparison: this is the cost
  // of an engine that only reuses embeddings (NeutronRT's RTEC-UER).
  void set_recompute(bool all) { recompute_all_ = all; }
  // Whether `prepare` looks for rows that a batch would make non-finite.
  void set_guard(bool on) { guard_ = on; }
  bool guarded() const { return guard_; }

  // Of a part of a graph, before the next batch: from now on batches are prepared together with those of the other
  // parts, by threads that call the same functions for each. The exchange must outlive the engine. graph: its own,
  // which holds features of other parts' nodes only if the engine reads them. Throws std::invalid_argument (halo.h).
  void join(Exchange* exchange, Graph* graph);
  // The bytes that this part of a graph has sent to others since `join`. Any thread may call it.
  uint64_t exchanged() const { return halo_ == nullptr ? 0 : halo_->sent(); }

  const State& state() const { return state_; }
  const Program& program() const override { return state_.rows.program; }
  const Graph& graph() const { return state_.rows.graph; }

  // -- batches

  // Of a part of a graph that has nodes: does nothing before `join`, and then computes the rows together with the other
  // parts, as a batch is prepared. Throws ExchangeEnded; then call it again.
  void initialize() override;
  // Instead of `initialize`: takes over the values of an engine on an equal graph at the same batch, which must not be
  // used afterwards. Returns false and does nothing if it is laid out differently. Requires: that engine is settled.
  bool take(Engine* from) noexcept { return state_.take(&from->state_); }
  // Prepares all depths of a batch. Requires: a lazy engine shows the current rows.
  void prepare(const Delta& delta, Prepared* prepared);
  // Like `prepare`, for a batch that will be committed. A lazy engine only marks the nodes that the batch reaches; but
  // if the batch removes nodes, whose indices will be reused, it computes, and settles with the commit.
  void prepare_batch(const Delta& delta, Prepared* prepared);
  // The ids of the nodes in `Prepared::changed`; call it before the commit.
  std::vector<int64_t> changed_ids(const Delta& delta, const Prepared& prepared) const;

  std::unique_ptr<Prepared> new_prepared() const override { return std::make_unique<Preparation>(); }
  size_t depths() const override { return schedule_.size(); }
  void begin(const Delta& delta, Prepared* prepared) override;
  void prepare_depth(size_t depth, Prepared* prepared) override;
  bool finish(Prepared* prepared) override;
  void reserve(const Delta& delta, const Prepared& prepared) override;
  void commit(const Delta& delta, const Prepared& prepared) noexcept override;
  void release() noexcept override;

  // -- growth of the graph, whose new types and columns the program does not read

  void prepare_growth(const GraphGrowth& growth) {
    state_.rows.prepare_growth(growth);
    if (lazy_ != nullptr) lazy_->prepare_growth(growth);
  }
  void commit_growth() noexcept {
    state_.rows.commit_growth();
    if (lazy_ != nullptr) lazy_->commit_growth();
  }

  // -- lazy computation (lazy.h)

  // Call it before the rows are computed or loaded.
  // From now on, `prepare_batch` computes the first `eager` steps, contexts included, and only marks the nodes that the
  // other steps would compute. Returns false and does nothing if one of the other steps is of a kind that must be
  // computed immediately. Requires: the engine keeps every row.
  bool be_lazy(size_t eager);
  bool lazy() const { return lazy_ != nullptr; }
  // Computes everything that is stale, so that every value is as it would be without laziness, and goes on from there.
  // Takes the graph's lock, as the next two do. Only the one writer may call them, between batches.
  void settle();
  // The same until the next batch is marked or `show_base` is called: later bits do not depend on it. Does nothing
  // without laziness.
  void show_current();
  void show_base() noexcept;
  // Whether the record, together with the next batch, becomes so large that the engine should settle.
  bool outgrown_by(const Delta& delta) const;
  size_t pending() const;  // number of nodes whose prediction is stale
  LazyWork work() const;
  size_t overlay_bytes() const;
  size_t record_bytes() const;

  // The graph goes on without this engine, whose rows will belong to other nodes. Any thread may ask, under the graph's
  // lock: from the next batch on the answer is true.
  void retire() { retired_.store(true); }
  bool retired() const { return retired_.load(); }

  // -- reading

  Rows rows(uint32_t value) const { return state_.rows.rows(value); }
  void read_rows(uint32_t value, std::span<const uint32_t> nodes, float* out) const override;
  void read_rows(const Prepared& prepared, uint32_t value, std::span<const uint32_t> nodes, float* out) const override;
  size_t output_width(size_t output = 0) const { return state_.rows.program.output_width(output); }
  // An output for existing nodes, `output_width` floats each. A lazy engine computes the rows that they need, and keeps
  // them.
  void predict(std::span<const uint32_t> nodes, float* out, size_t output = 0) const;
  // The same as it would be if a prepared batch were committed; the nodes may include ones that the batch adds.
  void predict_prepared(const Prepared& prepared, std::span<const uint32_t> nodes, float* out, size_t output = 0) const;
  // The rows of an on-demand step for every index of its node type, `width` floats each.
  void evaluate(size_t on_demand, float* out);

  // Requires: a lazy engine shows its base.
  void save(Arrays* to) const override;
  void load(const ArrayViews& from) override;
  bool load_rows(uint32_t value, const float* from, size_t count, size_t width) {
    return state_.rows.load_rows(value, from, count, width);
  }
  Moments moments() const { return state_.rounding.moments; }
  void load_moments(const Moments& moments) { state_.rounding.moments = moments; }

  // Compares kept aggregates of `nodes`, or their degrees, sums of weights and loops, or the rows that a step computes
  // of them, with values computed again. Changes nothing. Requires: nodes in use; of a lazy engine, the current rows.
  Scrubbed scrub(size_t propagation, std::span<const uint32_t> nodes) const;
  Scrubbed scrub_rows(uint32_t value, std::span<const uint32_t> nodes) const;
  Scrubbed scrub_context(size_t context, std::span<const uint32_t> nodes) const;

  // Bytes of the workspaces in which batches are prepared, without those of each `Prepared`, as of the last batch; any
  // thread may call it.
  size_t batch_bytes() const { return workspaces_.bytes(); }

 private:
  // The part between two exchanges of rows, as positions in the program's order.
  struct Depth {
    size_t first, end;
  };

  void make_steps();
  void run_steps(const Depth& depth, Preparation* prepared) const;
  // The step that reads the result of the propagation at this position in the order and runs together with it.
  const NodeRows* reader_after(size_t position, size_t steps) const;
  void open(const Delta& delta, size_t steps, Preparation* prepared);
  void take_features(PreparedBatch* batch) const;
  void take_edges(PreparedBatch* batch) const;
  void find_moves(PreparedBatch* batch) const;
  // Lists the nodes that the batch adds among those whose prediction changes, whatever their rows are: no step has
  // looked at a sum that nothing reaches.
  void include_added(Preparation* prepared) const;
  void close(Preparation* prepared) const;

  State state_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::unique_ptr<Degrees>> degrees_;           // by context step
  std::vector<std::unique_ptr<Propagation>> propagations_;  // by propagate step
  std::vector<std::unique_ptr<NodeRows>> rows_;             // by rows step
  std::unique_ptr<NodeRows> output_;                        // if the prediction is not kept
  std::vector<Depth> schedule_;
  Workspaces workspaces_;
  bool guard_ = false, recompute_all_ = false;
  std::atomic<bool> retired_{false};
  std::unique_ptr<Lazy> lazy_;
  std::unique_ptr<Halo> halo_;  // of a part of a graph
};

}  // namespace livegnn
