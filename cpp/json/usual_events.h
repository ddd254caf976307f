// Events as JSON of the usual form, read into columns; and nothing else.
//
// The form is {"events":[{"event":"add_edge","src":1,"dst":2}, ...]}, or an object on each line. Texts are printable
// ASCII without escapes, numbers have at most 18 digits, or are float64 of their own. Whatever else is valid, and all
// that is not, is for a reader that knows the reasons (events/json_lines.py): what is read here, it reads equally.
//
// Invariants: neighbouring runs differ in their shape, as chunks of events do; a run has an event at least. A text that
// is not of the form leaves nothing. Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json/form_reader.h"

namespace livegnn {

// As livegnn.events.chunk.KINDS counts them.
enum class EventKind : uint8_t { add_edges, remove_edges, set_features, add_nodes, remove_nodes };

inline bool is_of_edges(EventKind kind) { return kind <= EventKind::remove_edges; }

// texts: with a NUL between them; places: where each begins.
struct EventIds {
  bool are_texts = false;
  std::vector<int64_t> numbers;
  std::string texts;
  std::vector<int64_t> places;

  void add(std::string_view text, int64_t number);
  void cut(size_t count);
};

struct EventRun {
  EventKind kind;
  std::array<std::string, 3> names;  // of the type: of a node type the first
  bool has_weight, has_time, has_x, has_key;
  size_t width = 0;  // of x
  size_t count = 0;
  EventIds ids, dst;
  std::vector<float> weight, x;
  std::vector<double> time;
  std::vector<uint32_t> key;

  void cut(size_t to);  // Removes the events after the first `to`.
};

struct EventLimits {
  size_t bytes;  // of a text, or of a line: as of `check_parts`, which counts its lists and objects
  size_t runs;   // of all texts
};

class UsualEvents {
 public:
  explicit UsualEvents(EventLimits limits) : limits_(limits) {}
  // Adds the events of a text. Returns their number; 0, with nothing added, if it is not of the form, or has none.
  size_t add(std::string_view text, bool in_lines);
  // Adds the events of a list that stands here, of which there is one at least. Returns false, and leaves any of them,
  // for another form; the user gives all up then.
  bool take_list(FormReader& reader);
  // Whether a text is as long as the limits allow, and has as many lists and objects.
  bool is_within(std::string_view text) const;
  std::vector<EventRun>& runs() { return runs_; }

 private:
  struct Event;
  bool add_all(std::string_view text, bool in_lines);
  bool add_event(Event& event);

  const EventLimits limits_;
  std::vector<EventRun> runs_;
  std::vector<float> row_;
  size_t added_ = 0;
};

}  // namespace livegnn
