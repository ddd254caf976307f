#include "arrays.h"
#include "kernels.h"

NB_MODULE(_core, module) {
  module.doc() = "The native core of LiveGNN.";
  module.attr("instruction_set") = livegnn::kernels().name;
  livegnn::bindings::bind_graph(module);
  livegnn::bindings::bind_engine(module);
  livegnn::bindings::bind_sampling(module);
}
