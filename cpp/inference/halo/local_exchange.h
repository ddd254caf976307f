// An exchange between parts in one process, each of which prepares its batches in a thread of its own.
//
// Thread safety: any number of threads, one for each part; `begin` requires that none of them is in `swap`.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "inference/halo/exchange.h"

namespace livegnn {

class LocalExchange {
 public:
  // Throws std::invalid_argument if there are no parts.
  explicit LocalExchange(size_t parts);

  size_t parts() const { return ends_.size(); }
  // The object must outlive it.
  Exchange& of(size_t part) { return *ends_.at(part); }

  // Before each batch.
  void begin();
  // A part gives the batch up: every `swap` of it throws from now on, those that wait too.
  void end();

 private:
  class End;

  std::span<const Frame> swap(size_t part, std::vector<Frame> frames);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Exchange>> ends_;
  // By round, even and odd: frames by receiver and sender. Nobody sends in a round before all have read what was sent
  // two rounds earlier.
  std::array<std::vector<std::vector<Frame>>, 2> frames_;
  size_t round_ = 0, sent_ = 0;  // how many parts have sent in this round
  bool ended_ = false;
};

}  // namespace livegnn
