#include "store/event_checks.h"

#include <array>
#include <limits>
#include <string>

#include "store/graph.h"
#include "testing/testing.h"

namespace livegnn::event_checks_test {

using namespace testing;

namespace {

constexpr std::array<int64_t, 2> kIds{7, 8}, kTargets{9, 10};
constexpr Holders kNodes{3, kIds.data()}, kEdges{4, kIds.data(), kTargets.data()};

// The error of a check, which must throw one.
template <class Check>
EventError refused(const Check& check) {
  try {
    check();
  } catch (const EventError& error) {
    return error;
  }
  fail(__FILE__, __LINE__, "expected an EventError, got none");
}

}  // namespace

TEST(event_checks_name_the_node_or_edge) {
  const std::array<double, 2> times{1, std::numeric_limits<double>::quiet_NaN()};
  const EventError of_node = refused([&] { check_times(times.data(), 2, "times", kNodes); });
  CHECK(of_node.kind == BadEvent::kNotFinite && of_node.id == 8 && of_node.type == 3 && of_node.target == kNoId);
  CHECK_EQ(std::string(of_node.what()), "times must be finite, got nan");
  const EventError of_edge = refused([&] { check_times(times.data(), 2, "times", kEdges); });
  CHECK(of_edge.id == 8 && of_edge.type == 4 && of_edge.target == 10);
  CHECK_EQ(check_times(times.data(), 1, "times", kNodes), 1.0);
  CHECK_EQ(check_times(nullptr, 2, "times", kNodes), -std::numeric_limits<double>::infinity());
}

TEST(event_checks_know_which_rows_fit) {
  const std::array<float, 4> x{1, 2, 3, std::numeric_limits<float>::infinity()};
  check_rows(x.data(), 3, 1, 3, "features", kNodes);
  CHECK(refused([&] { check_rows(x.data(), 3, 1, 2, "features", kNodes); }).kind == BadEvent::kWidth);
  const EventError error = refused([&] { check_rows(x.data(), 2, 2, 2, "features", kNodes); });
  CHECK_EQ(error.id, 8);
  CHECK_EQ(std::string(error.what()), "features must be finite, got inf in column 1");
}

TEST(event_checks_lose_no_weight) {
  check_weight(kMaxWeight, "weights", kEdges, 0);
  CHECK(refused([] { check_weight(2 * kMaxWeight, "weights", kEdges, 0); }).kind == BadEvent::kNotFinite);
  constexpr float kWhole = 1 << 24;
  check_sum(kWhole, 2, kEdges, 0);
  CHECK(refused([] { check_sum(kWhole, 1, kEdges, 1); }).kind == BadEvent::kInexact);
}

}  // namespace livegnn::event_checks_test
