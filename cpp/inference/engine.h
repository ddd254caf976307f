// Keeps the values of a program right while its graph changes, on the CPU.
//
//   program ─► State       rows, bounds, units, residents            what is kept
//              Schedule    depths of contexts, propagations, rows    what a batch goes through
//              Preparation changes, edges, workspace                 what a batch needs and makes; any number at once
//              Lazy        overlays, records                         what was marked, and is computed when it is read
//
// `prepare` derives, from the old graph, the old values and a delta, the new rows of every node that the delta reaches;
// it writes them beside the values. `commit` copies them in. Without the commit the same computation answers "what if".
//
// What is not finite does not stay: a row or a bound that is not is computed anew whenever it is touched. A batch that
// would make a row other than finite that was finite is found out in `prepare`; its owner may refuse it.
//
// Thread safety: as of every back end (backend.h); a lazy engine marks one batch at a time. Readers of rows go on
// beside all but `initialize`, `load` and `commit`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inference/backend.h"
#include "inference/context.h"
#include "inference/lazy.h"
#include "inference/node_rows.h"
#include "inference/preparation.h"
#include "inference/propagation.h"
#include "inference/state.h"
#include "threads/parallel.h"

namespace livegnn {

class Engine final : public Backend {
 public:
  // Does not compute anything: `initialize` or `load` comes next. The graph must outlive the engine. For `directory`
  // and `keep_degree` see `State`.
  Engine(const Graph& graph, Program program, size_t threads, const std::string& directory = {},
         size_t keep_degree = 0);
  ~Engine() override;

  // Whether every aggregate that a batch reaches is computed from all its neighbours: what an engine costs that only
  // reuses embeddings (NeutronRT's RTEC-UER), for comparison.
  void set_recompute(bool all) { recompute_all_ = all; }
  // Whether `prepare` looks for rows that a batch makes other than finite.
  void set_guard(bool on) { guard_ = on; }
  bool guarded() const { return guard_; }

  const State& state() const { return state_; }
  const Program& program() const override { return state_.program; }
  const Graph& graph() const { return state_.graph; }

  // -- batches

  void initialize() override;
  // All depths of a batch, for an engine that is settled.
  void prepare(const Delta& delta, Prepared* prepared);
  // As `prepare`, for a batch that will be committed. A lazy engine marks; if the batch removes nodes, whose indices
  // will be used again, it settles and computes.
  void prepare_batch(const Delta& delta, Prepared* prepared);
  // The ids of the nodes in `Prepared::changed`, before the commit.
  std::vector<int64_t> changed_ids(const Delta& delta, const Prepared& prepared) const;

  std::unique_ptr<Prepared> new_prepared() const override { return std::make_unique<Preparation>(); }
  size_t depths() const override { return schedule_.size(); }
  void begin(const Delta& delta, Prepared* prepared) override;
  void prepare_depth(size_t depth, Prepared* prepared) override;
  bool finish(Prepared* prepared) override;
  void reserve(const Delta& delta, const Prepared& prepared) override;
  void commit(const Delta& delta, const Prepared& prepared) noexcept override;
  void release() noexcept override;

  // -- lazily (lazy.h)

  // From now on `prepare_batch` computes the first `eager` steps, contexts among them, and only marks what the others
  // would compute. False, and nothing done, if one of those is of a kind that is always computed at once. For engines
  // that keep every row.
  bool be_lazy(size_t eager);
  bool lazy() const { return lazy_ != nullptr; }
  // Computes all that is stale, so that every value is as it would be without laziness. Takes the graph's lock. For the
  // one writer, between batches.
  void settle();
  // Whether so much has been recorded, with a batch that is about to come, that it is time to settle.
  bool outgrown_by(const Delta& delta) const;
  size_t pending() const;  // nodes whose prediction is stale
  LazyWork work() const;
  size_t overlay_bytes() const;
  size_t record_bytes() const;

  // -- reading

  Rows rows(uint32_t value) const { return state_.rows(value); }
  void read_rows(uint32_t value, std::span<const uint32_t> nodes, float* out) const override;
  void read_rows(const Prepared& prepared, uint32_t value, std::span<const uint32_t> nodes, float* out) const override;
  size_t output_width(size_t output = 0) const { return state_.output_width(output); }
  // An output of nodes that exist, `output_width` floats each. A lazy engine computes what they need, and keeps it.
  void predict(std::span<const uint32_t> nodes, float* out, size_t output = 0) const;
  // As they would be if a prepared batch were committed; nodes that it adds may be asked for.
  void predict_prepared(const Prepared& prepared, std::span<const uint32_t> nodes, float* out, size_t output = 0) const;
  // Rows of an on-demand step for every index of its node type, `width` floats each.
  void evaluate(size_t on_demand, float* out);

  // A lazy engine must be settled.
  void save(Arrays* to) const override { state_.save(to); }
  void load(const ArrayViews& from) override { state_.load(from); }
  bool load_rows(uint32_t value, const float* from, size_t count, size_t width) {
    return state_.load_rows(value, from, count, width);
  }
  Moments moments() const { return state_.moments; }
  void load_moments(const Moments& moments) { state_.moments = moments; }

  // Computes aggregates of `nodes` anew, or their degrees, sums of weights and loops. Changes nothing.
  Scrubbed scrub(size_t propagation, std::span<const uint32_t> nodes) const;
  Scrubbed scrub_context(size_t context, std::span<const uint32_t> nodes) const;

  // What batches are prepared in, beside what each `Prepared` holds, as it was after the last one; from any thread.
  size_t batch_bytes() const { return workspaces_.bytes(); }

 private:
  // What lies between two exchanges of rows, as positions in the program's order.
  struct Depth {
    size_t first, end;
  };

  void make_steps();
  void run_steps(const Depth& depth, Preparation* prepared) const;
  // The step that reads what comes of the propagation at this place of the order, and runs together with it.
  const NodeRows* reader_after(size_t position, size_t steps) const;
  void open(const Delta& delta, size_t steps, Preparation* prepared);
  void take_features(Preparation* prepared) const;
  void take_edges(Preparation* prepared) const;
  void find_moves(Preparation* prepared) const;
  void close(Preparation* prepared) const;

  State state_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::unique_ptr<Context>> contexts_;          // by context step
  std::vector<std::unique_ptr<Propagation>> propagations_;  // by propagate step
  std::vector<std::unique_ptr<NodeRows>> rows_;             // by rows step
  std::unique_ptr<NodeRows> output_;                        // where the prediction is not kept
  std::vector<Depth> schedule_;
  Workspaces workspaces_;
  bool guard_ = false, recompute_all_ = false;
  std::unique_ptr<Lazy> lazy_;
};

}  // namespace livegnn
