// What benchmarks/store.py runs: nanobind only, no logic.
#include <malloc.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "bindings/arrays.h"
#include "block_store_peer.h"
#include "contest.h"
#include "csr_peer.h"
#include "hash_map_peer.h"
#include "live_store.h"
#include "memory_rates.h"
#include "peer.h"
#include "presampling_rates.h"
#include "sum_tables.h"

namespace livegnn::bench {
namespace {

namespace nb = nanobind;
using bindings::copy;
using bindings::In;
using bindings::Out;
using Ids = In<uint32_t>;

template <class T>
using Maybe = std::optional<In<T>>;

std::span<const uint32_t> span_of(const Ids& ids) { return {ids.data(), ids.shape(0)}; }

Batch batch_of(const Ids& sources, const Ids& targets, const Maybe<float>& weights, const Maybe<uint8_t>& removed) {
  const size_t size = sources.shape(0);
  if (targets.shape(0) != size || (weights && weights->shape(0) != size) || (removed && removed->shape(0) != size)) {
    throw std::invalid_argument("the columns of a batch must be of equal length");
  }
  return {sources.data(), targets.data(), weights ? weights->data() : nullptr, removed ? removed->data() : nullptr,
          size};
}

template <class Store>
nb::class_<Contest<Store>> bind_contest(nb::module_& module, const char* name) {
  using C = Contest<Store>;
  return nb::class_<C>(module, name)
      .def_prop_ro("num_edges", [](const C& c) { return c.store().num_edges(); })
      .def("bytes", [](const C& c) { return c.store().bytes(); })
      .def("bytes_at_rest", [](const C& c) { return c.store().bytes_at_rest(); })
      .def("check", [](const C& c) { c.store().check(); })
      .def(
          "apply",
          [](C& c, Ids sources, Ids targets, Maybe<float> weights, Maybe<uint8_t> removed, size_t batch_size,
             size_t threads) {
            const Batch batch = batch_of(sources, targets, weights, removed);
            std::vector<double> seconds;
            {
              nb::gil_scoped_release release;
              seconds = c.apply(batch, batch_size, threads);
            }
            return copy(seconds);
          },
          nb::arg("sources"), nb::arg("targets"), nb::arg("weights").none(), nb::arg("removed").none(),
          nb::arg("batch_size"), nb::arg("threads") = 0)
      .def("neighbors",
           [](const C& c, uint32_t node) {
             std::vector<uint32_t> ids;
             std::vector<float> weights;
             c.store().scan(node, [&](uint32_t id, float weight) {
               ids.push_back(id);
               weights.push_back(weight);
             });
             return std::pair(copy(ids), copy(weights));
           })
      .def("draw", [](C& c, Ids seeds, uint32_t k, bool by_weight,
                      uint64_t seed) { return copy(c.draw(span_of(seeds), k, by_weight, seed)); })
      .def(
          "draw_beside_batches",
          [](C& c, Ids seeds, size_t call, uint32_t k, bool by_weight, uint64_t seed, Ids sources, Ids targets,
             Maybe<float> weights, Maybe<uint8_t> removed, size_t batch_size, double interval, double duration) {
            const Batch batch = batch_of(sources, targets, weights, removed);
            typename C::Beside result;
            {
              nb::gil_scoped_release release;
              result = c.draw_beside_batches(span_of(seeds), call, k, by_weight, seed, batch, batch_size, interval,
                                             duration);
            }
            return std::tuple(result.seconds, result.drawn, result.applied, copy(result.latencies));
          },
          nb::arg("seeds"), nb::arg("call"), nb::arg("k"), nb::arg("by_weight"), nb::arg("seed"), nb::arg("sources"),
          nb::arg("targets"), nb::arg("weights").none(), nb::arg("removed").none(), nb::arg("batch_size"),
          nb::arg("interval"), nb::arg("duration"))
      .def("subgraph", [](C& c, Ids seeds, Ids fan_outs, uint64_t seed) {
        const auto [graph, seconds] = c.subgraph(span_of(seeds), span_of(fan_outs), seed);
        return std::tuple(copy(graph.node), copy(graph.row), copy(graph.col), seconds);
      });
}

template <class Shard>
void bind_peer(nb::module_& module, const char* name) {
  bind_contest<Peer<Shard>>(module, name)
      .def(
          "__init__",
          [](Contest<Peer<Shard>>* to, size_t nodes, bool weighted, size_t threads) {
            new (to) Contest<Peer<Shard>>(nodes, threads, weighted, threads);
          },
          nb::arg("nodes"), nb::arg("weighted"), nb::arg("threads"));
}

template <class Table>
void bind_table(nb::module_& module, const char* name) {
  nb::class_<Table>(module, name)
      .def(nb::init<>())
      .def("assign", [](Table& table, In<float> weights) { table.assign(bindings::vector_of(weights)); })
      .def("append", &Table::append)
      .def("update", &Table::update)
      .def("remove", &Table::remove)
      .def("total", &Table::total)
      .def("find", &Table::find)
      .def_static("nanoseconds", [](uint32_t n, uint32_t rounds, uint64_t seed) {
        const TableTimes times = time_table<Table>(n, rounds, seed);
        return std::tuple(times.append, times.update, times.remove, times.draw);
      });
}

NB_MODULE(_store_bench, module) {
  module.doc() = "Contestants of benchmarks/store.py.";
  // Free memory goes back to the system: what grows from here on is what the next contestant takes.
  module.def("trim", [] { malloc_trim(0); });

  module.def("memory_rates", [](size_t megabytes) {
    nb::gil_scoped_release release;
    return memory_rates(megabytes << 20);
  });

  module.def("presampling_rates", [](uint64_t nodes, uint64_t degree, const std::vector<uint32_t>& fan_outs,
                                     bool keep_edges, bool into_cache, uint64_t batch, uint64_t seed) {
    nb::gil_scoped_release release;
    const PresamplingRates rates = presampling_rates(nodes, degree, fan_outs, keep_edges, into_cache, batch, seed);
    return std::tuple(rates.edges, rates.records, rates.bytes, rates.sampling_seconds, rates.caching_seconds,
                      rates.worker_bytes, rates.cache_bytes);
  });

  bind_contest<LiveStore>(module, "LiveStore")
      .def(
          "__init__",
          [](Contest<LiveStore>* to, size_t nodes, bool weighted, size_t threads, uint32_t capacity, uint32_t slack,
             bool compress, bool in_lists) {
            const SamtreeOptions samtree{capacity, slack, compress};
            new (to) Contest<LiveStore>(nodes, threads, weighted, threads, samtree, in_lists);
          },
          nb::arg("nodes"), nb::arg("weighted"), nb::arg("threads"), nb::arg("capacity") = SamtreeOptions{}.capacity,
          nb::arg("slack") = SamtreeOptions{}.slack, nb::arg("compress") = true, nb::arg("in_lists") = false);
  bind_peer<CsrPeer>(module, "CsrPeer");
  bind_peer<HashMapPeer>(module, "HashMapPeer");
  bind_peer<BlockStorePeer>(module, "BlockStorePeer");

  bind_table<RunTable>(module, "RunTable");
  bind_table<PaperTable>(module, "PaperTable");
  bind_table<CumulativeTable>(module, "CumulativeTable");
}

}  // namespace
}  // namespace livegnn::bench
