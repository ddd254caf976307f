// Rows of tables, or of the features of nodes, as arrays without padding.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "memory/scratch_file.h"
#include "memory/table.h"

namespace livegnn::bindings {

template <class Rows>
void copy_rows(const Rows& table, float* to) {
  if (table.width() == 0) return;
  for (uint32_t i = 0; i < table.rows(); ++i) {
    std::memcpy(to + i * table.width(), table.row(i), table.width() * sizeof(float));
  }
}

template <class Rows>
void read_rows(const Rows& table, const uint32_t* indices, size_t count, float* out) {
  for (size_t i = 0; i < count && table.width() > 0; ++i) {
    std::memcpy(out + i * table.width(), table.row(indices[i]), table.width() * sizeof(float));
  }
}

template <class Rows>
std::vector<float> read_rows(const Rows& table, const std::vector<uint32_t>& indices) {
  std::vector<float> out(indices.size() * table.width());
  read_rows(table, indices.data(), indices.size(), out.data());
  return out;
}

// The amount of work to read this many rows: rows in a file may have to be read from a disk.
template <class Rows>
size_t size_of(const Rows& table, size_t count) {
  return table.file() == nullptr ? count : SIZE_MAX;
}

// All rows without padding. If the table is in a file because it outgrows memory, the rows are copied to another file,
// which is freed with the array.
template <class Rows>
nb::object read_all_rows(const Rows& table) {
  const size_t floats = table.rows() * table.width();
  if (table.file() == nullptr || floats == 0) {
    std::vector<float> rows = as_writer([&] {
      std::vector<float> all;
      all.reserve(floats);
      for (uint32_t i = 0; i < table.rows(); ++i) all.insert(all.end(), table.row(i), table.row(i) + table.width());
      return all;
    });
    return nb::cast(given(std::move(rows), table.rows(), table.width()));
  }
  auto file = as_writer([&] {
    auto made = std::make_unique<ScratchFile>(table.file()->directory());
    made->reserve(floats);
    made->adopt();
    copy_rows(table, made->data());
    return made;
  });
  float* data = file->data();
  nb::capsule owner(file.release(), [](void* p) noexcept { delete static_cast<ScratchFile*>(p); });
  return nb::cast(OutRows<float>(data, {table.rows(), table.width()}, owner));
}

}  // namespace livegnn::bindings
