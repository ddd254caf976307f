// Columns of saved trees, spoiled: they are refused with a std::runtime_error, or give trees that hold what they say.
#include <algorithm>
#include <stdexcept>

#include "fuzz/fuzz.h"
#include "store/samtree/samtree.h"

namespace livegnn {
namespace {

template <class Id>
typename Samtrees<Id>::Saved saved_trees(EdgeColumns columns, SamtreeOptions options, size_t nodes,
                                         fuzz::Input* input) {
  Samtrees<Id> trees(columns, options);
  trees.resize(nodes);
  for (size_t node = 0; node < nodes; ++node) {
    Id id = fuzz::read_id<Id>(input);
    const Id step = static_cast<Id>(1 + input->below(100));
    const EdgeValue value = fuzz::read_value(input);
    for (uint32_t n = input->below(256); n > 0; --n, id = static_cast<Id>(id + step)) trees.upsert(node, id, value);
  }
  return trees.save();
}

template <class T>
void spoil_numbers(std::vector<T>* column, fuzz::Input* input) {
  if (column->empty()) return;
  const size_t i = input->below(static_cast<uint32_t>(column->size()));
  T& number = (*column)[i];
  switch (input->below(6)) {
    case 0:
      number = input->number<T>();
      break;
    case 1:
      number = static_cast<T>(number + 1);
      break;
    case 2:
      number = static_cast<T>(number - 1);
      break;
    case 3:
      number = (*column)[input->below(static_cast<uint32_t>(column->size()))];
      break;
    case 4:
      column->erase(column->begin() + static_cast<std::ptrdiff_t>(i));
      break;
    default:
      column->insert(column->begin() + static_cast<std::ptrdiff_t>(i), input->byte());
  }
}

template <class Id>
void spoil(typename Samtrees<Id>::Saved* saved, fuzz::Input* input) {
  switch (input->below(9)) {
    case 0:
      return spoil_numbers(&saved->shape, input);
    case 1:
      return spoil_numbers(&saved->keys, input);
    case 2:
      return spoil_numbers(&saved->ids, input);
    case 3: {
      // Floats are spoiled as bits, for infinities and what is not a number.
      if (saved->weights.empty()) return;
      const auto bits = input->number<uint32_t>() | (input->once_in(4) ? 0x7F800000u : 0);
      std::memcpy(&saved->weights[input->below(static_cast<uint32_t>(saved->weights.size()))], &bits, sizeof bits);
      return;
    }
    case 4: {
      if (saved->shape.empty()) return;
      // A node of another size or on another level, with all that belongs to it still there.
      const size_t word = input->below(static_cast<uint32_t>(saved->shape.size()));
      saved->shape[word] = input->below(12);
      return;
    }
    case 5: {
      if (saved->times.empty()) return;
      const auto bits = input->number<uint64_t>() | (input->once_in(4) ? 0x7FF0000000000000u : 0);
      std::memcpy(&saved->times[input->below(static_cast<uint32_t>(saved->times.size()))], &bits, sizeof bits);
      return;
    }
    case 6: {
      if (saved->sums.empty()) return;
      const auto bits = input->number<uint64_t>() | (input->once_in(4) ? 0x7FF0000000000000u : 0);
      std::memcpy(&saved->sums[input->below(static_cast<uint32_t>(saved->sums.size()))], &bits, sizeof bits);
      return;
    }
    case 7: {
      if (saved->orders.empty()) return;
      uint64_t& word = saved->orders[input->below(static_cast<uint32_t>(saved->orders.size()))];
      word = input->once_in(2) ? input->number<uint64_t>() : word + input->below(3) - 1;
      return;
    }
    default:
      if (!saved->rows.empty() && input->byte() % 2 == 0) saved->rows.pop_back();
      if (!saved->times.empty() && input->byte() % 2 == 0) saved->times.pop_back();
      if (input->byte() % 8 == 0) saved->shape.insert(saved->shape.end(), {2, 0, 0});
  }
}

template <class Id>
bool same(const typename Samtrees<Id>::Saved& a, const typename Samtrees<Id>::Saved& b) {
  CHECK(a.shape == b.shape);
  CHECK(a.keys == b.keys);
  CHECK(a.ids == b.ids);
  CHECK(a.weights == b.weights);
  CHECK(a.times == b.times);
  CHECK(a.rows == b.rows);
  CHECK(!a.has_sums || a.sums == b.sums);
  CHECK(!a.has_orders || a.orders == b.orders);
  return true;
}

template <class Id>
void load(fuzz::Input* input) {
  const uint8_t kind = input->byte();
  const EdgeColumns columns{(kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0};
  const uint32_t capacity = 4 + input->below(12);
  const SamtreeOptions options{capacity, input->below(capacity / 4 + 1), true};
  const size_t nodes = 1 + input->below(3);
  auto saved = saved_trees<Id>(columns, options, nodes, input);
  Samtrees<Id> trees(columns, options);
  trees.resize(nodes);
  trees.load(saved);
  while (input->more()) {
    const auto before = trees.save();
    spoil<Id>(&saved, input);
    try {
      trees.load(saved);
    } catch (const std::runtime_error&) {
      CHECK(same<Id>(before, trees.save()));
      trees.check();
      if (input->byte() % 2 == 0) saved = before;  // or spoil it further
      continue;
    }
    trees.check();
    CHECK(same<Id>(saved, trees.save()));
    // What was taken can be worked with.
    const Id id = fuzz::read_id<Id>(input);
    trees.upsert(0, id, fuzz::read_value(input));
    CHECK(trees.find(0, id).has_value());
    trees.check();
    trees.remove(0, id);
    trees.check();
    saved = trees.save();
  }
}

void body(fuzz::Input* input) {
  if (input->byte() % 2 == 0) {
    load<uint32_t>(input);
  } else {
    load<uint64_t>(input);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
