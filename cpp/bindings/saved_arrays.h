// States as dicts of NumPy arrays, and back (views/arrays.h).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "bindings/arrays.h"
#include "views/arrays.h"

namespace livegnn::bindings {

inline nb::dict to_python(Arrays&& arrays) {
  nb::dict all;
  for (SavedArray& array : arrays.all()) {
    nb::object value = std::visit(
        [&](auto& values) {
          const size_t width = array.width, count = values.size();
          return width == 0 ? nb::cast(given(std::move(values)))
                            : nb::cast(given(std::move(values), count / width, width));
        },
        array.values);
    all[array.name.c_str()] = value;
  }
  return all;
}

template <class T>
bool put(ArrayViews* all, const std::string& name, const nb::handle& value) {
  using Any = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
  Any array;
  if (!nb::try_cast(value, array, false) || array.ndim() < 1 || array.ndim() > 2) return false;
  all->put<T>(name, {array.data(), array.size()}, array.ndim() == 2 ? array.shape(1) : 0);
  return true;
}

// The arrays still belong to the dict, which must outlive the result.
inline ArrayViews from_python(const nb::dict& arrays) {
  ArrayViews all;
  for (const auto& [key, value] : arrays) {
    const std::string name = nb::cast<std::string>(key);
    if (!put<float>(&all, name, value) && !put<double>(&all, name, value) && !put<uint32_t>(&all, name, value) &&
        !put<int64_t>(&all, name, value)) {
      throw std::runtime_error("the array " + name +
                               " is none that a native view keeps: expected contiguous float32, " +
                               "float64, uint32 or int64 of one or two dimensions, got another");
    }
  }
  return all;
}

}  // namespace livegnn::bindings
