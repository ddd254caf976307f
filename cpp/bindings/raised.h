// The exception that a Python function raised first, kept while others are called that must follow it. One from
// outside, which is no `Exception`, is raised before any other.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "bindings/gil.h"

namespace livegnn::bindings {

namespace nb = nanobind;

class Raised {
 public:
  // Whether a call returned something: `result` is null if it raised.
  bool none_of(const nb::object& result) {
    if (result.is_valid()) return true;
    nb::object error = take();
    if (!first_.is_valid() || (is_error(first_) && !is_error(error))) first_ = std::move(error);
    return false;
  }
  // The same for what goes on where it was left: it is called once more if it raises.
  template <class Call>
  void none_of_two(const Call& call) {
    if (!none_of(call())) none_of(call());
  }
  // Whether there was an exception; Python's indicator is set then.
  bool restore() const {
    if (!first_.is_valid()) return false;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(first_.ptr())), first_.ptr());
    return true;
  }

 private:
  static nb::object take() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return nb::steal(value);
  }
  static bool is_error(const nb::object& raised) { return PyObject_IsInstance(raised.ptr(), PyExc_Exception) == 1; }

  nb::object first_;
};

// Calls a method without arguments; null if it raised. `name` is an interned string.
inline nb::object call_method(nb::handle self, nb::handle name) {
  return nb::steal(outlive([&] { return PyObject_CallMethodNoArgs(self.ptr(), name.ptr()); }));
}

}  // namespace livegnn::bindings
