#include "json/score_request.h"

#include <limits>
#include <string>

#include "testing/testing.h"

namespace livegnn::score_request_test {
namespace {

constexpr size_t kBytes = 4096;
const std::string kEvents = R"("events":[{"event":"add_edge","src":1,"dst":2,"weight":0.5}])";

bool is_read(const std::string& fields) {
  return read_score_request("{" + fields + "," + kEvents + "}", kBytes).has_value();
}

std::string repeated(const std::string& text, size_t times) {
  std::string all = text;
  for (size_t i = 1; i < times; ++i) all += "," + text;
  return all;
}

}  // namespace

TEST(usual_score_requests_are_read) {
  const std::string text =
      R"( {"edge_attr": [[1, -2.5], [3e1, 0.25]], "sources": [5, 7], "output": "risk", "min_seq": 12, )" + kEvents +
      R"(, "edge_weight": [1, 2], "targets": [6, 8], "edge_type": ["a", "to", "b"]} )";
  const auto request = read_score_request(text, kBytes);
  CHECK(request.has_value());
  CHECK(request->count() == 2 && request->sources[1].number == 7 && request->targets[0].number == 6);
  CHECK(request->edge_attr == (std::vector<float>{1, -2.5F, 30, 0.25F}));
  CHECK(request->edge_weight == (std::vector<float>{1, 2}));
  CHECK(request->output == "risk" && request->min_seq == 12 && (*request->edge_type)[2] == "b");
  CHECK(request->events.size() == 1 && request->events[0].count == 1 && request->events[0].has_weight);
  const std::string with_texts = R"({"sources":["a"],"targets":["b c"],)" + kEvents + "}";
  const auto texts = read_score_request(with_texts, kBytes);
  CHECK(texts && texts->sources[0].text == "a" && texts->targets[0].text == "b c" && !texts->edge_type);
}

TEST(other_score_requests_are_left_to_another_reader) {
  const std::string ends = R"("sources":[1],"targets":[2])";
  CHECK(is_read(ends));
  for (const char* other :
       {R"("sources":[1])", R"("sources":[],"targets":[])", R"("sources":[1],"targets":[2,3])",
        R"("sources":[1],"targets":["2"])", R"("sources":[1,"2"],"targets":[2,3])", R"("sources":[-1],"targets":[2])",
        R"("sources":[""],"targets":["b"])", R"("sources":1,"targets":2)"}) {
    CHECK(!is_read(other));
  }
  for (const char* more :
       {R"("edge_attr":[1])", R"("edge_attr":[[1],[2]])", R"("edge_attr":[[]])", R"("edge_attr":[])",
        R"("edge_attr":[[1e39]])", R"("edge_weight":[1,2])", R"("edge_weight":[])", R"("edge_weight":[null])",
        R"("output":"")", R"("output":null)", R"("edge_type":["a","b"])", R"("min_seq":-1)", R"("min_seq":1.5)",
        R"("model":"m")", R"("existing":false)", R"("sources":[1])", kEvents.c_str()}) {
    CHECK(!is_read(ends + "," + more));
  }
  CHECK(!is_read(R"("sources":[1,2],"targets":[1,2],"edge_attr":[[1],[1,2]])"));
  const std::string many = repeated("1", kFewPairs), more = repeated("1", kFewPairs + 1);
  CHECK(is_read("\"sources\":[" + many + "],\"targets\":[" + many + "]"));
  CHECK(!is_read("\"sources\":[" + more + "],\"targets\":[" + more + "]"));
}

TEST(texts_around_a_score_request_and_its_events) {
  const std::string right = R"({"sources":[1],"targets":[2],)" + kEvents + "}";
  for (size_t length = 0; length < right.size(); ++length) CHECK(!read_score_request(right.substr(0, length), kBytes));
  CHECK(!read_score_request(right + "1", kBytes) && !read_score_request(right, right.size() - 1));
  CHECK(!read_score_request(R"({"sources":[1],"targets":[2]})", kBytes));
  const std::string event = R"({"event":"add_node","id":1})";
  const auto with = [&](size_t count) {
    return read_score_request(R"({"sources":[1],"targets":[2],"events":[)" + repeated(event, count) + "]}", kBytes);
  };
  CHECK(with(kFewPairs) && !with(kFewPairs + 1));
}

TEST(scores_are_written) {
  const std::vector<float> scores = {0.5F, -1, std::numeric_limits<float>::quiet_NaN(), 3e30F};
  CHECK_EQ(write_scores(7, scores, 2), std::string(R"({"seq":7,"scores":[[0.5,-1.0],[null,3e+30]]})"));
  CHECK_EQ(write_scores(0, std::vector<float>{1}, 1), std::string(R"({"seq":0,"scores":[[1.0]]})"));
}

}  // namespace livegnn::score_request_test
