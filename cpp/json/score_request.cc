#include "json/score_request.h"

#include <utility>

#include "json/form_writer.h"

namespace livegnn {
namespace {

enum class ScoreField : uint32_t { sources, targets, edge_attr, edge_weight, output, edge_type, min_seq, events };
constexpr std::array<std::string_view, 8> kScoreFields = {"sources", "targets",   "edge_attr", "edge_weight",
                                                          "output",  "edge_type", "min_seq",   "events"};

constexpr uint32_t bit(ScoreField field) { return 1u << static_cast<uint32_t>(field); }

constexpr uint32_t kScoreNeeds = bit(ScoreField::sources) | bit(ScoreField::targets) | bit(ScoreField::events);

bool take_ends(FormReader& reader, std::vector<FormId>* ids) {
  if (!reader.take_token('[')) return false;
  do {
    FormId& id = ids->emplace_back();
    if (ids->size() > kFewPairs || !take_id(reader, &id) || id.is_text() != ids->front().is_text()) return false;
  } while (reader.take_token(','));
  return reader.take_token(']');
}

bool take_rows(FormReader& reader, std::vector<float>* rows, size_t* count) {
  if (!reader.take_token('[')) return false;
  size_t width = 0;
  do {
    const size_t before = rows->size();
    if (!take_row(reader, rows)) return false;
    if (++*count == 1) width = rows->size();
    if (rows->size() - before != width) return false;
  } while (reader.take_token(','));
  return reader.take_token(']');
}

bool take_events(FormReader& reader, size_t bytes, std::vector<EventRun>* runs) {
  UsualEvents events(EventLimits{bytes, kFewPairs});
  if (!events.take_list(reader)) return false;
  *runs = std::move(events.runs());
  size_t count = 0;
  for (const EventRun& run : *runs) count += run.count;
  return count <= kFewPairs;
}

// rows: of `edge_attr`.
bool take_value(FormReader& reader, ScoreField field, size_t bytes, ScoreRequest* request, size_t* rows) {
  std::string_view digits;
  switch (field) {
    case ScoreField::sources:
      return take_ends(reader, &request->sources);
    case ScoreField::targets:
      return take_ends(reader, &request->targets);
    case ScoreField::edge_attr:
      return take_rows(reader, &request->edge_attr, rows);
    case ScoreField::edge_weight:
      return take_row(reader, &request->edge_weight);
    case ScoreField::output:
      return reader.take_quoted(&request->output) && !request->output.empty();
    case ScoreField::edge_type:
      return take_edge_type(reader, &request->edge_type.emplace());
    case ScoreField::min_seq:
      reader.skip_blanks();
      return reader.take_number(&request->min_seq, &digits);
    case ScoreField::events:
      return take_events(reader, bytes, &request->events);
  }
  return false;
}

}  // namespace

std::optional<ScoreRequest> read_score_request(std::string_view text, size_t bytes) {
  FormReader reader(text);
  std::optional<ScoreRequest> found(std::in_place);
  uint32_t fields = 0;
  size_t rows = 0;
  if (!UsualEvents(EventLimits{bytes, 0}).is_within(text) || !reader.take_token('{')) return {};
  do {
    std::string_view name;
    if (!reader.take_quoted(&name) || !reader.take_token(':')) return {};
    size_t at = 0;
    while (at < kScoreFields.size() && kScoreFields[at] != name) ++at;
    const auto field = static_cast<ScoreField>(at);
    if (at == kScoreFields.size() || (fields & bit(field)) != 0) return {};
    fields |= bit(field);
    if (!take_value(reader, field, bytes, &*found, &rows)) return {};
  } while (reader.take_token(','));
  if (!reader.take_token('}') || (fields & kScoreNeeds) != kScoreNeeds) return {};
  reader.skip_blanks();
  const size_t count = found->count();
  const bool complete =
      found->targets.size() == count && found->sources.front().is_text() == found->targets.front().is_text() &&
      (rows == 0 || rows == count) && (found->edge_weight.empty() || found->edge_weight.size() == count);
  if (!reader.ended() || !complete) return {};
  return found;
}

std::string write_scores(int64_t seq, std::span<const float> scores, size_t count) {
  std::string out;
  out.reserve(64 + scores.size() * 14);
  out += "{\"seq\":";
  write_integer(&out, seq);
  out += ",\"scores\":";
  write_rows(&out, scores, count);
  out += '}';
  return out;
}

}  // namespace livegnn
