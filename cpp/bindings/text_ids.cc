#include "ids/text_ids.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/ids.h"
#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {
namespace {

auto code_points(const InRows<uint32_t>& texts) {
  return [from = texts.data(), width = texts.shape(1)](size_t i) { return utf8(from + i * width, width); };
}

// The numbers of `count` texts: `call(count, text_at, out)` finds them.
template <class TextAt, class Call>
Out<int64_t> numbers_of(size_t count, const TextAt& text_at, const Call& call) {
  auto out = array<int64_t>(count);
  run(count > TextIds::kAtOnce, [&] { call(count, [&](size_t i) { return text_at(i); }, out.data()); });
  return out;
}

}  // namespace

void bind_text_ids(nb::module_& module) {
  nb::class_<TextIds>(module, "TextIds")
      .def(nb::init<>())
      .def("intern",
           [](TextIds& self, InRows<uint32_t> texts) {
             return numbers_of(texts.shape(0), code_points(texts),
                               [&](size_t n, auto text, int64_t* out) { self.intern(n, text, out); });
           })
      .def("intern",
           [](TextIds& self, const GivenTexts& given) {
             const TextsView texts(given);
             return numbers_of(texts.size(), texts,
                               [&](size_t n, auto text, int64_t* out) { self.intern(n, text, out); });
           })
      .def("find",
           [](const TextIds& self, InRows<uint32_t> texts) {
             return numbers_of(texts.shape(0), code_points(texts),
                               [&](size_t n, auto text, int64_t* out) { self.find(n, text, out); });
           })
      .def("find",
           [](const TextIds& self, const GivenTexts& given) {
             const TextsView texts(given);
             return numbers_of(texts.size(), texts,
                               [&](size_t n, auto text, int64_t* out) { self.find(n, text, out); });
           })
      .def("texts",
           [](const TextIds& self, In<int64_t> numbers) {
             std::vector<std::string> out(numbers.shape(0));
             self.read(numbers.data(), numbers.shape(0), [&](size_t i, const std::string* text) {
               if (text == nullptr)
                 throw std::out_of_range("no text has the number " + std::to_string(numbers.data()[i]));
               out[i] = *text;
             });
             return out;
           })
      // UTF-8 texts, one after the other, and the length of each.
      .def("encode",
           [](const TextIds& self, In<int64_t> numbers) {
             std::vector<uint8_t> bytes;
             std::vector<int64_t> lengths;
             as_writer([&] {
               self.read(numbers.data(), numbers.shape(0), [&](size_t i, const std::string* text) {
                 if (text == nullptr)
                   throw std::out_of_range("no text has the number " + std::to_string(numbers.data()[i]));
                 bytes.insert(bytes.end(), text->begin(), text->end());
                 lengths.push_back(static_cast<int64_t>(text->size()));
               });
             });
             return nb::make_tuple(given(std::move(bytes)), given(std::move(lengths)));
           })
      .def("collect", [](TextIds& self) { run(true, [&] { self.collect(); }); })
      .def("__len__", &TextIds::size)
      .def("bytes", &TextIds::bytes);

  nb::class_<TextPin>(module, "TextPin")
      .def(nb::init<std::shared_ptr<TextIds>>(), nb::arg().none())
      .def("close", &TextPin::close)
      .def("let_go", &TextPin::let_go)
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](TextPin& self, nb::args) { self.let_go(); });
}

}  // namespace livegnn::bindings
