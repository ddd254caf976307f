// The interpreter's lock (GIL), given back and taken again, by threads that may outlive the interpreter.
//
// A program may end while a thread computes. From then on CPython before 3.14 ends any thread that asks for the GIL, as
// pthread_exit does: the stack is unwound. A frame that lets nothing through, as those of nanobind do not, would end
// the process with SIGABRT, and destructors would touch Python objects without the GIL. So such a thread stops for good
// where it asks, as in Python 3.14: `outlive` is around whatever may ask for the GIL.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace livegnn::bindings {

// Runs `body`, which calls Python or takes the GIL, and returns its result. Nothing in it is destroyed if the thread is
// ended in there, as far as `body` has no objects of its own.
template <class Body>
auto outlive(const Body& body) {
#ifdef __GLIBCXX__
  try {
    return body();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();  // to leave this block would go on to unwind
  }
#else
  return body();
#endif
}

// Without the GIL as long as it lives.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    outlive([&] { PyEval_RestoreThread(thread_); });
  }
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

// With the GIL as long as it lives, in any thread.
class WithGil {
 public:
  WithGil() : state_(outlive([] { return PyGILState_Ensure(); })) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace livegnn::bindings
