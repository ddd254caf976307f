#include "inference/halo/lane_exchange.h"

#include <string>
#include <utility>

namespace livegnn {

std::span<const Frame> LaneExchange::swap(std::vector<Frame> frames) {
  std::vector<Lanes::Sent> sent;
  std::vector<Lanes::Received> received;
  for (size_t part = 0; part < parts(); ++part) {
    if (part == lanes_.self()) continue;
    sent.push_back({part, frames[part]});
    received_[part].clear();
    received.push_back({part, tag_, std::move(received_[part])});
  }
  lanes_.pass(tag_, sent, received, lanes_.patience().message, true);
  ++tag_.number;
  const auto check = [](size_t part, bool whole, const std::string& why) {
    if (!whole) throw ExchangeEnded("part " + std::to_string(part) + " must make a round, and " + why);
  };
  for (const Lanes::Sent& one : sent) check(one.to, one.whole, one.why);
  for (Lanes::Received& one : received) {
    check(one.from, one.whole, one.why);
    received_[one.from] = std::move(one.data);
  }
  return received_;
}

}  // namespace livegnn
