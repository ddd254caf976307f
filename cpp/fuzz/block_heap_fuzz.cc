#include <cstring>
#include <iterator>
#include <map>

#include "fuzz/fuzz.h"
#include "memory/block_heap.h"

namespace livegnn {
namespace {

struct Block {
  size_t bytes;
  uint8_t fill;
  size_t lane;
};
using Blocks = std::map<BlockRef, Block>;

constexpr size_t kLanes = 3;

// The ends of a block tell of an overlap as well as all of it, and are quicker to read.
size_t looked_at(size_t bytes) { return bytes < 64 ? bytes : 64; }

void fill(BlockHeap* heap, BlockRef ref, const Block& block) {
  auto* to = static_cast<uint8_t*>(heap->at(ref));
  std::memset(to, block.fill, looked_at(block.bytes));
  std::memset(to + block.bytes - looked_at(block.bytes), block.fill, looked_at(block.bytes));
}

void check_block(const BlockHeap& heap, BlockRef ref, const Block& block) {
  const auto* from = static_cast<const uint8_t*>(heap.at(ref));
  for (size_t i = 0; i < looked_at(block.bytes); ++i) {
    CHECK_EQ(from[i], block.fill);
    CHECK_EQ(from[block.bytes - 1 - i], block.fill);
  }
}

void check(const BlockHeap& heap, const Blocks& blocks) {
  size_t live = 0;
  for (auto at = blocks.begin(); at != blocks.end(); ++at) {
    const auto [ref, block] = *at;
    const size_t bytes = BlockHeap::rounded(block.bytes);
    live += bytes;
    check_block(heap, ref, block);
    const size_t first = ref * BlockHeap::kGranule, end = first + bytes;
    CHECK_EQ(first / BlockHeap::kSlabBytes, (end - 1) / BlockHeap::kSlabBytes);
    if (std::next(at) != blocks.end()) CHECK(end <= std::next(at)->first * BlockHeap::kGranule);
    CHECK_EQ(heap.lane_of(ref), block.lane);
  }
  CHECK_EQ(heap.live_bytes(), live);
  CHECK(heap.resident_bytes() >= live + heap.free_bytes());
}

void add(BlockHeap* heap, size_t bytes, fuzz::Input* input, Blocks* blocks) {
  const Block block{bytes, static_cast<uint8_t>(1 + blocks->size() % 255), input->below(kLanes)};
  CHECK(BlockHeap::rounded(bytes) >= bytes);
  CHECK(bytes <= 512 ? BlockHeap::rounded(bytes) < bytes + 8 : BlockHeap::rounded(bytes) * 64 <= (bytes + 8) * 65);
  const BlockRef ref = heap->allocate(bytes, block.lane);
  CHECK(ref != 0);
  CHECK(blocks->emplace(ref, block).second);
  fill(heap, ref, block);
}

// As the owner of the blocks does it; where `all` is false some stay, as where the owner gives up half-way.
void compact(BlockHeap* heap, bool all, fuzz::Input* input, Blocks* blocks) {
  if (!heap->mark_sparse()) return;
  Blocks moved;
  std::vector<BlockRef> left;
  for (auto [ref, block] : *blocks) {
    if (heap->in_sparse(ref) && (all || input->byte() % 2 == 0)) {
      const BlockRef to = heap->copy(ref);
      CHECK(!heap->in_sparse(to));
      block.lane = heap->lane_of(to);
      CHECK(moved.emplace(to, block).second);
      left.push_back(ref);
    } else {
      CHECK(moved.emplace(ref, block).second);
    }
  }
  for (const auto& [ref, block] : *blocks) check_block(*heap, ref, block);  // readers may be there still
  for (BlockRef ref : left) heap->free(ref);
  *blocks = std::move(moved);
  heap->reclaim();
  for (const auto& [ref, block] : *blocks) CHECK(!heap->in_sparse(ref));
}

void body(fuzz::Input* input) {
  BlockHeap heap;
  heap.add_lanes(kLanes);
  Blocks blocks;
  while (input->more()) {
    const uint8_t kind = input->byte();
    if (kind < 120) {
      add(&heap, 1 + input->below(1200), input, &blocks);
    } else if (kind < 130) {
      add(&heap, 1 + input->below(BlockHeap::kMaxBlock), input, &blocks);
    } else if (kind < 150) {
      // As many as make several slabs of one class.
      const size_t bytes = 2000 + 64 * (kind % 4);
      for (uint32_t count = input->below(100); count > 0 && blocks.size() < 2000; --count) {
        add(&heap, bytes, input, &blocks);
      }
    } else if (kind < 246 && !blocks.empty()) {
      for (uint32_t count = kind < 220 ? 1 : input->below(100); count > 0 && !blocks.empty(); --count) {
        auto at = blocks.lower_bound(input->below(blocks.rbegin()->first + 1));
        heap.free(at->first);
        blocks.erase(at);
      }
    } else {
      compact(&heap, kind % 2 == 0, input, &blocks);
    }
    check(heap, blocks);
  }
  // After it, what is free is less than a slab for each class that is in use.
  compact(&heap, true, input, &blocks);
  check(heap, blocks);
  std::map<size_t, size_t> classes;
  for (const auto& [ref, block] : blocks) ++classes[BlockHeap::rounded(block.bytes)];
  CHECK(heap.free_bytes() <= (classes.size() + 1) * BlockHeap::kSlabBytes);
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
