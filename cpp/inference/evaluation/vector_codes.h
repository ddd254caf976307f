// Vectors of nodes in four bits a channel, and a search for the largest inner products with a vector.
//
//   vector ─► minus center, over spread ─► low + code * step, the code of a channel from 0 to 15 ─► block of 64 nodes
//   query  ─► times spread, in whole numbers ─────────────► scores of all blocks, approximate ─► the best
//
// The center and the spread of a channel put all channels on one scale, so that no channel takes the codes of others;
// the low and the step of a row fit its own range. A search reads all codes in order, 36 bytes for a node of 64
// channels; a change costs no more than its own row.
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

#include "memory/table.h"
#include "threads/fair_lock.h"
#include "threads/parallel.h"
#include "threads/waiting.h"

namespace livegnn {

class VectorCodes {
 public:
  // center, spread: of each channel; all finite, spreads larger than 0. nodes: there is room for those below. Throws
  // ThreadError, and std::bad_alloc.
  VectorCodes(std::vector<float> center, std::vector<float> spread, size_t nodes, size_t threads);

  size_t width() const { return center_.size(); }
  size_t bytes() const { return blocks_.bytes() + 2 * width() * sizeof(float); }

  // Replaces the vectors of nodes, which are rows one after the other. A vector with a number that is not finite, or a
  // range that is not, is erased. Throws std::bad_alloc; then nothing has changed.
  void put(std::span<const uint32_t> nodes, const float* rows);
  void erase(std::span<const uint32_t> nodes);

  // The `count` nodes of the largest inner products, ascending; those that have a vector if they are fewer.
  std::vector<uint32_t> search(const float* query, size_t count) const;

  mutable Checked<FairLock> lock;

 private:
  uint16_t* block(size_t i) { return reinterpret_cast<uint16_t*>(blocks_.row(i)); }
  const uint16_t* block(size_t i) const { return reinterpret_cast<const uint16_t*>(blocks_.row(i)); }
  void write(uint32_t node, const float* row, float* scaled);
  void make_room(size_t nodes);

  std::vector<float> center_, spread_;
  size_t groups_;
  Table blocks_;  // a row for each block
  mutable ThreadPool pool_;
};

}  // namespace livegnn
