// Vectors of nodes in four bits a channel and in one, and a search for the largest inner products with a vector.
//
//   vector ─► minus center, over spread ─► low + code * step, the code of a channel from 0 to 15 ─► a row for each node
//                                       └► rotated ─► signs and a scale ─► blocks of 64 nodes
//   query ─► times spread ─► rotated ─► scores of all signs ─► scores of the codes of a few per cent ─► the best
//
// The center and the spread of a channel put all channels on one scale, so that no channel takes the codes of others;
// the low and the step of a row fit its own range. Signs of the rotated vector and one scale say about what its inner
// products are (as in RaBitQ, SIGMOD 2024, section 3). A search reads all signs in order, 10 bytes for a node of 64
// channels, and 36 more of the few nodes whose signs say that they may be among the best. How far signs are off is
// measured for each query on a sample of the nodes: where they say little, more codes are read, at last all. A change
// costs no more than its own row.
//
// Invariants: the codes of a node depend on its vector, the centers and the spreads alone; what a search finds depends
// on the codes and the query alone, on any number of threads and with any instruction set.
// Thread safety: `search` may be called by several threads at once; everything else needs exclusive access. `lock` is
// for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/evaluation/rotation.h"
#include "memory/table.h"
#include "program/kernels.h"
#include "threads/fair_lock.h"
#include "threads/parallel.h"
#include "threads/waiting.h"

namespace livegnn {

class VectorCodes {
 public:
  // center, spread: of each channel; all finite. A channel without spread is left out. nodes: there is room for those
  // below. Throws ThreadError, and std::bad_alloc.
  VectorCodes(std::vector<float> center, std::vector<float> spread, size_t nodes, size_t threads);

  size_t width() const { return center_.size(); }
  size_t bytes() const { return signs_.bytes() + codes_.bytes() + steps_.bytes() + 2 * width() * sizeof(float); }

  // Replaces the vectors of nodes, which are rows one after the other. A vector with a number that is not finite, or a
  // range that is not, is erased. Throws std::bad_alloc; then nothing has changed.
  void put(std::span<const uint32_t> nodes, const float* rows);
  void erase(std::span<const uint32_t> nodes);

  // Nodes, ascending, and about the inner product of each.
  struct Found {
    std::vector<uint32_t> nodes;
    std::vector<double> products;
    double deviation = 0;  // of the products by which codes are off, if that is random
  };

  // The `count` nodes of about the largest inner products; those that have a vector if they are fewer.
  Found search(const float* query, size_t count) const;

  mutable Checked<FairLock> lock;

 private:
  struct Query;
  struct Scored;
  class Best;

  size_t blocks() const { return signs_.rows(); }
  uint8_t* block(size_t i) { return reinterpret_cast<uint8_t*>(signs_.row(i)); }
  const uint8_t* block(size_t i) const { return reinterpret_cast<const uint8_t*>(signs_.row(i)); }
  const uint8_t* codes(size_t node) const { return reinterpret_cast<const uint8_t*>(codes_.row(node)); }
  uint16_t* scales(size_t i) { return reinterpret_cast<uint16_t*>(block(i) + groups_ * kSignRows); }
  const uint16_t* scales(size_t i) const { return const_cast<VectorCodes*>(this)->scales(i); }
  void write(uint32_t node, const float* row, float* scaled);
  bool write_codes(uint32_t node, const float* scaled);
  uint16_t write_signs(uint32_t node, float* scaled);
  void make_room(size_t nodes);
  float code_score(const Query& query, uint32_t node, int32_t total) const;
  float choose_least(const Query& query, size_t count) const;
  Found search_from(const Query& query, size_t count, float least) const;

  std::vector<float> center_, spread_;
  Rotation rotation_;
  size_t groups_, pieces_;
  Table signs_;  // a row for each block
  Table codes_;  // a row for each node
  Table steps_;  // of each node, the step and the low of its codes, both bfloat16
  mutable ThreadPool pool_;
};

}  // namespace livegnn
