// A peer: the block-based key-value store with CSTables that the paper calls PlatoGL, as sections I, II-B and IV
// describe it.
//
//   blocks:  {node, edge type, block number} ─► | size | ids .. | cumulative weights .. |     up to 256 neighbours
//   index:   node ─► degree, cumulative weights of its blocks
//
// A neighbour is looked for in one block after the other, each found by its key; a new one is appended to the last. A
// draw by weight is a binary search over the sums of the blocks, a look-up, and one in the block's CSTable.
//
// Beyond the paper: the last neighbour of all takes the place of one that is removed, so that every block but the last
// is full, and neighbour i is in block i / 256; a block grows by half, and sits in one piece of memory.
//
// Invariants: every block but a node's last is full, and none is empty; ids of a node are distinct.
// Thread safety: any number of readers, or one writer.
#pragma once

#include <tsl/robin_map.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "batch.h"
#include "cs_table.h"
#include "hashing/mix_hash.h"

namespace livegnn::bench {

class BlockStorePeer {
  static constexpr uint32_t kBlockSize = 256;

  struct Key {
    uint64_t node;
    uint32_t edge_type;
    uint32_t number;
    bool operator==(const Key&) const = default;
  };
  static_assert(sizeof(Key) == 16);
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return MixHash()(MixHash()(key.node) + (uint64_t{key.edge_type} << 32) + key.number);
    }
  };

  // | size, capacity | ids | sums, if weighted |
  class Block {
   public:
    uint32_t size() const { return data_ == nullptr ? 0 : data_[0]; }
    const uint32_t* ids() const { return data_.get() + 2; }
    const float* sums() const { return reinterpret_cast<const float*>(ids() + data_[1]); }
    uint32_t* ids() { return data_.get() + 2; }
    float* sums() { return reinterpret_cast<float*>(ids() + data_[1]); }
    const void* memory() const { return data_.get(); }

    void append(uint32_t id, float weight, bool weighted) {
      const uint32_t n = size();
      if (data_ == nullptr || n == data_[1]) grow(weighted);
      ids()[n] = id;
      if (weighted) sums()[n] = CSTable::next(sums(), n, weight);
      data_[0] = n + 1;
    }
    void pop() { --data_[0]; }

   private:
    struct Free {
      void operator()(uint32_t* data) const { std::free(data); }
    };

    void grow(bool weighted) {
      const uint32_t n = size();
      const uint32_t capacity = n == 0 ? 4 : std::min(kBlockSize, n + n / 2);
      auto* grown = static_cast<uint32_t*>(std::malloc((2 + size_t{capacity} * (weighted ? 2 : 1)) * sizeof(uint32_t)));
      if (grown == nullptr) throw std::bad_alloc();
      grown[0] = n;
      grown[1] = capacity;
      if (n > 0) {
        std::copy_n(ids(), n, grown + 2);
        if (weighted) std::copy_n(sums(), n, reinterpret_cast<float*>(grown + 2 + capacity));
      }
      data_.reset(grown);
    }

    std::unique_ptr<uint32_t[], Free> data_;
  };

  struct Node {
    uint32_t degree = 0;
    std::vector<double> sums;  // of its blocks, cumulative
  };

 public:
  BlockStorePeer(Share share, size_t /*nodes*/, bool weighted) : share_(share), weighted_(weighted) {}

  // Nothing can be built aside: the blocks are changed in place.
  void prepare(const Batch&) {}

  void commit(const Batch& batch) {
    for (size_t i = 0; i < batch.size; ++i) {
      if (!share_.holds(batch.sources[i])) continue;
      if (batch.removes(i)) {
        remove(batch.sources[i], batch.targets[i]);
      } else {
        upsert(batch.sources[i], batch.targets[i], batch.weight(i));
      }
    }
  }

  size_t num_edges() const { return num_edges_; }

  size_t bytes() const {
    size_t total = bucket_bytes(blocks_) + bucket_bytes(index_);
    for (const auto& [key, block] : blocks_) total += heap_bytes(block.memory());
    for (const auto& [node, entry] : index_) total += heap_bytes(entry.sums);
    return total;
  }

  class View {
   public:
    View(const BlockStorePeer* peer, uint32_t id, const Node* node) : peer_(peer), id_(id), node_(node) {}
    uint32_t degree() const { return node_ == nullptr ? 0 : node_->degree; }
    float total() const { return static_cast<float>(node_->sums.back()); }
    uint32_t at(uint32_t i) const { return peer_->block(id_, i / kBlockSize).ids()[i % kBlockSize]; }
    uint32_t at_weight(float at) const {
      const std::vector<double>& sums = node_->sums;
      const auto found = static_cast<size_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin());
      const size_t number = std::min(found, sums.size() - 1);
      const Block& block = peer_->block(id_, static_cast<uint32_t>(number));
      const double before = number == 0 ? 0.0 : sums[number - 1];
      return block.ids()[CSTable::find(block.sums(), block.size(), static_cast<float>(at - before))];
    }
    template <class Visit>
    void scan(Visit&& visit) const {
      for (uint32_t number = 0; number * kBlockSize < degree(); ++number) {
        const Block& block = peer_->block(id_, number);
        for (uint32_t i = 0; i < block.size(); ++i) {
          visit(block.ids()[i], peer_->weighted_ ? CSTable::weight(block.sums(), i) : 1.0f);
        }
      }
    }

   private:
    const BlockStorePeer* peer_;
    uint32_t id_;
    const Node* node_;
  };

  View view(uint32_t node) const {
    const auto found = index_.find(node);
    return View(this, node, found == index_.end() ? nullptr : &found->second);
  }

 private:
  using Blocks = tsl::robin_map<Key, Block, KeyHash>;
  using Index = tsl::robin_map<uint32_t, Node, MixHash>;

  static Key key_of(uint32_t node, uint32_t number) { return {node, 0, number}; }
  const Block& block(uint32_t node, uint32_t number) const { return blocks_.find(key_of(node, number))->second; }
  Block& block(uint32_t node, uint32_t number) { return blocks_.find(key_of(node, number)).value(); }

  struct Place {
    uint32_t number;  // as many as there are blocks: it is not there
    uint32_t at;
  };
  Place place_of(uint32_t source, uint32_t degree, uint32_t target) const {
    uint32_t number = 0;
    for (; number * kBlockSize < degree; ++number) {
      const Block& searched = block(source, number);
      const size_t at = find_id(searched.ids(), searched.size(), target);
      if (at < searched.size()) return {number, static_cast<uint32_t>(at)};
    }
    return {number, 0};
  }

  static void add_to_sums(Node* node, size_t number, double change) {
    for (; number < node->sums.size(); ++number) node->sums[number] += change;
  }

  void set_weight(Node* node, Place place, Block* block, float weight) {
    add_to_sums(node, place.number, double{weight} - CSTable::weight(block->sums(), place.at));
    CSTable::update(block->sums(), block->size(), place.at, weight);
  }

  void upsert(uint32_t source, uint32_t target, float weight) {
    Node& node = index_[source];
    const Place place = place_of(source, node.degree, target);
    if (place.number * kBlockSize < node.degree) {
      if (weighted_) set_weight(&node, place, &block(source, place.number), weight);
      return;
    }
    const uint32_t number = node.degree / kBlockSize;
    if (weighted_ && number == node.sums.size()) node.sums.push_back(number == 0 ? 0.0 : node.sums.back());
    blocks_[key_of(source, number)].append(target, weight, weighted_);
    if (weighted_) node.sums.back() += weight;
    ++node.degree;
    ++num_edges_;
  }

  void remove(uint32_t source, uint32_t target) {
    const auto found = index_.find(source);
    if (found == index_.end()) return;
    Node& node = found.value();
    const Place place = place_of(source, node.degree, target);
    if (place.number * kBlockSize >= node.degree) return;
    const uint32_t last_number = (node.degree - 1) / kBlockSize;
    Block& last = block(source, last_number);
    const uint32_t end = last.size() - 1;
    const float moved = weighted_ ? CSTable::weight(last.sums(), end) : 1.0f;
    Block& hole = block(source, place.number);
    if (place.number != last_number || place.at != end) {
      hole.ids()[place.at] = last.ids()[end];
      if (weighted_) set_weight(&node, place, &hole, moved);
    }
    if (weighted_) node.sums.back() -= moved;
    last.pop();
    if (end == 0) {
      blocks_.erase(key_of(source, last_number));
      if (weighted_) node.sums.pop_back();
    }
    --node.degree;
    --num_edges_;
    if (node.degree == 0) index_.erase(found);
  }

  Share share_;
  bool weighted_;
  Blocks blocks_;
  Index index_;
  size_t num_edges_ = 0;
};

}  // namespace livegnn::bench
