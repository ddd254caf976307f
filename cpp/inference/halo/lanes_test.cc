#include "inference/halo/lanes.h"

#include <thread>

#include "inference/halo/lanes_model.h"

namespace livegnn::lanes_test {

using namespace lanes_model;

TEST(a_wait_for_lanes_that_are_closed_ends) {
  Seats seats(2);
  const auto one = seats.sit(0);
  std::unique_ptr<Lanes> other = seats.sit(1);
  std::thread closes([&] { other.reset(); });
  CHECK_EQ(receive(one.get(), 1, {1, 0}).why, "it has closed its lanes");
  closes.join();
}

TEST(a_wait_for_a_process_without_a_sign_of_life_ends) {
  Seats seats(2);
  const auto one = seats.sit(0, {.silent = 0.05});
  const auto frozen = seats.sit(1, {.beat = 1e6});
  CHECK(receive(one.get(), 1, {1, 0}).why.starts_with("it has shown no sign of life for 0."));
}

TEST(a_wait_for_a_process_that_only_lives_ends_in_time) {
  Seats seats(2);
  const auto one = seats.sit(0, {.silent = 0.05, .message = 0.3});
  const auto slow = seats.sit(1, {.beat = 0.01});
  const Lanes::Received received = receive(one.get(), 1, {3, 2}, one->patience().message);
  CHECK_EQ(received.why, "it has not sent message 2 of turn 3 within 0.3 seconds");
  send(slow.get(), 0, {3, 2}, frame_of(1, 1));
  CHECK(holds(receive(one.get(), 1, {3, 2}).data, 1, 1));
}

TEST(a_full_lane_takes_nothing_until_it_is_read) {
  constexpr uint32_t kFull = (256 << 10) / 24;  // empty messages of 24 bytes, which leave 16 bytes
  Seats seats(2);
  const auto one = seats.sit(0, {.look = 0.001}), other = seats.sit(1);
  for (uint32_t number = 0; number < kFull; ++number) send(one.get(), 1, {1, number}, {});
  Lanes::Sent more{1, {}};
  one->pass({1, kFull}, {&more, 1}, {}, 0.01, false);
  CHECK(!more.whole);
  CHECK(receive(other.get(), 0, {1, 0}).whole);
  send(one.get(), 1, {1, kFull}, {});
  CHECK(receive(other.get(), 0, {1, kFull}).whole);
}

TEST(messages_before_the_awaited_one_are_dropped_and_those_of_a_later_turn_stay) {
  Seats seats(2);
  const auto one = seats.sit(0), other = seats.sit(1);
  for (uint32_t number : {0, 2}) send(other.get(), 0, {1, number}, frame_of(number, 1));
  send(other.get(), 0, {4, 0}, frame_of(8, 2));
  Lanes::Received next = receive(one.get(), 1, {0, 0});
  CHECK_EQ(next.tag.turn, 1u);
  next = receive(one.get(), 1, {0, 0});
  CHECK_EQ(next.tag.turn, 4u);
  CHECK(holds(next.data, 8, 2));
  send(other.get(), 0, {6, 0}, {});
  CHECK_EQ(receive(one.get(), 1, {5, 0}).why, "it has begun turn 6");
  CHECK(receive(one.get(), 1, {6, 0}).whole);
}

TEST(parts_that_make_other_rounds_fail) {
  Seats seats(2);
  const auto one = seats.sit(0), other = seats.sit(1);
  send(other.get(), 0, {1, 3}, {});
  CHECK_THROWS(receive(one.get(), 1, {1, 2}), std::runtime_error, "must send message 2 of turn 1, got message 3");
}

TEST(lanes_need_memory_for_all_seats) {
  std::vector<std::byte> memory(Lanes::bytes(2) - 1);
  CHECK_THROWS(Lanes(memory, 0, {-1, -1}, {}), std::invalid_argument, "memory for all");
  CHECK_THROWS(Lanes(memory, 2, {-1, -1}, {}), std::invalid_argument, "a descriptor for each seat");
}

}  // namespace livegnn::lanes_test
