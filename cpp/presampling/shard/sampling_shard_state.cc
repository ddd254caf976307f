// What a sampling worker keeps, saved and loaded.
#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "presampling/shard/sampling_shard.h"

namespace livegnn {
namespace {

std::vector<int64_t> sequences_of(const std::vector<PublicationWriter>& writers) {
  std::vector<int64_t> sequences;
  for (const PublicationWriter& writer : writers) {
    sequences.push_back(static_cast<int64_t>(writer.next_sequence()));
  }
  return sequences;
}

std::string prefix(const char* what, size_t i) { return what + std::to_string(i) + "_"; }

// None are of 0 workers.
void save_owners(const std::string& prefix, const Owners* owners, Arrays* to) {
  std::vector<int64_t> seeds;
  std::vector<uint32_t> workers;
  for (const auto& [seed, worker] : owners == nullptr ? Owners::Moved{} : owners->moved()) {
    seeds.push_back(std::bit_cast<int64_t>(seed));
    workers.push_back(worker);
  }
  to->put(prefix + "workers", std::vector<int64_t>{owners == nullptr ? 0 : owners->workers()});
  to->put(prefix + "moved", std::move(seeds));
  to->put(prefix + "moved_to", std::move(workers));
}

std::optional<Owners> load_owners(const std::string& prefix, const ArrayViews& from) {
  const auto workers = from.of_size<int64_t>(prefix + "workers", 1);
  if (workers[0] == 0) return std::nullopt;
  const auto seeds = from.at<int64_t>(prefix + "moved");
  const auto to = from.of_size<uint32_t>(prefix + "moved_to", seeds.size());
  Owners::Moved moved;
  for (size_t i = 0; i < seeds.size(); ++i) moved.emplace_back(std::bit_cast<uint64_t>(seeds[i]), to[i]);
  try {
    return Owners(OwnerRule::kJump, static_cast<uint32_t>(std::clamp<int64_t>(workers[0], 0, UINT32_MAX)),
                  std::move(moved));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(std::string("sampling worker: ") + error.what());
  }
}

}  // namespace

void SamplingShard::save(Arrays* to) const {
  for (const auto* writers : {&serving_, &sampling_}) {
    for (const PublicationWriter& writer : *writers) {
      if (!writer.bytes().empty())
        throw std::invalid_argument("take the outbox before saving: it is no part of a state");
    }
  }
  const ShardOptions& o = options_;
  to->put("worker", std::vector<int64_t>{o.worker, o.sampling_workers, std::bit_cast<int64_t>(o.seed), o.keep_edges});
  save_owners("owners_", &owners_, to);
  save_owners("next_owners_", next_owners_ ? &*next_owners_ : nullptr, to);
  for (size_t q = 0; q < plan_.size(); ++q) {
    cells_[q]->save(prefix("cells", q), to);
    subscriptions_[q]->save(prefix("subscriptions", q), to);
  }
  for (size_t type = 0; type < features_.size(); ++type) {
    features_[type]->save(prefix("features", type), to);
    feature_subscriptions_[type]->save(prefix("feature_subscriptions", type), to);
  }
  for (size_t side = 0; side < sides_.size(); ++side) {
    if (sides_[side].lists != nullptr) sides_[side].lists->save(prefix("lists", side), to);
  }
  to->put("sent_to_serving", sequences_of(serving_));
  to->put("sent_to_sampling", sequences_of(sampling_));
  std::vector<int64_t> received(received_.next().begin(), received_.next().end());
  to->put("received", std::move(received));
}

void SamplingShard::load(const ArrayViews& from) {
  const ShardOptions& o = options_;
  const auto saved = from.of_size<int64_t>("worker", 4);
  const int64_t own[] = {o.worker, o.sampling_workers, std::bit_cast<int64_t>(o.seed), o.keep_edges};
  if (!std::equal(saved.begin(), saved.end(), own)) {
    throw std::runtime_error(
        "sampling worker: the state is that of another number, of another number of workers, or of "
        "another seed");
  }
  const auto owners = load_owners("owners_", from);
  if (!owners) throw std::runtime_error("sampling worker: the state is of no serving workers");
  owners_ = *owners;
  next_owners_ = load_owners("next_owners_", from);
  for (size_t q = 0; q < plan_.size(); ++q) {
    cells_[q]->load(prefix("cells", q), from);
    subscriptions_[q]->load(prefix("subscriptions", q), from);
  }
  for (size_t type = 0; type < features_.size(); ++type) {
    features_[type]->load(prefix("features", type), from);
    feature_subscriptions_[type]->load(prefix("feature_subscriptions", type), from);
  }
  for (size_t side = 0; side < sides_.size(); ++side) {
    if (sides_[side].lists != nullptr) sides_[side].lists->load(prefix("lists", side), from);
  }
  const auto to_serving = from.at<int64_t>("sent_to_serving");
  const uint32_t workers = std::max(owners_.workers(), next_owners_ ? next_owners_->workers() : 0);
  if (to_serving.size() < workers || to_serving.size() > kMaxServingWorkers) {
    throw std::runtime_error("sampling worker: the state lacks serving workers, or has too many");
  }
  serving_.clear();
  grow_serving(static_cast<uint32_t>(to_serving.size()));
  const auto to_sampling = from.of_size<int64_t>("sent_to_sampling", sampling_.size());
  const auto received = from.of_size<int64_t>("received", received_.next().size());
  for (size_t i = 0; i < serving_.size(); ++i) serving_[i].set_next_sequence(static_cast<uint64_t>(to_serving[i]));
  for (size_t i = 0; i < sampling_.size(); ++i) sampling_[i].set_next_sequence(static_cast<uint64_t>(to_sampling[i]));
  for (size_t i = 0; i < received.size(); ++i) received_.next()[i] = static_cast<uint64_t>(received[i]);
  clear_outbox();
}

}  // namespace livegnn
