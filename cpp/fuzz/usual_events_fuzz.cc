#include <string>

#include "fuzz/fuzz.h"
#include "json/usual_events.h"

namespace livegnn {
namespace {

size_t size_of(const EventIds& ids) { return ids.are_texts ? ids.places.size() : ids.numbers.size(); }

void check(const EventRun& run) {
  CHECK(run.count > 0 && size_of(run.ids) == run.count);
  CHECK(size_of(run.dst) == (is_of_edges(run.kind) ? run.count : 0));
  CHECK(run.weight.size() == (run.has_weight ? run.count : 0) && run.time.size() == (run.has_time ? run.count : 0));
  CHECK(run.x.size() == (run.has_x ? run.count * run.width : 0) && run.key.size() == (run.has_key ? run.count : 0));
}

// Parts of bodies.
constexpr std::string_view kParts[] = {"{\"events\":[",
                                       "]}",
                                       "{\"event\":\"add_edge\",\"src\":1,\"dst\":2",
                                       "{\"event\":\"set_features\",\"id\":",
                                       "\"x\":",
                                       "{\"event\":\"add_node\",\"id\":\"a\"",
                                       "\"weight\":",
                                       "\"time\":",
                                       "\"edge_attr\":",
                                       "\"key\":",
                                       "\"edge_type\":",
                                       "\"node_type\":",
                                       "[\"a\",\"to\",\"b\"]",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       "\n",
                                       "1",
                                       "0.5",
                                       "1e30",
                                       "-",
                                       "\"a\"",
                                       "\"",
                                       " "};

// Whatever is read, the columns of a run are of one length, and a text that is not read leaves them as they were.
void body(fuzz::Input* input) {
  UsualEvents events(EventLimits{1 << 12, 4});
  size_t count = 0;
  for (int text = 0; text < 3; ++text) {
    const bool in_lines = input->once_in(2);
    const std::string bytes = input->text(kParts);
    count += events.add(bytes, in_lines);
    size_t found = 0;
    for (const EventRun& run : events.runs()) {
      check(run);
      found += run.count;
    }
    CHECK(found == count);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
