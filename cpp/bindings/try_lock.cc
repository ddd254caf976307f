// A lock of Python's that is taken if it is free, for a `with` statement.
//
// Between Python's own `acquire` and the line after it, or between a test and `release`, a signal handler may raise,
// and the lock is kept for ever. No bytecode runs between what is done here, so no handler does.
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
