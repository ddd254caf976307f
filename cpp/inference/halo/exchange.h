// How the parts of a graph send each other what they need of a batch: in rounds, in each of which every part sends
// something to every other part, and waits until it has what the others send.
//
//   part 0  swap ──┐   ┌── swap ──┐
//   part 1  swap ──┼───┼── swap ──┼── ...      a round ends when all parts have sent
//   part 2  swap ──┘   └── swap ──┘
//
// Thread safety: each part has its own object, which one thread at a time uses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory/frame.h"

namespace livegnn {

// Another part has given up the batch, or is lost, so its round never ends.
class ExchangeEnded : public std::runtime_error {
 public:
  ExchangeEnded() : ExchangeEnded("another part of the graph has given up the batch") {}
  explicit ExchangeEnded(const std::string& why) : std::runtime_error(why) {}
};

class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  virtual size_t parts() const = 0;
  // Sends a frame to each part, and returns those that they sent, by part; its own ones are ignored. The result is
  // valid until the next call. Throws ExchangeEnded. Requires: as many frames as there are parts.
  virtual std::span<const Frame> swap(std::vector<Frame> frames) = 0;
};

// Passes frames on, and counts the bytes that other parts receive. Any thread may read the count.
class CountedExchange final : public Exchange {
 public:
  CountedExchange(Exchange* to, uint32_t self) : to_(*to), self_(self) {}

  size_t parts() const override { return to_.parts(); }
  std::span<const Frame> swap(std::vector<Frame> frames) override {
    uint64_t bytes = 0;
    for (uint32_t part = 0; part < frames.size(); ++part) {
      if (part != self_) bytes += frames[part].size();
    }
    const std::span<const Frame> received = to_.swap(std::move(frames));
    sent_.fetch_add(bytes, std::memory_order_relaxed);
    return received;
  }
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  Exchange& to_;
  const uint32_t self_;
  std::atomic<uint64_t> sent_ = 0;
};

// Sends the same to all other parts, and calls `read(frame)` with what each of them sent.
template <class Read>
void swap_same(Exchange* exchange, uint32_t self, const FrameWriter& own, const Read& read) {
  std::vector<Frame> frames(exchange->parts());
  for (uint32_t part = 0; part < frames.size(); ++part) {
    if (part != self) frames[part] = own.written();
  }
  const std::span<const Frame> received = exchange->swap(std::move(frames));
  for (uint32_t part = 0; part < received.size(); ++part) {
    if (part != self) read(received[part]);
  }
}

}  // namespace livegnn
