// Tables of weights that can be drawn from, alone: FSTable as LiveGNN has it, as the paper has it, and CSTable.
//
// Thread safety: none; each measurement has tables of its own.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <vector>

#include "batch.h"
#include "cs_table.h"
#include "store/samtree/fs_table.h"

namespace livegnn::bench {

// LiveGNN's: weights, and a Fenwick tree over runs of 32 of them, whose entries are always summed anew.
class RunTable {
 public:
  void assign(const std::vector<float>& weights) {
    weights_ = weights;
    sums_.resize(FSTable::size(size()));
    FSTable::build(weights_.data(), size(), sums_.data());
  }
  uint32_t size() const { return static_cast<uint32_t>(weights_.size()); }
  void append(float weight) {
    weights_.push_back(weight);
    sums_.resize(FSTable::size(size()));
    FSTable::append(weights_.data(), size(), sums_.data());
  }
  void update(uint32_t i, float weight) {
    weights_[i] = weight;
    FSTable::update(weights_.data(), size(), sums_.data(), i);
  }
  void remove(uint32_t i) {
    weights_[i] = weights_.back();
    weights_.pop_back();
    sums_.resize(FSTable::size(size()));
    FSTable::remove(weights_.data(), size(), sums_.data(), i);
  }
  double total() const { return FSTable::total(weights_.data(), size(), sums_.data()); }
  uint32_t find(double at) const { return FSTable::find(weights_.data(), size(), sums_.data(), at); }

 private:
  std::vector<float> weights_, sums_;
};

// The paper's (section V-A, algorithms 3 to 5): an entry for every weight, in its place; changes are added to entries.
class PaperTable {
 public:
  void assign(const std::vector<float>& weights) {
    sums_.clear();
    for (const float weight : weights) append(weight);
  }
  uint32_t size() const { return static_cast<uint32_t>(sums_.size()); }
  void append(float weight) {
    const uint32_t i = size();
    float sum = weight;
    for (uint32_t step = 1; step < lowest_bit(i + 1); step *= 2) sum += sums_[i - step];
    sums_.push_back(sum);
  }
  void update(uint32_t i, float weight) { add(i, weight - this->weight(i)); }
  void remove(uint32_t i) {
    if (i + 1 < size()) add(i, weight(size() - 1) - weight(i));
    sums_.pop_back();
  }
  double total() const {
    double sum = 0;
    for (uint32_t i = size(); i > 0; i -= lowest_bit(i)) sum += sums_[i - 1];
    return sum;
  }
  uint32_t find(double at) const {
    uint32_t left = 0;
    for (uint32_t step = std::bit_floor(size()); step > 0; step /= 2) {
      if (left + step <= size() && sums_[left + step - 1] <= at) {
        left += step;
        at -= sums_[left - 1];
      }
    }
    return left < size() ? left : size() - 1;
  }

 private:
  static uint32_t lowest_bit(uint32_t i) { return i & (~i + 1); }
  void add(uint32_t i, float change) {
    for (; i < size(); i += lowest_bit(i + 1)) sums_[i] += change;
  }
  float weight(uint32_t i) const {
    float weight = sums_[i];
    for (uint32_t step = 1; step < lowest_bit(i + 1); step *= 2) weight -= sums_[i - step];
    return weight;
  }

  std::vector<float> sums_;
};

class CumulativeTable {
 public:
  void assign(const std::vector<float>& weights) {
    sums_.resize(weights.size());
    CSTable::build(weights.data(), weights.size(), sums_.data());
  }
  uint32_t size() const { return static_cast<uint32_t>(sums_.size()); }
  void append(float weight) { sums_.push_back(CSTable::next(sums_.data(), sums_.size(), weight)); }
  void update(uint32_t i, float weight) { CSTable::update(sums_.data(), sums_.size(), i, weight); }
  void remove(uint32_t i) {
    CSTable::remove(sums_.data(), sums_.size(), i);
    sums_.pop_back();
  }
  double total() const { return CSTable::total(sums_.data(), sums_.size()); }
  uint32_t find(double at) const {
    return static_cast<uint32_t>(CSTable::find(sums_.data(), sums_.size(), static_cast<float>(at)));
  }

 private:
  std::vector<float> sums_;
};

struct TableTimes {  // nanoseconds of one operation
  double append, update, remove, draw;
};

// On 64 tables of n weights, as many as the caches of a core hold. An eighth of each table is appended and removed, at
// places that no branch predictor can learn. Medians of the rounds.
template <class Table>
TableTimes time_table(uint32_t n, uint32_t rounds, uint64_t seed) {
  constexpr uint32_t kTables = 64;
  using Clock = std::chrono::steady_clock;
  struct Operation {
    uint32_t table, place;
    float weight;
    double share;
  };
  const uint32_t part = n / 8;
  Random random(seed);
  std::vector<float> start(n - part);
  std::vector<Operation> operations(kTables * part);
  std::vector<Table> tables(kTables);
  std::vector<double> append, update, remove, draw;
  uint32_t found = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    for (float& weight : start) weight = static_cast<float>(random.unit()) + 0.01f;
    for (Table& table : tables) table.assign(start);
    for (size_t i = 0; i < operations.size(); ++i) {
      // A place that is there before the eighth is appended, and still when it is removed.
      operations[i] = {static_cast<uint32_t>(i % kTables), random.below(n - part),
                       static_cast<float>(random.unit()) + 0.01f, random.unit()};
    }
    const auto timed = [&](const auto& operate) {
      const auto before = Clock::now();
      for (const Operation& operation : operations) operate(&tables[operation.table], operation);
      return std::chrono::duration<double, std::nano>(Clock::now() - before).count() /
             static_cast<double>(operations.size());
    };
    append.push_back(timed([](Table* table, const Operation& with) { table->append(with.weight); }));
    update.push_back(timed([](Table* table, const Operation& with) { table->update(with.place, with.weight); }));
    draw.push_back(
        timed([&](Table* table, const Operation& with) { found += table->find(with.share * table->total()); }));
    remove.push_back(timed([](Table* table, const Operation& with) { table->remove(with.place); }));
  }
  volatile uint32_t used = found;  // or the compiler leaves the draws out
  (void)used;
  const auto median = [](std::vector<double>& times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  };
  return {median(append), median(update), median(remove), median(draw)};
}

}  // namespace livegnn::bench
