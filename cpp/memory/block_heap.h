// Memory for millions of small blocks that are allocated and freed often: leaves and inner nodes of samtrees.
//
//   segments of 16 MiB, cut into slabs of 64 KiB; a slab holds blocks of one size class:
//
//   | 24 | 24 | free | 24 | .. || 1648 | 1648 | .. || free slab || 96 | free | ...
//     ^ the name of a block is its distance from the start in units of 8 bytes: 4 bytes instead of a pointer's 8
//
// Address space is reserved one segment at a time, as the heap grows. The upper 11 bits of a name are the segment; a
// short table, which stays in the cache, gives its address.
//
// Lanes allocate blocks. A lane belongs to one thread at a time and has its own slabs, so threads allocate without
// latches; only taking a new slab needs a mutex. Each slab has a free list, which is stored in the free blocks and
// starts with the one freed last, because that is the most likely to be in a cache. So freeing needs no memory, and
// cannot fail.
//
// Invariants: a block lies in one slab; blocks do not overlap; block 0 is never allocated. A slab with free blocks is
// in the list of its lane and class, unless it is marked. A slab without a live block returns to the free slabs when
// `reclaim` finds it marked.
// Thread safety: any thread may call `at`. One thread at a time may call `allocate` for a lane, concurrently with other
// lanes and with `at`. `free`, which returns a block to the lane that allocated it, and everything else need exclusive
// access.
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

  // The actual size of a block of this many bytes.
  static size_t rounded(size_t bytes);

  void* at(BlockRef ref) const {
    return reinterpret_cast<void*>(segments_[ref / kSegmentGranules].origin + size_t{ref} * kGranule);
  }

  // Call it before more threads than so far allocate at once.
  void add_lanes(size_t lanes);

  // Requires: at most kMaxBlock bytes; a lane that was added. Throws std::bad_alloc if all 32-bit names are used up, or
  // the system has no more memory; then nothing has changed.
  BlockRef allocate(size_t bytes, size_t lane);
  // Requires: a block that is in use.
  void free(BlockRef ref) noexcept;

  size_t size_of(BlockRef ref) const;  // the size of its class
  size_t lane_of(BlockRef ref) const { return slab(slab_of(ref)).lane; }

  size_t live_bytes() const;      // in blocks that are in use, rounded up to their class
  size_t free_bytes() const;      // in free blocks that can be allocated again
  size_t resident_bytes() const;  // memory that the heap has touched and not given back
  size_t reserved_bytes() const;  // address space

  // -- compaction: the owner of the blocks copies those in sparse slabs elsewhere, and frees them; then these slabs are
  // free

  // Marks the emptiest slabs of each class, as many as fit into the free blocks of the others; returns false if there
  // are none. If it throws std::bad_alloc, nothing has changed.
  bool mark_sparse();
  bool in_sparse(BlockRef ref) const { return slab(slab_of(ref)).sparse; }
  // Copies a block to a free block of the same class, in any lane.
  BlockRef copy(BlockRef ref);
  // Returns the marked slabs that are empty to the system, and unmarks the others: all of them, or at most `*most`,
  // which is reduced by their number. Returns false if there are more to process.
  bool reclaim(size_t* most = nullptr) noexcept;

 private:
  struct Slab {
    uint16_t size_class = 0;
    uint16_t lane = 0;
    uint16_t live = 0;    // blocks in use
    uint16_t handed = 0;  // blocks that were ever allocated: later ones were never touched
    uint16_t free = 0;    // the first free block, as its distance from the slab's start plus 1; 0: none
    bool sparse = false;
    uint32_t next = 0, previous = 0;  // in the list of its lane and class, or of free slabs
  };
  struct Segment {
    uintptr_t origin;  // the address that name 0 would have if all segments were contiguous
    Slab* slabs;
    unsigned char* base;
  };
  struct Bin {          // for one lane and size class
    uint32_t open = 0;  // the first slab with free blocks; 0: none
    uint32_t slab = 0;  // the slab for new blocks; 0: none
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
  uint32_t first_sparse_ = 0;                 // where `reclaim` continues
  std::vector<Lane> lanes_;
  std::mutex mutex_;
};

}  // namespace livegnn
