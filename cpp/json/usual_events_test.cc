#include "json/usual_events.h"

#include <string>

#include "testing/testing.h"

namespace livegnn::usual_events_test {
namespace {

constexpr EventLimits kLimits = {1 << 20, 8};
const std::string kEdge = R"({"event":"add_edge","src":1,"dst":2})";

std::string body(const std::string& events) { return "{\"events\":[" + events + "]}"; }

size_t count(const std::string& text, bool in_lines = false, EventLimits limits = kLimits) {
  return UsualEvents(limits).add(text, in_lines);
}

}  // namespace

TEST(usual_events_are_columns) {
  UsualEvents events(kLimits);
  CHECK(
      events.add(body(R"({"event":"add_edge","src":1,"dst":2,"weight":0.5}, {"dst" : 4, "weight":3,"event":"add_edge",)"
                      R"("src":3},{"event":"set_features","id":7,"x":[1,-2.5e1]})"),
                 false) == 3);
  CHECK(events.runs().size() == 2);
  const EventRun& edges = events.runs()[0];
  CHECK(edges.kind == EventKind::add_edges && edges.count == 2 && edges.names[1] == "to");
  CHECK(edges.ids.numbers == (std::vector<int64_t>{1, 3}) && edges.dst.numbers == (std::vector<int64_t>{2, 4}));
  CHECK(edges.has_weight && edges.weight == (std::vector<float>{0.5F, 3.0F}) && !edges.has_time && !edges.has_key);
  const EventRun& features = events.runs()[1];
  CHECK(features.kind == EventKind::set_features && features.width == 2 && features.x == (std::vector<float>{1, -25}));
}

TEST(what_is_not_of_the_form_leaves_nothing) {
  UsualEvents events(kLimits);
  CHECK(events.add(body(R"({"event":"add_node","id":"a"},{"event":"add_node","id":"bc"})"), false) == 2);
  for (const char* bad : {R"({"event":"add_node","id":"d"},{"event":"add_node","id":"e\n"})",
                          R"({"event":"add_node","id":"d"},{"event":"add_node","id":1},{"event":"other"})"}) {
    CHECK(events.add(body(bad), false) == 0);
    CHECK(events.runs().size() == 1 && events.runs()[0].count == 2);
  }
  CHECK(events.add(R"({"event":"add_node","id":"f"})", true) == 1);
  CHECK(events.runs().size() == 1 && events.runs()[0].count == 3);
  CHECK(events.runs()[0].ids.texts == std::string("a\0bc\0f", 6));
  CHECK(events.runs()[0].ids.places == (std::vector<int64_t>{0, 2, 5}));
}

TEST(unusual_events_are_for_another_reader) {
  CHECK(count(body(kEdge)) == 1 && count(kEdge + "\n\n" + kEdge, true) == 2);
  for (const char* value :
       {"01", "-1", "1.0", "1234567890123456789", "\"\"", "\"\\u0061\"", "\"\xc3\xa4\"", "null", "[1]"}) {
    CHECK(count(body(std::string(R"({"event":"add_node","id":)") + value + "}")) == 0);
  }
  for (const char* value : {"-0", "1e999", "1e39", "1.", ".5", "00.5", "1234567890123456", "true", "NaN", "+1"}) {
    CHECK(count(body(std::string(R"({"event":"add_edge","src":1,"dst":2,"weight":)") + value + "}")) == 0);
  }
  for (const char* text : {R"({"event":"add_node","id":1,"id":1})", R"({"event":"add_node"})", R"({"id":1})",
                           R"({"event":"add_node","id":1,"src":1})", R"({"event":"set_features","id":1,"x":[]})", ""}) {
    CHECK(count(body(text)) == 0);
  }
  for (const std::string& text :
       {"[" + kEdge + "]", kEdge, body(kEdge) + "x", body(kEdge + ","), body(kEdge).substr(1)}) {
    CHECK(count(text) == 0);
  }
  CHECK(count(body(kEdge), true) == 0 && count("{\"event\":\n\"add_node\",\"id\":1}", true) == 0);
}

TEST(more_than_a_limit_is_unusual) {
  const std::string node = R"({"event":"add_node","id":1})";
  CHECK(count(body(kEdge), false, {body(kEdge).size(), 8}) == 1);
  CHECK(count(body(kEdge), false, {body(kEdge).size() - 1, 8}) == 0);
  CHECK(count(body(kEdge + "," + node), false, {1 << 20, 2}) == 2);
  CHECK(count(body(kEdge + "," + node), false, {1 << 20, 1}) == 0);
  CHECK(count(body(R"({"event":"add_node","id":"[[[[[[[[[[[[[[[["})"), false, {80, 8}) == 0);
}

}  // namespace livegnn::usual_events_test
