#include <exception>
#include <system_error>

#include "bindings/module.h"
#include "store/stage.h"
#include "threads/parallel.h"

namespace livegnn::bindings {

void bind_errors(nb::module_& module) {
  static nb::object event_error = nb::steal(PyErr_NewException("livegnn._core.EventError", PyExc_ValueError, nullptr));
  module.attr("EventError") = event_error;
  static nb::object thread_error = nb::steal(PyErr_NewException("livegnn._core.ThreadError", PyExc_OSError, nullptr));
  module.attr("ThreadError") = thread_error;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const EventError& error) {
      nb::tuple args = nb::make_tuple(static_cast<int>(error.kind), error.what(), error.id, error.type, error.target);
      PyErr_SetObject(event_error.ptr(), args.ptr());
    } catch (const ThreadError& error) {
      nb::object args = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(thread_error.ptr(), args.ptr());
    } catch (const std::system_error& error) {
      nb::object args = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, args.ptr());
    }
  });
}

}  // namespace livegnn::bindings
