// Takes a Python lock if it is free, for a `with` statement.
//
// A signal handler may raise between Python's own `acquire` and the next line, or between a test and `release`; then
// the lock would be kept for ever. No bytecode, and so no handler, runs between the steps here.
#include "bindings/module.h"

namespace livegnn::bindings {

namespace {

struct TryLock {
  nb::object lock;
  bool taken = false;
};

}  // namespace

void bind_try_lock(nb::module_& module) {
  nb::class_<TryLock>(module, "TryLock")
      .def(
          "__init__", [](TryLock* self, nb::object lock) { new (self) TryLock{std::move(lock)}; }, nb::arg("lock"))
      .def("__enter__",
           [](TryLock& self) {
             self.taken = nb::cast<bool>(self.lock.attr("acquire")(false));
             return self.taken;
           })
      .def("__exit__", [](TryLock& self, const nb::args&) {
        if (self.taken) self.lock.attr("release")();
      });
}

}  // namespace livegnn::bindings
