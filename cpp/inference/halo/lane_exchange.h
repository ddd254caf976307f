// An exchange between parts in processes of one machine, over lanes. Their seats are the parts; seats behind them, as
// that of a leader, have no part in it.
//
// Thread safety: the thread that uses the lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/halo/lanes.h"

namespace livegnn {

class LaneExchange final : public Exchange {
 public:
  // Requires: the lanes outlive it, and their own seat is a part.
  LaneExchange(Lanes* lanes, size_t parts) : lanes_(*lanes), received_(parts) {}

  size_t parts() const override { return received_.size(); }
  // The next round is the first of this turn.
  void begin(uint64_t turn) { tag_ = {turn, 0}; }
  // Throws ExchangeEnded also if a part is lost, or sends nothing in time.
  std::span<const Frame> swap(std::vector<Frame> frames) override;

 private:
  Lanes& lanes_;
  MessageTag tag_;
  std::vector<Frame> received_;
};

}  // namespace livegnn
