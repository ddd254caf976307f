#include "inference/propagation/sum_propagation.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "inference/propagation/node_rows.h"
#include "inference/propagation/row_frontier.h"
#include "inference/rounding/measurement.h"
#include "inference/rounding/rounding.h"
#include "inference/rows/aggregate.h"
#include "program/kernels.h"
#include "program/row_sum.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// A recomputed row reads its neighbours at random from memory; an added message is in the cache.
constexpr size_t kRecomputeFactor = 2;
// Number of neighbours whose rows are located at once; rows that are not kept need temporary memory.
constexpr size_t kPiece = 1024;

std::vector<uint32_t> ascending(size_t count) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

constexpr std::array<uint32_t, kFewTerms> kOrder = [] {
  std::array<uint32_t, kFewTerms> order{};
  for (uint32_t i = 0; i < kFewTerms; ++i) order[i] = i;
  return order;
}();

// Adds up the new rows of neighbours.
class NeighborSum {
 public:
  NeighborSum() : order_(ascending(kPiece)), ones_(kPiece, 1.0f) {}

  // `sources`: unchanged rows, if they are kept; `slots`: places among the changed rows.
  void begin(const RowState& state, const PropagateStep& step, const Changes& input, const Rows& sources,
             const std::vector<uint32_t>& slots) {
    state_ = &state, step_ = &step, input_ = &input, slots_ = &slots;
    sources_ = sources;
  }
  void open(float* row, bool widely) {
    total_.open(input_->stride(), row, widely);
    clear_piece();  // left by a sum that ran out of memory
    terms_ = 0;
  }
  void add(uint32_t source, float weight) {
    ++terms_;
    const uint32_t slot = (*slots_)[source];
    if (slot != kNoIndex) {
      rows_.push_back(input_->row(slot));
    } else if (source < sources_.count) {
      rows_.push_back(sources_.row(source));
    } else {
      rows_.push_back(nullptr);
      unchanged_.push_back(source);
    }
    if (step_->weighted) weights_.push_back(weight);
    if (rows_.size() == kPiece) add_piece();
  }
  void close() {
    add_piece();
    total_.close();
  }
  size_t terms() const { return terms_; }

 private:
  void add_piece() {
    if (!unchanged_.empty()) {
      const float* from[kPiece];
      arena_.clear();
      stored_rows(*state_, step_->input, unchanged_, &arena_, from);
      for (size_t n = 0, next = 0; n < rows_.size(); ++n) {
        if (rows_[n] == nullptr) rows_[n] = from[next++];
      }
    }
    total_.add(rows_.size(), rows_.data(), order_.data(), step_->weighted ? weights_.data() : ones_.data());
    clear_piece();
  }
  void clear_piece() {
    rows_.clear();
    weights_.clear();
    unchanged_.clear();
  }

  const RowState* state_ = nullptr;
  const PropagateStep* step_ = nullptr;
  const Changes* input_ = nullptr;
  const std::vector<uint32_t>* slots_ = nullptr;
  Rows sources_{};
  RowSum total_;
  RowArena arena_;
  std::vector<const float*> rows_;
  std::vector<float> weights_;
  std::vector<uint32_t> unchanged_;
  const std::vector<uint32_t> order_;
  const std::vector<float> ones_;
  size_t terms_ = 0;
};

}  // namespace

struct SumPropagation::Batch {
  PreparedBatch& prepared;
  RowFrontier& frontier;
  const Changes& input;
  Changes& output;
  const EdgeView store;
  const std::vector<DirectedChange>& edges;
  const std::vector<uint32_t>& source_slots;
  const ScaleInUse scale;
  const Table& errors;
  const Rows stored, kept;  // by node, and by slot
  const Rows sources;       // if they are kept
  const float* const zeros;
  const size_t stride;
  const size_t few;  // terms
  const bool partial, recompute_all;
  std::atomic<size_t> recomputed{0}, read{0};  // rows; neighbours of these

  float* row(size_t t) const { return output.row_to_write(t); }
  float* cell(size_t t) const { return output.errors.data() + t * kRowBounds; }
};

// What a block of targets has computed again. Adding it to the batch's counts for each row would cost as much as a sum.
struct SumPropagation::Tally {
  size_t recomputed = 0, read = 0;
};

// A target, and the rows that its sum consists of after the batch, if they are few and kept.
struct SumPropagation::Terms {
  size_t degree;  // in-edges after the batch
  size_t count;   // kNotFew if the rows are not listed
  const float* rows[kFewTerms];
  float weights[kFewTerms];

  static constexpr size_t kNotFew = kFewTerms + 1;
};

// Finds the rows of a target and prefetches them.
void SumPropagation::find_terms(const Batch& batch, size_t t, Terms* terms) const {
  constexpr size_t kFetched = 64;  // floats of a row; the processor sees that the others follow
  const uint32_t node = batch.frontier.targets[t];
  const auto changed = batch.edges.empty() ? std::span<const DirectedChange>() : changes_of(batch.edges, node);
  int64_t degree = batch.store.degree_in(node);
  for (const DirectedChange& change : changed) degree += int{change.has} - int{change.had};
  terms->degree = static_cast<size_t>(degree);
  terms->count = Terms::kNotFew;
  if (terms->degree > batch.few || batch.recompute_all) return;
  if (state_.keep_degree > 0) return;  // sums that need not be kept add their terms in another order
  const uint32_t* const slots = batch.source_slots.data();
  const size_t fetched = std::min(batch.stride, kFetched);
  size_t count = 0;
  bool kept = true;
  const auto list = [&](uint32_t source, float weight) {
    if (step_.skip_loops && source == node) return;
    const uint32_t slot = slots[source];
    if (slot == kNoIndex && source >= batch.sources.count) {
      kept = false;
      return;
    }
    const float* const row = slot != kNoIndex ? batch.input.row(slot) : batch.sources.row(source);
    for (size_t c = 0; c < fetched; c += 16) prefetch(row + c);
    terms->rows[count] = row;
    terms->weights[count++] = step_.weighted ? weight : 1.0f;
  };
  if (changed.empty()) {
    batch.store.scan_in(node, [&](const NeighborSpan& span) {
      for (size_t i = 0; i < span.size; ++i) list(span.ids[i], span.weights == nullptr ? 1.0f : span.weights[i]);
    });
  } else {
    scan_new_in(batch.store, node, changed, list);
  }
  if (kept) terms->count = count;
}

// The same row as `recompute`, without what only long sums need. Returns false if the terms are not listed, or if the
// sum needs another look because it is not finite.
bool SumPropagation::sum_few(const Batch& batch, const Kernels& k, size_t t, const Terms& terms, Tally* tally) const {
  if (terms.count == Terms::kNotFew) return false;
  float* const row = batch.row(t);
  std::memset(row, 0, batch.stride * sizeof(float));
  k.add_rows(batch.stride, terms.count, terms.rows, kOrder.data(), terms.weights, row);
  const float peak = k.scaled_peak(batch.stride, row, batch.scale.inverse);
  if (!(peak <= std::numeric_limits<float>::max())) return false;
  begin_bounds(peak, terms.count, batch.cell(t));
  tally->read += terms.count;
  ++tally->recomputed;
  return true;
}

void SumPropagation::recompute(Batch* batch, size_t t, Tally* tally) const {
  const Kernels& k = kernels();
  const uint32_t node = batch->frontier.targets[t];
  const size_t stride = batch->stride;
  const auto changed = changes_of(batch->edges, node);
  float* const row = batch->row(t);
  static thread_local NeighborSum memory;
  NeighborSum& sum = memory;  // found once: for each term it would cost more than to add a narrow row
  sum.begin(state_, step_, batch->input, batch->sources, batch->source_slots);
  const auto add = [&](uint32_t source, float weight) {
    if (!step_.skip_loops || source != node) sum.add(source, weight);
  };
  for (const bool widely : {false, true}) {
    sum.open(row, widely);
    if (state_.keep_degree == 0) {
      scan_new_in(batch->store, node, changed, add);
    } else {
      // The same order as in `pull`.
      static thread_local std::vector<std::pair<uint32_t, float>> sorted;
      const Trimmed trimmed(&sorted);
      sorted.clear();
      scan_new_in(batch->store, node, changed,
                  [&](uint32_t source, float weight) { sorted.emplace_back(source, weight); });
      std::sort(sorted.begin(), sorted.end());
      for (const auto& [source, weight] : sorted) add(source, weight);
    }
    sum.close();
    tally->read += sum.terms();
    if (k.finite(stride, row)) break;
  }
  if (!k.finite(stride, row)) batch->prepared.lose_row(state_, step_.output, node);
  begin_bounds(k.scaled_peak(stride, row, batch->scale.inverse), sum.terms(), batch->cell(t));
  ++tally->recomputed;
}

// Updates the row of a target; computes it again from all neighbours if rounding is too large, or if that is cheaper.
void SumPropagation::update(Batch* batch, const Kernels& k, size_t t, const Terms& terms, float* sum,
                            Tally* tally) const {
  RowFrontier& s = batch->frontier;
  const uint32_t node = s.targets[t];
  // The old row is unknown if it was not kept.
  if (batch->recompute_all || (batch->partial && !stays(batch->prepared, node))) {
    recompute(batch, t, tally);
    s.keep[t] = 1;
    return;
  }
  const size_t first = s.offsets[t], count = s.offsets[t + 1] - first, stride = batch->stride;
  const uint32_t slot = batch->partial ? state_.slot_of(step_.output, node) : node;
  const float* const old = slot < batch->kept.count ? batch->kept.row(slot) : batch->zeros;
  float* const row = batch->row(t);
  const size_t degree = terms.degree;
  if (degree <= batch->few) {
    if (!sum_few(*batch, k, t, terms, tally)) recompute(batch, t, tally);
    s.keep[t] = k.differs(stride, old, row);
    return;
  }
  float reach = 0, peak = 0;
  for (size_t m = first; m < first + count; ++m) reach += std::fabs(s.weight_of[m]) * s.peaks[s.row_of[m]];
  sum_rows(stride, count, s.rows.data(), s.row_of.data() + first, s.weight_of.data() + first, sum);
  s.keep[t] = k.apply_delta(stride, old, sum, batch->scale.inverse, row, &peak);
  const float* const before = slot < batch->errors.rows() ? batch->errors.row(slot) : batch->zeros;
  const Bounds bounds = touch_bounds(before, batch->scale.shrunk, peak, reach, count, batch->cell(t));
  const bool drifted = !is_good(bounds, peak, batch->scale.mean, batch->scale.offset, [&] { return degree; });
  if (drifted || count > kRecomputeFactor * (degree + 1)) {
    recompute(batch, t, tally);
    s.keep[t] = k.differs(stride, old, row);
  }
}

void SumPropagation::update_block(Batch* batch, size_t begin, size_t end) const {
  // Prefetch what a block reads of its targets.
  for (size_t t = begin; t < end; ++t) {
    const uint32_t node = batch->frontier.targets[t];
    if (node >= batch->stored.count) continue;
    touch(batch->stored.row(node));
    __builtin_prefetch(batch->errors.row(node));
    batch->store.prefetch_in(node);
  }
  for (size_t t = begin; t < end; ++t) {
    const uint32_t node = batch->frontier.targets[t];
    fetch(batch->stored, node);
    if (batch->store.degree_in(node) <= batch->few) batch->store.prefetch_in_leaf(node);
  }
  Terms terms[kBlockRows];
  for (size_t t = begin; t < end; ++t) find_terms(*batch, t, &terms[t - begin]);
  // Aligned, so that a read after a write can be forwarded from the store buffer.
  static thread_local Scratch memory;
  float* const sum = memory.reserve(batch->input.stride());
  const Kernels& k = kernels();
  Tally tally;
  for (size_t t = begin; t < end; ++t) update(batch, k, t, terms[t - begin], sum, &tally);
  if (tally.recomputed == 0) return;
  batch->recomputed.fetch_add(tally.recomputed, std::memory_order_relaxed);
  batch->read.fetch_add(tally.read, std::memory_order_relaxed);
}

void SumPropagation::prepare(const NodeRows* reader, PreparedBatch* prepared) const {
  Workspace& workspace = *prepared->workspace;
  RowFrontier& s = workspace.row_frontier;
  const ScaleInUse scale = scale_in_use(rounding_, prepared->scales, position_);
  find_row_frontier(state_, step_, scale.inverse, &pool_, prepared);
  const size_t num_targets = s.targets.size();
  auto& slots = workspace.slots[1][target_type()];
  auto& source_slots = workspace.slots[0][state_.program.values[step_.input].node_type];
  Changes& output = prepared->changes.rows[step_.output];
  output.open(num_targets);
  grow(&output.errors, num_targets * kRowBounds);
  s.keep.assign(num_targets, 0);
  const bool stored = state_.is_stored(step_.input);
  Batch batch{*prepared,
              s,
              prepared->of(step_.input),
              output,
              view_of(state_.graph, step_),
              changes(*prepared),
              source_slots,
              scale,
              rounding_.errors[position_],
              state_.rows(step_.output),
              state_.kept_rows(step_.output),
              stored ? state_.rows(step_.input) : Rows{},
              state_.zeros.data(),
              prepared->of(step_.input).stride(),
              few_terms(rounding_, position_, scale.offset),
              is_partial(),
              prepared->recompute_all};
  if (reader == nullptr) {
    for (uint32_t target : s.targets) slots[target] = kNoIndex;
  } else {
    reader->open(step_.output, prepared);
  }
  const size_t total = reader == nullptr ? num_targets : workspace.reach.nodes.size();
  const double cost = kMessageCost * static_cast<double>(s.num_messages + num_targets) +
                      (reader == nullptr ? 0 : reader->row_cost() * static_cast<double>(total));
  pool_.run(blocks_of(total), cost, [&](size_t block) {
    const size_t first = block * kBlockRows, end = std::min(total, first + kBlockRows);
    update_block(&batch, std::min(first, num_targets), std::min(end, num_targets));
    if (reader != nullptr) reader->run_block(first, end - first, prepared);
  });
  if (reader != nullptr) reader->close(prepared);
  for (uint32_t node : batch.input.nodes()) source_slots[node] = kNoIndex;
  output.reached = s.targets;
  output.keep(s.targets, s.keep);
  // Found messages do not count if they are not added because everything is computed again.
  const size_t added = prepared->recompute_all ? 0 : s.num_messages;
  prepared->effects.edges_touched += added + batch.read.load();
  prepared->effects.nodes_touched += added + batch.read.load() + num_targets;
  prepared->effects.recomputed += batch.recomputed.load();
}

}  // namespace livegnn
