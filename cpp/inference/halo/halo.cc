#include "inference/halo/halo.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "inference/halo/boundary_values.h"
#include "inference/halo/gathered_samples.h"

namespace livegnn {
namespace {

const GraphPart& part_of(const RowState& rows, const Exchange& exchange) {
  const GraphPart* const part = rows.graph.part.get();
  if (part == nullptr) throw std::invalid_argument("an engine exchanges rows only if its graph is a part of one");
  if (part->self() >= part->parts()) throw std::invalid_argument("a part without nodes has no rows to exchange");
  if (part->parts() != exchange.parts() || part->parts() > Readers::kMostParts) {
    throw std::invalid_argument("an exchange is between all parts of a graph, of which there are at most " +
                                std::to_string(Readers::kMostParts));
  }
  return *part;
}

}  // namespace

Halo::Halo(const RowState& rows, Exchange* exchange)
    : rows_(rows),
      self_(part_of(rows, *exchange).self()),
      exchange_(exchange, self_),
      values_(boundary_values(rows)),
      readers_(rows.graph, rows.has_direction),
      places_(exchange->parts()),
      stored_(exchange->parts()) {}

void Halo::exchange_all(size_t depth, RowState* rows) {
  std::vector<FrameWriter> written(exchange_.parts());
  for (uint32_t value : values_[depth]) {
    const uint32_t node_type = rows_.program.values[value].node_type;
    for (auto& stored : stored_) stored.clear();
    for (uint32_t node = 0; node < rows_.graph.nodes[node_type].ids.capacity(); ++node) {
      for (uint64_t parts = readers_.of(node_type, node); parts != 0; parts &= parts - 1) {
        stored_[static_cast<size_t>(std::countr_zero(parts))].push_back(node);
      }
    }
    for (uint32_t part = 0; part < written.size(); ++part) {
      if (part != self_) put_rows(value, {}, {}, stored_[part], &written[part]);
    }
  }
  std::vector<Frame> frames;
  for (FrameWriter& frame : written) frames.push_back(frame.take());
  const std::span<const Frame> received = exchange_.swap(std::move(frames));
  for (uint32_t part = 0; part < received.size(); ++part) {
    if (part == self_) continue;
    FrameReader from(received[part]);
    for (uint32_t value : values_[depth]) take_rows(value, part, &from, rows);
  }
}

void Halo::take_rows(uint32_t value, uint32_t part, FrameReader* from, RowState* rows) const {
  const Value& spec = rows_.program.values[value];
  const auto count = from->get<uint64_t>();
  const std::span<const uint32_t> nodes = from->get_all<uint32_t>(count);
  const float* row = from->get_all<float>(count * spec.width).data();
  const Rows out = rows->rows(value);
  for (uint32_t node : nodes) {
    if (node >= out.count || rows_.graph.part->owner(spec.node_type, node) != part ||
        (out.slots != nullptr && out.slots[node] == 0)) {
      throw std::runtime_error("part " + std::to_string(part) + " must send rows of its nodes, got one of index " +
                               std::to_string(node) + ": the parts do not belong together");
    }
    std::copy_n(row, spec.width, out.row(node));
    row += spec.width;
  }
}

void Halo::measure_first(RoundingState* rounding, ThreadPool* pool) {
  const OwnersAfter owners(*rows_.graph.part, rows_.graph.nodes.size());
  const GatheredSamples samples(rows_, *rounding, nullptr, owners, &exchange_);
  for (size_t p = 0; p < rows_.program.propagations.size(); ++p) {
    if (rows_.program.propagations[p].aggregate != Aggregate::kSum) continue;
    measure_first_of(rows_, p, samples.few(p), rounding, pool);
  }
}

void Halo::begin(const Delta& delta) {
  owners_.emplace(*rows_.graph.part, delta);
  readers_.prepare(delta, *owners_);
}

void Halo::abandon() noexcept {
  owners_.reset();
  readers_.abandon();
}

Halo::Lost Halo::lost_by(PreparedBatch* batch) {
  if (!batch->has_lost()) return {};
  return {batch->effects.lost_step, batch->effects.lost_type, batch->effects.lost};
}

void Halo::adopt(const Lost& lost, PreparedBatch* batch) {
  if (lost == Lost{}) return;
  batch->effects.lost = lost.node;
  batch->effects.lost_type = lost.node_type;
  batch->effects.lost_step = lost.step;
}

void Halo::exchange(size_t depth, PreparedBatch* batch) {
  Lost lost = lost_by(batch);
  std::vector<FrameWriter> written(exchange_.parts());
  for (FrameWriter& frame : written) frame.put(lost);
  if (lost == Lost{}) {
    for (uint32_t value : values_[depth]) write_rows(value, batch->changes, &written);
  }
  std::vector<Frame> frames;
  for (FrameWriter& frame : written) frames.push_back(frame.take());
  const std::span<const Frame> received = exchange_.swap(std::move(frames));
  std::vector<FrameReader> readers(received.begin(), received.end());
  for (uint32_t part = 0; part < readers.size(); ++part) {
    if (part != self_) lost = std::min(lost, readers[part].get<Lost>());
  }
  adopt(lost, batch);
  if (lost != Lost{}) return;  // what was sent after it may lack rows
  for (uint32_t value : values_[depth]) {
    const size_t width = rows_.program.values[value].width;
    std::vector<HaloRows> rows;
    for (uint32_t part = 0; part < readers.size(); ++part) {
      if (part == self_) continue;
      const auto count = readers[part].get<uint64_t>();
      const std::span<const uint32_t> nodes = readers[part].get_all<uint32_t>(count);
      rows.push_back({nodes, readers[part].get_all<float>(count * width).data()});
    }
    batch->changes.rows[value].append_halo(rows, width);
  }
}

// To each part the rows that it reads: those that change, and those that it begins to read.
void Halo::write_rows(uint32_t value, const BatchChanges& batch, std::vector<FrameWriter>* frames) {
  const Value& spec = rows_.program.values[value];
  const uint32_t node_type = spec.node_type;
  const Changes none, &changes = spec.features ? none : batch.of(value);
  for (auto& places : places_) places.clear();
  for (auto& stored : stored_) stored.clear();
  const auto for_each = [](uint64_t parts, const auto& visit) {
    for (; parts != 0; parts &= parts - 1) visit(static_cast<size_t>(std::countr_zero(parts)));
  };
  const std::span<const Readers::Begun> begun = readers_.begun(node_type);
  tsl::robin_map<uint32_t, bool, MixHash> changed;
  for (size_t i = 0; i < changes.size(); ++i) {
    const uint32_t node = changes.nodes()[i];
    for_each(readers_.of(node_type, node), [&](size_t part) { places_[part].push_back(static_cast<uint32_t>(i)); });
    if (!begun.empty()) changed[node] = true;
  }
  if (spec.features && !begun.empty()) {
    for (uint32_t node : batch.delta->nodes[node_type].featured) changed[node] = true;  // all parts have these
  }
  for (const Readers::Begun& each : begun) {
    if (changed.contains(each.node)) continue;
    for_each(each.parts, [&](size_t part) { stored_[part].push_back(each.node); });
  }
  for (uint32_t part = 0; part < frames->size(); ++part) {
    if (part != self_) put_rows(value, changes, places_[part], stored_[part], &(*frames)[part]);
  }
}

void Halo::put_rows(uint32_t value, const Changes& changes, const std::vector<uint32_t>& places,
                    const std::vector<uint32_t>& stored, FrameWriter* frame) const {
  const size_t width = rows_.program.values[value].width;
  std::vector<uint32_t> nodes;
  for (uint32_t place : places) nodes.push_back(changes.nodes()[place]);
  nodes.insert(nodes.end(), stored.begin(), stored.end());
  frame->put<uint64_t>(nodes.size());
  frame->put_all(std::span<const uint32_t>(nodes));
  float* to = frame->floats(nodes.size() * width);
  for (uint32_t place : places) to = std::copy_n(changes.row(place), width, to);
  for (uint32_t node : stored) to = std::copy_n(rows_.stored_row(value, node), width, to);
}

void Halo::gather(PreparedBatch* batch) {
  Lost lost = lost_by(batch);
  Totals& totals = batch->totals;
  totals.messages = 0;
  for (const PropagateStep& step : rows_.program.propagations) {
    if (step.aggregate == Aggregate::kSum) totals.messages += readers_.edges(step.edge_type);
  }
  FrameWriter own;
  own.put(lost);
  own.put(totals);
  swap_same(&exchange_, self_, own, [&](const Frame& sent) {
    FrameReader frame(sent);
    lost = std::min(lost, frame.get<Lost>());
    totals += frame.get<Totals>();
  });
  adopt(lost, batch);
}

bool Halo::measure(const RoundingState& rounding, const BatchChanges& changes, NewScales* fresh) {
  GatheredSamples samples(rows_, rounding, &changes, *owners_, &exchange_);
  bool smaller = false;
  for (size_t p = 0; p < rows_.program.propagations.size(); ++p) {
    if (rows_.program.propagations[p].aggregate != Aggregate::kSum) continue;
    smaller |= measure_scale(rows_, rounding, p, samples.few(p), [&] { return samples.many(p); }, &fresh->all[p]);
  }
  fresh->measured = true;
  return smaller;
}

}  // namespace livegnn
