#include "livegnn/block_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace livegnn {
namespace {

// Classes are 8 bytes apart up to 1 KiB, then 64 to each doubling: rounding up costs at most a sixty-fourth.
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

constexpr size_t kReserved = size_t{1} << 35;  // all that 32 bits of 8 bytes can name
constexpr size_t kGrowth = size_t{16} << 20;
constexpr size_t kHugePage = size_t{2} << 20;

size_t blocks_per_slab(size_t size_class) { return BlockHeap::kSlabBytes / class_bytes(size_class); }

BlockRef first_block(size_t slab) {
  return static_cast<BlockRef>(slab * (BlockHeap::kSlabBytes / BlockHeap::kGranule));
}

}  // namespace

size_t BlockHeap::rounded(size_t bytes) { return class_bytes(class_of(bytes)); }

BlockHeap::BlockHeap() : lanes_(1) { lanes_[0].bins.resize(kNumClasses); }

BlockHeap::~BlockHeap() {
  if (range_ != nullptr) munmap(range_, kReserved + kHugePage);
  if (slabs_ != nullptr) munmap(slabs_, kReserved / kSlabBytes * sizeof(Slab));
}

void BlockHeap::add_lanes(size_t lanes) {
  while (lanes_.size() < lanes) lanes_.emplace_back().bins.resize(kNumClasses);
}

uint32_t BlockHeap::take_slab(size_t size_class, size_t lane) {
  std::lock_guard lock(mutex_);
  if (base_ == nullptr) {
    // Addresses only: pages become memory when they are touched.
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* slabs = mmap(nullptr, kReserved / kSlabBytes * sizeof(Slab), PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (slabs == MAP_FAILED) throw std::bad_alloc();
    slabs_ = static_cast<Slab*>(slabs);
    void* range = mmap(nullptr, kReserved + kHugePage, PROT_NONE, kFlags, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    range_ = range;
    base_ =
        reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(range) + kHugePage - 1) / kHugePage * kHugePage);
    reserved_ = kReserved;
  }
  uint32_t slab;
  if (!free_slabs_.empty()) {
    slab = free_slabs_.back();
    free_slabs_.pop_back();
  } else {
    if ((used_slabs_ + 1) * kSlabBytes > reserved_) throw std::bad_alloc();
    if ((used_slabs_ + 1) * kSlabBytes > accessible_) {
      const size_t growth = std::min(kGrowth, reserved_ - accessible_);
      if (mprotect(base_ + accessible_, growth, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
      // Blocks are met at random: without huge pages nearly each costs a miss in the TLB beside the one in the cache.
      madvise(base_ + accessible_, growth, MADV_HUGEPAGE);
      accessible_ += growth;
    }
    slab = static_cast<uint32_t>(used_slabs_++);
  }
  slabs_[slab] = {static_cast<uint16_t>(size_class), static_cast<uint16_t>(lane), 0, 0, false};
  return slab;
}

BlockRef BlockHeap::allocate(size_t bytes, size_t lane) {
  const size_t size_class = class_of(bytes);
  Bin& bin = lanes_[lane].bins[size_class];
  lanes_[lane].live += class_bytes(size_class);
  if (!bin.free.empty()) {
    const BlockRef ref = bin.free.back();
    bin.free.pop_back();
    ++slabs_[slab_of(ref)].live;
    return ref;
  }
  if (bin.slab == 0 || slabs_[bin.slab].handed == blocks_per_slab(size_class)) bin.slab = take_slab(size_class, lane);
  Slab& slab = slabs_[bin.slab];
  const size_t offset = slab.handed * class_bytes(size_class);
  ++slab.handed;
  ++slab.live;
  lanes_[lane].handed += class_bytes(size_class);
  return first_block(bin.slab) + static_cast<BlockRef>(offset / kGranule);
}

void BlockHeap::free(BlockRef ref) {
  Slab& slab = slabs_[slab_of(ref)];
  Lane& lane = lanes_[slab.lane];
  if (!slab.sparse) lane.bins[slab.size_class].free.push_back(ref);
  lane.live -= class_bytes(slab.size_class);
  --slab.live;
}

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
  size_t bytes = base_ == nullptr ? 0 : used_slabs_ * sizeof(Slab);
  for (const Lane& lane : lanes_) {
    bytes += lane.handed + lane.bins.capacity() * sizeof(Bin);
    for (const Bin& bin : lane.bins) bytes += bin.free.capacity() * sizeof(BlockRef);
  }
  return bytes;
}

bool BlockHeap::mark_sparse() {
  // Slabs of a class, whoever's they are, by how full they are.
  std::vector<std::vector<uint32_t>> by_class(kNumClasses);
  for (uint32_t i = 1; i < used_slabs_; ++i) {
    if (slabs_[i].handed > 0) by_class[slabs_[i].size_class].push_back(i);
  }
  bool any = false;
  for (size_t c = 0; c < kNumClasses; ++c) {
    auto& slabs = by_class[c];
    size_t live = 0;
    for (uint32_t i : slabs) live += slabs_[i].live;
    const size_t per_slab = c == 0 ? 1 : blocks_per_slab(c);
    const size_t kept = (live + per_slab - 1) / per_slab;
    if (slabs.size() <= kept) continue;
    std::sort(slabs.begin(), slabs.end(), [&](uint32_t a, uint32_t b) {
      return slabs_[a].live != slabs_[b].live ? slabs_[a].live < slabs_[b].live : a < b;
    });
    for (size_t i = 0; i < slabs.size() - kept; ++i) slabs_[slabs[i]].sparse = any = true;
  }
  if (!any) return false;
  // No block may go out from a marked slab any more.
  for (Lane& lane : lanes_) {
    for (Bin& bin : lane.bins) {
      std::erase_if(bin.free, [&](BlockRef ref) { return in_sparse(ref); });
      if (bin.slab != 0 && slabs_[bin.slab].sparse) bin.slab = 0;
    }
  }
  return true;
}

BlockRef BlockHeap::copy(BlockRef ref) {
  const Slab& from = slabs_[slab_of(ref)];
  const size_t bytes = class_bytes(from.size_class);
  size_t lane = from.lane;
  for (size_t i = 0; i < lanes_.size() && lanes_[lane].bins[from.size_class].free.empty(); ++i) {
    lane = (lane + 1) % lanes_.size();
  }
  const BlockRef to = allocate(bytes, lane);
  std::memcpy(at(to), at(ref), bytes);
  return to;
}

void BlockHeap::reclaim() {
  for (uint32_t i = 1; i < used_slabs_; ++i) {
    if (!slabs_[i].sparse) continue;
    if (slabs_[i].live > 0) {
      slabs_[i].sparse = false;
      continue;
    }
    lanes_[slabs_[i].lane].handed -= slabs_[i].handed * class_bytes(slabs_[i].size_class);
    slabs_[i] = {};
    // The pages go back to the system: a free slab costs addresses, not memory.
    madvise(base_ + i * kSlabBytes, kSlabBytes, MADV_DONTNEED);
    free_slabs_.push_back(i);
  }
  for (Lane& lane : lanes_) {
    for (Bin& bin : lane.bins) {
      if (bin.free.capacity() > 64 && bin.free.capacity() > 4 * bin.free.size()) bin.free.shrink_to_fit();
    }
  }
}

}  // namespace livegnn
