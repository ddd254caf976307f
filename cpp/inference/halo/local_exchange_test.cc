#include "inference/halo/local_exchange.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "testing/testing.h"

namespace livegnn::local_exchange_test {

namespace {

Frame frame_of(uint64_t number) {
  FrameWriter frame;
  frame.put(number);
  return frame.take();
}

}  // namespace

TEST(an_exchange_brings_each_part_what_the_others_sent_to_it_in_the_round) {
  constexpr size_t kParts = 4, kRounds = 200;
  LocalExchange exchange(kParts);
  std::vector<size_t> wrong(kParts);
  std::vector<uint64_t> sent(kParts);
  std::vector<std::thread> threads;
  for (size_t part = 0; part < kParts; ++part) {
    threads.emplace_back([&, part] {
      CountedExchange counted(&exchange.of(part), static_cast<uint32_t>(part));
      for (size_t round = 0; round < kRounds; ++round) {
        std::vector<Frame> frames;
        for (size_t to = 0; to < kParts; ++to) frames.push_back(frame_of(round * 100 + part * 10 + to));
        const std::span<const Frame> received = counted.swap(std::move(frames));
        for (size_t from = 0; from < kParts; ++from) {
          wrong[part] += FrameReader(received[from]).get<uint64_t>() != round * 100 + from * 10 + part;
        }
      }
      sent[part] = counted.sent();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t part = 0; part < kParts; ++part) {
    CHECK_EQ(wrong[part], 0u);
    CHECK_EQ(sent[part], kRounds * (kParts - 1) * sizeof(uint64_t));  // not what it has for itself
  }
}

TEST(an_exchange_that_ends_wakes_the_parts_that_wait_and_begins_anew) {
  LocalExchange exchange(2);
  bool ended = false;
  std::thread waits([&] {
    try {
      exchange.of(0).swap(std::vector<Frame>(2));
    } catch (const ExchangeEnded&) {
      ended = true;
    }
  });
  exchange.end();
  waits.join();
  CHECK(ended);
  CHECK_THROWS(exchange.of(1).swap(std::vector<Frame>(2)), ExchangeEnded, "given up the batch");
  exchange.begin();
  uint64_t received = 0;
  std::thread other([&] {
    std::vector<Frame> frames(2);
    frames[1] = frame_of(7);
    exchange.of(0).swap(std::move(frames));
  });
  received = FrameReader(exchange.of(1).swap(std::vector<Frame>(2))[0]).get<uint64_t>();
  other.join();
  CHECK_EQ(received, 7u);
}

TEST(a_frame_gives_back_what_was_put) {
  FrameWriter frame;
  const std::vector<uint32_t> odd{1, 2, 3};
  frame.put<uint8_t>(9);
  frame.put_all(std::span<const uint32_t>(odd));
  float* const row = frame.floats(3);
  for (size_t i = 0; i < 3; ++i) row[i] = static_cast<float>(i) / 2;
  const Frame sent = frame.take();
  CHECK_EQ(sent.size() % 8, 0u);
  FrameReader from(sent);
  CHECK_EQ(from.get<uint8_t>(), 9u);
  const auto numbers = from.get_all<uint32_t>(3);
  CHECK(std::vector<uint32_t>(numbers.begin(), numbers.end()) == odd);
  CHECK_EQ(from.get_all<float>(3)[2], 1.0f);
  CHECK_EQ(from.get_all<float>(0).size(), 0u);
  CHECK_THROWS(from.get<uint64_t>(), std::runtime_error, "ends too early");
}

}  // namespace livegnn::local_exchange_test
