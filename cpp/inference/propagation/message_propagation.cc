#include "inference/propagation/message_propagation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "inference/edges/directed_changes.h"
#include "inference/propagation/message_frontier.h"
#include "inference/propagation/sum_propagation.h"
#include "inference/rounding/error_bounds.h"
#include "inference/rounding/measurement.h"
#include "inference/rounding/rounding.h"
#include "inference/rounding/sample_reader.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// What a message costs in addition to the operations of its program, in nanoseconds.
constexpr double kEvaluationCost = 60;

double message_cost_of(const RowsStep& step) {
  double cost = kEvaluationCost;
  for (const Op& op : step.ops) cost += kRowCost / 4 + 2 * kFlopCost * multiplications(step, op);
  return cost;
}

// Whether sums with these weights may be updated: not if they are empty, nor if they were computed widely.
bool goes_on(const float* context, size_t heads) {
  for (size_t h = 0; h < heads; ++h) {
    if (!(context[h] > 0) || is_wide(context[h])) return false;
  }
  return true;
}

}  // namespace

MessagePropagation::MessagePropagation(const RowState& state, const RoundingState& rounding, size_t position,
                                       ThreadPool* pool)
    : Propagation(state, rounding, position, pool),
      program_(state.program.messages[step_.message]),
      heads_(heads_of(state.program, step_)),
      message_cost_(message_cost_of(program_.step)) {}

std::vector<Rows> MessagePropagation::source_rows() const {
  std::vector<Rows> stored;
  for (const MessageSource& source : program_.sources) {
    const bool of_node = source.side == MessageSource::kSource || source.side == MessageSource::kTarget;
    stored.push_back(of_node ? state_.rows(source.value) : Rows{});
  }
  return stored;
}

void MessagePropagation::initialize(RowState* state, RoundingState* rounding, Whole* /*whole*/) const {
  const IdMap& ids = state_.graph.nodes[target_type()].ids;
  const Rows out = state->rows(step_.output);
  const Rows contexts = has_context() ? state->rows(step_.context) : Rows{};
  const std::vector<Rows> stored = source_rows();
  pool_.run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    MessageSums& sums = sums_of(state_.program, state_.serial, step_, rounding_.scales[position_].inverses.data());
    const size_t begin = block * kBlockRows, end = std::min(ids.capacity(), begin + kBlockRows);
    auto add = [&](size_t n) {
      const auto node = static_cast<uint32_t>(n);
      if (!state_.computes(target_type(), node)) return;
      scan_new_edges(state_.graph, step_, node, {}, [&](uint32_t source, float weight, const float* features) {
        sums.add(n - begin, 1, {weight, features},
                 [&](size_t i) -> const float* { return stored[i].row(is_of_source(i) ? source : node); });
      });
    };
    auto write = [&](size_t n) {
      if (!state_.computes(target_type(), static_cast<uint32_t>(n))) return;
      write_sums(state_.program, step_, &sums, n - begin, out.row(n), has_context() ? contexts.row(n) : nullptr);
    };
    sums.sum_up(begin, end, add, write);
  });
  rounding->errors[position_].resize(0);
  rounding->errors[position_].resize(is_sum() ? ids.capacity() : 0);
}

struct MessagePropagation::Batch {
  PreparedBatch& prepared;
  MessageFrontier& frontier;
  const MessageProgram& program;
  const RowState& state;
  const EdgeView store;
  const std::vector<DirectedChange>& changes;
  const std::vector<Rows> stored;
  Changes& output;
  Changes* context;  // null if there is none
  const ScaleInUse scale;
  const size_t error_width;
  std::atomic<size_t> recomputed{0}, touched{0}, nodes{0};

  const float* old_row(size_t i, uint32_t node) const {
    return node < stored[i].count ? stored[i].row(node) : state.zeros.data();
  }
  const float* new_row(size_t i, uint32_t node, uint32_t slot) const {
    const uint32_t position = slot == kNoIndex ? kNoIndex : frontier.positions[i][slot];
    return position == kNoIndex ? old_row(i, node) : prepared.of(program.sources[i].value).at(position);
  }
  float* row(size_t t) const { return output.row_to_write(t); }
  float* context_row(size_t t) const { return context == nullptr ? nullptr : context->row_to_write(t); }
  float* error(size_t t) const { return output.errors.data() + t * error_width; }
};

void MessagePropagation::recompute(Batch* batch, MessageSums* sums, size_t place, size_t t) const {
  const MessageFrontier& s = batch->frontier;
  const uint32_t node = s.targets[t];
  const auto of_node = changes_of(batch->changes, node);
  size_t read = 0;
  scan_new_edges(state_.graph, step_, node, of_node, [&](uint32_t source, float weight, const float* features) {
    ++read;
    const uint32_t slot = s.source_slots == nullptr ? kNoIndex : (*s.source_slots)[source];
    sums->add(place, 1, {weight, features}, [&](size_t i) -> const float* {
      return is_of_source(i) ? batch->new_row(i, source, slot) : batch->new_row(i, node, static_cast<uint32_t>(t));
    });
  });
  batch->recomputed.fetch_add(1, std::memory_order_relaxed);
  batch->touched.fetch_add(read, std::memory_order_relaxed);
  batch->nodes.fetch_add(read + 1, std::memory_order_relaxed);
}

void MessagePropagation::write(Batch* batch, MessageSums* sums, size_t place, size_t t) const {
  const Kernels& k = kernels();
  MessageFrontier& s = batch->frontier;
  const uint32_t node = s.targets[t];
  const size_t width = state_.program.values[step_.output].width;
  float *const row = batch->row(t), *const context_row = batch->context_row(t), *const error = batch->error(t);
  write_sums(state_.program, step_, sums, place, row, context_row);
  std::fill_n(error, batch->error_width, 0.0f);
  if (is_sum() && !has_context()) {
    begin_bounds(k.scaled_peak(width, row, batch->scale.inverse), sums->messages(place), error);
  }
  s.keep[t] = k.differs(width, state_.stored_row(step_.output, node), row);
  if (!k.finite(width, row)) batch->prepared.lose_row(state_, step_.output, node);
  if (!has_context()) return;
  const size_t context_width = state_.program.values[step_.context].width;
  s.keep_context[t] = k.differs(context_width, state_.stored_row(step_.context, node), context_row);
  if (!k.finite(context_width, context_row)) batch->prepared.lose_row(state_, step_.context, node);
}

bool MessagePropagation::apply(Batch* batch, MessageSums* sums, size_t place, size_t t) const {
  if (has_context()) return apply_heads(batch, sums, place, t);
  const uint32_t node = batch->frontier.targets[t];
  const size_t width = state_.program.values[step_.output].width;
  const Table& errors = rounding_.errors[position_];
  const float* const reach = sums->reach(place);
  const float* const old_error = node < errors.rows() ? errors.row(node) : state_.zeros.data();
  float peak = 0, reached = 0;
  batch->frontier.keep[t] = kernels().apply_delta(width, state_.stored_row(step_.output, node), sums->sum(place),
                                                  batch->scale.inverse, batch->row(t), &peak);
  for (size_t h = 0; h < heads_; ++h) reached = reach[h] <= reached ? reached : reach[h];
  const Bounds bounds =
      touch_bounds(old_error, batch->scale.shrunk, peak, reached, sums->messages(place), batch->error(t));
  return is_good(bounds, peak, 0, batch->scale.offset, [&] { return batch->store.degree_in(node); });
}

bool MessagePropagation::apply_heads(Batch* batch, MessageSums* sums, size_t place, size_t t) const {
  const Kernels& k = kernels();
  MessageFrontier& s = batch->frontier;
  const uint32_t node = s.targets[t];
  const size_t width = state_.program.values[step_.output].width, channels = width / heads_;
  const Table& errors = rounding_.errors[position_];
  const float* const old_error = node < errors.rows() ? errors.row(node) : state_.zeros.data();
  const float* const old = state_.stored_row(step_.output, node);
  const float* const old_context = state_.stored_row(step_.context, node);
  const float *const sum = sums->sum(place), *const reach = sums->reach(place), *const inverse = batch->scale.inverse;
  const size_t count = sums->messages(place);
  float *const row = batch->row(t), *const context_row = batch->context_row(t), *const error = batch->error(t);
  bool good = true;
  for (size_t h = 0; h < heads_; ++h) {
    const float factor = program_.softmax ? sums->factors(place)[h] : 1.0f;
    for (size_t c = h * channels; c < (h + 1) * channels; ++c) row[c] = factor * old[c] + sum[c];
    const float peak = k.scaled_peak(channels, row + h * channels, inverse + h * channels);
    const float total = context_row[h] = factor * old_context[h] + sums->context(place)[h];
    if (program_.softmax) context_row[heads_ + h] = sums->references(place)[h];
    error[h] = factor * batch->scale.shrunk * old_error[h] + kUnit * peak + rounding_of_terms(reach[h], count);
    // A denormal factor has lost bits.
    if (factor < std::numeric_limits<float>::min()) {
      const float gone = k.scaled_peak(channels, old + h * channels, inverse + h * channels);
      error[h] += kUnit * std::numeric_limits<float>::min() * gone;
    }
    error[heads_ + h] =
        factor * old_error[heads_ + h] + kUnit * std::fabs(total) + rounding_of_terms(reach[heads_ + h], count);
    good &= is_good_head(error[h], peak, error[heads_ + h], total, batch->scale.offset,
                         [&] { return batch->store.degree_in(node); });
  }
  s.keep[t] = k.differs(width, old, row);
  s.keep_context[t] = k.differs(state_.program.values[step_.context].width, old_context, context_row);
  return good;
}

bool MessagePropagation::add_changes(Batch* batch, MessageSums* sums, size_t place, size_t t) const {
  const MessageFrontier& s = batch->frontier;
  const uint32_t node = s.targets[t];
  size_t evaluations = 0;
  int64_t degree = batch->store.degree_in(node);
  for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
    evaluations += size_t{s.terms[m].before} + size_t{s.terms[m].after};
    degree += int{s.terms[m].after} - int{s.terms[m].before};
  }
  if (!is_sum() || batch->prepared.recompute_all || t < s.constrained) return false;
  // Empty sums, which have no reference, and sums that lose their last message are also computed again.
  if (degree <= static_cast<int64_t>(kFewTerms) || static_cast<int64_t>(evaluations) >= degree) return false;
  if (program_.softmax) {
    const float* const context = state_.stored_row(step_.context, node);
    if (!goes_on(context, heads_)) return false;
    sums->resume(place, context + heads_);
  }
  for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
    const MessageFrontier::Term& term = s.terms[m];
    auto locate = [&](bool now) {
      return [&, now](size_t i) -> const float* {
        if (!is_of_source(i)) return batch->old_row(i, node);
        return now ? batch->new_row(i, term.source, term.slot) : batch->old_row(i, term.source);
      };
    };
    if (term.before) sums->add(place, -1, {term.old_weight, term.old_features}, locate(false));
    if (term.after) sums->add(place, 1, {term.new_weight, term.new_features}, locate(true));
  }
  const size_t terms = s.offsets[t + 1] - s.offsets[t];
  batch->touched.fetch_add(terms, std::memory_order_relaxed);
  batch->nodes.fetch_add(terms + 1, std::memory_order_relaxed);
  return true;
}

void MessagePropagation::update_block(Batch* batch, size_t begin, size_t end) const {
  MessageSums& sums = sums_of(state_.program, state_.serial, step_, batch->scale.inverse);
  bool anew[kBlockRows], again = false, lost[kBlockRows] = {}, any_lost = false;
  auto take = [&](size_t t) {
    if (sums.fits(t - begin)) {
      write(batch, &sums, t - begin, t);
    } else {
      lost[t - begin] = any_lost = true;
    }
  };
  sums.open(end - begin);
  for (size_t t = begin; t < end; ++t) {
    anew[t - begin] = !add_changes(batch, &sums, t - begin, t);
    if (anew[t - begin]) recompute(batch, &sums, t - begin, t);
  }
  sums.finish();
  for (size_t t = begin; t < end; ++t) {
    if (anew[t - begin]) {
      take(t);
      anew[t - begin] = false;
    } else if (!apply(batch, &sums, t - begin, t)) {
      anew[t - begin] = again = true;
    }
  }
  if (again) {
    sums.open(end - begin);
    for (size_t t = begin; t < end; ++t) {
      if (anew[t - begin]) recompute(batch, &sums, t - begin, t);
    }
    sums.finish();
    for (size_t t = begin; t < end; ++t) {
      if (anew[t - begin]) take(t);
    }
  }
  if (!any_lost) return;
  sums.open(end - begin, true);
  for (size_t t = begin; t < end; ++t) {
    if (lost[t - begin]) recompute(batch, &sums, t - begin, t);
  }
  sums.finish();
  for (size_t t = begin; t < end; ++t) {
    if (lost[t - begin]) write(batch, &sums, t - begin, t);
  }
}

void MessagePropagation::prepare(const NodeRows* /*reader*/, PreparedBatch* prepared) const {
  find_message_frontier(state_, step_, &pool_, prepared);
  MessageFrontier& s = prepared->workspace->message_frontier;
  const size_t num_targets = s.targets.size();
  Changes& output = prepared->changes.rows[step_.output];
  Changes* const context = has_context() ? &prepared->changes.rows[step_.context] : nullptr;
  Batch batch{*prepared,
              s,
              program_,
              state_,
              view_of(state_.graph, step_),
              changes(*prepared),
              source_rows(),
              output,
              context,
              scale_in_use(rounding_, prepared->scales, position_),
              error_width(state_.program, step_)};
  output.open(num_targets);
  if (has_context()) context->open(num_targets);
  grow(&output.errors, num_targets * batch.error_width);
  s.keep.assign(num_targets, 0);
  s.keep_context.assign(num_targets, 0);
  const double work = 2 * static_cast<double>(s.offsets[num_targets]) + 16 * static_cast<double>(s.constrained);
  pool_.run(blocks_of(num_targets), message_cost_ * work, [&](size_t block) {
    update_block(&batch, block * kBlockRows, std::min(num_targets, (block + 1) * kBlockRows));
  });
  auto& slots = prepared->workspace->slots[1][target_type()];
  for (uint32_t node : s.targets) slots[node] = kNoIndex;
  if (s.source_slots != nullptr) {
    for (uint32_t node : s.sources) (*s.source_slots)[node] = kNoIndex;
  }
  if (is_sum()) output.reached = s.targets;
  output.keep(s.targets, s.keep);
  if (has_context()) context->keep(s.targets, s.keep_context);
  prepared->effects.edges_touched += batch.touched.load();
  prepared->effects.nodes_touched += batch.nodes.load();
  prepared->effects.recomputed += batch.recomputed.load();
}

struct MessagePropagation::InEdge {
  uint32_t source, target;
  float weight;
  const float* features;
};

void MessagePropagation::add_reach(const std::vector<InEdge>& in, const std::vector<float>& context,
                                   const std::vector<Rows>& stored, MessageSums* sums,
                                   std::vector<double>* reach) const {
  const size_t width = sums->width(), channels = sums->channels();
  // Each message goes into a sum of its own.
  for (size_t first = 0; first < in.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, in.size() - first);
    sums->open(count);
    for (size_t i = 0; i < count; ++i) {
      const InEdge& edge = in[first + i];
      sums->add(i, 1, {edge.weight, edge.features},
                [&](size_t s) -> const float* { return stored[s].row(is_of_source(s) ? edge.source : edge.target); });
    }
    sums->finish();
    for (size_t i = 0; i < count; ++i) {
      for (size_t c = 0; c < width; ++c) {
        const size_t h = c / channels;
        const double factor = program_.softmax && has_context()
                                  ? std::exp(static_cast<double>(sums->references(i)[h] - context[heads_ + h]))
                                  : 1.0;
        (*reach)[c] += std::fabs(factor * sums->sum(i)[c]);
      }
    }
  }
}

// A later batch adds to the sums of coefficients, relative to their references, whatever a row hides of them: without
// messages other than 0, the quotient is 0 whatever it is divided by.
double MessagePropagation::difference_of_context(uint32_t node, const std::vector<float>& context) const {
  const float* const held = state_.stored_row(step_.context, node);
  double difference = 0;
  for (size_t h = 0; h < heads_; ++h) {
    double now = context[h], then = held[h];
    if (program_.softmax) {
      if (context[h] > 0 && is_wide(context[h])) now /= double{kWide};
      if (held[h] > 0 && is_wide(held[h])) then /= double{kWide};
      then *= std::exp(static_cast<double>(held[heads_ + h]) - static_cast<double>(context[heads_ + h]));
    }
    difference = std::max(difference, part_of(then, now, std::fabs(now)));
  }
  return difference;
}

// Sums that are divided by a context are compared after the division.
double MessagePropagation::difference_of(uint32_t node, size_t terms, const std::vector<float>& row,
                                         const std::vector<float>& context, const std::vector<float>& units,
                                         const std::vector<double>& reach) const {
  const float* const held = state_.stored_row(step_.output, node);
  const float* const held_context = has_context() ? state_.stored_row(step_.context, node) : nullptr;
  const size_t width = row.size(), channels = width / heads_;
  const double count = std::max<double>(1, static_cast<double>(terms));
  double difference = has_context() ? difference_of_context(node, context) : 0;
  for (size_t c = 0; c < width; ++c) {
    double now = 1, then = 1, scale = std::max(units[c] * std::sqrt(count), reach[c] / count);
    if (has_context()) {
      const float total = context[c / channels], held_total = held_context[c / channels];
      now = total <= 0 ? 0 : 1 / static_cast<double>(total);
      then = held_total <= 0 ? 0 : 1 / static_cast<double>(held_total);
      const double unit = program_.softmax && is_wide(total) ? kWide : 1;
      scale = std::max<double>(units[c], reach[c] * unit * now);
    }
    const double anew = row[c] * now;
    difference = std::max(difference, part_of(held[c] * then, anew, std::max(scale, std::fabs(anew))));
  }
  return difference;
}

std::vector<float> MessagePropagation::measured_units() const {
  if (!is_sum()) return std::vector<float>(state_.program.values[step_.output].width);
  const WholeSample sample(state_, rounding_, step_, nullptr);
  const Measurement measurement(state_.program, step_, sample.few);
  std::vector<float> units = measurement.scales(rounding_.scales[position_].scales, [&] { return sample.many(); });
  fill_scales(&units);
  return units;
}

Scrubbed MessagePropagation::scrub(std::span<const uint32_t> nodes) const {
  const Program& program = state_.program;
  const Table& features = state_.graph.edges[step_.edge_type].features.table();
  const std::vector<Rows> stored = source_rows();
  const size_t width = program.values[step_.output].width;
  const std::vector<float> units = measured_units();
  MessageSums& sums = sums_of(state_.program, state_.serial, step_, rounding_.scales[position_].inverses.data());
  std::vector<float> row(width), context(has_context() ? program.values[step_.context].width : 0);
  std::vector<double> reach(width);
  std::vector<InEdge> in;
  Scrubbed seen;
  for (uint32_t node : nodes) {
    if (!state_.graph.nodes[target_type()].ids.in_use(node)) continue;
    in.clear();
    scan_messages(view_of(state_.graph, step_), step_, node, [&](NeighborSpan span) {
      for (size_t i = 0; i < span.size; ++i) {
        in.push_back({span.ids[i], node, span.weights == nullptr ? 1.0f : span.weights[i],
                      span.rows == nullptr ? nullptr : features.row(span.rows[i])});
      }
    });
    auto add_all = [&](size_t) {
      for (const InEdge& edge : in) {
        sums.add(0, 1, {edge.weight, edge.features},
                 [&](size_t s) -> const float* { return stored[s].row(is_of_source(s) ? edge.source : edge.target); });
      }
    };
    auto take = [&](size_t) {
      write_sums(program, step_, &sums, 0, row.data(), has_context() ? context.data() : nullptr);
    };
    sums.sum_up(0, 1, add_all, take);
    std::fill(reach.begin(), reach.end(), 0.0);
    if (is_sum()) add_reach(in, context, stored, &sums, &reach);
    const Kernels& k = kernels();
    const bool finite = k.finite(width, state_.stored_row(step_.output, node)) &&
                        (!has_context() || k.finite(context.size(), state_.stored_row(step_.context, node)));
    seen.not_finite += finite ? 0 : 1;
    seen.difference = std::max(seen.difference, difference_of(node, in.size(), row, context, units, reach));
  }
  return seen;
}

}  // namespace livegnn
