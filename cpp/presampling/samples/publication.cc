#include "presampling/samples/publication.h"

#include <algorithm>
#include <bit>

namespace livegnn {
namespace {

static_assert(std::endian::native == std::endian::little, "blocks are written as they lie in memory");

constexpr uint8_t kWeights = 1, kTimes = 2;  // columns of a sample

size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

[[noreturn]] void refuse_block(const std::string& what) { throw std::runtime_error("published block: " + what); }

uint64_t checksum_of_block(const BlockHeader& header, const uint8_t* records) {
  uint64_t words[4];
  std::memcpy(words, &header, sizeof(words));
  return checksum_of(reinterpret_cast<const uint64_t*>(records), header.bytes / 8, checksum_of(words, 4, 0));
}

}  // namespace

uint64_t checksum_of(const uint64_t* words, size_t size, uint64_t seed) {
  // Four sums that do not wait for each other. Each step is a bijection of the sum, and of the word.
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15ULL, kSecond = 0xbf58476d1ce4e5b9ULL;
  uint64_t sums[4] = {seed + 1, seed + 2, seed + 3, seed + 4};
  const auto step = [](uint64_t sum, uint64_t word) { return std::rotl((sum ^ word) * kFirst, 29) * kSecond; };
  size_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (size_t k = 0; k < 4; ++k) sums[k] = step(sums[k], words[i + k]);
  }
  for (; i < size; ++i) sums[i % 4] = step(sums[i % 4], words[i]);
  uint64_t all = size;
  for (uint64_t sum : sums) all = step(all, sum);
  return all ^ (all >> 32);
}

void PublicationWriter::begin_block(size_t bytes) {
  finish();
  buffer_.reserve(sizeof(BlockHeader) + bytes);
  block_ = buffer_.size();
  full_ = block_ + kMaxBlock + 1;
  buffer_.append(sizeof(BlockHeader));
}

void PublicationWriter::sample(uint32_t query, uint64_t node, const CellFormat& format, const CellView& cell) {
  const CellOptions& options = format.options();
  const size_t ids = cell.size * sizeof(uint64_t), times = options.timed ? ids : 0;
  const size_t weights = options.weighted ? padded(cell.size * sizeof(float)) : 0;
  const auto columns = static_cast<uint8_t>((options.weighted ? kWeights : 0) | (options.timed ? kTimes : 0));
  uint8_t* at = record(RecordKind::kSample, columns, query, cell.size, node, ids + times + weights);
  // Ids are few: a loop is shorter than a call.
  for (uint32_t i = 0; i < cell.size; ++i) reinterpret_cast<uint64_t*>(at)[i] = cell.ids[i];
  at += ids;
  for (uint32_t i = 0; options.timed && i < cell.size; ++i, at += sizeof(double)) {
    const double time = format.time_at(cell, i);
    std::memcpy(at, &time, sizeof(time));
  }
  if (weights > 0) {
    std::memset(at + weights - sizeof(uint64_t), 0, sizeof(uint64_t));
    std::memcpy(at, cell.weights, cell.size * sizeof(float));
  }
}

void PublicationWriter::features(uint32_t node_type, uint64_t node, std::span<const float> row) {
  const size_t bytes = padded(row.size_bytes());
  uint8_t* at = record(RecordKind::kFeatures, 0, node_type, static_cast<uint32_t>(row.size()), node, bytes);
  if (bytes == 0) return;
  std::memset(at + bytes - sizeof(uint64_t), 0, sizeof(uint64_t));
  std::memcpy(at, row.data(), row.size_bytes());
}

void PublicationWriter::reference(uint32_t query, uint64_t node, uint32_t worker, int64_t change) {
  uint8_t* at = record(RecordKind::kReference, 0, query, worker, node, sizeof(change));
  std::memcpy(at, &change, sizeof(change));
}

void PublicationWriter::finish() {
  if (full_ == 0) return;
  BlockHeader header;
  header.sender = sender_;
  header.receiver = receiver_;
  header.sequence = sequence_++;
  header.bytes = static_cast<uint32_t>(buffer_.size() - block_ - sizeof(header));
  header.records = records_;
  header.checksum = checksum_of_block(header, buffer_.data() + block_ + sizeof(header));
  std::memcpy(buffer_.data() + block_, &header, sizeof(header));
  full_ = 0;
  completed_ += std::exchange(records_, 0);
}

void PublicationWriter::clear() noexcept {
  constexpr size_t kKept = size_t{4} << 20;  // bytes
  if (buffer_.capacity() > kKept) buffer_ = ByteBuffer();
  buffer_.resize_down(0);
  full_ = 0;
  completed_ += std::exchange(records_, 0);
}

size_t PublishedBlock::size_of(uint64_t word) {
  const size_t size = word >> 32;
  const auto columns = static_cast<uint8_t>(word >> 8);
  const auto kind = static_cast<RecordKind>(word & 0xff);
  if (columns != 0 && (kind != RecordKind::kSample || columns > (kWeights | kTimes))) return 0;
  switch (kind) {
    case RecordKind::kSample:
      return kRecordHeader + size * sizeof(uint64_t) * ((columns & kTimes) != 0 ? 2 : 1) +
             ((columns & kWeights) != 0 ? padded(size * sizeof(float)) : 0);
    case RecordKind::kFeatures:
      return kRecordHeader + padded(size * sizeof(float));
    case RecordKind::kNoSample:
    case RecordKind::kNoFeatures:
      return size == 0 ? kRecordHeader : 0;
    case RecordKind::kReference:
      return kRecordHeader + sizeof(int64_t);
  }
  return 0;
}

PublishedBlock::Parsed PublishedBlock::parse(const uint8_t* at) {
  const auto* const words = reinterpret_cast<const uint64_t*>(at);
  const auto size = static_cast<uint32_t>(words[0] >> 32);
  const auto columns = static_cast<uint8_t>(words[0] >> 8);
  Parsed parsed{
      {static_cast<RecordKind>(words[0] & 0xff), static_cast<uint32_t>(words[0] >> 16 & 0xffff), words[1], {}, {}},
      size_of(words[0])};
  Record& record = parsed.record;
  if (record.kind == RecordKind::kSample) {
    const uint64_t* rest = words + 2;
    record.sample.ids = std::exchange(rest, rest + size);
    if ((columns & kTimes) != 0) {
      record.sample.times = reinterpret_cast<const double*>(std::exchange(rest, rest + size));
    }
    if ((columns & kWeights) != 0) record.sample.weights = reinterpret_cast<const float*>(rest);
    record.sample.size = size;
  } else if (record.kind == RecordKind::kFeatures) {
    record.features = {reinterpret_cast<const float*>(words + 2), size};
  } else if (record.kind == RecordKind::kReference) {
    record.worker = size;
    record.change = std::bit_cast<int64_t>(words[2]);
  }
  return parsed;
}

Record PublishedBlock::read_record(std::span<const uint8_t> bytes) {
  if (bytes.size() < kRecordHeader || reinterpret_cast<uintptr_t>(bytes.data()) % sizeof(uint64_t) != 0 ||
      size_of(*reinterpret_cast<const uint64_t*>(bytes.data())) != bytes.size()) {
    refuse_block("a record by itself is cut off, or at an address that is no multiple of 8");
  }
  return parse(bytes.data()).record;
}

PublishedBlock PublishedBlock::read(std::span<const uint8_t>* bytes) {
  PublishedBlock block;
  BlockHeader& header = block.header_;
  if (bytes->size() < sizeof(header)) refuse_block("its header is cut off");
  if (reinterpret_cast<uintptr_t>(bytes->data()) % sizeof(uint64_t) != 0)
    refuse_block("its address is no multiple of 8");
  std::memcpy(&header, bytes->data(), sizeof(header));
  if (header.magic != BlockHeader::kMagic) refuse_block("it does not begin as one");
  if (header.version != BlockHeader::kVersion) {
    refuse_block("its version is " + std::to_string(header.version) + ", and this program reads version " +
                 std::to_string(BlockHeader::kVersion));
  }
  if (header.bytes > bytes->size() - sizeof(header) || header.bytes % 8 != 0) refuse_block("its records are cut off");
  block.begin_ = bytes->data() + sizeof(header);
  block.end_ = block.begin_ + header.bytes;
  if (checksum_of_block(header, block.begin_) != header.checksum) refuse_block("its checksum is not that of its bytes");
  size_t records = 0;
  for (const uint8_t* at = block.begin_; at != block.end_; ++records) {
    const auto left = static_cast<size_t>(block.end_ - at);
    const size_t size = left < kRecordHeader ? 0 : size_of(*reinterpret_cast<const uint64_t*>(at));
    if (size == 0 || size > left) refuse_block("record " + std::to_string(records) + " is none, or cut off");
    at += size;
  }
  if (records != header.records) refuse_block("it has another number of records than its header tells");
  *bytes = bytes->subspan(sizeof(header) + header.bytes);
  return block;
}

bool BlockOrder::is_next(const BlockHeader& header) const {
  if (header.sender >= next_.size()) refuse_block("there is no sender " + std::to_string(header.sender));
  if (header.sequence > next_[header.sender]) {
    refuse_block("it is number " + std::to_string(header.sequence) + " of sender " + std::to_string(header.sender) +
                 ", and number " + std::to_string(next_[header.sender]) + " is missing");
  }
  return header.sequence == next_[header.sender];
}

}  // namespace livegnn
