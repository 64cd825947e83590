#include "profile.h"

#include "errors.h"
#include "method.h"

namespace nb = nanobind;

namespace edgewise::python {
namespace {

nb::tuple to_python(const ProfilePart& part) {
  nb::list nodes;
  for (const uint32_t node : part.nodes) nodes.append(node);
  nb::dict counters;
  for (const auto& [name, value] : part.counters) counters[to_text(name)] = value;
  return nb::make_tuple(to_text(part.name), nodes, counters);
}

// Events as (begin, end, instruction, part), in the order in which they ended; parts by the
// numbers that events have.
nb::tuple contents(const CallProfile& call) {
  nb::list events;
  nb::dict parts;
  for (const ProfileEvent& event : call.run.events()) {
    nb::object part = nb::none();
    if (event.part != ProfileEvent::kWhole) {
      part = nb::int_(event.part);
      if (!parts.contains(part)) parts[part] = to_python(call.run.part(event.part));
    }
    events.append(nb::make_tuple(event.begin, event.end, event.instruction, part));
  }
  return nb::make_tuple(events, parts);
}

// Nanoseconds that an event costs: two looks at the clock, and its entry in the list.
double cost() {
  constexpr size_t kEvents = 4096;
  const auto parts = std::make_shared<const std::vector<ProfilePart>>(1);
  RunProfile profile;
  profile.start(kEvents);
  const int64_t begin = profile_clock();
  for (size_t i = 0; i < kEvents; ++i) {
    const int64_t part = profile_clock();
    profile.add_part(parts, 0, part, profile_clock());
  }
  return static_cast<double>(profile_clock() - begin) / kEvents;
}

nb::list instructions(const MethodInfo& info) {
  nb::list result;
  for (const InstructionInfo& instruction : info.instructions) {
    nb::object target = nb::none();
    if (instruction.kind == InstructionInfo::Kind::kKernel) {
      target = to_text(info.operators[instruction.target]);
    } else if (instruction.kind == InstructionInfo::Kind::kDelegate) {
      target = nb::int_(instruction.target);
    }
    result.append(nb::make_tuple(to_text(to_string(instruction.kind)), target));
  }
  return result;
}

}  // namespace

void bind_profile(nb::module_& module) {
  nb::class_<CallProfile>(module, "CallProfile")
      .def_ro("begin", &CallProfile::begin)
      .def_ro("end", &CallProfile::end)
      .def_prop_ro("run_begin", [](const CallProfile& call) { return call.run.begin(); })
      .def_prop_ro("run_end", [](const CallProfile& call) { return call.run.end(); })
      .def_prop_ro("dropped", [](const CallProfile& call) { return call.run.dropped(); })
      .def("contents", &contents);
  module.def("instructions", &instructions, nb::arg("info"));
  module.def("profile_cost", &cost);
}

}  // namespace edgewise::python
