#include "inference/engine_view.h"

#include <utility>

#include "inference/preparation.h"

namespace livegnn {
void EngineView::prepare(const Change& change) {
  abandon();
  delta_ = &change.delta;
  prepared_->trusted = std::exchange(trusted_, false);
  if (std::exchange(settled_, false)) {
    engine_.prepare(change.delta, prepared_.get());
  } else {
    engine_.prepare_batch(change.delta, prepared_.get());
  }
  if (prepared_->lost != kNoIndex) {
    throw NotFinite(prepared_->lost_type, prepared_->lost, prepared_->lost_step);
  }
  // Computed here, because a commit must not fail for lack of memory. When they are read it would be too late, because
  // their indices may belong to other nodes by then.
  changed_ids_ = engine_.changed_ids(change.delta, *prepared_);
  find_changed_rows();
  engine_.reserve(change.delta, *prepared_);
}

void EngineView::watch(std::vector<size_t> outputs) {
  changed_rows_.assign(outputs.size(), {});
  watched_ = std::move(outputs);
}

void EngineView::find_changed_rows() {
  const auto& prepared = static_cast<const Preparation&>(*prepared_);
  for (size_t i = 0; i < watched_.size(); ++i) {
    changed_rows_[i].clear();
    if (!prepared.marked) changed_rows_[i] = rows_changed(engine_.program(), prepared.batch.changes, watched_[i]);
  }
}

void EngineView::commit() noexcept {
  engine_.commit(*delta_, *prepared_);
  delta_ = nullptr;
}

void EngineView::abandon() noexcept {
  delta_ = nullptr;
  engine_.release();
}

size_t EngineView::settle() noexcept {
  engine_.release();
  return prepared_->settle();
}

}  // namespace livegnn
