// NumPy arrays in and out.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <memory>
#include <vector>

namespace livegnn::bindings {

namespace nb = nanobind;

template <class T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InRows = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
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

template <class T>
std::vector<T> vector_of(const In<T>& from) {
  return {from.data(), from.data() + from.shape(0)};
}

void bind_graph(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_sampling(nb::module_& module);

}  // namespace livegnn::bindings
