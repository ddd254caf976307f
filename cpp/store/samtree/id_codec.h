// Stores the ids of one leaf in as few bits as they need (PlatoD2GL, section VI-A: what ids share is stored once).
//
// A column has a base, which is not greater than any of the ids, and differences of `bits` bits. The differences are
// divided into planes, each with room for `room` ids, of which the first n are in use:
//
//   bits = 18:   | 16 low bits of each | 2 high bits of each, packed |
//   bits = 24:   | 16 low bits of each | 8 high bits of each |
//
// A common prefix is the special case of a base that ends in zeros; a general base also saves bits if the ids cross a
// power of two. A search compares the first plane with vector instructions, and reads the others only where it matches.
// The low half of a 64-bit id is the key of a parallel edge, which many edges share; so the high half of the difference
// is mixed into the low one, because otherwise the first plane would match in half of a leaf.
//
// Invariants: bits is 0 (one id, the base itself) or at least 8; ids keep their order.
// Thread safety: `append` may run concurrently with readers of the n earlier ids, because the one byte of packed bits
// that it shares with them is written and read atomically. Everything else needs exclusive access. A column is never
// read past its end.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace livegnn {

template <class Id>
struct IdFormat {
  Id base = 0;
  uint32_t bits = 0;

  bool fits(Id id) const { return id >= base && (bits == 8 * sizeof(Id) || static_cast<Id>(id - base) >> bits == 0); }
};

template <class Id>
class IdCodec {
 public:
  static constexpr uint32_t kAbsent = UINT32_MAX;

  // `compress`: false stores full ids, for comparison.
  static IdFormat<Id> choose(const Id* ids, uint32_t n, bool compress) {
    if (!compress || n == 0) return {0, 8 * sizeof(Id)};
    Id low = ids[0], high = ids[0];
    for (uint32_t i = 1; i < n; ++i) {
      low = ids[i] < low ? ids[i] : low;
      high = ids[i] > high ? ids[i] : high;
    }
    const auto bits = static_cast<uint32_t>(std::bit_width(static_cast<Id>(high - low)));
    return {low, n == 1 ? 0 : bits < 8 ? 8 : bits};
  }

  static size_t bytes(uint32_t bits, uint32_t room) {
    return size_t{bits / 8} * room + (size_t{bits % 8} * room + 7) / 8;
  }

  // Requires: n <= room; the format fits the ids.
  static void encode(IdFormat<Id> format, const Id* ids, uint32_t n, uint8_t* to, uint32_t room) {
    assert(n <= room);
    assert(std::all_of(ids, ids + n, [&](Id id) { return format.fits(id); }));
    uint32_t shift = 0;
    for_planes(format.bits, [&]<class Part>(Part) {
      for (uint32_t i = 0; i < n; ++i)
        store(to, i, static_cast<Part>(mixed(static_cast<Id>(ids[i] - format.base)) >> shift));
      to += room * sizeof(Part);
      shift += 8 * sizeof(Part);
    });
    const uint32_t packed = format.bits % 8;
    if (packed == 0) return;
    std::memset(to, 0, (size_t{packed} * room + 7) / 8);
    for (uint32_t i = 0; i < n; ++i) put_packed(to, packed, i, mixed(static_cast<Id>(ids[i] - format.base)) >> shift);
  }

  static void decode(IdFormat<Id> format, const uint8_t* from, uint32_t room, uint32_t n, Id* ids) {
    const bool mixes = is_mixed(format);
    const Id base = mixes ? 0 : format.base;
    bool first = true;
    uint32_t shift = 0;
    for_planes(format.bits, [&]<class Part>(Part) {
      if (first) {
        for (uint32_t i = 0; i < n; ++i) ids[i] = static_cast<Id>(base + load<Part>(from, i));
      } else {
        // The parts occupy different bits, so adding them combines them.
        for (uint32_t i = 0; i < n; ++i) ids[i] = static_cast<Id>(ids[i] + (Id{load<Part>(from, i)} << shift));
      }
      first = false;
      from += room * sizeof(Part);
      shift += 8 * sizeof(Part);
    });
    if (first) {
      for (uint32_t i = 0; i < n; ++i) ids[i] = format.base;
      return;
    }
    const uint32_t packed = format.bits % 8;
    if (packed != 0) add_packed(from, packed, n, shift, ids);
    if (!mixes) return;
    for (uint32_t i = 0; i < n; ++i) ids[i] = static_cast<Id>(format.base + mixed(ids[i]));
  }

  // Requires: i < room.
  static Id get(IdFormat<Id> format, const uint8_t* from, uint32_t room, uint32_t i) {
    assert(i < room);
    Id rest = 0;
    uint32_t shift = 0;
    for_planes(format.bits, [&]<class Part>(Part) {
      rest = static_cast<Id>(rest + (Id{load<Part>(from, i)} << shift));
      from += room * sizeof(Part);
      shift += 8 * sizeof(Part);
    });
    const uint32_t packed = format.bits % 8;
    if (packed != 0) rest = static_cast<Id>(rest + (Id{get_packed(from, packed, i)} << shift));
    return static_cast<Id>(format.base + mixed(rest));
  }

  // Position of an id among the first n, or kAbsent.
  static uint32_t find(IdFormat<Id> format, const uint8_t* from, uint32_t room, uint32_t n, Id id) {
    if (!format.fits(id)) return kAbsent;
    if (format.bits == 0) return n == 0 ? kAbsent : 0;
    const uint32_t bytes = format.bits / 8;
    if (sizeof(Id) == 8 && bytes == 8) return find_by<uint64_t>(format, from, room, n, id);
    if (bytes >= 4) return find_by<uint32_t>(format, from, room, n, id);
    return bytes >= 2 ? find_by<uint16_t>(format, from, room, n, id) : find_by<uint8_t>(format, from, room, n, id);
  }

  // Copies the first n ids of a column into one with more room.
  static void copy(IdFormat<Id> format, const uint8_t* from, uint32_t room, uint32_t n, uint8_t* to, uint32_t to_room) {
    for_planes(format.bits, [&]<class Part>(Part) {
      std::memcpy(to, from, n * sizeof(Part));
      from += room * sizeof(Part);
      to += to_room * sizeof(Part);
    });
    const uint32_t packed = format.bits % 8;
    if (packed != 0) std::memcpy(to, from, (size_t{packed} * n + 7) / 8);
  }

  // Writes id number i after the existing ones; earlier contents of that place are overwritten. Requires: i < room; the
  // format fits the id.
  static void append(IdFormat<Id> format, uint8_t* to, uint32_t room, uint32_t i, Id id) {
    assert(i < room && format.fits(id));
    const Id rest = mixed(static_cast<Id>(id - format.base));
    uint32_t shift = 0;
    for_planes(format.bits, [&]<class Part>(Part) {
      store(to, i, static_cast<Part>(rest >> shift));
      to += room * sizeof(Part);
      shift += 8 * sizeof(Part);
    });
    const uint32_t packed = format.bits % 8;
    if (packed != 0) put_packed(to, packed, i, rest >> shift);
  }

 private:
  static bool is_mixed(IdFormat<Id> format) { return sizeof(Id) == 8 && format.bits > 32; }
  // Converts a difference to its stored form, and back. Differences of at most 32 bits are stored unchanged.
  static Id mixed(Id rest) {
    if constexpr (sizeof(Id) == 8) {
      return rest ^ static_cast<uint32_t>(static_cast<uint32_t>(rest >> 32) * 0x9e3779b1u);
    } else {
      return rest;
    }
  }

  // Calls `visit` with a value of each plane's type, the low bits first.
  template <class Visit>
  static void for_planes(uint32_t bits, Visit&& visit) {
    const uint32_t bytes = bits / 8;
    if constexpr (sizeof(Id) == 8) {
      if ((bytes & 8) != 0) visit(uint64_t{});
    }
    if ((bytes & 4) != 0) visit(uint32_t{});
    if ((bytes & 2) != 0) visit(uint16_t{});
    if ((bytes & 1) != 0) visit(uint8_t{});
  }

  template <class Part>
  static Part load(const uint8_t* plane, uint32_t i) {
    Part part;
    std::memcpy(&part, plane + size_t{i} * sizeof(Part), sizeof(Part));
    return part;
  }

  template <class Part>
  static void store(uint8_t* plane, uint32_t i, Part part) {
    std::memcpy(plane + size_t{i} * sizeof(Part), &part, sizeof(Part));
  }

  static uint32_t packed_byte(const uint8_t* from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }

  static uint32_t get_packed(const uint8_t* from, uint32_t packed, uint32_t i) {
    const size_t bit = size_t{i} * packed, byte = bit / 8, offset = bit % 8;
    uint32_t value = packed_byte(from + byte) >> offset;
    if (offset + packed > 8) value |= packed_byte(from + byte + 1) << (8 - offset);
    return value & ((1u << packed) - 1);
  }

  // The bits after value i may have any value, and become 0.
  static void put_packed(uint8_t* to, uint32_t packed, uint32_t i, Id value) {
    const size_t bit = size_t{i} * packed, byte = bit / 8, offset = bit % 8;
    const uint32_t part = (static_cast<uint32_t>(value) << offset) | (to[byte] & ((1u << offset) - 1));
    __atomic_store_n(to + byte, static_cast<uint8_t>(part), __ATOMIC_RELAXED);
    if (offset + packed > 8) __atomic_store_n(to + byte + 1, static_cast<uint8_t>(part >> 8), __ATOMIC_RELAXED);
  }

  // Eight values occupy as many bytes as a value has bits.
  static void add_packed(const uint8_t* from, uint32_t packed, uint32_t n, uint32_t shift, Id* ids) {
    const uint64_t mask = (uint64_t{1} << packed) - 1;
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8, from += packed) {
      uint64_t word = 0;
      for (uint32_t j = 0; j < packed; ++j) word |= uint64_t{packed_byte(from + j)} << (8 * j);
      for (uint32_t j = 0; j < 8; ++j) {
        ids[i + j] = static_cast<Id>(ids[i + j] + (static_cast<Id>((word >> (j * packed)) & mask) << shift));
      }
    }
    for (uint32_t j = 0; i < n; ++i, ++j) ids[i] = static_cast<Id>(ids[i] + (Id{get_packed(from, packed, j)} << shift));
  }

  // Compares sixty-four bytes at a time, and looks for the position only if one of them matches.
  template <class Part>
  static uint32_t find_by(IdFormat<Id> format, const uint8_t* from, uint32_t room, uint32_t n, Id id) {
    const auto low = static_cast<Part>(mixed(static_cast<Id>(id - format.base)));
    const bool whole = format.bits == 8 * sizeof(Part);
    constexpr uint32_t kAtOnce = 64 / sizeof(Part);
    for (uint32_t i = 0; i < n;) {
      if (i + kAtOnce <= n && !agrees<Part>(from + size_t{i} * sizeof(Part), low)) {
        i += kAtOnce;
        continue;
      }
      const uint32_t end = i + kAtOnce < n ? i + kAtOnce : n;
      for (; i < end; ++i) {
        if (load<Part>(from, i) == low && (whole || get(format, from, room, i) == id)) return i;
      }
    }
    return kAbsent;
  }

  template <class Part>
  static bool agrees(const uint8_t* from, Part low) {
    typedef Part Parts __attribute__((vector_size(16)));
    typedef uint64_t Words __attribute__((vector_size(16)));
    Words hit{};
    for (int k = 0; k < 4; ++k) {
      Parts some;
      std::memcpy(&some, from + 16 * k, 16);
      hit |= (Words)(some == low);
    }
    return (hit[0] | hit[1]) != 0;
  }
};

}  // namespace livegnn
