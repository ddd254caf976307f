#include "presampling/tables/cell_table.h"

#include <bit>
#include <stdexcept>

namespace livegnn {

bool CellTable::is_same(const CellView& cell, std::span<const CellEntry> entries) const {
  if (cell.size != entries.size()) return false;
  for (uint32_t i = 0; i < cell.size; ++i) {
    const Neighbor& neighbor = entries[i].neighbor;
    if (cell.ids[i] != neighbor.id) return false;
    if (cell.priorities != nullptr && cell.priorities[i] != entries[i].priority) return false;
    if (cell.times != nullptr && std::bit_cast<uint64_t>(cell.times[i]) != std::bit_cast<uint64_t>(neighbor.time)) {
      return false;
    }
    if (cell.weights != nullptr &&
        std::bit_cast<uint32_t>(cell.weights[i]) != std::bit_cast<uint32_t>(neighbor.weight)) {
      return false;
    }
  }
  return true;
}

void CellTable::save(const std::string& prefix, Arrays* to) const {
  std::vector<int64_t> nodes, ids, priorities;
  std::vector<uint32_t> sizes;
  std::vector<double> times;
  std::vector<float> weights;
  nodes.reserve(size());
  sizes.reserve(size());
  for_each([&](uint64_t node, const CellView& cell) {
    nodes.push_back(std::bit_cast<int64_t>(node));
    sizes.push_back(cell.size);
    for (uint32_t i = 0; i < cell.size; ++i) {
      ids.push_back(std::bit_cast<int64_t>(cell.ids[i]));
      if (cell.priorities != nullptr) priorities.push_back(std::bit_cast<int64_t>(cell.priorities[i]));
      if (cell.times != nullptr) times.push_back(cell.times[i]);
      if (cell.weights != nullptr) weights.push_back(cell.weights[i]);
    }
  });
  to->put(prefix + "nodes", std::move(nodes));
  to->put(prefix + "sizes", std::move(sizes));
  to->put(prefix + "ids", std::move(ids));
  if (format().has_priorities()) to->put(prefix + "priorities", std::move(priorities));
  if (format().has_times()) to->put(prefix + "times", std::move(times));
  if (format().options().weighted) to->put(prefix + "weights", std::move(weights));
}

void CellTable::clear() noexcept {
  nodes_->for_each([&](uint64_t* row) {
    CellRoot root = word_of(row).root();
    cells_.free(&root);
    row[column_] = 0;
  });
  size_ = 0;
  nodes_->purge();
  settle();
}

void CellTable::load(const std::string& prefix, const ArrayViews& from) {
  clear();
  const auto nodes = from.at<int64_t>(prefix + "nodes"), ids = from.at<int64_t>(prefix + "ids");
  const auto sizes = from.of_size<uint32_t>(prefix + "sizes", nodes.size());
  std::span<const int64_t> priorities;
  std::span<const double> times;
  std::span<const float> weights;
  if (format().has_priorities()) priorities = from.of_size<int64_t>(prefix + "priorities", ids.size());
  if (format().has_times()) times = from.of_size<double>(prefix + "times", ids.size());
  if (format().options().weighted) weights = from.of_size<float>(prefix + "weights", ids.size());
  try {
    size_t place = 0;
    std::vector<CellEntry> entries;
    nodes_->reserve(nodes.size());
    for (size_t n = 0; n < nodes.size(); ++n) {
      const auto node = std::bit_cast<uint64_t>(nodes[n]);
      if (sizes[n] == 0 || sizes[n] > format().options().count || sizes[n] > ids.size() - place ||
          find(node).size > 0) {
        throw std::runtime_error("cells: one that is empty, too large, or there twice");
      }
      entries.clear();
      const uint64_t salt = format().salt_of(node);
      for (const size_t end = place + sizes[n]; place < end; ++place) {
        Neighbor neighbor{std::bit_cast<uint64_t>(ids[place])};
        if (!weights.empty()) neighbor.weight = weights[place];
        if (!times.empty()) neighbor.time = times[place];
        const uint64_t priority = format().has_priorities() ? std::bit_cast<uint64_t>(priorities[place])
                                                            : uniform_priority(salt, neighbor.id);
        entries.push_back({priority, neighbor});
      }
      set_cell(node, entries);
    }
    if (place != ids.size()) throw std::runtime_error("cells: more entries than their sizes tell");
    check();
  } catch (const std::logic_error& error) {
    clear();
    throw std::runtime_error(error.what());
  } catch (...) {
    clear();
    throw;
  }
}

void CellTable::check() const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("cells: ") + what);
  };
  std::vector<uint64_t> ids;
  size_t nodes = 0;
  std::as_const(*nodes_).for_each([&](const uint64_t* row) {
    const Word word = word_of(row);
    if (word.size == 0) return require(row[column_] == 0, "a word of a node without one");
    ++nodes;
    const CellView cell = cells_.view(word.root());
    require(nodes_->find(row[0]) == row, "a row that is not found by its node");
    require(cell.size <= format().options().count, "one that is too large");
    const uint64_t salt = format().salt_of(row[0]);
    for (uint32_t i = 1; i < cell.size; ++i) {
      const uint64_t before = format().priority_at(cell, salt, i - 1), priority = format().priority_at(cell, salt, i);
      require(before < priority || (before == priority && cell.ids[i - 1] < cell.ids[i]),
              "neighbours that are not in the order of their priorities");
    }
    ids.assign(cell.ids, cell.ids + cell.size);
    std::sort(ids.begin(), ids.end());
    require(std::adjacent_find(ids.begin(), ids.end()) == ids.end(), "a neighbour that is there twice");
    const bool bounded = !format().has_priorities() && cell.size == format().options().count;
    const uint64_t worst = bounded ? format().priority_at(cell, salt, cell.size - 1) >> 48 : kGreatestBits;
    require(word.beyond == kGreatestBits - worst, "another worst priority than that of its last neighbour");
  });
  require(nodes == size_, "another number of them than is counted");
}

}  // namespace livegnn
