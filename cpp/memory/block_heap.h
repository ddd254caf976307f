// Memory for small blocks that come and go by the million: leaves and inner nodes of samtrees.
//
//   segments of 16 MiB, cut into slabs of 64 KiB; a slab holds blocks of one size class:
//
//   | 24 | 24 | free | 24 | .. || 1648 | 1648 | .. || free slab || 96 | free | ...
//     ^ a block is named by its distance from the start in units of 8 bytes: 4 bytes where a pointer takes 8
//
// Addresses are reserved a segment at a time, as the heap grows: the upper 11 bits of a name tell the segment, and one
// look into a short table, which stays in the cache, where that lies.
//
// Blocks are handed out by lanes. A lane belongs to one thread at a time and has slabs of its own, so threads allocate
// without latches; only a new slab is taken under a mutex. Freed blocks wait in a chain through themselves, one for
// each slab, the last one first: it is the most likely to be in a cache. So freeing needs no memory, and cannot fail.
//
// Invariants: a block lies in one slab; blocks do not overlap; block 0 is never handed out. A slab with free blocks is
// in the list of its lane and class, unless it is marked. A slab without a live block returns to the free slabs when
// `reclaim` finds it marked.
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
  static constexpr size_t kSegmentBytes = 16 * 1024 * 1024;
  static constexpr size_t kMaxBlock = 32 * 1024;

  BlockHeap();
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  // How many bytes a block of so many really has.
  static size_t rounded(size_t bytes);

  void* at(BlockRef ref) const {
    return reinterpret_cast<void*>(segments_[ref / kSegmentGranules].origin + size_t{ref} * kGranule);
  }

  // Before more threads than until now allocate at once.
  void add_lanes(size_t lanes);

  // Requires: at most kMaxBlock bytes; a lane that was added. Throws std::bad_alloc when all that 32 bits can name is
  // used up, or the system has no more; then nothing has happened.
  BlockRef allocate(size_t bytes, size_t lane);
  // Requires: a block that is in use.
  void free(BlockRef ref) noexcept;

  size_t size_of(BlockRef ref) const;  // its class's
  size_t lane_of(BlockRef ref) const { return slab(slab_of(ref)).lane; }

  size_t live_bytes() const;      // in blocks that are in use, as rounded to their class
  size_t free_bytes() const;      // in blocks that wait to be handed out again
  size_t resident_bytes() const;  // what the heap has touched and not given back
  size_t reserved_bytes() const;  // addresses

  // -- compaction: the owner of the blocks copies those in sparse slabs elsewhere, and frees them; then the slabs are
  // free

  // Marks the emptiest slabs of each class, as many as the free blocks of the others can take over; false: none. If it
  // throws std::bad_alloc, nothing has happened.
  bool mark_sparse();
  bool in_sparse(BlockRef ref) const { return slab(slab_of(ref)).sparse; }
  // Copies a block to wherever one of its class is free, in any lane.
  BlockRef copy(BlockRef ref);
  // Gives the marked slabs that are empty back to the system, and takes the mark from the others: all of them, or at
  // most so many, which are taken from `most`. False if there are more to come.
  bool reclaim(size_t* most = nullptr) noexcept;

 private:
  struct Slab {
    uint16_t size_class = 0;
    uint16_t lane = 0;
    uint16_t live = 0;    // blocks in use
    uint16_t handed = 0;  // blocks that were ever handed out: what lies behind was never touched
    uint16_t free = 0;    // the first free block, its distance from the slab's start and 1 more; 0: none
    bool sparse = false;
    uint32_t next = 0, previous = 0;  // in the list of its lane and class, or of free slabs
  };
  struct Segment {
    uintptr_t origin;  // where the block of name 0 would lie, if all segments followed one another
    Slab* slabs;
    unsigned char* base;
  };
  struct Bin {          // of one lane and size class
    uint32_t open = 0;  // the first slab with free blocks; 0: none
    uint32_t slab = 0;  // where fresh blocks come from; 0: none
  };
  struct Lane {
    std::vector<Bin> bins;
    size_t live = 0, handed = 0;  // bytes
  };

  static constexpr size_t kSlabGranules = kSlabBytes / kGranule, kSegmentGranules = kSegmentBytes / kGranule;
  static constexpr size_t kSlabsPerSegment = kSegmentBytes / kSlabBytes;
  static constexpr size_t kSegments = (size_t{1} << 32) / kSegmentGranules;

  static uint32_t slab_of(BlockRef ref) { return static_cast<uint32_t>(ref / kSlabGranules); }
  Slab& slab(uint32_t i) const { return segments_[i / kSlabsPerSegment].slabs[i % kSlabsPerSegment]; }
  uint16_t* link(uint32_t slab, uint32_t place) const;
  void open(uint32_t slab) noexcept;
  void close(uint32_t slab) noexcept;
  uint32_t take_slab(size_t size_class, size_t lane);
  void add_segment(size_t index);
  void release(uint32_t slab) noexcept;

  Segment* segments_ = nullptr;               // kSegments of them, in memory as far as they are used
  size_t num_segments_ = 0, accessible_ = 0;  // `accessible_`: bytes of all segments that may be touched
  uint32_t used_slabs_ = 1, free_slabs_ = 0;  // slab 0 is never used; the first of those that were given back
  uint32_t first_sparse_ = 0;                 // where `reclaim` goes on
  std::vector<Lane> lanes_;
  std::mutex mutex_;
};

}  // namespace livegnn
