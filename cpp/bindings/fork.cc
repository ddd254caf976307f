// Forks a process that has the graph, and all that follows it, as they are now: the memory is copied on write.
//
// The process has only the thread that forked, so what other threads hold would stay locked in it for ever. The caller
// holds the Python locks of graph and views, so no batch runs; here no reader is inside, and nobody reads or makes texts.
// A child's own locks are then made free. The interpreter and the allocator look after theirs.
//
// In the child all signals are blocked but SIGKILL: those to the whole group of processes are for the parent to answer.
// The child is killed when the thread that forked it ends, and so when the parent does, however that ends.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <system_error>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "bindings/locks.h"
#include "bindings/module.h"

namespace livegnn::bindings {

namespace {

[[maybe_unused]] void die_with(pid_t parent) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (getppid() != parent) _exit(1);  // it was dead already
}

// With the interpreter's lock. Returns 0 in the child, and the child's number, or -1 and `errno`, in the parent.
pid_t fork_with_signals_blocked() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t parent = getpid();
  PyOS_BeforeFork();
  const pid_t child = ::fork();
  const int error = errno;
  if (child == 0) {
    die_with(parent);
    PyOS_AfterFork_Child();
    return 0;
  }
  PyOS_AfterFork_Parent();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return child;
}

// The texts' lock comes after the interpreter's, because threads wait for it while they hold that.
pid_t fork_alone(Graph& graph) {
  refuse_in_function();
  nb::gil_scoped_release release;
  std::unique_lock alone(graph.lock);
  nb::gil_scoped_acquire acquire;
  std::unique_lock<FairLock> texts;
  if (graph.texts) texts = std::unique_lock(graph.texts->lock());
  const pid_t child = fork_with_signals_blocked();
  const int error = errno;
  if (child == 0) {
    if (graph.texts) texts.release()->renew();
    alone.release()->renew();
  }
  if (child < 0) throw std::system_error(error, std::generic_category(), "no process can be forked");
  return child;
}

}  // namespace

void bind_fork(nb::module_& module) { module.def("fork", &fork_alone); }

}  // namespace livegnn::bindings
