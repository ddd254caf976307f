// The parts of the module `livegnn._core`, in the order in which they are bound.
#pragma once

#include <nanobind/nanobind.h>

#include "inference/engine.h"
#include "store/graph.h"

namespace livegnn::bindings {

namespace nb = nanobind;

void bind_errors(nb::module_& module);
void bind_interrupts(nb::module_& module);
void bind_byte_ranges(nb::module_& module);
void bind_usual_events(nb::module_& module);
void bind_usual_rows(nb::module_& module);
void bind_row_cache(nb::module_& module);
void bind_fork(nb::module_& module);
void bind_text_ids(nb::module_& module);
void bind_owners(nb::module_& module);
void bind_stage(nb::module_& module);
void bind_graph(nb::module_& module);
void bind_program(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_supposed_scores(nb::module_& module);
void bind_vector_codes(nb::module_& module);
void bind_parts(nb::module_& module);
void bind_part_states(nb::module_& module);
void bind_lanes(nb::module_& module);
void bind_forward(nb::module_& module);
void bind_views(nb::module_& module);
void bind_sampling(nb::module_& module);
void bind_divided_sampling(nb::module_& module);
void bind_presampling(nb::module_& module);
void bind_workers(nb::module_& module);

// Methods of the class `Graph`: queries of nodes and of edges, saving and loading.
void bind_nodes(nb::class_<Graph>& graph);
void bind_edges(nb::class_<Graph>& graph);
void bind_graph_state(nb::class_<Graph>& graph);

// Methods of the classes `Engine` and `Program`: rows of edge outputs.
void bind_edge_scores(nb::class_<Engine>& engine);
void bind_edge_decoding(nb::class_<Program>& program);

}  // namespace livegnn::bindings
