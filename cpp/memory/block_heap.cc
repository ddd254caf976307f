#include "memory/block_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <memory>
#include <new>

#include "memory/huge_pages.h"

namespace livegnn {
namespace {

// Classes are 8 bytes apart up to 1 KiB, then 64 per doubling: rounding up costs at most a sixty-fourth.
constexpr size_t kFine = 1024 / BlockHeap::kGranule;
constexpr size_t kPerDoubling = 64;
constexpr size_t kNumClasses = kFine + 1 + kPerDoubling * 5;

size_t class_of(size_t bytes) {
  const size_t units = (bytes + BlockHeap::kGranule - 1) / BlockHeap::kGranule;
  if (units <= kFine) return units;
  const size_t doubling = static_cast<size_t>(std::bit_width(units - 1)) - static_cast<size_t>(std::bit_width(kFine));
  const size_t step = size_t{2} << doubling;
  const size_t from = kFine << doubling;
  return kFine + doubling * kPerDoubling + (units - from + step - 1) / step;
}

size_t class_bytes(size_t size_class) {
  if (size_class <= kFine) return size_class * BlockHeap::kGranule;
  const size_t doubling = (size_class - kFine - 1) / kPerDoubling;
  const size_t index = (size_class - kFine - 1) % kPerDoubling + 1;
  return ((kFine << doubling) + index * (size_t{2} << doubling)) * BlockHeap::kGranule;
}

constexpr size_t kFirstGrowth = size_t{1} << 20;
constexpr int kMapping = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

size_t blocks_per_slab(size_t size_class) { return BlockHeap::kSlabBytes / class_bytes(size_class); }

void* map(size_t bytes, int protection) {
  void* mapped = mmap(nullptr, bytes, protection, kMapping, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return mapped;
}

}  // namespace

size_t BlockHeap::rounded(size_t bytes) { return class_bytes(class_of(bytes)); }

BlockHeap::BlockHeap() : lanes_(1) { lanes_[0].bins.resize(kNumClasses); }

BlockHeap::~BlockHeap() {
  if (segments_ == nullptr) return;
  for (size_t i = 0; i < num_segments_; ++i) {
    munmap(segments_[i].base, kSegmentBytes);
    delete[] segments_[i].slabs;
  }
  munmap(segments_, kSegments * sizeof(Segment));
}

void BlockHeap::add_lanes(size_t lanes) {
  while (lanes_.size() < lanes) {
    Lane lane;
    lane.bins.resize(kNumClasses);
    lanes_.push_back(std::move(lane));
  }
}

void BlockHeap::add_segment(size_t index) {
  auto slabs = std::make_unique<Slab[]>(kSlabsPerSegment);
  // Reserves address space only: pages get memory when they are touched. The parts outside whole huge pages are
  // returned.
  auto* const from = static_cast<unsigned char*>(map(kSegmentBytes + kHugePage, PROT_NONE));
  const auto address = reinterpret_cast<uintptr_t>(from);
  const size_t before = (kHugePage - address % kHugePage) % kHugePage;
  if (before > 0) munmap(from, before);
  munmap(from + before + kSegmentBytes, kHugePage - before);
  segments_[index] = {address + before - index * kSegmentBytes, slabs.release(), from + before};
  num_segments_ = index + 1;
}

uint32_t BlockHeap::take_slab(size_t size_class, size_t lane) {
  std::lock_guard lock(mutex_);
  if (segments_ == nullptr) {
    segments_ = static_cast<Segment*>(map(kSegments * sizeof(Segment), PROT_READ | PROT_WRITE));
  }
  uint32_t taken = free_slabs_;
  if (taken != 0) {
    free_slabs_ = slab(taken).next;
  } else {
    taken = used_slabs_;
    const size_t segment = taken / kSlabsPerSegment;
    if (segment == kSegments) throw std::bad_alloc();
    if (segment == num_segments_) add_segment(segment);
    if ((size_t{taken} + 1) * kSlabBytes > accessible_) {
      // Small steps at first, so that a small graph takes little memory.
      const size_t growth = std::clamp(accessible_, kFirstGrowth, kSegmentBytes - accessible_ % kSegmentBytes);
      unsigned char* const from = segments_[segment].base + accessible_ % kSegmentBytes;
      if (mprotect(from, growth, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
      // Blocks are accessed at random: without huge pages nearly every access costs a TLB miss in addition to the cache
      // miss.
      if (growth >= kHugePage) madvise(from, growth, MADV_HUGEPAGE);
      accessible_ += growth;
    }
    ++used_slabs_;
  }
  slab(taken) = {};
  slab(taken).size_class = static_cast<uint16_t>(size_class);
  slab(taken).lane = static_cast<uint16_t>(lane);
  return taken;
}

uint16_t* BlockHeap::link(uint32_t slab, uint32_t place) const {
  return static_cast<uint16_t*>(at(static_cast<BlockRef>(slab * kSlabGranules + place)));
}

// `open` inserts a slab with free blocks into the list of its lane and class; `close` removes it.
void BlockHeap::open(uint32_t i) noexcept {
  Bin& bin = lanes_[slab(i).lane].bins[slab(i).size_class];
  slab(i).next = bin.open;
  slab(i).previous = 0;
  if (bin.open != 0) slab(bin.open).previous = i;
  bin.open = i;
}

void BlockHeap::close(uint32_t i) noexcept {
  Bin& bin = lanes_[slab(i).lane].bins[slab(i).size_class];
  (slab(i).previous != 0 ? slab(slab(i).previous).next : bin.open) = slab(i).next;
  if (slab(i).next != 0) slab(slab(i).next).previous = slab(i).previous;
}

BlockRef BlockHeap::allocate(size_t bytes, size_t lane) {
  assert(bytes <= kMaxBlock && lane < lanes_.size());
  const size_t size_class = class_of(bytes);
  Bin& bin = lanes_[lane].bins[size_class];
  if (bin.open != 0) {
    Slab& from = slab(bin.open);
    const uint32_t place = from.free - 1u;
    const auto ref = static_cast<BlockRef>(bin.open * kSlabGranules + place);
    from.free = *link(bin.open, place);
    ++from.live;
    lanes_[lane].live += class_bytes(size_class);
    if (from.free == 0) close(bin.open);
    // The next block will be written to soon.
    if (bin.open != 0) __builtin_prefetch(link(bin.open, slab(bin.open).free - 1u), 1);
    return ref;
  }
  if (bin.slab == 0 || slab(bin.slab).handed == blocks_per_slab(size_class)) bin.slab = take_slab(size_class, lane);
  Slab& from = slab(bin.slab);
  const size_t offset = from.handed * class_bytes(size_class);
  ++from.handed;
  ++from.live;
  lanes_[lane].live += class_bytes(size_class);
  lanes_[lane].handed += class_bytes(size_class);
  return static_cast<BlockRef>(bin.slab * kSlabGranules + offset / kGranule);
}

void BlockHeap::free(BlockRef ref) noexcept {
  const uint32_t index = slab_of(ref);
  Slab& from = slab(index);
  assert(ref != 0 && from.live > 0);
  const auto place = static_cast<uint32_t>(ref % kSlabGranules);
  *link(index, place) = from.free;
  if (from.free == 0 && !from.sparse) open(index);
  from.free = static_cast<uint16_t>(place + 1);
  lanes_[from.lane].live -= class_bytes(from.size_class);
  --from.live;
}

size_t BlockHeap::size_of(BlockRef ref) const { return class_bytes(slab(slab_of(ref)).size_class); }

size_t BlockHeap::live_bytes() const {
  size_t bytes = 0;
  for (const Lane& lane : lanes_) bytes += lane.live;
  return bytes;
}

size_t BlockHeap::free_bytes() const {
  size_t handed = 0;
  for (const Lane& lane : lanes_) handed += lane.handed;
  return handed - live_bytes();
}

size_t BlockHeap::resident_bytes() const {
  constexpr size_t kPage = 4096;
  size_t bytes = num_segments_ * kSlabsPerSegment * sizeof(Slab);
  if (segments_ != nullptr) bytes += (num_segments_ * sizeof(Segment) / kPage + 1) * kPage;
  for (const Lane& lane : lanes_) bytes += lane.handed + lane.bins.capacity() * sizeof(Bin);
  return bytes;
}

size_t BlockHeap::reserved_bytes() const {
  return num_segments_ * kSegmentBytes + (segments_ != nullptr ? kSegments * sizeof(Segment) : 0);
}

bool BlockHeap::mark_sparse() {
  // The slabs of each class, of all lanes, sorted by how full they are.
  std::vector<std::vector<uint32_t>> by_class(kNumClasses);
  for (uint32_t i = 1; i < used_slabs_; ++i) {
    if (slab(i).handed > 0) by_class[slab(i).size_class].push_back(i);
  }
  bool any = false;
  for (size_t c = 0; c < kNumClasses; ++c) {
    auto& slabs = by_class[c];
    size_t live = 0;
    for (uint32_t i : slabs) live += slab(i).live;
    const size_t per_slab = c == 0 ? 1 : blocks_per_slab(c);
    const size_t kept = (live + per_slab - 1) / per_slab;
    if (slabs.size() <= kept) continue;
    const auto marked = slabs.begin() + static_cast<std::ptrdiff_t>(slabs.size() - kept);
    std::nth_element(slabs.begin(), marked - 1, slabs.end(), [&](uint32_t a, uint32_t b) {
      return slab(a).live != slab(b).live ? slab(a).live < slab(b).live : a < b;
    });
    for (auto i = slabs.begin(); i != marked; ++i) {
      // No block may be allocated from a marked slab.
      if (slab(*i).free != 0) close(*i);
      slab(*i).sparse = any = true;
    }
  }
  for (Lane& lane : lanes_) {
    for (Bin& bin : lane.bins) {
      if (any && bin.slab != 0 && slab(bin.slab).sparse) bin.slab = 0;
    }
  }
  first_sparse_ = 1;
  return any;
}

BlockRef BlockHeap::copy(BlockRef ref) {
  const Slab& from = slab(slab_of(ref));
  const size_t bytes = class_bytes(from.size_class);
  size_t lane = from.lane;
  for (size_t i = 0; i < lanes_.size() && lanes_[lane].bins[from.size_class].open == 0; ++i) {
    lane = (lane + 1) % lanes_.size();
  }
  const BlockRef to = allocate(bytes, lane);
  std::memcpy(at(to), at(ref), bytes);
  return to;
}

void BlockHeap::release(uint32_t i) noexcept {
  lanes_[slab(i).lane].handed -= slab(i).handed * class_bytes(slab(i).size_class);
  slab(i) = {};
  // Return the pages to the system: a free slab takes address space, not memory.
  madvise(segments_[i / kSlabsPerSegment].base + i % kSlabsPerSegment * kSlabBytes, kSlabBytes, MADV_DONTNEED);
  slab(i).next = free_slabs_;
  free_slabs_ = i;
}

bool BlockHeap::reclaim(size_t* most) noexcept {
  for (; first_sparse_ < used_slabs_; ++first_sparse_) {
    const uint32_t i = first_sparse_;
    if (!slab(i).sparse) continue;
    if (most != nullptr && (*most)-- == 0) return *most = 0, false;
    if (slab(i).live == 0) {
      release(i);
      continue;
    }
    slab(i).sparse = false;
    if (slab(i).free != 0) open(i);
  }
  return true;
}

}  // namespace livegnn
