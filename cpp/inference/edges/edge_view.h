// The edges of a type in the direction in which messages flow: from source to target or, `reversed`, from target to
// source.
//
// Code that sums messages uses the terms in-edges (edges that bring messages to a node) and sources (the nodes that
// send them). In a reversed view the in-edges of a node are its out-edges in the graph, and their sources are the nodes
// to which these lead. An undirected type is its own reverse.
//
// A direction is a number: the edge type, or the edge type plus the number of edge types if it is reversed.
//
// Thread safety: the same as the store's. Throws std::logic_error if the store keeps no lists of in-neighbours.
#pragma once

#include <cstddef>
#include <utility>

#include "memory/prefetch.h"
#include "store/graph.h"

namespace livegnn {

class EdgeView {
 public:
  EdgeView(const GraphStore& store, bool reversed) : store_(store) {
    if (store.options().keyed) {
      keyed_out_ = &store.keyed_out();
      keyed_in_ = &store.keyed_in();
      if (reversed) std::swap(keyed_out_, keyed_in_);
    } else {
      out_ = &store.out();
      in_ = &store.in();
      if (reversed) std::swap(out_, in_);
    }
  }

  bool keyed() const { return keyed_out_ != nullptr; }
  uint32_t degree_out(uint32_t node) const { return keyed() ? keyed_out_->degree(node) : out_->degree(node); }
  uint32_t degree_in(uint32_t node) const { return keyed() ? keyed_in_->degree(node) : in_->degree(node); }

  // Like the functions of the store.
  template <class Visit>
  void scan_out(uint32_t node, Visit&& visit) const {
    keyed() ? GraphStore::scan_keyed(*keyed_out_, node, visit) : out_->scan(node, visit);
  }
  template <class Visit>
  void scan_in(uint32_t node, Visit&& visit) const {
    keyed() ? GraphStore::scan_keyed(*keyed_in_, node, visit) : in_->scan(node, visit);
  }
  // Visits the edges from a node to itself, `visit(key, EdgeValue)`, in any order.
  template <class Visit>
  void scan_loops(uint32_t node, Visit&& visit) const {
    store_.scan_between(node, node, visit);
  }

  const void* out_leaf(uint32_t node) const { return keyed() ? keyed_out_->address(node) : out_->address(node); }
  void prefetch_out(uint32_t node) const { keyed() ? keyed_out_->prefetch_root(node) : out_->prefetch_root(node); }
  void prefetch_out_leaf(uint32_t node) const { prefetch(out_leaf(node)); }
  void prefetch_in(uint32_t node) const { keyed() ? keyed_in_->prefetch_root(node) : in_->prefetch_root(node); }
  void prefetch_in_leaf(uint32_t node) const { prefetch(keyed() ? keyed_in_->address(node) : in_->address(node)); }

 private:
  const GraphStore& store_;
  const GraphStore::Trees *out_ = nullptr, *in_ = nullptr;
  const GraphStore::KeyedTrees *keyed_out_ = nullptr, *keyed_in_ = nullptr;  // used instead if edges have keys
};

// The view for a step that sends messages along edges.
template <class Step>
EdgeView view_of(const Graph& graph, const Step& step) {
  return {*graph.edges[step.edge_type].store, step.reversed};
}

template <class Step>
size_t direction_of(const Graph& graph, const Step& step) {
  return step.edge_type + (step.reversed ? graph.edges.size() : 0);
}

inline EdgeView view_at(const Graph& graph, size_t direction) {
  const size_t types = graph.edges.size();
  return {*graph.edges[direction % types].store, direction >= types};
}

// Inserts `forward` and `reversed` for edge types that a graph has got, into a list by direction. Requires: room, so
// that it cannot fail.
template <class List>
void add_directions(const Graph& graph, const typename List::value_type& forward,
                    const typename List::value_type& reversed, List* list) noexcept {
  const size_t before = list->size() / 2, added = graph.edges.size() - before;
  list->insert(list->begin() + static_cast<std::ptrdiff_t>(before), added, forward);
  list->insert(list->end(), added, reversed);
}

// Type of the nodes that receive messages in a direction.
inline uint32_t receiver_type(const Graph& graph, size_t direction) {
  const size_t types = graph.edges.size();
  const EdgeTypeSpec& spec = graph.edges[direction % types].spec;
  return direction < types ? spec.target_type : spec.source_type;
}

// Type of the nodes that send them.
inline uint32_t sender_type(const Graph& graph, size_t direction) {
  const size_t types = graph.edges.size();
  return receiver_type(graph, direction < types ? direction + types : direction - types);
}

}  // namespace livegnn
