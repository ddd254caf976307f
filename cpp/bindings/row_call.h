// Functions of the user in a program.
#pragma once

#include <cstring>
#include <span>
#include <string>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "program/program.h"

namespace livegnn::bindings {

// A function of the user, which the engine calls from any thread.
struct RowCall {
  nb::callable function;

  void operator()(size_t count, std::span<const float* const> inputs, std::span<const size_t> widths, size_t width,
                  float* out) const {
    WithGil acquire;
    InFunction running;
    nb::list arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto copied = rows<float>(count, widths[i]);
      std::memcpy(copied.data(), inputs[i], count * widths[i] * sizeof(float));
      arguments.append(nb::cast(copied));
    }
    nb::object result = outlive([&] { return function(*arguments); });
    InRows<float> got;
    if (!nb::try_cast(result, got) || got.shape(0) != count || got.shape(1) != width) {
      const std::string name = nb::cast<std::string>(nb::str(nb::handle(function)));
      throw nb::value_error((name + " must return a float32 array of shape [" + std::to_string(count) + ", " +
                             std::to_string(width) + "], a row for each row that it was given")
                                .c_str());
    }
    std::memcpy(out, got.data(), count * width * sizeof(float));
  }
};

// Functions of a model may refer to what runs them, a T with a `program()`, so the garbage collector must traverse it.
template <class T>
int traverse_functions(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const RowFunction& function : nb::inst_ptr<T>(self)->program().functions) {
    if (const RowCall* call = function.template target<RowCall>()) Py_VISIT(call->function.ptr());
  }
  return 0;
}

template <class T>
int clear_functions(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  for (const RowFunction& function : nb::inst_ptr<T>(self)->program().functions) {
    if (const RowCall* call = function.template target<RowCall>()) const_cast<RowCall*>(call)->function.reset();
  }
  return 0;
}

}  // namespace livegnn::bindings
