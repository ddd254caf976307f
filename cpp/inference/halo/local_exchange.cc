#include "inference/halo/local_exchange.h"

#include <stdexcept>
#include <utility>

namespace livegnn {

class LocalExchange::End final : public Exchange {
 public:
  End(LocalExchange* exchange, size_t part) : exchange_(*exchange), part_(part) {}

  size_t parts() const override { return exchange_.parts(); }
  std::span<const Frame> swap(std::vector<Frame> frames) override { return exchange_.swap(part_, std::move(frames)); }

 private:
  LocalExchange& exchange_;
  const size_t part_;
};

LocalExchange::LocalExchange(size_t parts) {
  if (parts == 0) throw std::invalid_argument("there must be a part");
  for (size_t part = 0; part < parts; ++part) ends_.push_back(std::make_unique<End>(this, part));
  for (auto& frames : frames_) frames.assign(parts, std::vector<Frame>(parts));
}

void LocalExchange::begin() {
  const std::lock_guard hold(mutex_);
  sent_ = 0;
  ended_ = false;
}

void LocalExchange::end() {
  const std::lock_guard hold(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::span<const Frame> LocalExchange::swap(size_t part, std::vector<Frame> frames) {
  std::unique_lock hold(mutex_);
  if (ended_) throw ExchangeEnded();
  const size_t round = round_;
  auto& sent = frames_[round % 2];
  for (size_t to = 0; to < frames.size(); ++to) sent[to][part] = std::move(frames[to]);
  if (++sent_ == parts()) {
    sent_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    changed_.wait(hold, [&] { return round_ != round || ended_; });
    if (round_ == round) throw ExchangeEnded();
  }
  return sent[part];
}

}  // namespace livegnn
