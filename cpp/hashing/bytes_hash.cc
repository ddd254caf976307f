#include "hashing/bytes_hash.h"

#include <bit>
#include <cstring>

#include "hashing/mix_hash.h"

namespace livegnn {
namespace {

constexpr uint64_t kHashFactor = 0xd1342543de82ef95ULL;  // odd, so multiplying by it is invertible
constexpr uint64_t kSizeStep = 0x9e3779b97f4a7c15ULL;
constexpr int kRotation = 29;

}  // namespace

void BytesHash::add_block(const unsigned char* data) {
  static_assert(std::endian::native == std::endian::little);
  std::array<uint64_t, kLanes> words;
  std::memcpy(words.data(), data, sizeof(words));
  for (size_t lane = 0; lane < kLanes; ++lane)
    lanes_[lane] = std::rotl(lanes_[lane] ^ words[lane], kRotation) * kHashFactor;
}

void BytesHash::add(const unsigned char* data, size_t size) {
  constexpr size_t kBlock = kLanes * sizeof(uint64_t);
  sizes_ = MixHash{}(sizes_ + size + kSizeStep);
  for (; size >= kBlock; data += kBlock, size -= kBlock) add_block(data);
  if (size == 0) return;
  std::array<unsigned char, kBlock> last{};
  std::memcpy(last.data(), data, size);
  add_block(last.data());
}

uint64_t BytesHash::value() const {
  uint64_t value = sizes_;
  for (uint64_t lane : lanes_) value = MixHash{}(value ^ lane);
  return value;
}

}  // namespace livegnn
