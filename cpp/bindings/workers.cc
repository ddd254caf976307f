// Sampling and serving workers without a graph: blocks of bytes in, blocks and samples out.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/locks.h"
#include "bindings/module.h"
#include "bindings/saved_arrays.h"
#include "bindings/subgraph.h"
#include "ids/owners.h"
#include "memory/leases.h"
#include "presampling/cache/cache_assembly.h"
#include "presampling/cache/sample_cache.h"
#include "presampling/sampled_predictions.h"
#include "presampling/shard/sampling_shard.h"
#include "threads/fair_lock.h"
#include "threads/waiting.h"

namespace livegnn::bindings {
namespace {

constexpr size_t kKeyBytes = 11;  // of an entry that a cache has evicted

// Source type, target type, undirected, weighted, timed.
using GivenEdgeType = std::tuple<uint32_t, uint32_t, bool, bool, bool>;

// Samples carry the weights and times that their edge types have, as those beside a graph do.
QueryPlan plan_of(uint32_t seed_type, size_t num_node_types, const std::vector<GivenEdgeType>& edge_types,
                  const std::vector<GivenOneHop>& one_hops) {
  std::vector<PlannedEdgeType> types;
  for (const auto& [source, target, undirected, weighted, timed] : edge_types) {
    types.push_back({source, target, undirected, weighted, timed});
  }
  std::vector<OneHopRequest> requests;
  for (const auto& [edge_type, incoming, count, by, parents] : one_hops) {
    const bool known = edge_type < types.size();  // else the plan says so
    requests.push_back({edge_type, incoming, count, static_cast<SampleBy>(by), parents,
                        known && types[edge_type].weighted, known && types[edge_type].timed});
  }
  return QueryPlan(seed_type, num_node_types, types, requests);
}

std::span<const uint64_t> ids_in(const In<int64_t>& ids) {
  return {reinterpret_cast<const uint64_t*>(ids.data()), ids.shape(0)};
}
template <class T>
std::span<const T> column_in(const std::optional<In<T>>& column) {
  return column ? std::span<const T>(column->data(), column->shape(0)) : std::span<const T>();
}

// Blocks are read at addresses that are multiples of 8, as those of Python's bytes are here.
class Blocks {
 public:
  Blocks(Blocks&&) = default;
  explicit Blocks(const nb::bytes& from) : bytes_{reinterpret_cast<const uint8_t*>(from.c_str()), from.size()} {
    if (reinterpret_cast<uintptr_t>(bytes_.data()) % sizeof(uint64_t) == 0) return;
    copy_.resize(bytes_.size() / sizeof(uint64_t) + 1);
    std::memcpy(copy_.data(), bytes_.data(), bytes_.size());
    bytes_ = {reinterpret_cast<const uint8_t*>(copy_.data()), bytes_.size()};
  }
  operator std::span<const uint8_t>() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
  std::vector<uint64_t> copy_;
};

nb::bytes bytes_of(std::span<const uint8_t> from) { return nb::bytes(from.data(), from.size()); }

// -- the sampling worker

constexpr size_t kMuch = SIZE_MAX;
constexpr size_t kEdge = 16;  // an edge, or a node, is as much work as so many rows that are read

// One thread uses a shard at a time: others wait.
struct HeldShard {
  HeldShard(QueryPlan plan, ShardOptions options) : shard(std::move(plan), std::move(options)) {}

  template <class Body>
  auto use(size_t size, const Body& body) {
    return write_under(lock, size, [&] { return body(shard); });
  }

  SamplingShard shard;
  Checked<std::mutex> lock;
};

void make_shard(HeldShard* self, uint32_t seed_type, size_t num_node_types,
                const std::vector<GivenEdgeType>& edge_types, const std::vector<GivenOneHop>& one_hops,
                std::vector<size_t> feature_widths, uint32_t worker, uint32_t sampling_workers,
                uint32_t serving_workers, uint64_t seed, bool keep_edges) {
  new (self) HeldShard(plan_of(seed_type, num_node_types, edge_types, one_hops),
                       {worker, sampling_workers, serving_workers, seed, keep_edges, std::move(feature_widths)});
}

void add_edges(HeldShard& self, uint32_t edge_type, const In<int64_t>& sources, const In<int64_t>& targets,
               const std::optional<In<float>>& weights, const std::optional<In<double>>& times) {
  const EdgeBatch edges{ids_in(sources), ids_in(targets), column_in(weights), column_in(times)};
  self.use(kEdge * edges.sources.size(), [&](SamplingShard& shard) { shard.add_edges(edge_type, edges); });
}

void remove_edges(HeldShard& self, uint32_t edge_type, const In<int64_t>& sources, const In<int64_t>& targets) {
  const EdgeBatch edges{ids_in(sources), ids_in(targets)};
  self.use(kEdge * edges.sources.size(), [&](SamplingShard& shard) { shard.remove_edges(edge_type, edges); });
}

void set_features(HeldShard& self, uint32_t node_type, const In<int64_t>& nodes, const InRows<float>& rows) {
  if (rows.shape(0) != nodes.shape(0)) {
    throw std::invalid_argument("expected a row of features for each of " + std::to_string(nodes.shape(0)) +
                                " nodes, got " + std::to_string(rows.shape(0)));
  }
  self.use(kEdge * nodes.shape(0),
           [&](SamplingShard& shard) { shard.set_features(node_type, ids_in(nodes), {rows.data(), rows.size()}); });
}

// What is to be sent to each serving worker, and to each sampling worker. The bytes are made before what was sent is
// forgotten, and under the lock: other threads wait for it without the GIL.
nb::tuple take_outbox(HeldShard& self) {
  std::vector<std::vector<uint8_t>> serving, sampling;
  self.use(kMuch, [&](SamplingShard& shard) {
    shard.finish();
    const auto take = [](std::span<const uint8_t> bytes, auto* to) { to->emplace_back(bytes.begin(), bytes.end()); };
    for (uint32_t w = 0; w < shard.num_serving(); ++w) take(shard.for_serving(w), &serving);
    for (uint32_t w = 0; w < shard.options().sampling_workers; ++w) take(shard.for_sampling(w), &sampling);
    shard.clear_outbox();
  });
  nb::list for_serving, for_sampling;
  for (const auto& bytes : serving) for_serving.append(bytes_of(bytes));
  for (const auto& bytes : sampling) for_sampling.append(bytes_of(bytes));
  return nb::make_tuple(for_serving, for_sampling);
}

nb::dict save(HeldShard& self) {
  Arrays arrays;
  self.use(kMuch, [&](SamplingShard& shard) { shard.save(&arrays); });
  return to_python(std::move(arrays));
}

void load(HeldShard& self, const nb::dict& arrays) {
  const ArrayViews views = from_python(arrays);
  self.use(kMuch, [&](SamplingShard& shard) { shard.load(views); });
}

void begin_move(HeldShard& self, const Owners& next) {
  self.use(kMuch, [&](SamplingShard& shard) { shard.begin_move(next); });
}

void bind_shard(nb::module_& module) {
  nb::class_<HeldShard>(module, "SamplingShard")
      .def("__init__", &make_shard)
      .def("add_edges", &add_edges, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("remove_edges", &remove_edges)
      .def("set_features", &set_features)
      .def("add_missing",
           [](HeldShard& self, uint32_t node_type, const In<int64_t>& nodes, const In<float>& row) {
             self.use(kEdge * nodes.shape(0), [&](SamplingShard& shard) {
               shard.add_missing(node_type, ids_in(nodes), {row.data(), row.shape(0)});
             });
           })
      .def("remove_nodes",
           [](HeldShard& self, uint32_t node_type, const In<int64_t>& nodes) {
             self.use(kMuch, [&](SamplingShard& shard) { shard.remove_nodes(node_type, ids_in(nodes)); });
           })
      .def("expire",
           [](HeldShard& self, uint32_t edge_type, double before) {
             self.use(kMuch, [&](SamplingShard& shard) { shard.expire(edge_type, before); });
           })
      .def("receive",
           [](HeldShard& self, const nb::bytes& bytes) {
             const Blocks blocks(bytes);
             self.use(bytes.size(), [&](SamplingShard& shard) { shard.receive(blocks); });
           })
      .def("publish_all",
           [](HeldShard& self, uint32_t serving_worker) {
             self.use(kMuch, [&](SamplingShard& shard) { shard.publish_all(serving_worker); });
           })
      .def("begin_move", &begin_move)
      .def("end_move",
           [](HeldShard& self, bool taken) { self.use(kMuch, [&](SamplingShard& shard) { shard.end_move(taken); }); })
      .def("take_outbox", &take_outbox)
      .def("save", &save)
      .def("load", &load)
      .def("bytes", [](HeldShard& self) { return self.use(1, [](SamplingShard& shard) { return shard.bytes(); }); })
      .def("records_written",
           [](HeldShard& self) { return self.use(1, [](SamplingShard& shard) { return shard.records_written(); }); });
}

// -- the serving worker

// Any number of threads sample while nobody applies.
struct HeldCache {
  HeldCache(QueryPlan plan, const std::vector<size_t>& widths, uint32_t worker, uint32_t sampling_workers)
      : cache(std::move(plan), widths, worker, sampling_workers), carried(CacheAssembly::carried_by(cache.plan())) {}

  Leases<CacheAssembly>::Lease take() {
    return assemblies.take([&] { return std::make_unique<CacheAssembly>(cache); });
  }
  // The amount of work of a sample of so many seeds.
  size_t size_of(size_t seeds) const {
    const uint64_t most = cache.plan().max_feature_lookups();
    return most > kQuick ? SIZE_MAX : seeds * static_cast<size_t>(most);
  }
  void check_node_type(uint32_t node_type) const {
    if (node_type >= cache.plan().num_node_types()) {
      throw std::invalid_argument("there is no node type " + std::to_string(node_type));
    }
  }

  SampleCache cache;
  std::vector<CacheAssembly::CarriedColumns> carried;
  Leases<CacheAssembly> assemblies{4, size_t{1} << 20};
  mutable Checked<FairLock> lock;
};

void make_cache(HeldCache* self, uint32_t seed_type, size_t num_node_types,
                const std::vector<GivenEdgeType>& edge_types, const std::vector<GivenOneHop>& one_hops,
                const std::vector<size_t>& feature_widths, uint32_t worker, uint32_t sampling_workers) {
  new (self)
      HeldCache(plan_of(seed_type, num_node_types, edge_types, one_hops), feature_widths, worker, sampling_workers);
}

void apply(HeldCache& self, const nb::bytes& bytes) {
  const Blocks blocks(bytes);
  write_under(self.lock, kMuch, [&] { self.cache.apply(blocks); });
}

nb::tuple sample_given(const HeldCache& self, Subgraph&& out, bool attributes) {
  std::vector<DrawnIds> drawn;
  for (auto& type : out.nodes) drawn.emplace_back(std::move(type.ids));
  return given(
      std::move(out), std::move(drawn), attributes,
      [&](size_t t) { return self.cache.features(static_cast<uint32_t>(t)).width(); },
      [&](size_t e) { return EdgeShape{self.carried[e].weighted, self.carried[e].timed, 0}; });
}

nb::tuple sample_cached(HeldCache& self, const In<int64_t>& ids, bool attributes) {
  Subgraph out;
  read_under(self.lock, self.size_of(ids.shape(0)),
             [&] { out = self.take()->sample({ids.data(), ids.shape(0)}, attributes); });
  return sample_given(self, std::move(out), attributes);
}

// The prediction of each seed on its own sample; and how many there are, or the position of the first whose sample
// cannot be computed. Blocks may be applied between two samples, as between two calls.
nb::tuple predict(HeldCache& self, const Forward& forward, size_t output, std::vector<uint32_t> node_types,
                  std::vector<uint32_t> edge_types, const In<int64_t>& ids) {
  constexpr size_t kAtOnce = 64;  // a millisecond or two
  const size_t count = ids.shape(0);
  SampledPredictions predictions(forward, output, {std::move(node_types), std::move(edge_types)});
  auto out = rows<float>(count, predictions.width());
  size_t done = 0;
  read_in_turns(self.lock, predictions.work(self.size_of(count)), count, kAtOnce, [&](size_t first, size_t end) {
    float* const to = out.data() + first * predictions.width();
    done = first + predictions.predict(self.take().get(), {ids.data() + first, end - first}, to);
    return done == end;
  });
  return nb::make_tuple(out, done);
}

// For benchmarks: the sample of each node by itself, put together and thrown away, without Python between them. Returns
// the number of edges.
size_t sample_each_cached(HeldCache& self, const In<int64_t>& ids, bool attributes) {
  return read_under(self.lock, SIZE_MAX, [&] {
    CacheAssembly assembly(self.cache);
    size_t edges = 0;
    for (size_t i = 0; i < ids.shape(0); ++i) {
      const Subgraph out = assembly.sample({ids.data() + i, 1}, attributes);
      for (const auto& type : out.edges) edges += type.row.size();
    }
    return edges;
  });
}

Out<bool> has_features(HeldCache& self, uint32_t node_type, const In<int64_t>& ids) {
  self.check_node_type(node_type);
  auto out = array<bool>(ids.shape(0));
  read_under(self.lock, ids.shape(0), [&] {
    const FeatureTable& table = self.cache.features(node_type);
    const std::span<const uint64_t> nodes = ids_in(ids);
    for (size_t i = 0; i < nodes.size(); ++i) out.data()[i] = table.row_of(nodes[i]) != FeatureTable::kNoRow;
  });
  return out;
}

// -- a cache that spills (sample_cache.h)

// Kind; query or node type, and node, big-endian: 11 bytes, so that what is looked up together lies together on a disk.
nb::bytes bytes_of(const EntryKey& key) {
  uint8_t bytes[kKeyBytes] = {static_cast<uint8_t>(key.kind), static_cast<uint8_t>(key.what >> 8),
                              static_cast<uint8_t>(key.what)};
  for (int i = 0; i < 8; ++i) bytes[3 + i] = static_cast<uint8_t>(key.node >> (56 - 8 * i));
  return nb::bytes(bytes, sizeof(bytes));
}

EntryKey key_of(const nb::bytes& from) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from.c_str());
  if (from.size() != kKeyBytes) throw std::invalid_argument("the key of an entry has 11 bytes");
  EntryKey key{static_cast<RecordKind>(bytes[0]), uint32_t{bytes[1]} << 8 | bytes[2], 0};
  for (int i = 0; i < 8; ++i) key.node = key.node << 8 | bytes[3 + i];
  return key;
}

nb::list keys_given(const std::vector<EntryKey>& keys) {
  nb::list all;
  for (const EntryKey& key : keys) all.append(bytes_of(key));
  return all;
}

// Where the next block begins, and what the owner of evicted entries must forget.
nb::tuple apply_block(HeldCache& self, const nb::bytes& bytes, size_t at) {
  const Blocks blocks(bytes);
  std::span<const uint8_t> rest = blocks;
  if (at > rest.size()) throw std::invalid_argument("there are fewer bytes of blocks");
  rest = rest.subspan(at);
  const std::vector<EntryKey> gone = write_under(self.lock, kMuch, [&] {
    self.cache.apply_block(&rest);
    return self.cache.take_gone();
  });
  return nb::make_tuple(bytes.size() - rest.size(), keys_given(gone));
}

nb::tuple evict(HeldCache& self, size_t bytes) {
  Eviction eviction{bytes};
  while (write_under(self.lock, kMuch, [&] { return self.cache.evict(&eviction); })) {  // readers go between
  }
  const EvictedEntries& evicted = eviction.entries;
  try {
    nb::list records;
    for (size_t i = 0; i < evicted.keys.size(); ++i) records.append(bytes_of(evicted.record(i)));
    return nb::make_tuple(keys_given(evicted.keys), records);
  } catch (...) {  // there is no memory for the result, and nobody else has the entries
    write_under(self.lock, kMuch, [&] {
      for (size_t i = 0; i < evicted.keys.size(); ++i) self.cache.restore(evicted.keys[i], evicted.record(i), false);
    });
    throw;
  }
}

void restore(HeldCache& self, const std::vector<nb::bytes>& keys, const std::vector<nb::bytes>& records, bool kept) {
  if (keys.size() != records.size()) throw std::invalid_argument("there must be as many records as keys");
  std::vector<EntryKey> parsed;
  std::vector<Blocks> bytes;
  for (const nb::bytes& key : keys) parsed.push_back(key_of(key));
  for (const nb::bytes& record : records) bytes.emplace_back(record);
  write_under(self.lock, kMuch, [&] {
    for (size_t i = 0; i < parsed.size(); ++i) self.cache.restore(parsed[i], bytes[i], kept);
  });
}

// A sample, what was evicted that belongs to it, and the version that it is of.
nb::tuple sample_noting(HeldCache& self, const In<int64_t>& ids, bool attributes) {
  Subgraph out;
  std::vector<EntryKey> missing;
  uint64_t version = 0;
  read_under(self.lock, self.size_of(ids.shape(0)), [&] {
    auto assembly = self.take();
    out = assembly->sample({ids.data(), ids.shape(0)}, attributes);
    missing = assembly->missing();
    version = self.cache.version();
  });
  return nb::make_tuple(sample_given(self, std::move(out), attributes), keys_given(missing), version);
}

// Whether rows are there, and the positions and keys of those that may be evicted.
nb::tuple has_features_noting(HeldCache& self, uint32_t node_type, const In<int64_t>& ids) {
  self.check_node_type(node_type);
  auto out = array<bool>(ids.shape(0));
  std::vector<int64_t> places;
  std::vector<EntryKey> missing;
  read_under(self.lock, ids.shape(0), [&] {
    const std::span<const uint64_t> nodes = ids_in(ids);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const EntryKey key{RecordKind::kFeatures, node_type, nodes[i]};
      out.data()[i] = self.cache.features(node_type).row_of(nodes[i]) != FeatureTable::kNoRow;
      if (out.data()[i] || !self.cache.may_be_evicted(key)) continue;
      places.push_back(static_cast<int64_t>(i));
      missing.push_back(key);
    }
  });
  return nb::make_tuple(out, given(std::move(places)), keys_given(missing));
}

void bind_spilling(nb::class_<HeldCache>& cache) {
  cache
      .def("spill", [](HeldCache& self,
                       size_t filter_bytes) { write_under(self.lock, kMuch, [&] { self.cache.spill(filter_bytes); }); })
      .def("apply_block", &apply_block)
      .def("evict", &evict)
      .def("restore", &restore)
      .def("sample_noting", &sample_noting)
      .def("has_features_noting", &has_features_noting)
      .def("version",
           [](const HeldCache& self) { return read_under(self.lock, 1, [&] { return self.cache.version(); }); });
}

void bind_cache(nb::module_& module) {
  nb::class_<HeldCache> cache(module, "SampleCache");
  cache.def("__init__", &make_cache)
      .def("apply", &apply)
      .def("restart",
           [](HeldCache& self, uint32_t sender) { write_under(self.lock, kMuch, [&] { self.cache.restart(sender); }); })
      .def("restart_all",
           [](HeldCache& self, uint32_t sampling_workers) {
             write_under(self.lock, kMuch, [&] { self.cache.restart_all(sampling_workers); });
           })
      .def("clear", [](HeldCache& self) { write_under(self.lock, kMuch, [&] { self.cache.clear(); }); })
      .def("sample", &sample_cached)
      .def("predict", &predict)
      .def("sample_each", &sample_each_cached)
      .def("has_features", &has_features)
      .def("num_samples",
           [](const HeldCache& self, uint32_t query) {
             if (query >= self.cache.plan().size()) {
               throw std::invalid_argument("there is no one-hop query " + std::to_string(query));
             }
             return read_under(self.lock, 1, [&] { return self.cache.num_samples(query); });
           })
      .def("num_features",
           [](const HeldCache& self, uint32_t node_type) {
             self.check_node_type(node_type);
             return read_under(self.lock, 1, [&] { return self.cache.num_features(node_type); });
           })
      .def("bytes", [](const HeldCache& self) {
        return read_under(self.lock, 1, [&] { return self.cache.bytes() + self.assemblies.bytes(); });
      });
  bind_spilling(cache);
}

}  // namespace

void bind_workers(nb::module_& module) {
  bind_shard(module);
  bind_cache(module);
}

}  // namespace livegnn::bindings
