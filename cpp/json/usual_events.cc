#include "json/usual_events.h"

#include <algorithm>

#include "json/form_values.h"

namespace livegnn {
namespace {

constexpr size_t kBytesOfPart = 16;  // as of events/json_parts.py
constexpr int64_t kLargestKey = (1ll << 32) - 1;
constexpr std::array<std::string_view, 3> kEdgeType = {"node", "to", "node"};
constexpr std::string_view kNodeType = "node";

enum EventField : uint32_t {
  kEvent,
  kSrc,
  kDst,
  kId,
  kWeight,
  kTime,
  kX,
  kEdgeAttr,
  kKey,
  kEdgeType_,
  kNodeType_,
  kFields
};
constexpr std::array<std::string_view, kFields> kFieldNames = {
    "event", "src", "dst", "id", "weight", "time", "x", "edge_attr", "key", "edge_type", "node_type"};

constexpr uint32_t bit(EventField field) { return 1u << field; }

// needed, allowed: fields.
struct Form {
  std::string_view name;
  uint32_t needed, allowed;
};

constexpr uint32_t kEnds = bit(kEvent) | bit(kSrc) | bit(kDst);
constexpr uint32_t kNode = bit(kEvent) | bit(kId);
constexpr std::array<Form, 5> kForms = {{
    {"add_edge", kEnds, kEnds | bit(kWeight) | bit(kTime) | bit(kEdgeAttr) | bit(kKey) | bit(kEdgeType_)},
    {"remove_edge", kEnds, kEnds | bit(kKey) | bit(kEdgeType_)},
    {"set_features", kNode | bit(kX), kNode | bit(kX) | bit(kTime) | bit(kNodeType_)},
    {"add_node", kNode, kNode | bit(kX) | bit(kTime) | bit(kNodeType_)},
    {"remove_node", kNode, kNode | bit(kNodeType_)},
}};

// A position in a list of names; its size if it has not this one.
template <class Names, class Name>
size_t find(const Names& names, std::string_view name, const Name& name_of) {
  size_t at = 0;
  while (at < names.size() && name_of(names[at]) != name) ++at;
  return at;
}

}  // namespace

// row: of its features.
struct UsualEvents::Event {
  explicit Event(std::vector<float>* row) : row(row) {}
  EventKind kind{};
  uint32_t fields = 0;
  std::array<std::string_view, 3> names;
  FormId ids, dst;
  float weight = 0;
  double time = 0;
  int64_t key = 0;
  std::vector<float>* row;

  bool has(EventField field) const { return (fields & bit(field)) != 0; }
  bool has_x() const { return (fields & (bit(kX) | bit(kEdgeAttr))) != 0; }

  bool take(FormReader& reader) {
    if (!reader.take_token('{')) return false;
    do {
      std::string_view name;
      if (!reader.take_quoted(&name) || !reader.take_token(':')) return false;
      const auto field = static_cast<EventField>(find(kFieldNames, name, [](std::string_view one) { return one; }));
      if (field == kFields || has(field)) return false;
      fields |= bit(field);
      if (!take_value(reader, field)) return false;
    } while (reader.take_token(','));
    if (!reader.take_token('}') || !has(kEvent)) return false;
    const Form& form = kForms[static_cast<size_t>(kind)];
    if (!is_of_edges(kind) && has(kTime) && !has(kX)) return false;  // a time is that of features
    return (fields & form.needed) == form.needed && (fields & ~form.allowed) == 0;
  }

  bool take_value(FormReader& reader, EventField field) {
    std::string_view text;
    switch (field) {
      case kEvent: {
        if (!reader.take_quoted(&text)) return false;
        const size_t at = find(kForms, text, [](const Form& one) { return one.name; });
        kind = static_cast<EventKind>(at);
        return at < kForms.size();
      }
      case kSrc:
      case kId:
        return take_id(reader, &ids);
      case kDst:
        return take_id(reader, &dst);
      case kWeight:
        return take_float(reader, &weight);
      case kTime:
        return take_real(reader, &time);
      case kX:
      case kEdgeAttr:
        row->clear();
        return take_row(reader, row);
      case kKey:
        reader.skip_blanks();
        return reader.take_number(&key, &text) && key <= kLargestKey;
      case kEdgeType_:
        return take_edge_type(reader, &names);
      case kNodeType_:
        return reader.take_quoted(&names[0]);
      default:
        return false;
    }
  }

  // Types that are not given are the default ones.
  void complete() {
    if (is_of_edges(kind) && !has(kEdgeType_)) names = kEdgeType;
    if (!is_of_edges(kind) && !has(kNodeType_)) names[0] = kNodeType;
  }

  bool is_of(const EventRun& run) const {
    return run.kind == kind && run.has_weight == has(kWeight) && run.has_time == has(kTime) &&
           run.has_key == has(kKey) && run.has_x == has_x() && (!has_x() || run.width == row->size()) &&
           run.ids.are_texts == ids.is_text() && run.dst.are_texts == dst.is_text() &&
           std::equal(names.begin(), names.end(), run.names.begin());
  }
};

void EventIds::add(std::string_view text, int64_t number) {
  if (!are_texts) return numbers.push_back(number);
  if (!places.empty()) texts += '\0';
  places.push_back(static_cast<int64_t>(texts.size()));
  texts += text;
}

void EventIds::cut(size_t count) {
  if (!are_texts) return numbers.resize(std::min(count, numbers.size()));
  if (count >= places.size()) return;
  texts.resize(static_cast<size_t>(count == 0 ? 0 : places[count] - 1));
  places.resize(count);
}

void EventRun::cut(size_t to) {
  count = to;
  ids.cut(to);
  dst.cut(to);
  if (has_weight) weight.resize(to);
  if (has_time) time.resize(to);
  if (has_x) x.resize(to * width);
  if (has_key) key.resize(to);
}

size_t UsualEvents::add(std::string_view text, bool in_lines) {
  const size_t runs = runs_.size(), last = runs == 0 ? 0 : runs_.back().count;
  added_ = 0;
  if (add_all(text, in_lines)) return added_;
  runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(runs), runs_.end());
  if (runs > 0) runs_.back().cut(last);
  return 0;
}

bool UsualEvents::is_within(std::string_view text) const {
  if (text.size() > limits_.bytes) return false;
  const size_t most = limits_.bytes / kBytesOfPart;
  return 2 * most >= text.size() || static_cast<size_t>(std::count_if(
                                        text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; })) <= most;
}

bool UsualEvents::add_all(std::string_view text, bool in_lines) {
  if (in_lines) {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.empty()) continue;
      FormReader reader(line, true);
      Event event(&row_);
      if (!is_within(line) || !event.take(reader)) return false;
      reader.skip_blanks();
      if (!reader.ended() || !add_event(event)) return false;
    }
    return true;
  }
  FormReader reader(text);
  std::string_view name;
  if (!is_within(text) || !reader.take_token('{') || !reader.take_quoted(&name) || name != "events" ||
      !reader.take_token(':') || !take_list(reader) || !reader.take_token('}')) {
    return false;
  }
  reader.skip_blanks();
  return reader.ended();
}

bool UsualEvents::take_list(FormReader& reader) {
  if (!reader.take_token('[')) return false;
  do {
    Event event(&row_);
    if (!event.take(reader) || !add_event(event)) return false;
  } while (reader.take_token(','));
  return reader.take_token(']');
}

bool UsualEvents::add_event(Event& event) {
  event.complete();
  if (runs_.empty() || !event.is_of(runs_.back())) {
    if (runs_.size() == limits_.runs) return false;
    EventRun& run = runs_.emplace_back();
    run.kind = event.kind;
    std::copy(event.names.begin(), event.names.end(), run.names.begin());
    run.has_weight = event.has(kWeight);
    run.has_time = event.has(kTime);
    run.has_x = event.has_x();
    run.has_key = event.has(kKey);
    run.width = run.has_x ? row_.size() : 0;
    run.ids.are_texts = event.ids.is_text();
    run.dst.are_texts = event.dst.is_text();
  }
  EventRun& run = runs_.back();
  run.ids.add(event.ids.text, event.ids.number);
  if (is_of_edges(run.kind)) run.dst.add(event.dst.text, event.dst.number);
  if (run.has_weight) run.weight.push_back(event.weight);
  if (run.has_time) run.time.push_back(event.time);
  if (run.has_x) run.x.insert(run.x.end(), row_.begin(), row_.end());
  if (run.has_key) run.key.push_back(static_cast<uint32_t>(event.key));
  ++run.count;
  ++added_;
  return true;
}

}  // namespace livegnn
