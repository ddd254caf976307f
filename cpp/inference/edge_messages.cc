// Messages that depend on more than their source: attention, gates, edge features (NeutronRT, sections IV.A to IV.C).
//
// A batch reaches a target in one of two ways. If a row of the target itself that its messages read has changed, all of
// them have, and its aggregate is computed from all its in-edges (a constrained model). Otherwise only the messages
// along changed edges and from changed sources are taken back and added again. The former is done too where it is
// cheaper.
//
// Drift: a row's bounds are those of `Engine::errors_`; a softmax has one for each head's sums and one for its context.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "inference/directed_changes.h"
#include "inference/engine_scratch.h"
#include "inference/message_sums.h"
#include "inference/rounding.h"
#include "memory/recent.h"
#include "program/kernels.h"
#include "program/row_operators.h"
#include "threads/parallel.h"

namespace livegnn {
namespace {

// What a message costs beside the operations of its program, in nanoseconds.
constexpr double kEvaluationCost = 60;

// The in-edges of a node whose messages a step takes, as they will be: `visit(source, weight, features)`, those that
// stay first, in the store's order.
template <class Visit>
void scan_new_edges(const Graph& graph, const PropagateStep& step, uint32_t node,
                    std::span<const DirectedChange> changes, Visit&& visit) {
  const Table& features = graph.edges[step.edge_type].features.table();
  const EdgeView store = view_of(graph, step);
  if (step.only_loops) {
    const std::optional<OwnLoop> loop = own_loop(store, node, changes);
    if (!loop) return;
    if (loop->change != nullptr) return visit(node, loop->change->new_weight, loop->change->new_features);
    return visit(node, loop->value.weight, loop->value.row == kNoRow ? nullptr : features.row(loop->value.row));
  }
  store.scan_in(node, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      if (step.skip_loops && span.ids[i] == node) continue;
      const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, span.ids[i], key_at(span, i));
      if (change == nullptr) {
        visit(span.ids[i], span.weights == nullptr ? 1.0f : span.weights[i],
              span.rows == nullptr ? nullptr : features.row(span.rows[i]));
      } else if (change->has) {
        visit(span.ids[i], change->new_weight, change->new_features);
      }
    }
  });
  for (const DirectedChange& change : changes) {
    if (step.skip_loops && change.source == node) continue;
    if (!change.had && change.has) visit(change.source, change.new_weight, change.new_features);
  }
}

}  // namespace

namespace {

// Whether sums with these weights may be added to: not if there are none, nor if they have been taken widely.
bool goes_on(const float* context, size_t heads) {
  for (size_t h = 0; h < heads; ++h) {
    if (!(context[h] > 0) || is_wide(context[h])) return false;
  }
  return true;
}

}  // namespace

// Turns sums of all messages of a target into its rows.
void Engine::write_sums(const PropagateStep& step, MessageSums* sums, size_t target, float* row, float* context) const {
  const size_t heads = sums->heads(), width = sums->width();
  if (sums->messages(target) == 0) {
    std::memset(row, 0, width * sizeof(float));
    if (context != nullptr) std::memset(context, 0, program_.values[step.context].width * sizeof(float));
    return;
  }
  std::memcpy(row, sums->sum(target), width * sizeof(float));
  if (context == nullptr) return;
  std::memcpy(context, sums->context(target), heads * sizeof(float));
  if (program_.messages[step.message].softmax) {
    std::memcpy(context + heads, sums->references(target), heads * sizeof(float));
  }
}

void Engine::initialize_messages(size_t position) {
  const PropagateStep& step = program_.propagations[position];
  const MessageProgram& program = program_.messages[step.message];
  const IdMap& ids = graph_.nodes[program_.values[step.output].node_type].ids;
  const Rows out = rows(step.output);
  const Rows contexts = step.context == kNoIndex ? Rows{} : rows(step.context);
  const std::vector<Rows> stored = message_rows(program);
  pool_->run(blocks_of(ids.capacity()), kLong, [&](size_t block) {
    MessageSums& sums = sums_of(step);
    const size_t begin = block * kBlockRows, end = std::min(ids.capacity(), begin + kBlockRows);
    auto add = [&](size_t n) {
      const auto node = static_cast<uint32_t>(n);
      if (!ids.in_use(node)) return;
      scan_new_edges(graph_, step, node, {}, [&](uint32_t source, float weight, const float* features) {
        sums.add(n - begin, 1, {weight, features}, [&](size_t i) -> const float* {
          return stored[i].row(program.sources[i].side == MessageSource::kSource ? source : node);
        });
      });
    };
    auto write = [&](size_t n) {
      if (!ids.in_use(static_cast<uint32_t>(n))) return;
      write_sums(step, &sums, n - begin, out.row(n), step.context == kNoIndex ? nullptr : contexts.row(n));
    };
    sums.sum_up(begin, end, add, write);
  });
  errors_[position].resize(0);
  errors_[position].resize(step.aggregate == Aggregate::kSum ? ids.capacity() : 0);
}

// Where the sources of a program that are rows of nodes lie.
std::vector<Rows> Engine::message_rows(const MessageProgram& program) const {
  std::vector<Rows> stored;
  for (const MessageSource& source : program.sources) {
    const bool of_node = source.side == MessageSource::kSource || source.side == MessageSource::kTarget;
    stored.push_back(of_node ? rows(source.value) : Rows{});
  }
  return stored;
}

Engine::MessageSums& Engine::sums_of(const PropagateStep& step) const {
  // One for each thread and step, of the engines that a thread works for in turns: a few, since those that are gone
  // are among them. An engine may lie where another one lay, so that its address does not tell.
  constexpr size_t kEngines = 8;
  static thread_local Recent<uint64_t, std::vector<std::unique_ptr<MessageSums>>, kEngines> engines;
  const auto position = static_cast<size_t>(&step - program_.propagations.data());
  auto& made = engines.at(serial_);
  if (made.size() <= position) made.resize(program_.propagations.size());
  if (made[position] == nullptr) made[position] = std::make_unique<MessageSums>(*this, step);
  return *made[position];
}

// What a batch does to the messages of a step, grouped by target: which targets have to be computed anew because their
// own rows changed, and for the others which messages go, come or change.
void Engine::find_terms(const PropagateStep& step, const Prepared& prepared) {
  Terms& s = scratches_->terms;
  const MessageProgram& program = program_.messages[step.message];
  const EdgeView store = view_of(graph_, step);
  const Table& features = graph_.edges[step.edge_type].features.table();
  const auto& changes = prepared.edges[direction_of(graph_, step)];
  const uint32_t target_type = program_.values[step.output].node_type;
  const auto& removed = scratches_->removed[target_type];
  auto& slots = scratches_->slots[1][target_type];

  s.sources.clear();
  s.targets.clear();
  s.positions.resize(std::max(s.positions.size(), program.sources.size()));
  auto enter_target = [&](uint32_t node) {
    if (removed[node]) return kNoIndex;
    if (slots[node] == kNoIndex) {
      slots[node] = static_cast<uint32_t>(s.targets.size());
      s.targets.push_back(node);
    }
    return slots[node];
  };
  // The sources of messages: the union of what changed in the rows that are read of them.
  std::vector<uint32_t>* source_slots = nullptr;
  for (size_t i = 0; i < program.sources.size(); ++i) {
    const MessageSource& source = program.sources[i];
    if (source.side == MessageSource::kSource) {
      source_slots = &scratches_->slots[0][program_.values[source.value].node_type];
      for (uint32_t node : prepared.changes[source.value].nodes) {
        if ((*source_slots)[node] != kNoIndex) continue;
        (*source_slots)[node] = static_cast<uint32_t>(s.sources.size());
        s.sources.push_back(node);
        if (step.only_loops) enter_target(node);
      }
    } else if (source.side == MessageSource::kTarget) {
      for (uint32_t node : prepared.changes[source.value].nodes) enter_target(node);
    }
  }
  size_t num_constrained = s.targets.size();
  for (const DirectedChange& change : changes) {
    if (!step.only_loops || change.source == change.target) enter_target(change.target);
  }
  const size_t num_changed = s.targets.size();  // targets past these have no changed edges
  const auto propagation = static_cast<size_t>(&step - program_.propagations.data());
  for (uint32_t node : prepared.units[propagation].overdue) enter_target(node);
  // A single message is not worth taking back.
  if (step.only_loops) num_constrained = s.targets.size();

  grow(&s.first, s.sources.size() + 1);
  s.first[0] = 0;
  for (size_t i = 0; i < s.sources.size(); ++i) {
    s.first[i + 1] = s.first[i] + (step.only_loops ? 0 : store.degree_out(s.sources[i]));
  }
  const size_t along_edges = s.first[s.sources.size()];
  grow(&s.found, along_edges + changes.size());
  grow(&s.found_target, along_edges + changes.size());
  pool_->run(blocks_of(s.sources.size()), kMessageCost * static_cast<double>(along_edges), [&](size_t block) {
    const size_t begin = block * kBlockRows, end = std::min(s.sources.size(), begin + kBlockRows);
    for (size_t i = begin; i < end && !step.only_loops; ++i) {
      size_t at = s.first[i];
      store.scan_out(s.sources[i], [&](NeighborSpan span) {
        for (size_t j = 0; j < span.size; ++j, ++at) {
          const uint32_t target = span.ids[j], slot = slots[target];
          const float weight = span.weights == nullptr ? 1.0f : span.weights[j];
          const float* row = span.rows == nullptr ? nullptr : features.row(span.rows[j]);
          s.found[at] = {s.sources[i], static_cast<uint32_t>(i), weight, weight, row, row, true, true};
          const bool elsewhere = (slot != kNoIndex && slot < num_constrained) ||
                                 (step.skip_loops && target == s.sources[i]) ||
                                 (!changes.empty() && slot != kNoIndex && slot < num_changed &&
                                  change_from(changes_of(changes, target), s.sources[i], key_at(span, j)) != nullptr);
          s.found_target[at] = elsewhere ? kNoIndex : target;
        }
      });
    }
  });
  size_t found = along_edges;
  for (const DirectedChange& change : changes) {
    const uint32_t slot = slots[change.target];
    if (slot == kNoIndex || slot < num_constrained || (step.skip_loops && change.source == change.target)) continue;
    if (!change.had && !change.has) continue;
    const uint32_t source = source_slots == nullptr ? kNoIndex : (*source_slots)[change.source];
    s.found[found] = {change.source,       source,     change.old_weight, change.new_weight, change.old_features,
                      change.new_features, change.had, change.has};
    s.found_target[found++] = change.target;
  }

  s.counts.assign(s.targets.size(), 0);
  for (size_t m = 0; m < found; ++m) {
    if (s.found_target[m] == kNoIndex) continue;
    const uint32_t slot = s.found_target[m] = enter_target(s.found_target[m]);
    if (slot == kNoIndex) continue;
    if (slot == s.counts.size()) s.counts.push_back(0);
    ++s.counts[slot];
  }
  grow(&s.offsets, s.targets.size() + 1);
  s.offsets[0] = 0;
  for (size_t t = 0; t < s.targets.size(); ++t) {
    s.offsets[t + 1] = s.offsets[t] + s.counts[t];
    s.counts[t] = s.offsets[t];
  }
  grow(&s.terms, s.offsets[s.targets.size()]);
  for (size_t m = 0; m < found; ++m) {
    if (s.found_target[m] != kNoIndex) s.terms[s.counts[s.found_target[m]]++] = s.found[m];
  }
  s.constrained = num_constrained;

  for (size_t i = 0; i < program.sources.size(); ++i) {
    const MessageSource& source = program.sources[i];
    auto& positions = s.positions[i];
    positions.clear();
    if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
    const bool of_source = source.side == MessageSource::kSource;
    positions.assign(of_source ? s.sources.size() : s.targets.size(), kNoIndex);
    const auto& places = of_source ? *source_slots : slots;
    const Changes& changed = prepared.changes[source.value];
    for (size_t n = 0; n < changed.nodes.size(); ++n) {
      const uint32_t slot = places[changed.nodes[n]];
      if (slot != kNoIndex) positions[slot] = changed.positions[n];
    }
  }
  s.source_slots = source_slots;
}

void Engine::prepare_messages(const PropagateStep& step, size_t propagation, Prepared* prepared) {
  find_terms(step, *prepared);
  Terms& s = scratches_->terms;
  const MessageProgram& program = program_.messages[step.message];
  const EdgeView store = view_of(graph_, step);
  const auto& changes = prepared->edges[direction_of(graph_, step)];
  const std::vector<Rows> stored = message_rows(program);
  const Rows old_rows = rows(step.output);
  const Rows old_contexts = step.context == kNoIndex ? Rows{} : rows(step.context);
  const size_t num_targets = s.targets.size(), heads = heads_of(step), per_row = error_width(step);
  const bool has_context = step.context != kNoIndex, is_sum = step.aggregate == Aggregate::kSum;
  const size_t channels = program_.values[step.output].width / heads;
  const Table& errors = errors_[propagation];
  const float* const inverse = inverses_[propagation].data();
  const float shrunk = shrunk_[propagation];

  Changes& output = prepared->changes[step.output];
  float* const rows = output.rows.reserve(num_targets * output.stride);
  Changes* const context = has_context ? &prepared->changes[step.context] : nullptr;
  float* const contexts = has_context ? context->rows.reserve(num_targets * context->stride) : nullptr;
  grow(&output.errors, num_targets * per_row);
  s.keep.assign(num_targets, 0);
  s.keep_context.assign(num_targets, 0);
  std::atomic<size_t> recomputed{0}, touched{0}, nodes{0};

  auto old_row = [&](size_t i, uint32_t node) { return node < stored[i].count ? stored[i].row(node) : zeros_.data(); };
  auto new_row = [&](size_t i, uint32_t node, uint32_t slot) -> const float* {
    const uint32_t position = slot == kNoIndex ? kNoIndex : s.positions[i][slot];
    return position == kNoIndex ? old_row(i, node) : prepared->changes[program.sources[i].value].at(position);
  };
  auto recompute = [&](MessageSums* sums, size_t place, size_t t) {
    const uint32_t node = s.targets[t];
    size_t read = 0;
    const auto of_node = changes_of(changes, node);
    scan_new_edges(graph_, step, node, of_node, [&](uint32_t source, float weight, const float* features) {
      ++read;
      const uint32_t slot = s.source_slots == nullptr ? kNoIndex : (*s.source_slots)[source];
      sums->add(place, 1, {weight, features}, [&](size_t i) -> const float* {
        return program.sources[i].side == MessageSource::kSource ? new_row(i, source, slot)
                                                                 : new_row(i, node, static_cast<uint32_t>(t));
      });
    });
    recomputed.fetch_add(1, std::memory_order_relaxed);
    touched.fetch_add(read, std::memory_order_relaxed);
    nodes.fetch_add(read + 1, std::memory_order_relaxed);
  };
  auto write = [&](MessageSums* sums, size_t place, size_t t) {
    const uint32_t node = s.targets[t];
    float* const row = rows + t * output.stride;
    float* const context_row = has_context ? contexts + t * context->stride : nullptr;
    write_sums(step, sums, place, row, context_row);
    float* const error = output.errors.data() + t * per_row;
    std::fill_n(error, per_row, 0.0f);
    if (is_sum && !has_context) {
      begin_bounds(kernels().scaled_peak(old_rows.width, row, inverse), sums->messages(place), error);
    }
    s.keep[t] = kernels().differs(old_rows.width, stored_row(step.output, node), row);
    if (!kernels().finite(old_rows.width, row)) lose_row(step.output, node);
    if (has_context) {
      s.keep_context[t] = kernels().differs(old_contexts.width, stored_row(step.context, node), context_row);
      if (!kernels().finite(old_contexts.width, context_row)) lose_row(step.context, node);
    }
  };
  // Adds what has come and gone to the rows as they were. False if they are to be computed anew instead.
  auto apply = [&](MessageSums* sums, size_t place, size_t t) {
    const uint32_t node = s.targets[t];
    const float* const old = stored_row(step.output, node);
    const float* const old_context = has_context ? stored_row(step.context, node) : nullptr;
    float* const row = rows + t * output.stride;
    float* const context_row = has_context ? contexts + t * context->stride : nullptr;
    const float* const sum = sums->sum(place);
    const float* const reach = sums->reach(place);
    const size_t count = sums->messages(place);
    float* const error = output.errors.data() + t * per_row;
    const float* const old_error = node < errors.rows() ? errors.row(node) : zeros_.data();
    if (!has_context) {
      float peak = 0, reached = 0;
      s.keep[t] = kernels().apply_delta(old_rows.width, old, sum, inverse, row, &peak);
      for (size_t h = 0; h < heads; ++h) reached = reach[h] <= reached ? reached : reach[h];
      const Bounds bounds = touch_bounds(old_error, shrunk, peak, reached, count, error);
      return is_good(bounds, peak, 0, [&] { return store.degree_in(node); });
    }
    bool good = true;
    for (size_t h = 0; h < heads; ++h) {
      const float factor = program.softmax ? sums->factors(place)[h] : 1.0f;
      for (size_t c = h * channels; c < (h + 1) * channels; ++c) row[c] = factor * old[c] + sum[c];
      const float peak = kernels().scaled_peak(channels, row + h * channels, inverse + h * channels);
      const float total = context_row[h] = factor * old_context[h] + sums->context(place)[h];
      if (program.softmax) context_row[heads + h] = sums->references(place)[h];
      error[h] = factor * shrunk * old_error[h] + kUnit * peak + rounding_of_terms(reach[h], count);
      // A factor that is next to nothing has not all its bits.
      if (factor < std::numeric_limits<float>::min()) {
        const float gone = kernels().scaled_peak(channels, old + h * channels, inverse + h * channels);
        error[h] += kUnit * std::numeric_limits<float>::min() * gone;
      }
      error[heads + h] =
          factor * old_error[heads + h] + kUnit * std::fabs(total) + rounding_of_terms(reach[heads + h], count);
      // The row will be divided by the total: what is left are messages' means, whose unit is that of messages.
      good &= error[h] <= kDriftTolerance * std::min(peak, std::fabs(total)) &&
              error[heads + h] <= kDriftTolerance * std::fabs(total) && std::isfinite(peak) && std::isfinite(total);
    }
    s.keep[t] = kernels().differs(old_rows.width, old, row);
    s.keep_context[t] = kernels().differs(old_contexts.width, old_context, context_row);
    return good;
  };

  double row_cost = kEvaluationCost;
  for (const Op& op : program.step.ops) {
    row_cost += kRowCost / 4 + 2 * kFlopCost * multiplications(program.step, op);
  }
  const double work = 2 * static_cast<double>(s.offsets[num_targets]) + 16 * static_cast<double>(s.constrained);
  pool_->run(blocks_of(num_targets), row_cost * work, [&](size_t block) {
    MessageSums& sums = sums_of(step);
    const size_t begin = block * kBlockRows, end = std::min(num_targets, begin + kBlockRows);
    bool anew[kBlockRows], again = false, lost[kBlockRows] = {}, any_lost = false;
    auto take = [&](size_t t) {
      if (sums.fits(t - begin)) {
        write(&sums, t - begin, t);
      } else {
        lost[t - begin] = any_lost = true;
      }
    };
    sums.open(end - begin);
    for (size_t t = begin; t < end; ++t) {
      const uint32_t node = s.targets[t];
      size_t evaluations = 0;
      int64_t degree = store.degree_in(node);
      for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
        const Terms::Term& term = s.terms[m];
        evaluations += size_t{term.before} + size_t{term.after};
        degree += int{term.after} - int{term.before};
      }
      // Whatever is added to nothing, which has no reference, and whatever loses its last message is computed anew too.
      anew[t - begin] = !is_sum || recompute_all_ || t < s.constrained || static_cast<int64_t>(evaluations) >= degree ||
                        (program.softmax && !goes_on(stored_row(step.context, node), heads));
      if (anew[t - begin]) {
        recompute(&sums, t - begin, t);
        continue;
      }
      if (program.softmax) sums.resume(t - begin, stored_row(step.context, node) + heads);
      for (size_t m = s.offsets[t]; m < s.offsets[t + 1]; ++m) {
        const Terms::Term& term = s.terms[m];
        auto locate = [&](bool now) {
          return [&, now](size_t i) -> const float* {
            if (program.sources[i].side != MessageSource::kSource) return old_row(i, node);
            return now ? new_row(i, term.source, term.slot) : old_row(i, term.source);
          };
        };
        if (term.before) sums.add(t - begin, -1, {term.old_weight, term.old_features}, locate(false));
        if (term.after) sums.add(t - begin, 1, {term.new_weight, term.new_features}, locate(true));
      }
      const size_t terms = s.offsets[t + 1] - s.offsets[t];
      touched.fetch_add(terms, std::memory_order_relaxed);
      nodes.fetch_add(terms + 1, std::memory_order_relaxed);
    }
    sums.finish();
    for (size_t t = begin; t < end; ++t) {
      if (anew[t - begin]) {
        take(t);
        anew[t - begin] = false;
      } else if (!apply(&sums, t - begin, t)) {
        anew[t - begin] = again = true;
      }
    }
    if (again) {
      sums.open(end - begin);
      for (size_t t = begin; t < end; ++t) {
        if (anew[t - begin]) recompute(&sums, t - begin, t);
      }
      sums.finish();
      for (size_t t = begin; t < end; ++t) {
        if (anew[t - begin]) take(t);
      }
    }
    if (!any_lost) return;
    sums.open(end - begin, true);
    for (size_t t = begin; t < end; ++t) {
      if (lost[t - begin]) recompute(&sums, t - begin, t);
    }
    sums.finish();
    for (size_t t = begin; t < end; ++t) {
      if (lost[t - begin]) write(&sums, t - begin, t);
    }
  });

  auto& slots = scratches_->slots[1][program_.values[step.output].node_type];
  for (uint32_t node : s.targets) slots[node] = kNoIndex;
  if (s.source_slots != nullptr) {
    for (uint32_t node : s.sources) (*s.source_slots)[node] = kNoIndex;
  }
  if (is_sum) output.reached = s.targets;
  keep_changed(&output, s.targets, s.keep);
  if (has_context) keep_changed(context, s.targets, s.keep_context);
  prepared->edges_touched += touched.load();
  prepared->nodes_touched += nodes.load();
  prepared->recomputed += recomputed.load();
}

}  // namespace livegnn
