#include "livegnn/samtree.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace livegnn {
namespace {

constexpr uint32_t kAbsent = UINT32_MAX;
constexpr uint32_t kMergeBelow = kLeafCapacity / 4;

size_t leaf_bytes(uint32_t capacity, EdgeColumns columns) {
  return sizeof(Leaf) +
         capacity * (sizeof(uint32_t) + (columns.weighted ? sizeof(float) : 0) + (columns.timed ? sizeof(double) : 0));
}

Leaf* make_leaf(uint32_t capacity, EdgeColumns columns) {
  auto* leaf = static_cast<Leaf*>(std::malloc(leaf_bytes(capacity, columns)));
  if (leaf == nullptr) throw std::bad_alloc();
  leaf->size = 0;
  leaf->capacity = capacity;
  return leaf;
}

// Sixteen ids are compared at a time: a loop without an early exit is one that compilers turn into vectors.
uint32_t position_of(Leaf* leaf, uint32_t id, EdgeColumns columns) {
  const uint32_t* ids = leaf->ids(columns);
  uint32_t i = 0;
  for (; i + 16 <= leaf->size; i += 16) {
    uint32_t hit = 0;
    for (uint32_t j = 0; j < 16; ++j) hit |= static_cast<uint32_t>(ids[i + j] == id);
    if (hit != 0) break;
  }
  for (; i < leaf->size; ++i) {
    if (ids[i] == id) return i;
  }
  return kAbsent;
}

void write_entry(Leaf* leaf, uint32_t i, uint32_t id, EdgeValue value, EdgeColumns columns) {
  leaf->ids(columns)[i] = id;
  if (columns.weighted) leaf->weights(columns)[i] = value.weight;
  if (columns.timed) leaf->times()[i] = value.time;
}

EdgeValue read_value(Leaf* leaf, uint32_t i, EdgeColumns columns) {
  return {columns.weighted ? leaf->weights(columns)[i] : 1.0f, columns.timed ? leaf->times()[i] : 0.0};
}

void copy_entry(Leaf* to, uint32_t i, Leaf* from, uint32_t j, EdgeColumns columns) {
  write_entry(to, i, from->ids(columns)[j], read_value(from, j, columns), columns);
}

void swap_entries(Leaf* leaf, uint32_t i, uint32_t j, EdgeColumns columns) {
  std::swap(leaf->ids(columns)[i], leaf->ids(columns)[j]);
  if (columns.weighted) std::swap(leaf->weights(columns)[i], leaf->weights(columns)[j]);
  if (columns.timed) std::swap(leaf->times()[i], leaf->times()[j]);
}

Leaf* resized(Leaf* leaf, uint32_t capacity, EdgeColumns columns) {
  Leaf* other = make_leaf(capacity, columns);
  other->size = leaf->size;
  std::memcpy(other->ids(columns), leaf->ids(columns), leaf->size * sizeof(uint32_t));
  if (columns.weighted) std::memcpy(other->weights(columns), leaf->weights(columns), leaf->size * sizeof(float));
  if (columns.timed) std::memcpy(other->times(), leaf->times(), leaf->size * sizeof(double));
  std::free(leaf);
  return other;
}

// α-Split (PlatoD2GL, section IV-C): quickselect that is content with any pivot that falls near enough to the middle.
// Moves the greater ids into a new leaf and returns it with the smallest id that it holds.
std::pair<uint32_t, Leaf*> split_leaf(Leaf* leaf, EdgeColumns columns) {
  uint32_t* ids = leaf->ids(columns);
  const uint32_t middle = leaf->size / 2;
  uint32_t low = 0, high = leaf->size;  // the split position lies within
  uint32_t position = middle;
  while (true) {
    uint32_t a = ids[low], b = ids[(low + high) / 2], c = ids[high - 1];
    uint32_t pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    uint32_t less = low;
    for (uint32_t i = low; i < high; ++i) {
      if (ids[i] < pivot) swap_entries(leaf, i, less++, columns);
    }
    position = less;
    if (position + kSplitSlack >= middle && position <= middle + kSplitSlack) break;
    if (position > middle) {
      high = position;
    } else {
      // The pivot is the smallest of the upper part: step over it, or the range would not shrink.
      for (uint32_t i = position; i < high; ++i) {
        if (ids[i] == pivot) swap_entries(leaf, i, position, columns);
      }
      low = position + 1;
      if (low + kSplitSlack >= middle) {
        position = low;
        break;
      }
    }
  }
  Leaf* right = make_leaf(kLeafCapacity, columns);
  uint32_t smallest = kAbsent;
  for (uint32_t i = position; i < leaf->size; ++i) {
    copy_entry(right, right->size++, leaf, i, columns);
    smallest = std::min(smallest, ids[i]);
  }
  leaf->size = position;
  return {smallest, right};
}

size_t child_index(const Inner* inner, uint32_t id) {
  auto after = std::upper_bound(inner->keys.begin() + 1, inner->keys.end(), id);
  return static_cast<size_t>(after - inner->keys.begin()) - 1;
}

Leaf* leaf_for(const Inner* inner, uint32_t id) {
  while (true) {
    void* child = inner->children[child_index(inner, id)];
    if (inner->height == 1) return static_cast<Leaf*>(child);
    inner = static_cast<const Inner*>(child);
  }
}

struct Sibling {
  uint32_t key = 0;
  void* node = nullptr;  // null: nothing was split off
};

Sibling insert_child(Inner* inner, size_t after, Sibling sibling) {
  auto at = static_cast<std::ptrdiff_t>(after) + 1;
  inner->keys.insert(inner->keys.begin() + at, sibling.key);
  inner->children.insert(inner->children.begin() + at, sibling.node);
  if (inner->children.size() <= kInnerCapacity) return {};
  auto half = static_cast<std::ptrdiff_t>(inner->children.size() / 2);
  auto* right = new Inner{inner->height,
                          {inner->keys.begin() + half, inner->keys.end()},
                          {inner->children.begin() + half, inner->children.end()}};
  inner->keys.resize(static_cast<size_t>(half));
  inner->children.resize(static_cast<size_t>(half));
  return {right->keys.front(), right};
}

Sibling insert_below(Inner* inner, uint32_t id, EdgeValue value, EdgeColumns columns) {
  size_t i = child_index(inner, id);
  Sibling split;
  if (inner->height == 1) {
    auto* leaf = static_cast<Leaf*>(inner->children[i]);
    if (leaf->size == leaf->capacity) {
      auto [key, right] = split_leaf(leaf, columns);
      split = {key, right};
      if (id >= key) leaf = right;
    }
    write_entry(leaf, leaf->size++, id, value, columns);
  } else {
    split = insert_below(static_cast<Inner*>(inner->children[i]), id, value, columns);
  }
  return split.node == nullptr ? Sibling{} : insert_child(inner, i, split);
}

void free_tree(Inner* inner) {
  for (void* child : inner->children) {
    if (inner->height == 1) {
      std::free(child);
    } else {
      free_tree(static_cast<Inner*>(child));
    }
  }
  delete inner;
}

void erase_child(Inner* inner, size_t i) {
  inner->children.erase(inner->children.begin() + static_cast<std::ptrdiff_t>(i));
  // The first key is never compared, so the second may take its place without loss.
  inner->keys.erase(inner->keys.begin() + static_cast<std::ptrdiff_t>(i));
}

// A leaf that has become small joins a neighbour in the same parent, if there is room for later insertions.
void merge_leaf(Inner* inner, size_t i, EdgeColumns columns) {
  auto* leaf = static_cast<Leaf*>(inner->children[i]);
  if (leaf->size >= kMergeBelow) return;
  for (size_t other : {i - 1, i + 1}) {
    if (other >= inner->children.size()) continue;  // i - 1 wraps around
    auto* sibling = static_cast<Leaf*>(inner->children[other]);
    if (leaf->size != 0 && leaf->size + sibling->size > kLeafCapacity * 3 / 4) continue;
    for (uint32_t j = 0; j < leaf->size; ++j) copy_entry(sibling, sibling->size++, leaf, j, columns);
    if (other > i) inner->keys[other] = inner->keys[i];
    std::free(leaf);
    erase_child(inner, i);
    return;
  }
}

// A chain of single children that ends in an empty leaf: what is left when a subtree loses its last id.
bool is_hollow(const Inner* inner) {
  if (inner->children.size() != 1) return false;
  if (inner->height == 1) return static_cast<const Leaf*>(inner->children[0])->size == 0;
  return is_hollow(static_cast<const Inner*>(inner->children[0]));
}

void remove_below(Inner* inner, uint32_t id, EdgeColumns columns) {
  size_t i = child_index(inner, id);
  if (inner->height == 1) {
    auto* leaf = static_cast<Leaf*>(inner->children[i]);
    copy_entry(leaf, position_of(leaf, id, columns), leaf, leaf->size - 1, columns);
    --leaf->size;
    merge_leaf(inner, i, columns);
  } else {
    auto* child = static_cast<Inner*>(inner->children[i]);
    remove_below(child, id, columns);
    if (!is_hollow(child) || inner->children.size() == 1) return;
    free_tree(child);
    if (i + 1 < inner->children.size()) inner->keys[i + 1] = inner->keys[i];
    erase_child(inner, i);
  }
}

}  // namespace

bool SamtreeRoot::find(uint32_t id, EdgeColumns columns, EdgeValue* value) const {
  if (root_ == 0) return false;
  Leaf* where = is_tree() ? leaf_for(inner(), id) : leaf();
  uint32_t i = position_of(where, id, columns);
  if (i == kAbsent) return false;
  if (value != nullptr) *value = read_value(where, i, columns);
  return true;
}

bool SamtreeRoot::upsert(uint32_t id, EdgeValue value, EdgeColumns columns) {
  if (root_ == 0) set_leaf(make_leaf(4, columns));
  Leaf* where = is_tree() ? leaf_for(inner(), id) : leaf();
  uint32_t i = position_of(where, id, columns);
  if (i != kAbsent) {
    write_entry(where, i, id, value, columns);
    return false;
  }
  ++degree_;
  if (!is_tree()) {
    if (where->size == where->capacity && where->capacity < kLeafCapacity) {
      where = resized(where, where->capacity * 2, columns);
      set_leaf(where);
    }
    if (where->size < where->capacity) {
      write_entry(where, where->size++, id, value, columns);
      return true;
    }
    set_inner(new Inner{1, {0}, {where}});
  }
  Sibling split = insert_below(inner(), id, value, columns);
  if (split.node != nullptr) set_inner(new Inner{inner()->height + 1, {0, split.key}, {inner(), split.node}});
  return true;
}

bool SamtreeRoot::remove(uint32_t id, EdgeColumns columns) {
  if (root_ == 0) return false;
  if (is_tree()) {
    if (position_of(leaf_for(inner(), id), id, columns) == kAbsent) return false;
    remove_below(inner(), id, columns);
    --degree_;
    // A root with a single child is no root.
    while (is_tree() && inner()->children.size() == 1) {
      Inner* old = inner();
      if (old->height == 1) {
        set_leaf(static_cast<Leaf*>(old->children[0]));
      } else {
        set_inner(static_cast<Inner*>(old->children[0]));
      }
      delete old;
    }
    return true;
  }
  Leaf* where = leaf();
  uint32_t i = position_of(where, id, columns);
  if (i == kAbsent) return false;
  copy_entry(where, i, where, where->size - 1, columns);
  --where->size;
  --degree_;
  if (where->size == 0) {
    clear();
  } else if (where->size * 4 <= where->capacity && where->capacity > 4) {
    set_leaf(resized(where, where->capacity / 2, columns));
  }
  return true;
}

void SamtreeRoot::clear() {
  if (is_tree()) {
    free_tree(inner());
  } else {
    std::free(leaf());
  }
  root_ = 0;
  degree_ = 0;
}

namespace {

size_t tree_bytes(const Inner* inner, EdgeColumns columns) {
  size_t bytes = sizeof(Inner) + inner->keys.capacity() * sizeof(uint32_t) + inner->children.capacity() * sizeof(void*);
  for (void* child : inner->children) {
    bytes += inner->height == 1 ? leaf_bytes(static_cast<Leaf*>(child)->capacity, columns)
                                : tree_bytes(static_cast<const Inner*>(child), columns);
  }
  return bytes;
}

void save_leaf(Leaf* leaf, EdgeColumns columns, std::vector<uint32_t>* shape, std::vector<uint32_t>* ids,
               std::vector<float>* weights, std::vector<double>* times) {
  shape->insert(shape->end(), {0, leaf->size, leaf->capacity});
  ids->insert(ids->end(), leaf->ids(columns), leaf->ids(columns) + leaf->size);
  if (columns.weighted) weights->insert(weights->end(), leaf->weights(columns), leaf->weights(columns) + leaf->size);
  if (columns.timed) times->insert(times->end(), leaf->times(), leaf->times() + leaf->size);
}

void save_inner(const Inner* inner, EdgeColumns columns, std::vector<uint32_t>* shape, std::vector<uint32_t>* ids,
                std::vector<float>* weights, std::vector<double>* times) {
  shape->insert(shape->end(), {1, static_cast<uint32_t>(inner->children.size()), inner->height});
  shape->insert(shape->end(), inner->keys.begin(), inner->keys.end());
  for (void* child : inner->children) {
    if (inner->height == 1) {
      save_leaf(static_cast<Leaf*>(child), columns, shape, ids, weights, times);
    } else {
      save_inner(static_cast<const Inner*>(child), columns, shape, ids, weights, times);
    }
  }
}

template <class T>
std::span<const T> take(std::span<const T>* from, size_t count) {
  if (from->size() < count) throw std::runtime_error("adjacency: a column ends before its shape does");
  auto head = from->first(count);
  *from = from->subspan(count);
  return head;
}

struct Columns {
  std::span<const uint32_t>*shape, *ids;
  std::span<const float>* weights;
  std::span<const double>* times;
};

Leaf* load_leaf(uint32_t size, uint32_t capacity, EdgeColumns columns, Columns from, uint32_t* degree) {
  if (size > capacity || capacity > kLeafCapacity || size == 0 || !std::has_single_bit(capacity)) {
    throw std::runtime_error("adjacency: a leaf of " + std::to_string(size) + " in " + std::to_string(capacity));
  }
  auto ids = take(from.ids, size);
  auto weights = take(from.weights, columns.weighted ? size : 0);
  auto times = take(from.times, columns.timed ? size : 0);
  Leaf* leaf = make_leaf(capacity, columns);
  leaf->size = size;
  std::copy(ids.begin(), ids.end(), leaf->ids(columns));
  std::copy(weights.begin(), weights.end(), leaf->weights(columns));
  std::copy(times.begin(), times.end(), leaf->times());
  *degree += size;
  return leaf;
}

Inner* load_inner(uint32_t count, uint32_t height, EdgeColumns columns, Columns from, uint32_t* degree) {
  if (count == 0 || count > kInnerCapacity || height == 0 || height > 8) {
    throw std::runtime_error("adjacency: an inner node of " + std::to_string(count) + " children at height " +
                             std::to_string(height));
  }
  auto keys = take(from.shape, count);
  auto* inner = new Inner{height, {keys.begin(), keys.end()}, {}};
  try {
    for (uint32_t i = 0; i < count; ++i) {
      auto head = take(from.shape, 3);
      // A child's last word is its own height, or its capacity where it is a leaf: one in a tree has them all.
      if (head[0] != (height == 1 ? 0 : 1)) throw std::runtime_error("adjacency: leaves on two levels");
      if (head[2] != (height == 1 ? kLeafCapacity : height - 1)) {
        throw std::runtime_error(height == 1 ? "adjacency: a leaf in a tree that may grow"
                                             : "adjacency: leaves on two levels");
      }
      inner->children.push_back(height == 1 ? static_cast<void*>(load_leaf(head[1], head[2], columns, from, degree))
                                            : static_cast<void*>(load_inner(head[1], head[2], columns, from, degree)));
    }
  } catch (...) {
    free_tree(inner);
    throw;
  }
  return inner;
}

[[noreturn]] void broken(const std::string& what) { throw std::logic_error("samtree: " + what); }

uint32_t check_leaf(Leaf* leaf, uint64_t low, uint64_t high, EdgeColumns columns) {
  if (leaf->size == 0) broken("an empty leaf");
  if (leaf->size > leaf->capacity || leaf->capacity > kLeafCapacity) broken("a leaf over its capacity");
  std::vector<uint32_t> ids(leaf->ids(columns), leaf->ids(columns) + leaf->size);
  std::sort(ids.begin(), ids.end());
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) broken("an id that occurs twice");
  if (ids.front() < low || ids.back() >= high) broken("an id outside its leaf's keys");
  return leaf->size;
}

uint32_t check_inner(const Inner* inner, uint64_t low, uint64_t high, EdgeColumns columns) {
  if (inner->keys.size() != inner->children.size()) broken("keys and children that differ in number");
  if (inner->children.size() > kInnerCapacity) broken("an inner node over its capacity");
  uint32_t degree = 0;
  for (size_t i = 0; i < inner->children.size(); ++i) {
    uint64_t from = i == 0 ? low : inner->keys[i];
    uint64_t to = i + 1 == inner->keys.size() ? high : inner->keys[i + 1];
    if (from >= to) broken("keys out of order");
    if (inner->height == 1) {
      degree += check_leaf(static_cast<Leaf*>(inner->children[i]), from, to, columns);
    } else {
      auto* child = static_cast<const Inner*>(inner->children[i]);
      if (child->height + 1 != inner->height) broken("leaves on two levels");
      degree += check_inner(child, from, to, columns);
    }
  }
  return degree;
}

}  // namespace

size_t SamtreeRoot::bytes(EdgeColumns columns) const {
  if (root_ == 0) return 0;
  return is_tree() ? tree_bytes(inner(), columns) : leaf_bytes(leaf()->capacity, columns);
}

void SamtreeRoot::save(EdgeColumns columns, std::vector<uint32_t>* shape, std::vector<uint32_t>* ids,
                       std::vector<float>* weights, std::vector<double>* times) const {
  if (root_ == 0) {
    shape->insert(shape->end(), {2, 0, 0});
  } else if (is_tree()) {
    save_inner(inner(), columns, shape, ids, weights, times);
  } else {
    save_leaf(leaf(), columns, shape, ids, weights, times);
  }
}

void SamtreeRoot::load(EdgeColumns columns, std::span<const uint32_t>* shape, std::span<const uint32_t>* ids,
                       std::span<const float>* weights, std::span<const double>* times) {
  clear();
  Columns from{shape, ids, weights, times};
  auto head = take(shape, 3);
  uint32_t degree = 0;
  if (head[0] == 0) {
    set_leaf(load_leaf(head[1], head[2], columns, from, &degree));
  } else if (head[0] == 1) {
    if (head[1] == 1) throw std::runtime_error("adjacency: a root that is an inner node of 1 child");
    set_inner(load_inner(head[1], head[2], columns, from, &degree));
  } else if (head[0] != 2) {
    throw std::runtime_error("adjacency: expected a leaf (0), an inner node (1) or nothing (2), got " +
                             std::to_string(head[0]));
  }
  degree_ = degree;
}

void SamtreeRoot::check(EdgeColumns columns) const {
  uint32_t degree = 0;
  if (is_tree()) {
    if (inner()->children.size() < 2) broken("a root with a single child");
    degree = check_inner(inner(), 0, uint64_t{1} << 32, columns);
  } else if (root_ != 0) {
    degree = check_leaf(leaf(), 0, uint64_t{1} << 32, columns);
  }
  if (degree != degree_) broken("a degree that is not the number of ids");
}

}  // namespace livegnn
