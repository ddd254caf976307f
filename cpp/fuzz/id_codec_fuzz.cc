#include <algorithm>
#include <memory>
#include <vector>

#include "fuzz/fuzz.h"
#include "store/samtree/id_codec.h"

namespace livegnn {
namespace {

// A column in memory that ends where it ends, for the address sanitizer to see a step past it.
template <class Id>
struct Column {
  IdFormat<Id> format;
  uint32_t room;
  std::unique_ptr<uint8_t[]> bytes;

  Column(IdFormat<Id> format, uint32_t room) : format(format), room(room) {
    const size_t size = IdCodec<Id>::bytes(format.bits, room);
    bytes = std::make_unique_for_overwrite<uint8_t[]>(size);
    std::memset(bytes.get(), 0xA5, size);
  }
};

template <class Id>
void check(const Column<Id>& column, const std::vector<Id>& ids, fuzz::Input* input) {
  using Codec = IdCodec<Id>;
  const auto n = static_cast<uint32_t>(ids.size());
  std::vector<Id> decoded(n);
  Codec::decode(column.format, column.bytes.get(), column.room, n, decoded.data());
  CHECK(decoded == ids);
  for (uint32_t i = 0; i < n; ++i) {
    CHECK(column.format.fits(ids[i]));
    CHECK_EQ(Codec::get(column.format, column.bytes.get(), column.room, i), ids[i]);
    CHECK_EQ(Codec::find(column.format, column.bytes.get(), column.room, n, ids[i]), i);
  }
  // Near those that are there, where a wrong comparison would find one of them.
  const Id some = n > 0 ? ids[input->below(n)] : Id{0};
  for (Id other : {fuzz::read_id<Id>(input), static_cast<Id>(some + 1), static_cast<Id>(some - 1),
                   static_cast<Id>(some ^ (Id{1} << input->below(8 * sizeof(Id))))}) {
    const auto at = static_cast<uint32_t>(std::find(ids.begin(), ids.end(), other) - ids.begin());
    CHECK_EQ(Codec::find(column.format, column.bytes.get(), column.room, n, other), at < n ? at : Codec::kAbsent);
  }
}

template <class Id>
void change(fuzz::Input* input) {
  using Codec = IdCodec<Id>;
  while (input->more()) {
    std::vector<Id> ids;
    auto add = [&](Id id) {
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    };
    const Id base = input->once_in(4) ? input->number<Id>() : Id{0};
    const uint32_t spread = input->below(8 * sizeof(Id)) + 1;
    const Id mask = static_cast<Id>(Id(~Id{0}) >> (8 * sizeof(Id) - spread));
    for (uint32_t count = 1 + input->below(256); count > 0 && input->more(); --count) {
      add(static_cast<Id>(base + (fuzz::read_id<Id>(input) & mask)));
    }
    const auto format = Codec::choose(ids.data(), static_cast<uint32_t>(ids.size()), !input->once_in(8));
    const uint32_t room = static_cast<uint32_t>(ids.size()) + input->below(16);
    Column<Id> column(format, room);
    Codec::encode(format, ids.data(), static_cast<uint32_t>(ids.size()), column.bytes.get(), room);
    check(column, ids, input);

    const std::vector<Id> before = ids;
    while (ids.size() < room) {
      const size_t n = ids.size();
      // What the format has no room for is for a new column.
      for (int tries = 0; tries < 4 && ids.size() == n; ++tries) {
        const Id id = static_cast<Id>(base + (fuzz::read_id<Id>(input) & mask));
        if (format.fits(id)) add(id);
      }
      if (ids.size() == n) break;
      Codec::append(format, column.bytes.get(), room, static_cast<uint32_t>(n), ids.back());
      check(column, before, input);  // who knows of fewer sees no change
      check(column, ids, input);
    }

    Column<Id> copy(format, static_cast<uint32_t>(ids.size()) + input->below(16));
    Codec::copy(format, column.bytes.get(), room, static_cast<uint32_t>(ids.size()), copy.bytes.get(), copy.room);
    check(copy, ids, input);
  }
}

void body(fuzz::Input* input) {
  if (input->byte() % 2 == 0) {
    change<uint32_t>(input);
  } else {
    change<uint64_t>(input);
  }
}

}  // namespace
}  // namespace livegnn

FUZZ(livegnn::body)
