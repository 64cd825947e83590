// What the C interface's handles are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "edgewise/program.h"

struct edgewise_program {
  std::shared_ptr<edgewise::Program> program;
  std::vector<std::string> method_names;
};

struct edgewise_session {
  std::shared_ptr<edgewise::Program> program;  // outlives `session`
  std::shared_ptr<edgewise::Session> session;
};

struct edgewise_method {
  std::unique_ptr<edgewise::Method> method;
  bool has_outputs = false;  // of a run since it was loaded or reset
};
