#include <string>

#include "fuzz/fuzz.h"
#include "json/score_request.h"

namespace livegnn {
namespace {

// Parts of requests.
constexpr std::string_view kParts[] = {"{\"sources\":[1],\"targets\":[2],",
                                       "{\"sources\":[\"a\",\"b\"],\"targets\":[\"c\",\"d\"]",
                                       "\"edge_attr\":[[1,2]]",
                                       "\"edge_weight\":[0.5]",
                                       "\"events\":[{\"event\":\"add_edge\",\"src\":1,\"dst\":2}",
                                       ",{\"event\":\"set_features\",\"id\":7,\"x\":[1]}",
                                       "\"edge_type\":[\"a\",\"b\",\"c\"]",
                                       "\"output\":\"x\"",
                                       "\"min_seq\":3",
                                       "]}",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "null",
                                       "-0.5",
                                       "1e30",
                                       "\"a\"",
                                       "\\u00e4",
                                       " "};

// Whatever is read, the columns of pairs have one length, and events have some.
void check(fuzz::Input* input) {
  const std::string bytes = input->text(kParts);
  const auto request = read_score_request(bytes, 4096);
  if (!request) return;
  const size_t count = request->count();
  CHECK(count > 0 && count <= kFewPairs && request->targets.size() == count);
  CHECK(request->edge_attr.size() % count == 0);
  CHECK(request->edge_weight.empty() || request->edge_weight.size() == count);
  size_t events = 0;
  for (const EventRun& run : request->events) events += run.count;
  CHECK(events > 0 && events <= kFewPairs);
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::check)
