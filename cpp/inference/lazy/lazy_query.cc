// Computes the rows that a query needs, for the nodes that batches have reached.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "inference/edges/directed_changes.h"
#include "inference/evaluation/blocks.h"
#include "inference/evaluation/message_sums.h"
#include "inference/evaluation/row_evaluation.h"
#include "inference/lazy/lazy.h"
#include "inference/propagation/sum_propagation.h"
#include "inference/rounding/rounding.h"
#include "inference/rows/stored_rows.h"
#include "program/kernels.h"
#include "program/row_sum.h"

namespace livegnn {

void Lazy::predict(std::span<const uint32_t> nodes, float* out, size_t output) {
  const size_t width = state_.program.output_width(output);
  const uint32_t lazy_step = outputs_[output];
  std::vector<uint32_t> kept;
  std::vector<size_t> kept_at, asked_at;
  if (lazy_step != kNoIndex && !shows_current_) {
    const Overlay& overlay = lazy_steps_[lazy_step].overlay;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (overlay.covers(nodes[i])) {
        asked_at.push_back(i);
      } else {
        kept.push_back(nodes[i]);
        kept_at.push_back(i);
      }
    }
  }
  if (asked_at.empty()) return read_output(state_, output, nodes, out);
  if (!kept.empty()) {
    std::vector<float> rows(kept.size() * width);
    read_output(state_, output, kept, rows.data());
    for (size_t i = 0; i < kept.size(); ++i) {
      std::memcpy(out + kept_at[i] * width, rows.data() + i * width, width * sizeof(float));
    }
  }
  Overlay& overlay = lazy_steps_[lazy_step].overlay;
  // The lazy step of a kept output may fill other values too.
  const auto [is_kept, position] = state_.program.output_at(output);
  const size_t column = is_kept ? lazy_steps_[lazy_step].columns[column_of_[position]].at : 0;
  auto copy = [&] {
    for (size_t i : asked_at) std::memcpy(out + i * width, overlay.row(nodes[i]) + column, width * sizeof(float));
  };
  {
    std::shared_lock lock(mutex_);
    if (std::none_of(asked_at.begin(), asked_at.end(), [&](size_t i) { return overlay.stale(nodes[i]); })) {
      return copy();
    }
  }
  std::unique_lock lock(mutex_);
  need_[lazy_step].reserve(asked_at.size());
  for (size_t i : asked_at) {
    if (!overlay.stale(nodes[i])) continue;
    need_[lazy_step].push_back(nodes[i]);
    overlay.want(nodes[i]);
  }
  compute(false);
  copy();
}

// First goes backward, from the rows that are needed to the rows that these read, and then computes forward. `all`:
// everything stale is already marked as needed.
void Lazy::compute(bool all) {
  size_t done = 0;
  try {
    for (size_t s = lazy_steps_.size(); s-- > 0 && !all;) {
      if (!need_[s].empty()) want_inputs(s);
    }
    for (; done < lazy_steps_.size(); ++done) {
      LazyStep& lazy_step = lazy_steps_[done];
      const std::vector<uint32_t>& nodes = need_[done];
      if (nodes.empty()) continue;
      for (uint32_t node : nodes) lazy_step.overlay.place(node);
      work_.rows += nodes.size();
      if (lazy_step.kind == LazyStep::kRows) {
        compute_rows(&lazy_step, nodes);
      } else {
        compute_aggregates(&lazy_step, nodes);
      }
    }
  } catch (...) {
    for (size_t s = done; s < lazy_steps_.size(); ++s) {
      for (uint32_t node : need_[s]) {
        lazy_steps_[s].overlay.unwant(node);
        lazy_steps_[s].overlay.invalidate(node);
      }
    }
    for (auto& nodes : need_) nodes.clear();
    std::fill(place_of_.begin(), place_of_.end(), kNoIndex);
    throw;
  }
  for (auto& nodes : need_) nodes.clear();
  if (output_ != kNoIndex) pending_.store(lazy_steps_[output_].overlay.num_stale(), std::memory_order_relaxed);
}

void Lazy::want_inputs(size_t s) {
  const LazyStep& lazy_step = lazy_steps_[s];
  const std::vector<uint32_t>& nodes = need_[s];
  auto want = [&](uint32_t from, uint32_t node) {
    if (!lazy_steps_[from].overlay.stale(node)) return;
    need_[from].push_back(node);
    lazy_steps_[from].overlay.want(node);
  };
  if (lazy_step.kind == LazyStep::kRows) {
    for (uint32_t source : lazy_step.rows->sources) {
      const uint32_t from = lazy_step_of_[source];
      if (from == kNoIndex || lazy_steps_[from].kind == LazyStep::kSaved) continue;
      for (uint32_t node : nodes) want(from, node);
    }
    return;
  }
  const PropagateStep& step = state_.program.propagations[lazy_step.propagation];
  if (step.message != kNoIndex) {
    for (const MessageSource& source : state_.program.messages[step.message].sources) {
      if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
      const uint32_t from = lazy_step_of_[source.value];
      if (from == kNoIndex || lazy_steps_[from].kind == LazyStep::kSaved || lazy_steps_[from].overlay.num_stale() == 0)
        continue;
      for (uint32_t node : nodes) {
        if (source.side == MessageSource::kTarget) {
          want(from, node);
          continue;
        }
        scan_messages(view_of(state_.graph, step), step, node, [&](NeighborSpan span) {
          for (size_t j = 0; j < span.size; ++j) want(from, span.ids[j]);
        });
      }
    }
    return;
  }
  const uint32_t from = lazy_step_of_[step.input];
  if (lazy_steps_[from].kind == LazyStep::kSaved || lazy_steps_[from].overlay.num_stale() == 0) return;
  const EdgeView store = view_of(state_.graph, step);
  const Overlay& input = lazy_steps_[from].overlay;
  if (push_is_cheaper(step, nodes, input)) {
    for (uint32_t source : input.nodes()) {
      if (!input.stale(source)) continue;
      bool read = false;
      store.scan_out(source, [&](NeighborSpan span) {
        for (size_t j = 0; j < span.size && !read; ++j) read = lazy_step.overlay.wanted(span.ids[j]);
      });
      if (read) want(from, source);
    }
    return;
  }
  std::vector<std::vector<uint32_t>> found(blocks_of(nodes.size()));
  pool_.run(found.size(), 8 * kMessageCost * static_cast<double>(nodes.size()), [&](size_t block) {
    const size_t first = block * kBlockRows, end = std::min(nodes.size(), first + kBlockRows);
    for (size_t i = first; i < end; ++i) store.prefetch_in(nodes[i]);
    for (size_t i = first; i < end; ++i) store.prefetch_in_leaf(nodes[i]);
    for (size_t i = first; i < end; ++i) {
      store.scan_in(nodes[i], [&](NeighborSpan span) {
        for (size_t j = 0; j < span.size; ++j) {
          if (input.covers(span.ids[j]) && input.stale(span.ids[j])) found[block].push_back(span.ids[j]);
        }
      });
    }
  });
  for (const auto& list : found) {
    for (uint32_t node : list) want(from, node);
  }
}

void Lazy::compute_rows(LazyStep* lazy_step, const std::vector<uint32_t>& nodes) {
  const RowsStep& step = *lazy_step->rows;
  std::vector<Source> inputs;
  for (uint32_t source : step.sources) inputs.push_back(source_of(source));
  pool_.run(blocks_of(nodes.size()), row_cost_of(step) * static_cast<double>(nodes.size()), [&](size_t block) {
    static thread_local RowBuffers memory;
    static thread_local std::vector<const float*> sources;
    const size_t first = block * kBlockRows, count = std::min(kBlockRows, nodes.size() - first);
    float* const* const buffers = memory.open(step);
    sources.resize(inputs.size() * kBlockRows);
    for (size_t s = 0; s < inputs.size(); ++s) {
      for (size_t i = 0; i < count; ++i) {
        const float* row = sources[s * kBlockRows + i] = inputs[s].now(nodes[first + i]);
        for (size_t c = 0; c < inputs[s].table.width; c += 16) __builtin_prefetch(row + c);
      }
    }
    run_rows(state_.program, step, count, sources.data(), buffers);
    for (size_t s = 0; s < step.sinks.size(); ++s) {
      const size_t width = step.registers[step.sinks[s].reg].width;
      const LazyStep::Column& column = lazy_step->columns[s];
      for (size_t i = 0; i < count; ++i) {
        float* const row = lazy_step->overlay.row(nodes[first + i]) + column.at;
        std::memcpy(row, row_in(step, step.sinks[s].reg, i, sources.data(), buffers), width * sizeof(float));
        if (column.difference == 0) continue;
        const float* base = state_.stored_row(column.value, nodes[first + i]);
        kernels().subtract(row_stride(width), row, base, row - column.at + column.difference);
      }
    }
  });
}

// Whether the affected in-edges of some targets are found faster from their sources than from the targets. A single
// target has few in-edges. But many targets include hubs, whose long lists contain hardly any affected edge.
bool Lazy::push_is_cheaper(const PropagateStep& step, const std::vector<uint32_t>& targets,
                           const Overlay& sources) const {
  const EdgeView store = view_of(state_.graph, step);
  size_t in = 0, out = 0;
  for (uint32_t target : targets) in += store.degree_in(target);
  if (in <= 4 * sources.nodes().size()) return false;  // deciding would take as long
  for (uint32_t source : sources.nodes()) out += store.degree_out(source);
  return 2 * out < in;  // targets are scattered in memory, sources are a small bit set
}

// Rows and their coefficients, to be added in this order.
struct Lazy::Terms {
  std::vector<InEdge> found;  // of the current target
  std::vector<const float*> rows;
  std::vector<float> weights;
  std::vector<uint32_t> order;  // 0, 1, ...
  size_t edges = 0, recomputed = 0;

  void clear() {
    rows.clear();
    weights.clear();
  }
  void add(const float* row, float weight) {
    rows.push_back(row);
    weights.push_back(weight);
    if (order.size() < rows.size()) order.push_back(static_cast<uint32_t>(order.size()));
  }
};

// The affected in-edges of all targets, grouped by target.
void Lazy::push(const PropagateStep& step, const std::vector<uint32_t>& targets, const Overlay& sources,
                Pushed* pushed) {
  const EdgeView store = view_of(state_.graph, step);
  std::vector<std::pair<uint32_t, InEdge>> found;
  pushed->offsets.assign(targets.size() + 1, 0);
  for (uint32_t target : targets) {
    if (target >= place_of_.size()) place_of_.resize(target + 1 + target / 2, kNoIndex);
  }
  for (uint32_t i = 0; i < targets.size(); ++i) place_of_[targets[i]] = i;
  constexpr size_t kAhead = 8;
  const std::vector<uint32_t>& nodes = sources.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i + 2 * kAhead < nodes.size()) store.prefetch_out(nodes[i + 2 * kAhead]);
    if (i + kAhead < nodes.size()) store.prefetch_out_leaf(nodes[i + kAhead]);
    store.scan_out(nodes[i], [&](NeighborSpan span) {
      pushed->edges += span.size;
      for (size_t j = 0; j < span.size; ++j) {
        const uint32_t place = span.ids[j] < place_of_.size() ? place_of_[span.ids[j]] : kNoIndex;
        if (place == kNoIndex || (step.skip_loops && span.ids[j] == nodes[i])) continue;
        found.push_back({place, {nodes[i], key_at(span, j), step.weighted ? span.weights[j] : 1.0f}});
        ++pushed->offsets[place + 1];
      }
    });
  }
  for (uint32_t target : targets) place_of_[target] = kNoIndex;
  for (size_t t = 0; t < targets.size(); ++t) pushed->offsets[t + 1] += pushed->offsets[t];
  std::vector<size_t> next(pushed->offsets.begin(), pushed->offsets.end());
  pushed->found.resize(found.size());
  for (const auto& [place, edge] : found) pushed->found[next[place]++] = edge;
}

void Lazy::compute_aggregates(LazyStep* lazy_step, const std::vector<uint32_t>& nodes) {
  const PropagateStep& step = state_.program.propagations[lazy_step->propagation];
  if (step.message != kNoIndex) return compute_messages(lazy_step, step, nodes);
  const EdgeView store = view_of(state_.graph, step);
  const Source input = source_of(step.input), output = source_of(step.output);
  const size_t stride = row_stride(output.table.width);
  Pushed pushed;
  const bool push_first = step.aggregate == Aggregate::kSum && push_is_cheaper(step, nodes, *input.overlay);
  if (push_first) push(step, nodes, *input.overlay, &pushed);
  std::atomic<size_t> edges{pushed.edges}, recomputed{0};
  pool_.run(blocks_of(nodes.size()), 8 * kMessageCost * static_cast<double>(nodes.size()), [&](size_t block) {
    static thread_local Terms terms;
    const Trimmed trimmed(&terms.found, &terms.rows, &terms.weights, &terms.order);
    terms.edges = terms.recomputed = 0;
    const size_t first = block * kBlockRows, end = std::min(nodes.size(), first + kBlockRows);
    for (size_t i = first; i < end; ++i) store.prefetch_in(nodes[i]);
    for (size_t i = first; i < end && !push_first; ++i) store.prefetch_in_leaf(nodes[i]);
    for (size_t i = first; i < end; ++i) fetch(output.table, nodes[i]);
    for (size_t i = first; i < end; ++i) {
      float* row = lazy_step->overlay.row(nodes[i]);
      float* error = lazy_step->overlay.error(nodes[i]);
      std::fill_n(error, kRowBounds, 0.0f);
      if (step.aggregate == Aggregate::kMax) {
        max_row(step, nodes[i], input, &terms, row, row + lazy_step->columns[1].at);
      } else {
        terms.found.clear();
        if (push_first) {
          const auto from = pushed.found.begin();
          terms.found.assign(from + static_cast<std::ptrdiff_t>(pushed.offsets[i]),
                             from + static_cast<std::ptrdiff_t>(pushed.offsets[i + 1]));
        } else {
          scan_messages(store, step, nodes[i], [&](NeighborSpan span) {
            terms.edges += span.size;
            for (size_t j = 0; j < span.size; ++j) {
              if (!input.affected(span.ids[j])) continue;
              terms.found.push_back({span.ids[j], key_at(span, j), step.weighted ? span.weights[j] : 1.0f});
            }
          });
        }
        sum_row(step, lazy_step->propagation, nodes[i], input, output, &terms, row, error);
      }
      const size_t difference = lazy_step->columns[0].difference;
      if (difference != 0) kernels().subtract(stride, row, output.table.row(nodes[i]), row + difference);
    }
    edges.fetch_add(terms.edges, std::memory_order_relaxed);
    recomputed.fetch_add(terms.recomputed, std::memory_order_relaxed);
  });
  work_.edges += edges.load();
  work_.recomputed += recomputed.load();
}

// Computes all messages of each target again, in the order of its in-edges.
void Lazy::compute_messages(LazyStep* lazy_step, const PropagateStep& step, const std::vector<uint32_t>& nodes) {
  const MessageProgram& program = state_.program.messages[step.message];
  const Graph::EdgeType& type = state_.graph.edges[step.edge_type];
  const Table& features = type.features.table();
  std::vector<Source> sources;
  for (const MessageSource& source : program.sources) {
    const bool of_node = source.side == MessageSource::kSource || source.side == MessageSource::kTarget;
    sources.push_back(of_node ? source_of(source.value) : Source{});
  }
  std::atomic<size_t> edges{0};
  pool_.run(blocks_of(nodes.size()), 16 * kMessageCost * static_cast<double>(nodes.size()), [&](size_t block) {
    MessageSums& sums =
        sums_of(state_.program, state_.serial, step, rounding_.scales[lazy_step->propagation].inverses.data());
    const size_t first = block * kBlockRows, end = std::min(nodes.size(), first + kBlockRows);
    size_t read = 0;
    auto add = [&](size_t n) {
      scan_messages(view_of(state_.graph, step), step, nodes[n], [&](NeighborSpan span) {
        read += span.size;
        for (size_t j = 0; j < span.size; ++j) {
          const uint32_t source = span.ids[j];
          sums.add(n - first, 1,
                   {span.weights == nullptr ? 1.0f : span.weights[j],
                    span.rows == nullptr ? nullptr : features.row(span.rows[j])},
                   [&](size_t i) -> const float* {
                     return sources[i].now(program.sources[i].side == MessageSource::kSource ? source : nodes[n]);
                   });
        }
      });
    };
    auto write = [&](size_t n) {
      float* const row = lazy_step->overlay.row(nodes[n]);
      write_sums(state_.program, step, &sums, n - first, row,
                 step.context == kNoIndex ? nullptr : row + lazy_step->columns[1].at);
      std::fill_n(lazy_step->overlay.error(nodes[n]), kRowBounds, 0.0f);
    };
    sums.sum_up(first, end, add, write);
    edges.fetch_add(read, std::memory_order_relaxed);
  });
  work_.edges += edges.load();
  work_.recomputed += nodes.size();
}

// The affected in-edges are in `terms->found`, in any order. They are added in the order of their sources, so that the
// way in which they were found does not matter, and followed by the terms of changed edges.
void Lazy::sum_row(const PropagateStep& step, uint32_t propagation, uint32_t target, const Source& input,
                   const Source& output, Terms* terms, float* row, float* error) {
  const Kernels& k = kernels();
  const EdgeView store = view_of(state_.graph, step);
  const std::span<const DirectedChange> changes = edges_[direction_of(state_.graph, step)].of(target);
  const size_t stride = row_stride(output.table.width), degree = store.degree_in(target);
  const float* const base = output.table.row(target);
  const float* const inverse = rounding_.scales[propagation].inverses.data();

  std::sort(terms->found.begin(), terms->found.end(),
            [](const InEdge& a, const InEdge& b) { return a.order() < b.order(); });
  terms->clear();
  for (const InEdge& edge : terms->found) {
    const DirectedChange* change = changes.empty() ? nullptr : change_from(changes, edge.source, edge.key);
    if (change != nullptr && !change->had) continue;
    terms->add(input.change(edge.source), change != nullptr && step.weighted ? change->old_weight : edge.weight);
  }
  for (const DirectedChange& change : changes) {
    if (step.skip_loops && change.source == target) continue;
    const float before = change.had ? (step.weighted ? change.old_weight : 1.0f) : 0.0f;
    const float now = change.has ? (step.weighted ? change.new_weight : 1.0f) : 0.0f;
    if (now == before) continue;
    terms->add(change.has ? input.now(change.source) : input.base(change.source), now - before);
  }

  // Compute the row again from all neighbours if they are few, or if that reads fewer rows, counting the base row. A
  // row without neighbours is exactly zero, without a rounding remainder.
  const RoundingScale& scale = rounding_.scales[propagation];
  bool anew = degree <= few_terms(rounding_, propagation, scale.offset) || degree <= terms->rows.size() + 1;
  if (!anew) {
    float reach = 0, peak = 0;
    for (size_t i = 0; i < terms->rows.size(); ++i) {
      reach += std::fabs(terms->weights[i]) * k.scaled_peak(stride, terms->rows[i], inverse);
    }
    static thread_local Scratch memory;
    float* const sum = memory.reserve(stride);
    sum_rows(stride, terms->rows.size(), terms->rows.data(), terms->order.data(), terms->weights.data(), sum);
    k.apply_delta(stride, base, sum, inverse, row, &peak);
    const float* const before = rounding_.errors[propagation].row(target);
    const Bounds bounds = touch_bounds(before, 1, peak, reach, terms->rows.size(), error);
    anew = !is_good(bounds, peak, scale.mean, scale.offset, [&] { return degree; });
  }
  if (!anew) return;
  terms->clear();
  scan_messages(store, step, target, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      const float* from = input.now(span.ids[i]);
      for (size_t c = 0; c < stride; c += 16) __builtin_prefetch(from + c);
      terms->add(from, step.weighted ? span.weights[i] : 1.0f);
    }
  });
  sum_all_rows(stride, terms->rows.size(), terms->rows.data(), terms->order.data(), terms->weights.data(), row);
  begin_bounds(k.scaled_peak(stride, row, inverse), terms->rows.size(), error);
  ++terms->recomputed;
}

void Lazy::max_row(const PropagateStep& step, uint32_t target, const Source& input, Terms* terms, float* row,
                   float* counts) {
  const EdgeView store = view_of(state_.graph, step);
  const size_t width = input.table.width;
  terms->clear();
  store.scan_in(target, [&](NeighborSpan span) {
    for (size_t i = 0; i < span.size; ++i) {
      terms->add(input.now(span.ids[i]), step.weighted && span.weights != nullptr ? span.weights[i] : 1.0f);
    }
  });
  const bool any = !terms->rows.empty();
  std::fill(row, row + width, any ? -std::numeric_limits<float>::infinity() : 0.0f);
  std::vector<uint32_t> ties(width);
  kernels().max_rows(width, terms->rows.size(), terms->rows.data(), terms->order.data(), terms->weights.data(), row,
                     ties.data());
  std::memcpy(counts, ties.data(), width * sizeof(uint32_t));
  terms->edges += terms->rows.size();
  ++terms->recomputed;
}

}  // namespace livegnn
