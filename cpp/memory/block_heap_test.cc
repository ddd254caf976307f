#include "memory/block_heap.h"

#include <cstring>
#include <map>
#include <thread>

#include "testing/testing.h"

namespace livegnn::block_heap_test {
namespace {

using testing::Random;

struct Block {
  size_t bytes;
  unsigned char fill;
};

void write(BlockHeap* heap, BlockRef ref, Block block) { std::memset(heap->at(ref), block.fill, block.bytes); }

void check_block(const BlockHeap& heap, BlockRef ref, Block block) {
  const auto* bytes = static_cast<const unsigned char*>(heap.at(ref));
  for (size_t i = 0; i < block.bytes; ++i) CHECK_EQ(bytes[i], block.fill);
}

size_t random_size(Random* random) { return 1 + random->index(random->chance(0.05) ? BlockHeap::kMaxBlock : 900); }

}  // namespace

TEST(block_heap_blocks_do_not_overlap) {
  Random random;
  BlockHeap heap;
  heap.add_lanes(3);
  std::map<BlockRef, Block> blocks;
  size_t bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (blocks.empty() || random.chance(0.55)) {
      const Block block{random_size(&random), static_cast<unsigned char>(random.index(256))};
      const size_t lane = random.index(3);
      const BlockRef ref = heap.allocate(block.bytes, lane);
      CHECK(ref != 0);
      CHECK_EQ(heap.lane_of(ref), lane);
      CHECK(blocks.emplace(ref, block).second);
      write(&heap, ref, block);
      bytes += block.bytes;
    } else {
      auto at = blocks.lower_bound(random.index(blocks.rbegin()->first + 1));
      check_block(heap, at->first, at->second);
      heap.free(at->first);
      bytes -= at->second.bytes;
      blocks.erase(at);
    }
    CHECK(heap.live_bytes() >= bytes);
  }
  for (const auto& [ref, block] : blocks) check_block(heap, ref, block);
  CHECK(static_cast<double>(heap.live_bytes()) <
        1.03 * static_cast<double>(bytes) + 8.0 * static_cast<double>(blocks.size()));
}

TEST(block_heap_hands_out_again_what_was_freed) {
  BlockHeap heap;
  const BlockRef first = heap.allocate(100, 0);
  heap.free(first);
  CHECK_EQ(heap.allocate(100, 0), first);
  CHECK_EQ(heap.live_bytes(), 104u);
}

TEST(block_heap_compacts) {
  Random random;
  BlockHeap heap;
  heap.add_lanes(2);
  std::map<BlockRef, Block> blocks;
  for (int i = 0; i < 40'000; ++i) {
    const Block block{100 + 40 * random.index(10), static_cast<unsigned char>(random.index(256))};
    const BlockRef ref = heap.allocate(block.bytes, random.index(2));
    write(&heap, ref, block);
    blocks.emplace(ref, block);
  }
  std::erase_if(blocks, [&](const auto& entry) {
    if (!random.chance(0.9)) return false;
    heap.free(entry.first);
    return true;
  });
  const size_t before = heap.free_bytes();
  CHECK(heap.mark_sparse());
  std::map<BlockRef, Block> moved;
  for (const auto& [ref, block] : blocks) {
    if (!heap.in_sparse(ref)) {
      moved.emplace(ref, block);
      continue;
    }
    const BlockRef to = heap.copy(ref);
    CHECK(!heap.in_sparse(to));
    check_block(heap, ref, block);  // readers may be there still
    moved.emplace(to, block);
    heap.free(ref);
  }
  heap.reclaim();
  CHECK_EQ(moved.size(), blocks.size());
  CHECK(heap.free_bytes() < before / 2);
  for (const auto& [ref, block] : moved) check_block(heap, ref, block);
  // What was given back goes out again, and does not overlap.
  for (int i = 0; i < 10'000; ++i) {
    const Block block{100 + 40 * random.index(10), static_cast<unsigned char>(random.index(256))};
    const BlockRef ref = heap.allocate(block.bytes, 0);
    CHECK(moved.emplace(ref, block).second);
    write(&heap, ref, block);
  }
  for (const auto& [ref, block] : moved) check_block(heap, ref, block);
}

TEST(block_heap_lanes_allocate_at_once) {
  BlockHeap heap;
  heap.add_lanes(4);
  std::vector<std::vector<BlockRef>> refs(4);
  std::vector<std::thread> threads;
  for (size_t lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      for (size_t i = 0; i < 20'000; ++i) {
        refs[lane].push_back(heap.allocate(8 + i % 500, lane));
        std::memset(heap.at(refs[lane].back()), static_cast<int>(lane), 8 + i % 500);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t lane = 0; lane < 4; ++lane) {
    for (size_t i = 0; i < refs[lane].size(); ++i) {
      check_block(heap, refs[lane][i], {8 + i % 500, static_cast<unsigned char>(lane)});
    }
  }
}

}  // namespace livegnn::block_heap_test
