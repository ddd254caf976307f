// Named arrays, in which views save and load their state.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace livegnn {

// One array to save: [count], or [rows, width] if `width` is not 0.
struct SavedArray {
  std::string name;
  size_t width;
  std::variant<std::vector<float>, std::vector<double>, std::vector<uint32_t>, std::vector<int64_t>> values;
};

class Arrays {
 public:
  template <class T>
  void put(std::string name, std::vector<T> values, size_t width = 0) {
    all_.push_back({std::move(name), width, std::move(values)});
  }
  std::vector<SavedArray>& all() { return all_; }

 private:
  std::vector<SavedArray> all_;
};

// Arrays whose memory belongs to the caller.
class ArrayViews {
 public:
  template <class T>
  void put(std::string name, std::span<const T> values, size_t width = 0) {
    all_.insert_or_assign(std::move(name), Held{width, values});
  }

  bool has(const std::string& name) const { return all_.find(name) != all_.end(); }
  // The array of this name, [count] or [rows, width]. Throws std::runtime_error if there is none of this name, type and
  // width.
  template <class T>
  std::span<const T> at(const std::string& name, size_t width = 0) const {
    const auto found = all_.find(name);
    if (found == all_.end()) throw std::runtime_error("there is no array " + name + ": expected one, got none");
    const auto* values = std::get_if<std::span<const T>>(&found->second.values);
    if (values == nullptr) {
      throw std::runtime_error("the array " + name + " holds numbers of another type: expected " +
                               name_of(std::span<const T>()) + ", got " +
                               std::visit([](auto held) { return name_of(held); }, found->second.values));
    }
    if (found->second.width != width) {
      throw std::runtime_error("the array " + name + " has another shape: expected rows of " + std::to_string(width) +
                               " numbers (0: one dimension), got " + std::to_string(found->second.width));
    }
    return *values;
  }
  // The same for an array of a known size.
  template <class T>
  std::span<const T> of_size(const std::string& name, size_t count, size_t width = 0) const {
    const auto values = at<T>(name, width);
    if (values.size() != count) {
      throw std::runtime_error("the array " + name + ": expected " + std::to_string(count) + " numbers, got " +
                               std::to_string(values.size()));
    }
    return values;
  }

 private:
  static std::string name_of(std::span<const float>) { return "float32"; }
  static std::string name_of(std::span<const double>) { return "float64"; }
  static std::string name_of(std::span<const uint32_t>) { return "uint32"; }
  static std::string name_of(std::span<const int64_t>) { return "int64"; }

  struct Held {
    size_t width;
    std::variant<std::span<const float>, std::span<const double>, std::span<const uint32_t>, std::span<const int64_t>>
        values;
  };
  std::map<std::string, Held> all_;
};

}  // namespace livegnn
