// Memory for small blocks that come and go by the million: leaves and inner nodes of samtrees.
//
//   one reserved range of addresses, cut into slabs of 64 KiB; a slab holds blocks of one size class:
//
//   | 24 | 24 | free | 24 | .. || 1648 | 1648 | .. || free slab || 96 | free | ...
//     ^ a block is named by its distance from the start in units of 8 bytes: 4 bytes where a pointer takes 8
//
// Blocks are handed out by lanes. A lane belongs to one thread at a time and has slabs of its own, so threads allocate
// without latches; only a new slab is taken under a mutex. Freed blocks wait in a list of their lane and class and go
// out again, the last one first: it is the most likely to be in a cache.
//
// Invariants: a block lies in one slab; blocks do not overlap; block 0 is never handed out. A slab without a live block
// returns to the pool of free slabs when `reclaim` finds it marked.
// Thread safety: `at` from any thread; `allocate` for one lane from one thread at a time, for different lanes at once,
// and beside `at`; `free`, which hands a block back to the lane that it came from, and all else alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace livegnn {

using BlockRef = uint32_t;  // 0: no block

class BlockHeap {
 public:
  static constexpr size_t kGranule = 8;
  static constexpr size_t kSlabBytes = 64 * 1024;
  static constexpr size_t kMaxBlock = 32 * 1024;

  BlockHeap();
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  // How many bytes a block of so many really has.
  static size_t rounded(size_t bytes);

  void* at(BlockRef ref) const { return base_ + size_t{ref} * kGranule; }

  // Before more threads than until now allocate at once.
  void add_lanes(size_t lanes);

  // Throws std::bad_alloc when the reserved range is used up, or the system has no more.
  BlockRef allocate(size_t bytes, size_t lane);
  void free(BlockRef ref);

  size_t lane_of(BlockRef ref) const { return slabs_[slab_of(ref)].lane; }

  size_t live_bytes() const;      // in blocks that are in use, as rounded to their class
  size_t free_bytes() const;      // in blocks that wait to be handed out again
  size_t resident_bytes() const;  // what the heap has touched and not given back

  // -- compaction: the owner of the blocks copies those in sparse slabs elsewhere, and frees them; then the slabs are
  // free

  // Marks the emptiest slabs of each class, as many as the free blocks of the others can take over; false: none.
  bool mark_sparse();
  bool in_sparse(BlockRef ref) const { return slabs_[slab_of(ref)].sparse; }
  // Copies a block to wherever one of its class is free, in any lane.
  BlockRef copy(BlockRef ref);
  // Gives the marked slabs that are empty back to the system, and takes the mark from the others.
  void reclaim();

 private:
  struct Slab {
    uint16_t size_class = 0;
    uint16_t lane = 0;
    uint32_t live = 0;    // blocks in use
    uint32_t handed = 0;  // blocks that were ever handed out: what lies behind was never touched
    bool sparse = false;
  };
  struct Bin {                   // of one lane and size class
    std::vector<BlockRef> free;  // blocks to hand out again
    uint32_t slab = 0;           // where fresh blocks come from; 0: none
  };
  struct Lane {
    std::vector<Bin> bins;
    size_t live = 0, handed = 0;  // bytes
  };

  static size_t slab_of(BlockRef ref) { return size_t{ref} / (kSlabBytes / kGranule); }
  uint32_t take_slab(size_t size_class, size_t lane);

  void* range_ = nullptr;          // what was reserved
  unsigned char* base_ = nullptr;  // its first huge page
  size_t reserved_ = 0, accessible_ = 0;
  Slab* slabs_ = nullptr;  // of the whole range, in memory as far as it is used; slab 0 never is
  std::vector<uint32_t> free_slabs_;
  size_t used_slabs_ = 1;
  std::vector<Lane> lanes_;
  std::mutex mutex_;
};

}  // namespace livegnn
