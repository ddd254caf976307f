#include "inference/supposed_scores.h"

#include <algorithm>
#include <span>
#include <type_traits>

#include "inference/batch_reach.h"
#include "inference/evaluation/edge_scores.h"
#include "store/indices_after.h"

namespace livegnn {
namespace {

// The position that a name stands for, kNoIndex if it is unknown. The names of a list are few.
template <class Known, class Name>
uint32_t position_of(const std::vector<std::pair<Known, uint32_t>>& known, const Name& name) {
  const auto at = std::find_if(known.begin(), known.end(), [&](const auto& one) {
    if constexpr (std::is_same_v<Known, std::string>) {
      return one.first == name;
    } else {
      return std::equal(name.begin(), name.end(), one.first.begin());
    }
  });
  return at == known.end() ? kNoIndex : at->second;
}

// The width of the edges' features that an output reads; 0 if it reads none.
size_t features_width(const EdgeOutput& output) {
  for (size_t i = 0; i < output.sources.size(); ++i) {
    if (output.sources[i].side == MessageSource::kFeatures) return output.step.registers[i].width;
  }
  return 0;
}

// Whether the pairs have the columns that an output reads, and no others.
bool has_columns_of(const ScoreRequest& request, const EdgeOutput& output) {
  return request.edge_attr.size() == request.count() * features_width(output) &&
         request.edge_weight.empty() != reads(output, MessageSource::kWeight);
}

const float* pointer_to(const std::vector<float>& column) { return column.empty() ? nullptr : column.data(); }

}  // namespace

SupposedScores::SupposedScores(Engine* engine, RequestNames names)
    : engine_(*engine), names_(std::move(names)), prepared_(engine->new_prepared()) {}

uint32_t SupposedScores::find_output(const ScoreRequest& request) const {
  uint32_t found = kNoIndex;
  for (uint32_t i = 0; i < names_.outputs.size(); ++i) {
    const auto& [name, edge_type] = names_.outputs[i];
    if (!request.output.empty() && request.output != name) continue;
    if (request.edge_type && !std::equal(edge_type.begin(), edge_type.end(), request.edge_type->begin())) continue;
    if (found != kNoIndex) return kNoIndex;
    found = i;
  }
  return found;
}

bool SupposedScores::find_numbers(const EventIds& ids, std::vector<int64_t>* numbers) const {
  const TextIds* const texts = engine_.graph().texts.get();
  if (ids.are_texts != (texts != nullptr)) return false;
  if (!ids.are_texts) {
    *numbers = ids.numbers;
    return true;
  }
  numbers->resize(ids.places.size());
  for (size_t i = 0; i < numbers->size(); ++i) {
    const auto begin = static_cast<size_t>(ids.places[i]);
    const auto end = i + 1 < numbers->size() ? static_cast<size_t>(ids.places[i + 1]) - 1 : ids.texts.size();
    (*numbers)[i] = texts->find(std::string_view(ids.texts).substr(begin, end - begin));
    if ((*numbers)[i] == kNoId) return false;  // a text that is new, and would get a number
  }
  return true;
}

bool SupposedScores::stage_edges(const EventRun& run, Stage* stage) const {
  const uint32_t type = position_of(names_.edge_types, run.names);
  if (type == kNoIndex) return false;
  const EdgeOptions& options = engine_.graph().edges[type].spec.options;
  const size_t width = engine_.graph().edges[type].features.table().width();
  if ((run.has_weight && !options.columns.weighted) || (run.has_time && !options.columns.timed) ||
      (run.has_key && !options.keyed) || (run.has_x && run.width != width)) {
    return false;
  }
  std::vector<int64_t> sources, targets;
  if (!find_numbers(run.ids, &sources) || !find_numbers(run.dst, &targets)) return false;
  const uint32_t* const key = run.has_key ? run.key.data() : nullptr;
  if (run.kind == EventKind::remove_edges) {
    stage->remove_edges(type, sources.data(), targets.data(), run.count, key);
  } else {
    stage->add_edges(type, sources.data(), targets.data(), pointer_to(run.weight),
                     run.has_time ? run.time.data() : nullptr, pointer_to(run.x), run.width, run.count, key);
  }
  return true;
}

bool SupposedScores::stage_nodes(const EventRun& run, Stage* stage) const {
  const uint32_t type = position_of(names_.node_types, run.names[0]);
  if (type == kNoIndex) return false;
  const Graph::NodeType& nodes = engine_.graph().nodes[type];
  std::vector<int64_t> ids;
  if ((run.has_time && !nodes.times.kept()) || (run.has_x && run.width != nodes.features.width()) ||
      !find_numbers(run.ids, &ids)) {
    return false;
  }
  const double* const time = run.has_time ? run.time.data() : nullptr;
  if (run.kind == EventKind::set_features) {
    stage->set_features(type, ids.data(), run.x.data(), run.width, run.count, time);
  } else if (run.kind == EventKind::add_nodes) {
    stage->add_nodes(type, ids.data(), pointer_to(run.x), run.width, run.count, time);
  } else {
    stage->remove_nodes(type, ids.data(), run.count);
  }
  return true;
}

bool SupposedScores::stage(const ScoreRequest& request, Stage* stage) {
  try {
    return std::all_of(request.events.begin(), request.events.end(), [&](const EventRun& run) {
      return is_of_edges(run.kind) ? stage_edges(run, stage) : stage_nodes(run, stage);
    });
  } catch (const EventError&) {
    return false;
  }
}

bool SupposedScores::find_pairs(const ScoreRequest& request, const Delta& delta, const EdgeOutput& output) {
  const Graph& graph = engine_.graph();
  if (request.sources.front().is_text() != (graph.texts != nullptr)) return false;
  const auto find_all = [&](const std::vector<FormId>& ids, uint32_t type, std::vector<uint32_t>* indices) {
    const IndicesAfter after(graph, delta, type);
    indices->clear();
    for (const FormId& id : ids)
      indices->push_back(after.index_of(id.is_text() ? graph.texts->find(id.text) : id.number));
    return std::find(indices->begin(), indices->end(), kNoIndex) == indices->end();
  };
  return find_all(request.sources, output.source_type, &sources_) &&
         find_all(request.targets, output.target_type, &targets_);
}

std::optional<std::string> SupposedScores::answer(std::string_view text, int64_t seq, const RequestLimits& limits) {
  const std::optional<ScoreRequest> request = read_score_request(text, limits.bytes);
  if (!request || request->min_seq > seq || engine_.retired()) return {};
  const uint32_t position = find_output(*request);
  if (position == kNoIndex) return {};
  const Program& program = engine_.program();
  const EdgeOutput& output = program.edge_outputs[position];
  const size_t numbers = request->count() * edge_output_width(program, position);
  if (numbers > limits.numbers || !has_columns_of(*request, output)) return {};
  Stage staged(engine_.graph());
  if (!stage(*request, &staged)) return {};
  const Delta delta = staged.finish();
  const BatchReach reach = reach_of(engine_.graph(), program, delta);
  if (reach.rows + reach.edges > limits.work || !find_pairs(*request, delta, output)) return {};
  engine_.prepare(delta, prepared_.get());
  if (prepared_->lost != kNoIndex) return {};
  std::vector<float> scores(numbers);
  const ReadOutput read = [&](std::span<const uint32_t> nodes, size_t value, float* rows) {
    engine_.predict_prepared(*prepared_, nodes, rows, value);
  };
  const ScoredPairs pairs{sources_, targets_, pointer_to(request->edge_attr), pointer_to(request->edge_weight)};
  score_pairs(program, position, pairs, read, scores.data());
  return write_scores(seq, scores, request->count());
}

}  // namespace livegnn
