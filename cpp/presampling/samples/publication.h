// What sampling workers tell serving workers, and each other, as blocks of bytes. docs/internals/presampling.md
// describes them byte by byte.
//
//   block   | header, 40 bytes: version, sender, receiver, sequence, sizes, checksum | record | record | ..
//
//   to a serving worker      the sample of (query, node); that it is needed no more; a node's features, or no more
//   to a sampling worker     a node occurs so many times more, or less, in the samples of a query that a serving worker
//                            has: so it needs the node's features, and its samples for the query's children
//
// A sample and a row of features are told whole, so a record says all there is to say of its node, and the last one of
// several is right. Blocks of one sender to one receiver are numbered: who reads them notices what is lost or there
// twice.
//
// Invariants: numbers are little-endian; records begin at multiples of 8 bytes; a block is read whole or not at all.
// Thread safety: a writer belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "presampling/tables/cell_heap.h"

namespace livegnn {

enum class RecordKind : uint8_t { kSample = 1, kNoSample = 2, kFeatures = 3, kNoFeatures = 4, kReference = 5 };

struct BlockHeader {
  static constexpr uint32_t kMagic = 0x5053474c;  // "LGSP"
  static constexpr uint32_t kVersion = 1;

  uint32_t magic = kMagic, version = kVersion;
  uint32_t sender = 0, receiver = 0;
  uint64_t sequence = 0;  // of the blocks from this sender to this receiver, from 0
  uint32_t bytes = 0;     // of the records
  uint32_t records = 0;
  uint64_t checksum = 0;  // of the header before it and the records
};
static_assert(sizeof(BlockHeader) == 40);

inline constexpr size_t kRecordHeader = 16;  // bytes: two words, of which the second is the node

// As it is read; columns that are absent are null. Pointers are good while the block's bytes are.
struct Record {
  RecordKind kind;
  uint32_t what;  // a one-hop query, or a node type
  uint64_t node;
  CellView sample;                  // kSample; without priorities
  std::span<const float> features;  // kFeatures
  uint32_t worker = 0;              // kReference: a serving worker
  int64_t change = 0;               // kReference
};

// Of whole words. Any difference in one word is noticed, and all others but one in 2^64.
uint64_t checksum_of(const uint64_t* words, size_t size, uint64_t seed);

// Memory that grows, and is not zeroed first.
class ByteBuffer {
 public:
  size_t size() const { return size_; }
  uint8_t* data() { return reinterpret_cast<uint8_t*>(words_.get()); }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(words_.get()); }
  size_t capacity() const { return capacity_; }
  // Makes room for so many more bytes. If it throws std::bad_alloc, nothing has changed.
  void reserve(size_t bytes) {
    if (size_ + bytes > capacity_) grow(size_ + bytes);
  }
  // So many more bytes, a multiple of 8. If it throws std::bad_alloc, nothing has changed.
  uint8_t* append(size_t bytes) {
    if (size_ + bytes > capacity_) [[unlikely]]
      grow(size_ + bytes);
    return data() + std::exchange(size_, size_ + bytes);
  }
  void resize_down(size_t size) { size_ = size; }

  static constexpr size_t kSpare = 32;  // bytes that can be written past the end, and have no meaning

 private:
  void grow(size_t bytes) {
    const size_t capacity = std::max({bytes, 2 * capacity_, size_t{4096}});
    auto words = std::make_unique_for_overwrite<uint64_t[]>((capacity + kSpare) / sizeof(uint64_t) + 1);
    if (size_ > 0) std::memcpy(words.get(), words_.get(), size_);
    words_ = std::move(words);
    capacity_ = capacity;
  }

  std::unique_ptr<uint64_t[]> words_;
  size_t size_ = 0, capacity_ = 0;
};

// Writes the blocks for one receiver.
class PublicationWriter {
 public:
  PublicationWriter(uint32_t sender, uint32_t receiver) : sender_(sender), receiver_(receiver) {}

  // Each appends one record. If one throws std::bad_alloc, nothing has changed.
  void sample(uint32_t query, uint64_t node, const CellFormat& format, const CellView& cell);
  // A sample of ids alone.
  void sample_of_ids(uint32_t query, uint64_t node, const CellFormat& format, const CellView& cell) {
    const uint32_t size = cell.size, room = format.room(size);
    auto* const to =
        reinterpret_cast<uint64_t*>(record(RecordKind::kSample, 0, query, size, node, size * sizeof(uint64_t)));
    // Four ids at once, of which the last may not be the sample's: the room is theirs, and the buffer has some to
    // spare.
    uint32_t i = 0;
    for (; i < size && i + 4 <= room; i += 4) std::memcpy(to + i, cell.ids + i, 4 * sizeof(uint64_t));
    for (; i < size; ++i) to[i] = cell.ids[i];
  }
  void no_sample(uint32_t query, uint64_t node) { record(RecordKind::kNoSample, 0, query, 0, node, 0); }
  void features(uint32_t node_type, uint64_t node, std::span<const float> row);
  void no_features(uint32_t node_type, uint64_t node) { record(RecordKind::kNoFeatures, 0, node_type, 0, node, 0); }
  void reference(uint32_t query, uint64_t node, uint32_t worker, int64_t change);

  // Completes the last block. `bytes` are then whole blocks, which `clear` forgets.
  void finish();
  std::span<const uint8_t> bytes() const { return {buffer_.data(), buffer_.size()}; }
  void clear() noexcept;

  // The record that was written last, until the next one.
  std::span<const uint8_t> last_record() const { return bytes().subspan(last_); }

  uint64_t next_sequence() const { return sequence_; }
  void set_next_sequence(uint64_t sequence) { sequence_ = sequence; }
  size_t records_written() const { return completed_ + records_; }

 private:
  static constexpr size_t kMaxBlock = size_t{1} << 20;  // bytes of records after which a block ends

  // The first word of a record: kind, columns, query or node type, size.
  static uint64_t first_word(RecordKind kind, uint8_t columns, uint32_t what, uint32_t size) {
    return static_cast<uint64_t>(kind) | uint64_t{columns} << 8 | uint64_t{what & 0xffff} << 16 | uint64_t{size} << 32;
  }
  // Begins a record, of which `more` bytes are to be written.
  uint8_t* record(RecordKind kind, uint8_t columns, uint32_t what, uint32_t size, uint64_t node, size_t more) {
    if (buffer_.size() >= full_) [[unlikely]]
      begin_block(kRecordHeader + more);
    uint8_t* const at = buffer_.append(kRecordHeader + more);
    last_ = static_cast<size_t>(at - buffer_.data());
    const uint64_t words[2] = {first_word(kind, columns, what, size), node};
    std::memcpy(at, words, kRecordHeader);
    ++records_;
    return at + kRecordHeader;
  }
  // Ends the open block, and begins one whose first record takes so many bytes.
  void begin_block(size_t bytes);

  uint32_t sender_, receiver_;
  ByteBuffer buffer_;
  size_t last_ = 0;       // where the last record begins
  size_t block_ = 0;      // where the open block begins
  size_t full_ = 0;       // from which size of the buffer on a record begins another block; 0: none is open
  uint32_t records_ = 0;  // in the open block
  uint64_t sequence_ = 0;
  size_t completed_ = 0;  // records of the blocks before
};

// A block, checked: its header, its checksum and the bounds of its records. Throws std::runtime_error that says what is
// wrong.
class PublishedBlock {
 public:
  // Reads the block at the beginning of `bytes`, which must be aligned to 8, and leaves what follows it in `*bytes`.
  static PublishedBlock read(std::span<const uint8_t>* bytes);

  // One record alone. Throws std::runtime_error if the bytes are none.
  static Record read_record(std::span<const uint8_t> bytes);

  const BlockHeader& header() const { return header_; }
  // `visit(const Record&)`, in their order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const uint8_t* at = begin_; at != end_;) {
      const Parsed parsed = parse(at);
      visit(parsed.record);
      at += parsed.bytes;
    }
  }

 private:
  struct Parsed {
    Record record;
    size_t bytes;
  };
  static size_t size_of(uint64_t first_word);  // 0: no record
  static Parsed parse(const uint8_t* at);

  BlockHeader header_;
  const uint8_t *begin_ = nullptr, *end_ = nullptr;
};

// The order of the blocks of several senders.
class BlockOrder {
 public:
  explicit BlockOrder(size_t senders) : next_(senders) {}

  // Whether this block is the next of its sender: false if it was there before. Throws std::runtime_error if the sender
  // is unknown, or blocks before it are missing.
  bool is_next(const BlockHeader& header) const;
  void passed(const BlockHeader& header) { ++next_[header.sender]; }
  std::vector<uint64_t>& next() { return next_; }
  const std::vector<uint64_t>& next() const { return next_; }

 private:
  std::vector<uint64_t> next_;
};

}  // namespace livegnn
