#include "inference/forward/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "inference/evaluation/blocks.h"
#include "program/kernels.h"

namespace livegnn {
namespace {

// Rows of `width` finite floats, or where the first is that has another.
void check_finite(const float* rows, size_t count, size_t width, BadSampledGraph::Kind kind, uint32_t type) {
  if (kernels().finite(count * width, rows)) return;
  for (size_t i = 0;; ++i) {
    if (!kernels().finite(width, rows + i * width)) throw BadSampledGraph(kind, type, i);
  }
}

// As in a graph that keeps parallel edges: if every node counts as having one loop, only the last of them is read.
bool takes_last_loop(const ContextStep& step, bool keyed) { return keyed && step.fill && !step.skip_loops; }

}  // namespace

void ForwardPass::run(std::span<const Forward::Asked> asked) {
  group_edges();
  find_demand(asked);
  const size_t floats = place_rows();
  for (size_t i = 0; i < program_.order.size(); ++i) {
    const Step step = program_.order[i];
    const size_t count = work_.step_need[i];
    if (count == 0) continue;
    if (step.kind == Step::kContext) {
      compute_contexts(program_.contexts[step.position], count);
    } else if (step.kind == Step::kRows) {
      compute_rows(program_.rows[step.position], count);
    } else if (program_.propagations[step.position].message != kNoIndex) {
      compute_messages(step.position, count);
    } else if (program_.propagations[step.position].aggregate == Aggregate::kMax) {
      compute_maxima(program_.propagations[step.position], count);
    } else {
      compute_sums(program_.propagations[step.position], count);
    }
  }
  for (const Forward::Asked& each : asked) write(each);
  work_.close(floats);
}

// -- the demand

void ForwardPass::group_edges() {
  const size_t types = forward_.edge_types_.size();
  work_.edges.resize(2 * types);
  for (uint32_t type = 0; type < types; ++type) {
    const SampledGraph::Edges& edges = sample_.edges[type];
    const Forward::EdgeType& spec = forward_.edge_types_[type];
    const size_t sources = sample_.nodes[spec.source_type].count, targets = sample_.nodes[spec.target_type].count;
    const bool may_loop = spec.source_type == spec.target_type;
    bool read = false;
    for (const bool reversed : {false, true}) {
      const size_t direction = forward_.direction_of(type, reversed);
      if (!forward_.reads_[direction]) continue;
      SampledEdges& grouped = work_.edges[direction];
      grouped.group(edges, type, reversed, reversed ? targets : sources, reversed ? sources : targets, may_loop);
      if (grouped.has_parallel_loops() && !spec.keyed) {
        uint32_t node = 0;
        while (grouped.loops(node) < 2) ++node;
        throw BadSampledGraph(BadSampledGraph::kParallelLoops, type, node);
      }
      read = true;
    }
    if (!read) continue;
    const size_t width = forward_.edge_width(type);
    if (edges.weight != nullptr) check_finite(edges.weight, edges.count, 1, BadSampledGraph::kWeight, type);
    if (width > 0) check_finite(edges.features, edges.count, width, BadSampledGraph::kEdgeFeatures, type);
  }
}

void ForwardPass::want_inputs(const PropagateStep& step, size_t rows) {
  const size_t senders = step.only_loops ? rows : edges_of(step).reach(rows);
  if (step.message == kNoIndex) return want(step.input, senders);
  for (const MessageSource& source : program_.messages[step.message].sources) {
    if (source.side == MessageSource::kSource) want(source.value, senders);
    if (source.side == MessageSource::kTarget) want(source.value, rows);
  }
}

void ForwardPass::find_demand(std::span<const Forward::Asked> asked) {
  work_.need.assign(program_.values.size(), 0);
  work_.step_need.assign(program_.order.size(), 0);
  for (const Forward::Asked& each : asked) {
    const uint32_t type = forward_.program().output_type(each.output);
    size_t most = 0;
    for (size_t i = 0; i < each.positions.size(); ++i) {
      const auto position = static_cast<size_t>(each.positions[i]);
      if (position >= sample_.nodes[type].count) throw BadSampledGraph(BadSampledGraph::kAsked, type, i);
      most = std::max(most, position + 1);
    }
    const auto [kept, place] = forward_.program().output_at(each.output);
    if (kept) {
      want(place, most);
    } else {
      for (uint32_t source : program_.on_demand[place].sources) want(source, most);
    }
  }
  for (size_t i = program_.order.size(); i-- > 0;) {
    const Step step = program_.order[i];
    size_t& rows = work_.step_need[i];
    if (step.kind == Step::kContext) {
      rows = work_.need[program_.contexts[step.position].output];
    } else if (step.kind == Step::kRows) {
      for (const Sink& sink : program_.rows[step.position].sinks) rows = std::max(rows, work_.need[sink.value]);
      for (const Sink& sink : program_.rows[step.position].sinks) want(sink.value, rows);
      for (uint32_t source : program_.rows[step.position].sources) want(source, rows);
    } else {
      const PropagateStep& propagate = program_.propagations[step.position];
      if (propagate.context != kNoIndex) want(propagate.output, work_.need[propagate.context]);
      rows = work_.need[propagate.output];
      if (propagate.context != kNoIndex) want(propagate.context, rows);
      want_inputs(propagate, rows);
    }
  }
}

size_t ForwardPass::place_rows() {
  const auto in_place = [&](const Value& value) { return value.features && value.width == row_stride(value.width); };
  const auto floats_of = [&](uint32_t v) {
    const Value& value = program_.values[v];
    return in_place(value) ? 0 : (work_.need[v] * row_stride(value.width) + 15) / 16 * 16;
  };
  size_t floats = 0;
  for (uint32_t v = 0; v < program_.values.size(); ++v) floats += floats_of(v);
  float* to = work_.memory.reserve(floats);
  work_.rows.resize(program_.values.size());
  for (uint32_t v = 0; v < program_.values.size(); ++v) {
    const Value& value = program_.values[v];
    const size_t stride = row_stride(value.width), count = work_.need[v];
    work_.rows[v] = {to, stride, value.width, count};
    if (value.features && count > 0) {
      const float* const x = sample_.nodes[value.node_type].x;
      check_finite(x, count, value.width, BadSampledGraph::kNodeFeatures, value.node_type);
      if (in_place(value)) work_.rows[v].data = const_cast<float*>(x);
    }
    // Sums read rows with their padding.
    for (size_t i = 0; i < count && stride != value.width; ++i) {
      if (value.features) {
        std::memcpy(to + i * stride, sample_.nodes[value.node_type].x + i * value.width, value.width * sizeof(float));
      }
      std::fill(to + i * stride + value.width, to + (i + 1) * stride, 0.0f);
    }
    to += floats_of(v);
  }
  return floats;
}

// -- contexts

void ForwardPass::compute_contexts(const ContextStep& step, size_t count) {
  const SampledEdges& edges = edges_of(step);
  float* const out = work_.rows[step.output].data;
  for (uint32_t node = 0; node < count; ++node) {
    if (step.kind == ContextKind::kCount) {
      out[node] = count_edges(step, edges, node);
    } else if (step.kind == ContextKind::kSum) {
      out[node] = sum_weights(step, edges, node);
    } else {
      out[node] = static_cast<float>(missing_loop(step, edges, node));
    }
  }
}

// The term that a sum along the sample's edges lacks if every node counts as having one loop.
double ForwardPass::missing_loop(const ContextStep& step, const SampledEdges& edges, uint32_t node) const {
  if (edges.loops(node) == 0) return static_cast<double>(step.fill.value_or(0));
  if (!takes_last_loop(step, forward_.edge_types_[step.edge_type].keyed)) return 0;
  const bool weighted = step.weighted || step.kind == ContextKind::kSum;
  return weighted ? static_cast<double>(edges.weight(edges.last_loop(node))) : 1.0;
}

float ForwardPass::count_edges(const ContextStep& step, const SampledEdges& edges, uint32_t node) const {
  const SampledGraph::Degrees* const given = degrees_of(step);
  const int64_t count = given == nullptr ? edges.degree(node) : given->count[node];
  const int64_t loops = given == nullptr || given->loops == nullptr ? edges.loops(node) : given->loops[node];
  return static_cast<float>(count - (step.fill || step.skip_loops ? loops : 0) + (step.fill ? 1 : 0));
}

float ForwardPass::sum_weights(const ContextStep& step, const SampledEdges& edges, uint32_t node) const {
  const bool takes_last = takes_last_loop(step, forward_.edge_types_[step.edge_type].keyed);
  const bool skips = step.skip_loops || takes_last;
  const SampledGraph::Degrees* const given = degrees_of(step);
  const PropagateStep all{};
  PropagateStep others{};
  others.skip_loops = true;
  double sum = 0;
  const auto add = [&](uint32_t begin, uint32_t end) {
    for (uint32_t place = begin; place < end; ++place) sum += static_cast<double>(edges.weight(place));
  };
  if (given == nullptr) {
    edges.scan(skips ? others : all, node, add);
    const bool looks = step.fill || step.skip_loops;
    return static_cast<float>(sum + (looks ? missing_loop(step, edges, node) : 0.0));
  }
  // The weights of the loops, if they are not given: those of the sample.
  const auto count = static_cast<double>(given->count[node]);
  const int64_t loops = given->loops == nullptr ? edges.loops(node) : given->loops[node];
  double loop_weight = static_cast<double>(loops);
  if (given->loop_weight != nullptr) {
    loop_weight = given->loop_weight[node];
  } else if (given->loops == nullptr) {
    edges.scan(all, node, add);
    const double whole = std::exchange(sum, 0.0);
    edges.scan(others, node, add);
    loop_weight = whole - sum;
  }
  sum = (given->weight == nullptr ? count : given->weight[node]) - (skips ? loop_weight : 0.0);
  if (!step.fill) return static_cast<float>(sum);
  if (loops == 0) return static_cast<float>(sum + static_cast<double>(*step.fill));
  if (!takes_last) return static_cast<float>(sum);
  const bool seen = edges.loops(node) > 0;
  return static_cast<float>(sum + (seen ? static_cast<double>(edges.weight(edges.last_loop(node))) : loop_weight));
}

// -- rows and sums

void ForwardPass::compute_rows(const RowsStep& step, size_t count) {
  work_.located.resize(std::max(work_.located.size(), step.sources.size() * kBlockRows));
  const float** const sources = work_.located.data();
  for (size_t first = 0; first < count; first += kBlockRows) {
    const size_t block = std::min(kBlockRows, count - first);
    float** const buffers = work_.buffers.open(step);
    // A sink that fills a whole buffer is computed in place.
    for (const Sink& sink : step.sinks) {
      const Register& reg = step.registers[sink.reg];
      if (sink.reg >= step.sources.size() && reg.width == step.buffers[reg.buffer]) {
        buffers[reg.buffer] = work_.rows[sink.value].row(first);
      }
    }
    for (size_t s = 0; s < step.sources.size(); ++s) {
      const Rows& rows = work_.rows[step.sources[s]];
      for (size_t i = 0; i < block; ++i) sources[s * kBlockRows + i] = rows.row(first + i);
    }
    run_rows(program_, step, block, sources, buffers);
    for (const Sink& sink : step.sinks) {
      const Rows& out = work_.rows[sink.value];
      for (size_t i = 0; i < block; ++i) {
        const float* const from = row_in(step, sink.reg, i, sources, buffers);
        if (from != out.row(first + i)) std::memcpy(out.row(first + i), from, out.width * sizeof(float));
      }
    }
  }
}

void ForwardPass::compute_sums(const PropagateStep& step, size_t count) {
  const SampledEdges& edges = edges_of(step);
  const Rows &input = work_.rows[step.input], &out = work_.rows[step.output];
  const float* const weights = step.weighted ? edges.weights() : nullptr;
  for (uint32_t node = 0; node < count; ++node) {
    for (const bool widely : {false, true}) {
      work_.total.open(out.stride, out.row(node), widely);
      edges.scan(step, node, [&](uint32_t begin, uint32_t end) {
        work_.total.gather(end - begin, input.data, input.stride, edges.senders() + begin,
                           weights == nullptr ? nullptr : weights + begin);
      });
      work_.total.close();
      if (kernels().finite(out.width, out.row(node))) break;
    }
  }
}

void ForwardPass::compute_maxima(const PropagateStep& step, size_t count) {
  const SampledEdges& edges = edges_of(step);
  const Rows &input = work_.rows[step.input], &out = work_.rows[step.output];
  const float* const weights = step.weighted ? edges.weights() : nullptr;
  for (uint32_t node = 0; node < count; ++node) {
    const uint32_t degree = edges.degree(node);
    work_.located.resize(std::max<size_t>(work_.located.size(), degree));
    while (work_.order.size() < degree) work_.order.push_back(static_cast<uint32_t>(work_.order.size()));
    if (weights == nullptr) work_.ones.resize(std::max<size_t>(work_.ones.size(), degree), 1.0f);
    work_.ties.assign(out.width, 0);
    bool any = false;
    edges.scan(step, node, [&](uint32_t begin, uint32_t end) {
      if (begin == end) return;
      if (!any) std::fill_n(out.row(node), out.width, -std::numeric_limits<float>::infinity());
      any = true;
      for (uint32_t place = begin; place < end; ++place) {
        work_.located[place - begin] = input.row(edges.senders()[place]);
      }
      kernels().max_rows(out.width, end - begin, work_.located.data(), work_.order.data(),
                         weights == nullptr ? work_.ones.data() : weights + begin, out.row(node), work_.ties.data());
    });
    if (!any) std::fill_n(out.row(node), out.width, 0.0f);
  }
}

void ForwardPass::compute_messages(uint32_t propagation, size_t count) {
  const PropagateStep& step = program_.propagations[propagation];
  const MessageProgram& messages = program_.messages[step.message];
  const SampledEdges& edges = edges_of(step);
  const float* const features = sample_.edges[step.edge_type].features;
  const size_t width = forward_.edge_width(step.edge_type);
  work_.sums.resize(program_.propagations.size());
  std::unique_ptr<MessageSums>& made = work_.sums[propagation];
  if (made == nullptr) made = std::make_unique<MessageSums>(program_, step);
  MessageSums& sums = *made;
  sums.set_units(forward_.units_.data());
  const auto add_all = [&](size_t first, size_t node) {
    edges.scan(step, static_cast<uint32_t>(node), [&](uint32_t begin, uint32_t end) {
      for (uint32_t place = begin; place < end; ++place) {
        const uint32_t sender = edges.senders()[place];
        sums.add(node - first, 1,
                 {edges.weight(place), features == nullptr ? nullptr : features + edges.edge(place) * width},
                 [&](size_t i) -> const float* {
                   const MessageSource& source = messages.sources[i];
                   return work_.rows[source.value].row(source.side == MessageSource::kSource ? sender : node);
                 });
      }
    });
  };
  for (size_t first = 0; first < count; first += kBlockRows) {
    sums.sum_up(
        first, std::min(count, first + kBlockRows), [&](size_t node) { add_all(first, node); },
        [&](size_t node) {
          write_sums(program_, step, &sums, node - first, work_.rows[step.output].row(node),
                     step.context == kNoIndex ? nullptr : work_.rows[step.context].row(node));
        });
  }
}

void ForwardPass::write(const Forward::Asked& asked) {
  const size_t width = forward_.program().output_width(asked.output);
  const auto [kept, place] = forward_.program().output_at(asked.output);
  if (kept) {
    const Rows& rows = work_.rows[place];
    for (size_t i = 0; i < asked.positions.size(); ++i) {
      std::memcpy(asked.out + i * width, rows.row(static_cast<size_t>(asked.positions[i])), width * sizeof(float));
    }
    return;
  }
  const RowsStep& step = program_.on_demand[place];
  work_.located.resize(std::max(work_.located.size(), step.sources.size() * kBlockRows));
  for (size_t first = 0; first < asked.positions.size(); first += kBlockRows) {
    const size_t block = std::min(kBlockRows, asked.positions.size() - first);
    for (size_t s = 0; s < step.sources.size(); ++s) {
      for (size_t i = 0; i < block; ++i) {
        const auto node = static_cast<size_t>(asked.positions[first + i]);
        work_.located[s * kBlockRows + i] = work_.rows[step.sources[s]].row(node);
      }
    }
    run_block(program_, step, block, work_.located.data(), asked.out + first * width, width);
  }
}

}  // namespace livegnn
