// The neighbours of one node (PlatoD2GL, section IV): one small leaf, or a samtree of leaves where there are many.
//
//   few neighbours:            many neighbours:
//   SamtreeRoot ─► leaf        SamtreeRoot ─► inner  | key key key |   keys ascend; key i <= every id below child i
//                                               |   |   |
//                                             leaf leaf leaf          ids inside a leaf are in no order
//
//   leaf:   | size | capacity | times (double) | ids (uint32) | weights (float) |    absent columns take no space
//
// Invariants: all leaves are on one level; a leaf holds at most kLeafCapacity ids and an inner node at most
// kInnerCapacity children; every id below child i is at least key i and less than key i + 1; an id occurs once;
// a leaf in a tree is never empty. The order of a scan depends only on the history of the changes.
//
// Thread safety: any number of readers, or one writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace livegnn {

inline constexpr uint32_t kLeafCapacity = 256;
inline constexpr uint32_t kInnerCapacity = 256;
// How far from the middle an α-Split may fall (PlatoD2GL, section IV-C).
inline constexpr uint32_t kSplitSlack = kLeafCapacity / 8;

// Which columns an edge carries beside the id.
struct EdgeColumns {
  bool weighted = false;
  bool timed = false;
};

struct Leaf {
  uint32_t size;
  uint32_t capacity;

  double* times() { return reinterpret_cast<double*>(this + 1); }
  uint32_t* ids(EdgeColumns columns) { return reinterpret_cast<uint32_t*>(times() + (columns.timed ? capacity : 0)); }
  float* weights(EdgeColumns columns) { return reinterpret_cast<float*>(ids(columns) + capacity); }
};

struct Inner;

// A run of neighbours as they lie in one leaf. `weights` and `times` are null where the edge type has none.
struct NeighborSpan {
  const uint32_t* ids;
  const float* weights;
  const double* times;
  size_t size;
};

struct EdgeValue {
  float weight = 1.0f;
  double time = 0.0;
};

class SamtreeRoot {
 public:
  uint32_t degree() const { return degree_; }

  // Where the root lies: what a caller may prefetch.
  const void* address() const { return reinterpret_cast<const void*>(root_ & ~uintptr_t{1}); }

  bool find(uint32_t id, EdgeColumns columns, EdgeValue* value) const;
  // True if the id was not there before.
  bool upsert(uint32_t id, EdgeValue value, EdgeColumns columns);
  bool remove(uint32_t id, EdgeColumns columns);
  void clear();
  size_t bytes(EdgeColumns columns) const;

  // Calls `visit(NeighborSpan)` for each leaf, in the order of the keys.
  template <class Visit>
  void scan(EdgeColumns columns, Visit&& visit) const {
    if (root_ == 0) return;
    if (!is_tree()) {
      visit_leaf(leaf(), columns, visit);
    } else {
      scan_inner(inner(), columns, visit);
    }
  }

  // The exact shape, so that a restored tree behaves as the saved one would have: 1 and the number of children for an
  // inner node, 0 and the size and capacity for a leaf, parents first; the columns in the order of a scan.
  void save(EdgeColumns columns, std::vector<uint32_t>* shape, std::vector<uint32_t>* ids, std::vector<float>* weights,
            std::vector<double>* times) const;
  // Reads what `save` wrote and moves the spans past it. Throws std::runtime_error when they do not fit together.
  void load(EdgeColumns columns, std::span<const uint32_t>* shape, std::span<const uint32_t>* ids,
            std::span<const float>* weights, std::span<const double>* times);

  // Throws std::logic_error naming the invariant that does not hold.
  void check(EdgeColumns columns) const;

 private:
  bool is_tree() const { return (root_ & 1) != 0; }
  Leaf* leaf() const { return reinterpret_cast<Leaf*>(root_); }
  Inner* inner() const { return reinterpret_cast<Inner*>(root_ & ~uintptr_t{1}); }
  void set_leaf(Leaf* leaf) { root_ = reinterpret_cast<uintptr_t>(leaf); }
  void set_inner(Inner* inner) { root_ = reinterpret_cast<uintptr_t>(inner) | 1; }

  template <class Visit>
  static void visit_leaf(Leaf* leaf, EdgeColumns columns, Visit& visit) {
    visit(NeighborSpan{leaf->ids(columns), columns.weighted ? leaf->weights(columns) : nullptr,
                       columns.timed ? leaf->times() : nullptr, leaf->size});
  }
  template <class Visit>
  static void scan_inner(const Inner* inner, EdgeColumns columns, Visit& visit);

  uintptr_t root_ = 0;  // the lowest bit tells an inner node from a leaf
  uint32_t degree_ = 0;
};

struct Inner {
  uint32_t height;  // 1: the children are leaves
  std::vector<uint32_t> keys;
  std::vector<void*> children;
};

template <class Visit>
void SamtreeRoot::scan_inner(const Inner* inner, EdgeColumns columns, Visit& visit) {
  for (void* child : inner->children) {
    if (inner->height == 1) {
      visit_leaf(static_cast<Leaf*>(child), columns, visit);
    } else {
      scan_inner(static_cast<const Inner*>(child), columns, visit);
    }
  }
}

}  // namespace livegnn
