// Conversions of the user's ids: integers, or texts if the graph's ids are texts.
#pragma once

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bindings/arrays.h"
#include "store/graph.h"

namespace livegnn::bindings {

// NumPy stores texts as rows of UTF-32, padded with zeros.
inline std::string utf8(const uint32_t* text, size_t width) {
  std::string out;
  for (size_t i = 0; i < width && text[i] != 0; ++i) {
    uint32_t c = text[i];
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | (c >> 6));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
      out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

// Texts of any lengths: their UTF-8 with a NUL between them, and where each begins; one place more says where another
// would begin after the last.
using GivenTexts = std::pair<nb::bytes, In<int64_t>>;

class TextsView {
 public:
  // Throws std::invalid_argument for places that are not within the bytes, or not in order.
  explicit TextsView(const GivenTexts& given)
      : bytes_(given.first.c_str()), places_(given.second.data()), count_(given.second.shape(0)) {
    const auto size = static_cast<int64_t>(given.first.size());
    bool right = count_ > 0 && places_[0] >= 0 && places_[count_ - 1] <= size + 1;
    for (size_t i = 1; i < count_; ++i) right = right && places_[i - 1] < places_[i];
    if (!right) throw std::invalid_argument("texts must lie one after the other within their bytes");
    --count_;
  }
  size_t size() const { return count_; }
  std::string_view operator()(size_t i) const { return text_at(bytes_, places_, i); }
  static std::string_view text_at(const char* bytes, const int64_t* places, size_t i) {
    return {bytes + places[i], static_cast<size_t>(places[i + 1] - places[i] - 1)};
  }

 private:
  const char* bytes_;
  const int64_t* places_;
  size_t count_;
};

// Ids as input: integers (also the internal numbers of texts), texts as NumPy's code points, or as bytes and places.
using GivenIds = std::variant<In<int64_t>, InRows<uint32_t>, GivenTexts>;

inline size_t count_of(const GivenIds& ids) {
  if (const auto* texts = std::get_if<GivenTexts>(&ids)) return TextsView(*texts).size();
  if (const auto* numbers = std::get_if<In<int64_t>>(&ids)) return numbers->shape(0);
  return std::get<InRows<uint32_t>>(ids).shape(0);
}

// Call it inside a read (locks.h).
inline int64_t number_of(const Graph& graph, const GivenIds& ids, size_t i) {
  if (const auto* numbers = std::get_if<In<int64_t>>(&ids)) return numbers->data()[i];
  if (graph.texts == nullptr) return kNoId;
  if (const auto* given = std::get_if<GivenTexts>(&ids))  // as `count_of` has checked them
    return graph.texts->find(TextsView::text_at(given->first.c_str(), given->second.data(), i));
  const auto& texts = std::get<InRows<uint32_t>>(ids);
  return graph.texts->find(utf8(texts.data() + i * texts.shape(1), texts.shape(1)));
}

inline std::vector<int64_t> numbers_of(const Graph& graph, const GivenIds& ids) {
  std::vector<int64_t> numbers(count_of(ids));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = number_of(graph, ids, i);
  return numbers;
}

// The indices of all ids; and the position of the first that is not a node, or their number if all are.
inline std::pair<std::vector<uint32_t>, size_t> indices_of(const Graph& graph, uint32_t type, const GivenIds& ids) {
  const size_t count = count_of(ids);
  std::vector<uint32_t> indices(count);
  for (size_t i = 0; i < count; ++i) {
    indices[i] = graph.nodes[type].ids.index_of(number_of(graph, ids, i));
    if (indices[i] == kNoIndex) return {std::move(indices), i};
  }
  return {std::move(indices), count};
}

// Ids as output.
struct Names {
  std::vector<int64_t> numbers;
  std::vector<std::string> texts;  // if ids are texts: the text of each number

  // Call it inside a read.
  template <class Number>
  static Names of(const Graph& graph, size_t count, const Number& number_at) {
    Names names;
    names.numbers.reserve(count);
    for (size_t i = 0; i < count; ++i) names.numbers.push_back(number_at(i));
    names.find_texts(graph);
    return names;
  }
  void find_texts(const Graph& graph) {
    if (graph.texts == nullptr) return;
    texts.reserve(numbers.size());
    for (int64_t number : numbers) texts.push_back(graph.texts->text(number).value_or(""));
  }

  // Call it after the read: an array of numbers, or a list of texts.
  nb::object given(const Graph& graph) && {
    if (graph.texts != nullptr) return nb::cast(std::move(texts));
    return nb::cast(bindings::given(std::move(numbers)));
  }
};

}  // namespace livegnn::bindings
