// An engine as a view of its graph: one batch at a time is prepared and then committed together with the graph.
//
// Thread safety: the same as for every view (views/view.h).
#pragma once

#include <memory>
#include <stdexcept>
#include <vector>

#include "inference/engine.h"
#include "views/view.h"

namespace livegnn {

// A batch would make a node's finite row non-finite.
class NotFinite : public std::runtime_error {
 public:
  NotFinite(uint32_t node_type, uint32_t node, size_t step)
      : std::runtime_error("a value that would not be finite"), node_type(node_type), node(node), step(step) {}
  uint32_t node_type, node;
  size_t step;  // as `Prepared::lost_step`
};

class EngineView : public View {
 public:
  // The engine must outlive it.
  explicit EngineView(Engine& engine) : engine_(engine), prepared_(engine.new_prepared()) {}

  // How to prepare the next batch. settled: a lazy engine shows its current rows, so it may compute the batch instead
  // of marking it. trusted: do not refuse the batch if values become non-finite.
  void expect(bool settled, bool trusted) { settled_ = settled, trusted_ = trusted; }

  // Throws NotFinite if the engine is guarded and a row would become non-finite.
  void prepare(const Change& change) override;
  void commit() noexcept override;
  void abandon() noexcept override;
  size_t settle() noexcept override;
  void prepare_growth(const GraphGrowth& growth) override { engine_.prepare_growth(growth); }
  void commit_growth() noexcept override { engine_.commit_growth(); }
  void save(Arrays* to) const override { engine_.save(to); }
  void load(const ArrayViews& from) override { engine_.load(from); }
  size_t bytes() const override { return engine_.batch_bytes() + prepared_->held(); }

  // From the next batch on, also finds the nodes whose rows of these outputs it changes. Only the one writer may call
  // it, between batches.
  void watch(std::vector<size_t> outputs);
  // Of the last batch that was prepared, as of `rows_changed` (preparation.h), for the output at this position of those
  // that are watched; empty if a lazy engine has only marked it.
  const std::vector<uint32_t>& changed_rows(size_t watched) const { return changed_rows_.at(watched); }

  // The prepared batch and its statistics.
  const Prepared& prepared() const { return *prepared_; }
  // The ids of the nodes whose prediction changed; moves them out, so only the first call returns them.
  std::vector<int64_t> take_changed_ids() { return std::move(changed_ids_); }

 private:
  void find_changed_rows();

  Engine& engine_;
  std::unique_ptr<Prepared> prepared_;
  const Delta* delta_ = nullptr;
  std::vector<int64_t> changed_ids_;
  std::vector<size_t> watched_;                      // outputs
  std::vector<std::vector<uint32_t>> changed_rows_;  // of each of them
  bool settled_ = false, trusted_ = false;
};

}  // namespace livegnn
