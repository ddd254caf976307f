#include "inference/halo/lane_exchange.h"

#include <thread>

#include "inference/halo/lanes_model.h"

namespace livegnn::lane_exchange_test {

using namespace lanes_model;

namespace {

std::vector<Frame> frames_to(size_t part, const Frame& frame, size_t parts = 2) {
  std::vector<Frame> frames(parts);
  frames[part] = frame;
  return frames;
}

}  // namespace

TEST(lanes_bring_each_part_what_the_others_sent_to_it_in_the_round) {
  constexpr size_t kParts = 3, kTurns = 6, kRounds = 12;
  // Of uneven rounds also more than a ring has room for.
  const auto size = [](size_t round, size_t from, size_t to) {
    return (round * 7 + from * 3 + to) % 5 * (round % 2 == 0 ? 1 : 20'000);
  };
  Seats seats(kParts);
  std::vector<size_t> wrong(kParts);
  std::vector<std::thread> threads;
  for (size_t part = 0; part < kParts; ++part) {
    threads.emplace_back([&, part] {
      const auto lanes = seats.sit(part, {.message = 20, .look = 20});  // a bell that does not ring is found
      LaneExchange exchange(lanes.get(), kParts);
      for (size_t turn = 1; turn <= kTurns; ++turn) {
        exchange.begin(turn);
        for (size_t round = 0; round < kRounds; ++round) {
          const auto number = [&](size_t from, size_t to) { return turn * 10'000 + round * 100 + from * 10 + to; };
          std::vector<Frame> frames;
          for (size_t to = 0; to < kParts; ++to) frames.push_back(frame_of(number(part, to), size(round, part, to)));
          const std::span<const Frame> received = exchange.swap(std::move(frames));
          for (size_t from = 0; from < kParts; ++from) {
            if (from == part) continue;
            wrong[part] += !holds(received[from], number(from, part), size(round, from, part));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t part = 0; part < kParts; ++part) CHECK_EQ(wrong[part], 0u);
}

TEST(a_turn_that_ends_wakes_the_parts_that_wait_in_it) {
  Seats seats(2);
  const auto one = seats.sit(0), other = seats.sit(1);
  bool ended = false;
  std::thread waits([&] {
    LaneExchange exchange(one.get(), 2);
    exchange.begin(3);
    try {
      exchange.swap(frames_to(1, {}));
    } catch (const ExchangeEnded&) {
      ended = true;
    }
  });
  other->end(2);
  other->end(3);
  waits.join();
  CHECK(ended);
}

TEST(a_turn_that_ends_leaves_nothing_to_the_next_one) {
  constexpr size_t kMany = 200'000;  // more than a ring has room for, so it stays half sent
  Seats seats(2);
  const auto one = seats.sit(0), other = seats.sit(1);
  size_t ended = 0;
  bool right = false;
  std::thread ends([&] {
    LaneExchange exchange(one.get(), 2);
    for (uint64_t turn = 1; turn <= 20; ++turn) {
      exchange.begin(turn);
      try {
        exchange.swap(frames_to(1, frame_of(turn, kMany)));
      } catch (const ExchangeEnded&) {
        ++ended;
      }
    }
    exchange.begin(21);
    right = holds(exchange.swap(frames_to(1, frame_of(21, kMany)))[1], 7, 3);
  });
  for (uint64_t turn = 1; turn <= 20; ++turn) {
    other->end(turn);
    other->end(turn - 1);  // which has ended
  }
  LaneExchange exchange(other.get(), 2);
  exchange.begin(21);
  CHECK(holds(exchange.swap(frames_to(0, frame_of(7, 3)))[0], 21, kMany));
  ends.join();
  CHECK_EQ(ended, 20u);
  CHECK(right);
}

TEST(a_wait_for_a_process_that_has_ended_ends_after_what_it_has_sent) {
  Seats seats(2);
  const auto one = seats.sit(0);
  const auto other = seats.sit(1);
  LaneExchange exchange(one.get(), 2), others(other.get(), 2);
  exchange.begin(1);
  std::thread sends([&] {
    send(other.get(), 0, {1, 0}, frame_of(5, 1));
    seats.kill(1);
  });
  CHECK(holds(exchange.swap(frames_to(1, frame_of(6, 1)))[1], 5, 1));
  CHECK_THROWS(exchange.swap(frames_to(1, {})), ExchangeEnded, "part 1 must make a round, and its process has ended");
  sends.join();
  CHECK_THROWS(exchange.swap(frames_to(1, frame_of(6, 100'000))), ExchangeEnded, "its process has ended");
}

}  // namespace livegnn::lane_exchange_test
