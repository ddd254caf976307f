// Rows of features that were fetched, as many of several node types as there is room for: columns, and an index from
// row numbers to slots.
//
//   slot     0      1      2   ...  n - 1               index   home of a row   + 1   + 2   ...
//   row    [ 17 ]  [ 4 ]  [ 90 ]                                [ 0: free | slot + 1 ]
//   degree, notes, features: as wide as they are
//
// Columns lie in mappings of this process, which grow, or side by side in memory that processes share. The pages of
// what is removed go back to the system.
//
// Invariants: slots 0 to n - 1 are in use. The index has a power of two of places, of which at most half are taken;
// there is no free place between a row's place and its home. `state` has n and the number of places.
// Thread safety: one writer, or several readers; `size` and `bytes` may be called meanwhile.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <new>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "hashing/mix_hash.h"
#include "memory/prefetch.h"

namespace livegnn {

// A mapping whose first bytes are in use; or a part of memory that is given, which begins and ends with pages.
struct CacheColumn {
  CacheColumn() = default;
  CacheColumn(const CacheColumn&) = delete;
  CacheColumn& operator=(const CacheColumn&) = delete;
  ~CacheColumn() {
    if (own && data != nullptr) munmap(data, size);
  }

  static size_t in_pages(size_t bytes) {
    static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }
  // If it throws std::bad_alloc, nothing has changed. Pages that were never written take no memory, so it grows by
  // much.
  void reserve(size_t bytes) {
    if (bytes > size && !(own && (grow(in_pages(bytes + bytes / 4)) || grow(in_pages(bytes))))) throw std::bad_alloc();
  }
  // Gives back what lies behind so many bytes.
  void release(size_t bytes) noexcept {
    if (in_pages(bytes) >= size) return;
#ifdef __linux__
    madvise(data + in_pages(bytes), size - in_pages(bytes), own ? MADV_DONTNEED : MADV_REMOVE);
#endif
  }
  bool grow(size_t bytes) noexcept {
#ifdef __linux__
    if (data != nullptr) return take(mremap(data, size, bytes, MREMAP_MAYMOVE), bytes);
#endif
    unsigned char* const before = data;
    const size_t used = size;
    if (!take(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0), bytes)) return false;
    if (before != nullptr) {
      std::memcpy(data, before, used);
      munmap(before, used);
    }
    return true;
  }
  bool take(void* mapped, size_t bytes) noexcept {
    if (mapped == MAP_FAILED) return false;
    data = static_cast<unsigned char*>(mapped);
    size = bytes;
    return true;
  }

  unsigned char* data = nullptr;
  size_t size = 0;
  bool own = true;
};

class RowCache {
 public:
  using Rows = std::span<const int64_t>;
  enum Column : uint8_t { kRow, kDegree, kNotes, kFeatures, kPlaces };

  static constexpr size_t kState = 2;       // numbers of a type
  static constexpr size_t kMostPlaces = 4;  // of the index, for each entry

  struct Type {
    size_t width, noted;  // floats of a row, and bytes that are noted with it

    // Of an entry, with its places in the index.
    size_t entry_bytes() const { return width * sizeof(float) + noted + 2 * sizeof(int64_t) + kMostPlaces * 4; }
  };
  // Entries to add. Features are those in row `at[i]`; `notes` may be null where nothing is noted.
  struct Entries {
    Rows rows, degrees, at;
    const float* features;
    const unsigned char* notes;
  };
  using Keep = std::vector<std::pair<size_t, Rows>>;  // types, and rows of them

  // In memory that begins with a page, of which each type may fill an equal part. `states`: kState numbers for each
  // type, zeros at first; none: in memory of this process.
  explicit RowCache(const std::vector<Type>& types, std::span<unsigned char> memory = {},
                    std::span<int64_t> states = {}) {
    const bool own = states.empty();
    own_states_.resize(own ? kState * types.size() : 0);
    if (own) states = own_states_;
    for (size_t i = 0; i < types.size(); ++i) {
      const size_t part = memory.size() / types.size() / CacheColumn::in_pages(1) * CacheColumn::in_pages(1);
      tables_.emplace_back(types[i], &states[kState * i], memory.subspan(i * part, part));
    }
  }
  RowCache(const RowCache&) = delete;
  RowCache& operator=(const RowCache&) = delete;

  size_t size() const {
    size_t size = 0;
    for (const Table& table : tables_) size += table.size();
    return size;
  }
  // Of all entries.
  size_t bytes() const {
    size_t bytes = 0;
    for (const Table& table : tables_) bytes += table.size() * table.type.entry_bytes();
    return bytes;
  }
  const Type& type(size_t of) const { return tables_.at(of).type; }
  // How many entries have a place.
  size_t most(size_t of) const { return tables_.at(of).most; }

  // Writes the notes or features of the rows that are there to their places in `out`, and which are there.
  void read(size_t of, Column column, Rows rows, void* out, bool* there) const {
    const Table& table = tables_.at(of);
    const size_t each = table.each[column];
    constexpr size_t kAhead = 8;
    uint32_t slots[kAhead];
    const auto copy = [&](size_t i) {
      if (each == 0 || slots[i % kAhead] == kNone) return;
      std::memcpy(static_cast<unsigned char*>(out) + i * each, table.at(column, slots[i % kAhead]), each);
    };
    table.look_up(rows, [&](size_t i, uint32_t slot) {
      if (i >= kAhead) copy(i - kAhead);
      slots[i % kAhead] = slot;
      there[i] = slot != kNone;
      for (size_t byte = 0; there[i] && byte < std::min<size_t>(each, 512); byte += 64) {
        prefetch(table.at(column, slot) + byte);
      }
    });
    for (size_t i = rows.size() - std::min(rows.size(), kAhead); i < rows.size(); ++i) copy(i);
  }

  // Adds entries, and keeps as many of all as fit into `room` bytes: those of the greatest degrees, of equal ones those
  // that were there. Returns how many were evicted. A row that is there is left as it is. If it throws std::bad_alloc,
  // it has added nothing.
  size_t insert(size_t of, const Entries& given, int64_t room) {
    Table& table = tables_.at(of);
    if (table.size() + given.rows.size() > table.most) return 0;
    std::vector<uint32_t> fresh;
    table.look_up(given.rows, [&](size_t i, uint32_t slot) {
      if (slot == kNone) fresh.push_back(static_cast<uint32_t>(i));
    });
    const auto need = static_cast<int64_t>(bytes() + fresh.size() * table.type.entry_bytes()) - room;
    size_t evicted = 0;
    if (need > 0) {
      std::vector<Candidate> from;
      for (uint32_t i : fresh) from.push_back({given.degrees[i], i, 0});
      evicted = remove_smallest(need, {}, of, &from);
      auto refused = from.begin();
      std::erase_if(fresh, [&](uint32_t i) { return refused != from.end() && refused->at == i && (++refused, true); });
    }
    if (!fresh.empty()) table.append(given, fresh);
    return evicted;
  }
  // Removes as few entries as need be until all fit into `room` bytes, those of the smallest degrees first, and none of
  // `keep`. Returns how many.
  size_t evict(int64_t room, const Keep& keep) {
    std::vector<Candidate> from;
    const int64_t need = static_cast<int64_t>(bytes()) - room;
    return need > 0 ? remove_smallest(need, keep, 0, &from) : 0;
  }
  // Removes all entries, and gives their memory back.
  void clear() noexcept {
    for (Table& table : tables_) table.clear();
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Table {
    Table(const Type& type, int64_t* state, std::span<unsigned char> memory)
        : type(type), state(state), each{8, 8, type.noted, type.width * sizeof(float), kMostPlaces * 4} {
      if (memory.data() == nullptr) return;
      const size_t ends = each.size() * CacheColumn::in_pages(1);  // of columns, within pages
      most = std::min(most, (memory.size() - std::min(memory.size(), ends)) / type.entry_bytes());
      unsigned char* begin = memory.data();
      for (size_t i = 0; i < each.size(); ++i) {
        columns[i].take(begin, CacheColumn::in_pages(most * each[i]));
        columns[i].own = false;
        begin += columns[i].size;
      }
    }

    size_t size() const { return static_cast<size_t>(number().load(std::memory_order_relaxed)); }
    std::atomic_ref<int64_t> number() const { return std::atomic_ref<int64_t>(state[0]); }
    unsigned char* at(size_t column, size_t slot) const { return columns[column].data + slot * each[column]; }
    int64_t row(size_t slot) const { return reinterpret_cast<const int64_t*>(columns[kRow].data)[slot]; }
    int64_t degree(size_t slot) const { return reinterpret_cast<const int64_t*>(columns[kDegree].data)[slot]; }
    uint32_t* places() const { return reinterpret_cast<uint32_t*>(columns[kPlaces].data); }
    size_t mask() const { return static_cast<size_t>(state[1]) - 1; }
    size_t home_of(int64_t wanted) const {
      return MixHash{}(static_cast<uint64_t>(wanted)) >> (64 - std::countr_one(mask()));
    }
    // The place of a row, or the free one that it would get.
    uint32_t* place_of(int64_t wanted, size_t home) const {
      while (places()[home] != 0 && row(places()[home] - 1) != wanted) home = (home + 1) & mask();
      return places() + home;
    }
    uint32_t* place_of(int64_t wanted) const { return place_of(wanted, home_of(wanted)); }

    // Calls `visit(i, slot)` for each row, in their order; kNone: it is not there.
    template <class Visit>
    void look_up(Rows wanted, const Visit& visit) const {
      constexpr size_t kBlock = 32;  // whose cache misses overlap
      const bool empty = size() == 0;
      size_t homes[kBlock];
      for (size_t first = 0; first < wanted.size(); first += kBlock) {
        const Rows block = wanted.subspan(first, std::min(kBlock, wanted.size() - first));
        for (size_t i = 0; !empty && i < block.size(); ++i) prefetch(places() + (homes[i] = home_of(block[i])));
        for (size_t i = 0; !empty && i < block.size(); ++i) prefetch(at(kRow, places()[homes[i]]));
        for (size_t i = 0; i < block.size(); ++i) visit(first + i, empty ? kNone : *place_of(block[i], homes[i]) - 1);
      }
    }

    void append(const Entries& given, std::span<const uint32_t> fresh) {
      size_t slot = size();
      for (size_t i = kRow; i < kPlaces; ++i) columns[i].reserve((slot + fresh.size()) * each[i]);
      if (2 * (slot + fresh.size()) > static_cast<size_t>(state[1])) rebuild(slot + fresh.size());
      for (uint32_t i : fresh) {
        uint32_t* const place = place_of(given.rows[i]);
        if (*place != 0) continue;  // it was given twice
        const void* const from[] = {&given.rows[i], &given.degrees[i], given.notes + i * type.noted,
                                    given.features + static_cast<size_t>(given.at[i]) * type.width};
        for (size_t j = kRow; j < kPlaces; ++j) {
          if (each[j] > 0) std::memcpy(at(j, slot), from[j], each[j]);
        }
        *place = static_cast<uint32_t>(++slot);
      }
      number() = static_cast<int64_t>(slot);
    }
    // The last entries that stay take the places of those that go. `slots` is sorted.
    void drop(std::span<const uint32_t> slots) {
      const size_t left = size() - slots.size();
      if (left == 0) return clear();
      const bool anew = slots.size() > left || 4 * kMostPlaces * left <= mask();
      for (size_t i = 0; !anew && i < slots.size(); ++i) free(static_cast<size_t>(place_of(row(slots[i])) - places()));
      size_t last = size(), gone = slots.size();
      for (uint32_t hole : slots) {
        if (hole >= left) break;
        for (--last; slots[gone - 1] == last; --last) --gone;
        if (!anew) *place_of(row(last)) = hole + 1;
        for (size_t j = kRow; j < kPlaces; ++j) {
          if (each[j] > 0) std::memcpy(at(j, hole), at(j, last), each[j]);
        }
      }
      number() = static_cast<int64_t>(left);
      for (size_t j = kRow; j < kPlaces; ++j) columns[j].release(left * each[j]);
      if (anew) rebuild(left);
    }
    // Later places move up, as far as their own homes allow.
    void free(size_t hole) {
      for (size_t i = (hole + 1) & mask(); places()[i] != 0; i = (i + 1) & mask()) {
        if (((i - home_of(row(places()[i] - 1))) & mask()) < ((i - hole) & mask())) continue;
        places()[hole] = places()[i];
        hole = i;
      }
      places()[hole] = 0;
    }
    // Makes the index large enough for so many entries, and enters those that are there anew.
    void rebuild(size_t entries) {
      const size_t count = std::max<size_t>(std::bit_ceil(2 * entries), 64);
      columns[kPlaces].reserve(count * sizeof(uint32_t));
      state[1] = static_cast<int64_t>(count);
      std::memset(places(), 0, count * sizeof(uint32_t));
      columns[kPlaces].release(count * sizeof(uint32_t));
      for (size_t slot = 0; slot < size(); ++slot) *place_of(row(slot)) = static_cast<uint32_t>(slot + 1);
    }
    void clear() noexcept {
      number() = state[1] = 0;
      for (CacheColumn& column : columns) column.release(0);
    }

    Type type;
    int64_t* state;
    size_t most = INT32_MAX - 1;
    std::array<size_t, 5> each;  // bytes of an entry, at most, by column
    std::array<CacheColumn, 5> columns;
  };
  // An entry that may go, or one that is to come: then `of` is 0, otherwise its type plus 1.
  struct Candidate {
    int64_t degree;
    uint32_t at, of;
  };

  // Of the entries to come, of type `coming`, and all but `keep`: removes the fewest of the smallest degrees that take
  // `need` bytes. Returns how many were there, and leaves those to come that are refused.
  size_t remove_smallest(int64_t need, const Keep& keep, size_t coming, std::vector<Candidate>* from) {
    int64_t least = INT64_MAX;
    for (uint32_t of = 0; of < tables_.size(); ++of) {
      const Table& table = tables_[of];
      std::vector<bool> stays(table.size());
      for (const auto& [type, rows] : keep) {
        const auto mark = [&](size_t, uint32_t slot) {
          if (slot != kNone) stays[slot] = true;
        };
        if (type == of) table.look_up(rows, mark);
      }
      for (uint32_t slot = 0; slot < stays.size(); ++slot) {
        if (!stays[slot]) from->push_back({table.degree(slot), slot, of + 1});
      }
      least = std::min(least, static_cast<int64_t>(table.type.entry_bytes()));
    }
    const auto by_degree = [](const Candidate& a, const Candidate& b) {
      return std::tie(a.degree, a.of, a.at) < std::tie(b.degree, b.of, b.at);
    };
    if (const auto most = static_cast<size_t>((need + least - 1) / least); most < from->size()) {
      std::nth_element(from->begin(), from->begin() + static_cast<ptrdiff_t>(most), from->end(), by_degree);
      from->resize(most);
    }
    std::sort(from->begin(), from->end(), by_degree);
    size_t count = 0;
    for (; need > 0 && count < from->size(); ++count) {
      const uint32_t of = (*from)[count].of;
      need -= static_cast<int64_t>(tables_[of == 0 ? coming : of - 1].type.entry_bytes());
    }
    from->resize(count);
    const auto by_place = [](const Candidate& a, const Candidate& b) {
      return std::tie(a.of, a.at) < std::tie(b.of, b.at);
    };
    std::sort(from->begin(), from->end(), by_place);
    const auto first = std::find_if(from->begin(), from->end(), [](const Candidate& one) { return one.of > 0; });
    const auto refused = first - from->begin();
    std::vector<uint32_t> slots;
    for (auto at = first; at != from->end(); ++at) {
      slots.push_back(at->at);
      if (at + 1 != from->end() && (at + 1)->of == at->of) continue;
      tables_[at->of - 1].drop(slots);
      slots.clear();
    }
    from->resize(static_cast<size_t>(refused));
    return count - from->size();
  }

  std::vector<int64_t> own_states_;
  std::deque<Table> tables_;
};

}  // namespace livegnn
