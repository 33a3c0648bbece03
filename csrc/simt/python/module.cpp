// SPDX-License-Identifier: Apache-2.0
// _simt_<flavour>: the CUDA sources of the ops, run on the CPU, on NumPy arrays. For tests only.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "simt/engine.h"
#include "simt/python/device_array.h"
#include "simt/traffic.h"

namespace hetero_spec::simt_python {

std::map<std::uintptr_t, std::string>& buffer_names() {
  static auto& names = *new std::map<std::uintptr_t, std::string>;
  return names;
}

#define HETERO_SPEC_BIND(op) void bind_##op(py::module_& module);
#include "simt/python/ops.inc"
#undef HETERO_SPEC_BIND

namespace {

void configure(const std::string& order, std::uint64_t seed, unsigned resident_blocks, bool preempt,
               bool deferred_streams) {
  simt::Options options;
  if (order == "forward") {
    options.order = simt::Order::kForward;
  } else if (order == "reverse") {
    options.order = simt::Order::kReverse;
  } else if (order == "random") {
    options.order = simt::Order::kRandom;
  } else {
    throw std::invalid_argument("configure: order must be forward, reverse or random, got " +
                                order);
  }
  options.seed = seed;
  options.resident_blocks = resident_blocks;
  options.preempt = preempt;
  options.deferred_streams = deferred_streams;
  simt::configure(options);
}

py::dict take_traffic() {
  const simt::traffic::Traffic traffic = simt::traffic::take();
  py::dict loads, stores, out;
  for (const auto& buffer : traffic.buffers) {
    const auto found = buffer_names().find(buffer.address);
    const std::string name = found == buffer_names().end() ? "unnamed" : found->second;
    const auto add = [&](py::dict& to, std::uint64_t bytes) {
      const py::str key(name);
      const std::uint64_t before = to.contains(key) ? to[key].cast<std::uint64_t>() : 0;
      to[key] = before + bytes;
    };
    add(loads, buffer.load_bytes);
    add(stores, buffer.store_bytes);
  }
  out["loads"] = loads;
  out["stores"] = stores;
  out["load_bytes"] = traffic.load_bytes;
  out["store_bytes"] = traffic.store_bytes;
  out["wide_load_bytes"] = traffic.wide_load_bytes;
  out["atomics"] = traffic.atomics;
  out["load_requests"] = traffic.load_requests;
  out["load_sectors"] = traffic.load_sectors;
  out["unique_load_sectors"] = traffic.unique_load_sectors;
  out["store_requests"] = traffic.store_requests;
  out["store_sectors"] = traffic.store_sectors;
  out["shared_requests"] = traffic.shared_requests;
  out["shared_wavefronts"] = traffic.shared_wavefronts;
  out["uninitialised_shared_loads"] = traffic.uninitialised_shared_loads;
  return out;
}

}  // namespace
}  // namespace hetero_spec::simt_python

PYBIND11_MODULE(HETERO_SPEC_SIMT_MODULE, module) {
  namespace py = pybind11;
  using namespace hetero_spec;
  py::register_exception<simt::Error>(module, "Error");
  module.def("configure", &simt_python::configure, py::arg("order") = "forward",
             py::arg("seed") = 1, py::arg("resident_blocks") = 1, py::arg("preempt") = false,
             py::arg("deferred_streams") = false);
  module.def("launch_count", &simt::launch_count);
  module.def("take_traffic", &simt_python::take_traffic);
  module.attr("counts_traffic") = simt::traffic::kEnabled;
#define HETERO_SPEC_BIND(op) simt_python::bind_##op(module);
#include "simt/python/ops.inc"
#undef HETERO_SPEC_BIND
}
