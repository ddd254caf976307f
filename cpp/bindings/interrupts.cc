// Calls that an exception from outside cannot cut in two.
//
// A signal handler, or a tracer, may raise between any two bytecodes: between a lock's `acquire` and the `try` after
// it, in a `finally`, before the `__exit__` of a `with`. No bytecode, and so no handler, runs between the steps here.
// Python functions that are called from here may be left at any point, and what must follow them follows.
//
// They are functions of Python's own interface: a batch of one event takes microseconds, and goes through several.
#include <nanobind/nanobind.h>

#include "bindings/module.h"
#include "bindings/raised.h"

namespace livegnn::bindings {

namespace {

using Given = PyObject* const*;

// Whether a function runs that was called within it.
struct Section {
  int depth = 0;
};

PyObject* interned(const char* text) {
  return PyUnicode_InternFromString(text);  // lives as long as the process
}

// The first argument, and a call of the second one with the others.
class Call {
 public:
  Call(const char* name, size_t least, Given args, Py_ssize_t count, PyObject* names)
      : args_(args), count_(static_cast<size_t>(count)), least_(least), names_(names) {
    valid = count_ >= least;
    if (!valid) PyErr_Format(PyExc_TypeError, "%s() takes at least %zu arguments, got %zu", name, least, count_);
  }
  nb::handle first() const { return args_[0]; }
  // Calls the function at `place` with what comes after the least arguments.
  nb::object operator()(size_t place) const {
    return nb::steal(
        outlive([&] { return PyObject_Vectorcall(args_[place], args_ + least_, count_ - least_, names_); }));
  }
  bool valid;

 private:
  Given args_;
  size_t count_, least_;
  PyObject* names_;
};

nb::object release(nb::handle lock) {
  static PyObject* const name = interned("release");
  return call_method(lock, name);
}

PyObject* holding(PyObject*, Given args, Py_ssize_t count, PyObject* names) {
  static PyObject* const acquire = interned("acquire");
  const Call call("holding", 2, args, count, names);
  if (!call.valid || !call_method(call.first(), acquire).is_valid()) return nullptr;
  Raised raised;
  nb::object result = call(1);
  raised.none_of(result);
  // A wait on a condition that was left at the wrong moment has not taken the lock again.
  raised.none_of(release(call.first()));
  return raised.restore() ? nullptr : result.release().ptr();
}

PyObject* if_free(PyObject*, Given args, Py_ssize_t count, PyObject* names) {
  static PyObject* const acquire = interned("acquire");
  const Call call("if_free", 2, args, count, names);
  if (!call.valid) return nullptr;
  const nb::object taken =
      nb::steal(outlive([&] { return PyObject_CallMethodOneArg(call.first().ptr(), acquire, Py_False); }));
  if (!taken.is_valid()) return nullptr;
  if (taken.ptr() != Py_True) Py_RETURN_FALSE;
  Raised raised;
  raised.none_of(call(1));
  raised.none_of(release(call.first()));
  if (raised.restore()) return nullptr;
  Py_RETURN_TRUE;
}

PyObject* settled(PyObject*, Given args, Py_ssize_t count, PyObject* names) {
  const Call call("settled", 2, args, count, names);
  if (!call.valid) return nullptr;
  nb::object result = call(0);
  if (result.is_valid()) return result.release().ptr();
  Raised raised;
  raised.none_of(result);
  raised.none_of_two([&] { return nb::steal(outlive([&] { return PyObject_CallNoArgs(args[1]); })); });
  raised.restore();
  return nullptr;
}

nb::object execute(nb::handle connection, const char* statement) {
  static PyObject* const name = interned("execute");
  const nb::object text = nb::steal(PyUnicode_FromString(statement));
  return nb::steal(outlive([&] { return PyObject_CallMethodOneArg(connection.ptr(), name, text.ptr()); }));
}

nb::object roll_back(nb::handle connection) {
  static PyObject* const name = interned("in_transaction");
  nb::object open = nb::steal(outlive([&] { return PyObject_GetAttr(connection.ptr(), name); }));
  return open.ptr() == Py_True ? execute(connection, "ROLLBACK") : open;
}

PyObject* transact(PyObject*, Given args, Py_ssize_t count, PyObject* names) {
  const Call call("transact", 2, args, count, names);
  if (!call.valid) return nullptr;
  // Something may be open: what could not be rolled back when it failed.
  if (!roll_back(call.first()).is_valid() || !execute(call.first(), "BEGIN IMMEDIATE").is_valid()) return nullptr;
  Raised raised;
  nb::object result = call(1);
  if (raised.none_of(result) && raised.none_of(execute(call.first(), "COMMIT"))) return result.release().ptr();
  raised.none_of(roll_back(call.first()));  // a full disk may have ended it
  raised.restore();
  return nullptr;
}

PyObject* within(PyObject*, Given args, Py_ssize_t count, PyObject* names) {
  const Call call("within", 2, args, count, names);
  if (!call.valid) return nullptr;
  if (!nb::isinstance<Section>(call.first())) {
    PyErr_SetString(PyExc_TypeError, "within() takes a Section first");
    return nullptr;
  }
  Section* const section = nb::inst_ptr<Section>(call.first());
  ++section->depth;
  nb::object result = call(1);
  --section->depth;
  return result.release().ptr();
}

template <PyObject* (*function)(PyObject*, Given, Py_ssize_t, PyObject*)>
constexpr PyMethodDef method(const char* name, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)), METH_FASTCALL | METH_KEYWORDS,
          doc};
}

PyMethodDef methods[] = {
    method<holding>("holding", "Calls a function while a lock is held: holding(lock, function, *args, **kwargs)."),
    method<if_free>("if_free", "The same if the lock is free at once; returns whether it was."),
    method<settled>("settled",
                    "settled(function, settle, *args, **kwargs) calls a function; if it raises, settle() too, and once "
                    "more if that raises. Then raises the first exception."),
    method<transact>("transact",
                     "transact(connection, function, *args, **kwargs) calls a function within a transaction of an "
                     "apsw.Connection, which is committed if it returns."),
    method<within>("within", "within(section, function, *args, **kwargs) calls a function while a Section is active."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void bind_interrupts(nb::module_& module) {
  if (PyModule_AddFunctions(module.ptr(), methods) != 0) nb::raise_python_error();
  nb::class_<Section>(module, "Section").def(nb::init<>()).def_prop_ro("active", [](const Section& self) {
    return self.depth > 0;
  });
}

}  // namespace livegnn::bindings
