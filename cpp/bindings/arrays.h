// Conversions from and to NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace livegnn::bindings {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InRows = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
// What the caller has, to be written.
template <class T>
using Into = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using IntoRows = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <class T>
using OutRows = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

template <class T>
Out<T> array(size_t size) {
  auto data = std::make_unique<T[]>(size);
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Out<T>(data.release(), {size}, owner);
}

template <class T>
OutRows<T> rows(size_t count, size_t width) {
  auto data = std::make_unique<T[]>(count * width);
  nb::capsule owner(data.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return OutRows<T>(data.release(), {count, width}, owner);
}

template <class T>
Out<T> copy(const std::vector<T>& from) {
  auto out = array<T>(from.size());
  if (!from.empty()) std::memcpy(out.data(), from.data(), from.size() * sizeof(T));
  return out;
}

// An array that takes over the vector's memory.
template <class T>
Out<T> given(std::vector<T>&& from) {
  auto held = std::make_unique<std::vector<T>>(std::move(from));
  T* data = held->data();
  const size_t size = held->size();
  nb::capsule owner(held.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T>(data, {size}, owner);
}

// The same for rows that are stored one after the other.
template <class T>
OutRows<T> given(std::vector<T>&& from, size_t count, size_t width) {
  auto held = std::make_unique<std::vector<T>>(std::move(from));
  T* data = held->data();
  nb::capsule owner(held.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return OutRows<T>(data, {count, width}, owner);
}

// The numbers of an array that may be left out.
template <class Array>
auto data_of(const std::optional<Array>& array) {
  return array ? array->data() : nullptr;
}

template <class T>
std::vector<T> vector_of(const In<T>& from) {
  return {from.data(), from.data() + from.shape(0)};
}

}  // namespace livegnn::bindings
