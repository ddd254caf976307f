#include "bindings/module.h"

#include "bindings/locks.h"
#include "program/kernels.h"
#include "store/samtree/leaf.h"

NB_MODULE(_core, module) {
  module.doc() = "The native core of LiveGNN.";
  // A graph and a view in Python hold each other: they end with the process, which is no error.
  nanobind::set_leak_warnings(false);
  module.attr("instruction_set") = livegnn::kernels().name;
  module.attr("MAX_WEIGHT") = livegnn::kMaxWeight;
  // For tests (bindings/locks.h): make every read wait; raise an error if a thread might wait while holding the GIL;
  // take the lock while holding the GIL, which that check reports.
  module.def("always_wait", [](bool all) { livegnn::bindings::always_wait = all; });
  module.def("check_waiting", [](bool on) {
    livegnn::before_waiting = on ? +[] {
      if (PyGILState_Check()) throw std::logic_error("a thread was about to wait for a lock while holding the GIL");
    } : nullptr;
  });
  module.def("wait_with_gil", [](const livegnn::Graph& graph) { std::shared_lock wrong(graph.lock); });
  module.def("refuse_in_function", &livegnn::bindings::refuse_in_function);
  livegnn::bindings::bind_errors(module);
  livegnn::bindings::bind_interrupts(module);
  livegnn::bindings::bind_byte_ranges(module);
  livegnn::bindings::bind_usual_events(module);
  livegnn::bindings::bind_usual_rows(module);
  livegnn::bindings::bind_row_cache(module);
  livegnn::bindings::bind_fork(module);
  livegnn::bindings::bind_text_ids(module);
  livegnn::bindings::bind_owners(module);
  livegnn::bindings::bind_stage(module);
  livegnn::bindings::bind_graph(module);
  livegnn::bindings::bind_program(module);
  livegnn::bindings::bind_engine(module);
  livegnn::bindings::bind_supposed_scores(module);
  livegnn::bindings::bind_vector_codes(module);
  livegnn::bindings::bind_parts(module);
  livegnn::bindings::bind_part_states(module);
  livegnn::bindings::bind_lanes(module);
  livegnn::bindings::bind_forward(module);
  livegnn::bindings::bind_views(module);
  livegnn::bindings::bind_sampling(module);
  livegnn::bindings::bind_divided_sampling(module);
  livegnn::bindings::bind_presampling(module);
  livegnn::bindings::bind_workers(module);
}
