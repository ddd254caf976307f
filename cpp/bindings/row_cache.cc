#include "memory/row_cache.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

using RowsOfTypes = std::vector<std::pair<size_t, In<int64_t>>>;

std::span<const int64_t> cached_rows(const In<int64_t>& from) { return {from.data(), from.shape(0)}; }

void require_rows(bool so, const char* what) {
  if (!so) throw std::invalid_argument(what);
}

void make_row_cache(RowCache* self, const std::vector<std::pair<size_t, size_t>>& given,
                    const std::optional<Into<unsigned char>>& memory, const std::optional<Into<int64_t>>& states) {
  std::vector<RowCache::Type> types;
  for (const auto& [width, noted] : given) types.push_back({width, noted});
  if (!memory || !states) return (void)new (self) RowCache(types);
  require_rows(states->shape(0) == RowCache::kState * types.size(), "expected the states of all types");
  new (self) RowCache(types, {memory->data(), memory->shape(0)}, {states->data(), states->shape(0)});
}

nb::object read_cached(const RowCache& self, size_t of, const In<int64_t>& rows, const IntoRows<float>& out) {
  require_rows(out.shape(0) == rows.shape(0) && out.shape(1) == self.type(of).width,
               "expected space for the features of each row");
  auto there = array<bool>(rows.shape(0));
  run(rows.shape(0) > kQuick, [&] { self.read(of, RowCache::kFeatures, cached_rows(rows), out.data(), there.data()); });
  return nb::cast(there);
}

nb::tuple read_noted(const RowCache& self, size_t of, const In<int64_t>& asked) {
  auto there = array<bool>(asked.shape(0));
  auto notes = rows<unsigned char>(asked.shape(0), self.type(of).noted);
  run(asked.shape(0) > kQuick,
      [&] { self.read(of, RowCache::kNotes, cached_rows(asked), notes.data(), there.data()); });
  return nb::make_tuple(there, notes);
}

size_t insert_rows(RowCache& self, size_t of, const In<int64_t>& rows, const InRows<float>& features,
                   const In<int64_t>& at, const In<int64_t>& degrees, const std::optional<InRows<unsigned char>>& notes,
                   int64_t room) {
  const auto& type = self.type(of);
  require_rows(at.shape(0) == rows.shape(0) && degrees.shape(0) == rows.shape(0) && features.shape(1) == type.width,
               "expected features and a degree of each row");
  const auto all = static_cast<int64_t>(features.shape(0));
  require_rows(std::ranges::all_of(cached_rows(at), [=](int64_t row) { return 0 <= row && row < all; }),
               "expected positions among the features");
  require_rows(type.noted == 0 || (notes && notes->shape(0) == rows.shape(0) && notes->shape(1) == type.noted),
               "expected notes of each row");
  const RowCache::Entries given{cached_rows(rows), cached_rows(degrees), cached_rows(at), features.data(),
                                notes ? notes->data() : nullptr};
  size_t evicted = 0;
  run(rows.shape(0) + self.size() > kQuick, [&] { evicted = self.insert(of, given, room); });
  return evicted;
}

size_t evict_rows(RowCache& self, int64_t room, const RowsOfTypes& keep) {
  RowCache::Keep kept;
  for (const auto& [of, rows] : keep) kept.emplace_back(of, cached_rows(rows));
  size_t evicted = 0;
  run(self.size() > kQuick, [&] { evicted = self.evict(room, kept); });
  return evicted;
}

}  // namespace

void bind_row_cache(nb::module_& module) {
  nb::class_<RowCache>(module, "RowCache")
      .def("__init__", &make_row_cache, nb::arg(), nb::arg().noconvert() = nb::none(),
           nb::arg().noconvert() = nb::none(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def("__len__", &RowCache::size)
      .def("bytes", &RowCache::bytes)
      .def("entry_bytes", [](const RowCache& self, size_t of) { return self.type(of).entry_bytes(); })
      .def("most", &RowCache::most)
      .def("read", &read_cached, nb::arg(), nb::arg(), nb::arg().noconvert())
      .def("read_notes", &read_noted)
      .def("insert", &insert_rows, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg())
      .def("evict", &evict_rows)
      .def("clear", &RowCache::clear);
}

}  // namespace livegnn::bindings
