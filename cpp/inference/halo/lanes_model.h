// Lanes between threads that stand for processes.
#pragma once

#include <unistd.h>

#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "inference/halo/lanes.h"
#include "testing/testing.h"

namespace livegnn::lanes_model {

inline constexpr double kForEver = std::numeric_limits<double>::infinity();

// Memory with a seat for each thread that stands for a process, whose life is a pipe.
class Seats {
 public:
  explicit Seats(size_t count) : memory_(Lanes::bytes(count) / sizeof(Line) + 1), pipes_(count) {
    for (auto& one : pipes_) CHECK_EQ(pipe(one.data()), 0);
  }
  ~Seats() {
    for (size_t seat = 0; seat < pipes_.size(); ++seat) {
      kill(seat);
      close(pipes_[seat][0]);
    }
  }

  std::unique_ptr<Lanes> sit(size_t seat, const Lanes::Patience& patience = {}) {
    std::vector<int> ends;
    for (auto& one : pipes_) ends.push_back(one[0]);
    ends[seat] = -1;
    return std::make_unique<Lanes>(std::as_writable_bytes(std::span(memory_)), seat, ends, patience);
  }
  void kill(size_t seat) {
    if (pipes_[seat][1] >= 0) close(pipes_[seat][1]);
    pipes_[seat][1] = -1;
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  std::vector<Line> memory_;
  std::vector<std::array<int, 2>> pipes_;
};

inline Frame frame_of(uint64_t number, size_t numbers) {
  FrameWriter frame;
  const std::vector<uint64_t> all(numbers, number);
  frame.put_all(std::span<const uint64_t>(all));
  return frame.take();
}

inline bool holds(const Frame& frame, uint64_t number, size_t numbers) { return frame == frame_of(number, numbers); }

inline Lanes::Received receive(Lanes* lanes, size_t from, MessageTag tag, double seconds = kForEver) {
  Lanes::Received received{from, tag};
  lanes->pass(tag, {}, {&received, 1}, seconds, false);
  return received;
}

inline void send(Lanes* lanes, size_t to, MessageTag tag, const Frame& frame) {
  Lanes::Sent sent{to, frame};
  lanes->pass(tag, {&sent, 1}, {}, kForEver, false);
}

}  // namespace livegnn::lanes_model
