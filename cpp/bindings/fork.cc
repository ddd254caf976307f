// Forks a process that has the graph, and all that follows it, as they are now: the memory is copied on write.
//
// The process has only the thread that forked, so what other threads hold would stay locked in it for ever. The caller
// holds the Python locks of graph and views, so no batch runs; here no reader is inside, and nobody reads or makes
// texts. A child's own locks are then made free. The interpreter and the allocator look after theirs.
//
// In the child all signals are blocked but SIGKILL: those to the whole group of processes are for the parent to answer.
// The child is killed when the thread that forked it ends, and so when the parent does, however that ends.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "bindings/locks.h"
#include "bindings/module.h"
#include "memory/huge_pages.h"

namespace livegnn::bindings {

namespace {

[[maybe_unused]] void die_with(pid_t parent) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) _exit(1);  // it was dead already
}

// With the interpreter's lock. Returns 0 in the child; in the parent the child's number, or minus the error.
pid_t fork_with_signals_blocked() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t parent = getpid();
  PyOS_BeforeFork();
  const pid_t child = fork();
  const int error = errno;
  if (child == 0) {
    die_with(parent);
    PyOS_AfterFork_Child();
    return 0;
  }
  PyOS_AfterFork_Parent();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return child > 0 ? child : -error;
}

}  // namespace

void bind_fork(nb::module_& module) {
  module.def("fork", [](Graph& graph) {
    const pid_t child = fork_alone(graph, fork_with_signals_blocked);
    if (child < 0) throw std::system_error(-child, std::generic_category(), "no process can be forked");
    return child;
  });
  module.def("join_huge_pages", [] {
    size_t whole = 0;
    run(true, [&] { whole = join_huge_pages(); });
    return whole;
  });
}

}  // namespace livegnn::bindings
