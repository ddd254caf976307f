#include "inference/rounding/sample_reader.h"

#include <algorithm>
#include <array>

#include "hashing/mix_hash.h"
#include "inference/edges/directed_changes.h"
#include "inference/evaluation/message_sums.h"
#include "inference/rows/stored_rows.h"

namespace livegnn {
namespace {

constexpr size_t kEdgesOfTarget = 2;

// Brings rows that lie all over a table into the cache together.
void fetch_all(const std::vector<const float*>& rows, size_t width) {
  if (width == 0) return;
  for (const float* row : rows) touch(row);
  for (const float* row : rows) {
    for (size_t c = 16; c < width; c += 16) prefetch(row + c);
  }
}

}  // namespace

SampleReader::SampleReader(const RowState& state, const RoundingState& rounding, const PropagateStep& step,
                           const BatchChanges* changes)
    : state_(state), rounding_(rounding), step_(step), batch_(changes) {
  const uint32_t node_type = state.program.values[step.output].node_type;
  capacity_ = state.graph.nodes[node_type].ids.capacity();
  if (changes == nullptr) return;
  const NodeDelta& nodes = changes->delta->nodes[node_type];
  capacity_ = nodes.capacity;
  removed_.insert(nodes.removed.begin(), nodes.removed.end());
  for (size_t i = 0; i < nodes.added.size(); ++i) {
    if (nodes.added_ids[i] != kNoId) added_.insert(nodes.added[i]);
  }
  const std::vector<DirectedChange>& edges = changes->edges[direction_of(state.graph, step)];
  if (!edges.empty()) edges_ = &edges;
}

std::vector<SampledTarget> SampleReader::find(const Part& part) const {
  std::vector<SampledTarget> found;
  for (uint32_t round = 0; round < kRounds && found.size() < kChosen; ++round) try_round(round, part, &found);
  return found;
}

// The nodes are cut into kTried pieces. A round tries one node of every fourth piece, from another one on.
void SampleReader::try_round(uint32_t round, const Part& part, std::vector<SampledTarget>* found) const {
  constexpr std::array<uint32_t, kRounds> kFirst{0, 2, 1, 3};
  const EdgeView store = view_of(state_.graph, step_);
  const size_t pieces = std::min<size_t>(capacity_, kTried);
  std::array<uint32_t, kTriedInRound> nodes;
  uint32_t count = 0;
  for (size_t i = kFirst[round]; i < pieces; i += kRounds) {
    const size_t begin = i * capacity_ / pieces, end = (i + 1) * capacity_ / pieces;
    nodes[count++] = static_cast<uint32_t>(begin + MixHash{}(i) % (end - begin));
    store.prefetch_in(nodes[count - 1]);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t node = nodes[i];
    if (!has(node) || (part && !part(node))) continue;
    int64_t degree = store.degree_in(node);
    for (const DirectedChange& change : changes(node)) degree += int{change.has} - int{change.had};
    if (degree > 0) found->push_back({round * kTriedInRound + i, node, degree});
  }
}

bool SampleReader::has(uint32_t node) const {
  if (!added_.empty() && added_.contains(node)) return true;
  const IdMap& ids = state_.graph.nodes[state_.program.values[step_.output].node_type].ids;
  return node < ids.capacity() && ids.in_use(node) && (removed_.empty() || !removed_.contains(node));
}

std::span<const DirectedChange> SampleReader::changes(uint32_t target) const {
  return edges_ == nullptr ? std::span<const DirectedChange>() : changes_of(*edges_, target);
}

MessageSample SampleReader::few(std::span<const SampledTarget> targets) const {
  MessageSample sample = collect(targets, kEdgesOfTarget);
  if (step_.averaged) add_sums(targets, &sample);
  return sample;
}

MessageSample SampleReader::many(std::span<const SampledTarget> targets) const {
  return collect(targets, SampleLimit::kMostMessages);
}

// All in-edges of each target, but at most `each`.
MessageSample SampleReader::collect(std::span<const SampledTarget> targets, size_t each) const {
  const EdgeView store = view_of(state_.graph, step_);
  for (const SampledTarget& target : targets) store.prefetch_in_leaf(target.node);
  MessageSample sample;
  std::vector<Edge> edges;
  SampleLimit limit;
  for (const SampledTarget& target : targets) {
    MessageSample::Target& of_target = sample.targets.emplace_back(target);
    const size_t left = std::min(each, limit.left()), before = edges.size();
    if (left == 0) continue;
    of_target.scanned = append_edges(target.node, left, &edges);
    of_target.count = edges.size() - before;
    limit.take(of_target.scanned, of_target.count);
  }
  compute_messages(edges, &sample);
  return sample;
}

size_t SampleReader::append_edges(uint32_t node, size_t left, std::vector<Edge>* edges) const {
  const Table& features = state_.graph.edges[step_.edge_type].features.table();
  const std::span<const DirectedChange> changed = changes(node);
  size_t scanned = 0;
  scan_messages(view_of(state_.graph, step_), step_, node, [&](NeighborSpan span) {
    scanned += span.size;
    for (size_t j = 0; j < span.size && left > 0; ++j) {
      const DirectedChange* change = changed.empty() ? nullptr : change_from(changed, span.ids[j], key_at(span, j));
      if (change != nullptr && !change->has) continue;
      --left;
      if (change != nullptr) {
        edges->push_back({span.ids[j], node, change->new_weight, change->new_features});
      } else {
        edges->push_back({span.ids[j], node, span.weights == nullptr ? 1.0f : span.weights[j],
                          span.rows == nullptr ? nullptr : features.row(span.rows[j])});
      }
    }
  });
  for (const DirectedChange& change : changed) {
    const bool is_loop = change.source == node, goes = is_loop ? !step_.skip_loops : !step_.only_loops;
    if (left == 0 || change.had || !change.has || !goes) continue;
    --left;
    edges->push_back({change.source, node, change.new_weight, change.new_features});
  }
  return scanned;
}

void SampleReader::rows_of(uint32_t value, std::span<const uint32_t> nodes, RowArena* arena, const float** out) const {
  if (batch_ == nullptr) return stored_rows(state_, value, nodes, arena, out);
  new_rows(state_, *batch_, value, nodes, arena, out);
}

void SampleReader::compute_messages(std::span<const Edge> edges, MessageSample* sample) const {
  std::vector<uint32_t> sources, targets;
  sources.reserve(edges.size());
  targets.reserve(edges.size());
  for (const Edge& edge : edges) {
    sources.push_back(edge.source);
    targets.push_back(edge.target);
  }
  sample->rows.resize(edges.size());
  sample->weights.assign(edges.size(), 1.0f);
  if (step_.message == kNoIndex) {
    rows_of(step_.input, sources, &sample->arena, sample->rows.data());
    fetch_all(sample->rows, state_.program.values[step_.input].width);
    for (size_t i = 0; step_.weighted && i < edges.size(); ++i) sample->weights[i] = edges[i].weight;
    return;
  }
  const MessageProgram& program = state_.program.messages[step_.message];
  std::vector<std::vector<const float*>> rows(program.sources.size());
  for (size_t s = 0; s < rows.size(); ++s) {
    const MessageSource& source = program.sources[s];
    if (source.side != MessageSource::kSource && source.side != MessageSource::kTarget) continue;
    rows[s].resize(edges.size());
    const bool sends = source.side == MessageSource::kSource;
    rows_of(source.value, sends ? sources : targets, &sample->arena, rows[s].data());
  }
  const size_t width = state_.program.values[step_.output].width, stride = row_stride(width);
  sample->computed.resize(edges.size() * stride);
  float* out = sample->computed.data();
  for (size_t i = 0; i < edges.size(); ++i) sample->rows[i] = out + i * stride;
  const auto p = static_cast<size_t>(&step_ - state_.program.propagations.data());
  MessageSums& sums = sums_of(state_.program, state_.serial, step_, rounding_.scales[p].inverses.data());
  const size_t channels = sums.channels();
  for (size_t first = 0; first < edges.size(); first += kBlockRows) {
    const size_t count = std::min(kBlockRows, edges.size() - first);
    sums.open(count);  // each with a target of its own
    for (size_t i = 0; i < count; ++i) {
      const Edge& edge = edges[first + i];
      sums.add(i, 1, {edge.weight, edge.features}, [&](size_t s) { return rows[s][first + i]; });
    }
    sums.finish();
    for (size_t i = 0; i < count; ++i, out += stride) {
      for (size_t c = 0; c < width; ++c) {
        const float coefficient = step_.context == kNoIndex ? 1.0f : sums.context(i)[c / channels];
        out[c] = coefficient == 0 ? 0 : sums.sum(i)[c] / coefficient;
      }
    }
  }
}

void SampleReader::add_sums(std::span<const SampledTarget> targets, MessageSample* sample) const {
  std::vector<uint32_t> nodes;
  for (const SampledTarget& target : targets) nodes.push_back(target.node);
  std::vector<const float*> sums(nodes.size());
  rows_of(step_.output, nodes, &sample->arena, sums.data());
  fetch_all(sums, state_.program.values[step_.output].width);
  for (size_t t = 0; t < sums.size(); ++t) sample->targets[t].sum = sums[t];
}

}  // namespace livegnn
