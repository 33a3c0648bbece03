// SPDX-License-Identifier: Apache-2.0
// simt_bench_<flavour> CASE [order=forward|reverse|random] [seed=N] [resident=N] [preempt=0|1]
//                           [deferred=0|1]
// Exit status: 0 as expected, 1 wrong values, 2 the engine reported a fault; sanitizers have their
// own.
#include "bench.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace simt_bench {
namespace {
std::map<std::string, Run>& cases() {
  static std::map<std::string, Run> all;
  return all;
}
int g_wrong = 0;
}  // namespace

bool add_case(const char* name, Run run) { return cases().emplace(name, run).second; }

void wrong(const char* file, int line, const char* expectation) {
  if (++g_wrong <= 5) std::printf("wrong: %s:%d: %s\n", file, line, expectation);
}

namespace {

bool read_option(const std::string& argument, hetero_spec::simt::Options& options) {
  using hetero_spec::simt::Order;
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
  if (name == "order") {
    options.order = value == "forward"   ? Order::kForward
                    : value == "reverse" ? Order::kReverse
                                         : Order::kRandom;
  } else if (name == "seed") {
    options.seed = std::strtoull(value.c_str(), nullptr, 10);
  } else if (name == "resident") {
    options.resident_blocks = unsigned(std::strtoul(value.c_str(), nullptr, 10));
  } else if (name == "preempt") {
    options.preempt = value == "1";
  } else if (name == "deferred") {
    options.deferred_streams = value == "1";
  } else {
    return false;
  }
  return true;
}

void print_traffic(const hetero_spec::simt::traffic::Traffic& traffic) {
  const auto print = [](const char* name, std::uint64_t value) {
    std::printf("%s %llu\n", name, static_cast<unsigned long long>(value));
  };
  print("load_bytes", traffic.load_bytes);
  print("store_bytes", traffic.store_bytes);
  print("wide_load_bytes", traffic.wide_load_bytes);
  print("atomics", traffic.atomics);
  print("load_requests", traffic.load_requests);
  print("load_sectors", traffic.load_sectors);
  print("store_requests", traffic.store_requests);
  print("store_sectors", traffic.store_sectors);
  print("unique_load_sectors", traffic.unique_load_sectors);
  print("shared_requests", traffic.shared_requests);
  print("shared_wavefronts", traffic.shared_wavefronts);
  print("uninitialised_shared_loads", traffic.uninitialised_shared_loads);
}

int run(int argument_count, char** arguments) {
  hetero_spec::simt::Options options;
  for (int index = 2; index < argument_count; ++index) {
    if (!read_option(arguments[index], options)) {
      std::fprintf(stderr, "unknown option %s\n", arguments[index]);
      return 64;
    }
  }
  const auto found = cases().find(argument_count > 1 ? arguments[1] : "");
  if (found == cases().end()) {
    for (const auto& [name, run] : cases()) std::printf("%s\n", name.c_str());
    return argument_count > 1 ? 64 : 0;
  }
  hetero_spec::simt::configure(options);
  try {
    found->second();
  } catch (const hetero_spec::simt::Error& error) {
    std::printf("error: %s\n", error.what());
    return 2;
  }
  if (hetero_spec::simt::traffic::kEnabled) print_traffic(hetero_spec::simt::traffic::take());
  return g_wrong != 0 ? 1 : 0;
}

}  // namespace
}  // namespace simt_bench

int main(int argument_count, char** arguments) {
  return simt_bench::run(argument_count, arguments);
}
