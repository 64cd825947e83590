// run_model MODEL.pte [INPUT]: runs the method `forward` of a model with one input and prints its
// largest outputs. INPUT holds the input's bytes; without it the input is all zeros.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <vector>

#include "edgewise/program.h"

int main(int argc, char** argv) {
  const auto fail = [](const edgewise::Status& status) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    return 1;
  };
  auto program = edgewise::Program::load_file(argc > 1 ? argv[1] : "model.pte", {});
  if (!program) return fail(program.status());
  auto method = (*program)->load_method("forward");
  if (!method) return fail(method.status());

  const edgewise::ValueInfo& info = (*method)->info().inputs.at(0);
  std::vector<char> bytes(info.nbytes);
  if (argc > 2) std::ifstream(argv[2], std::ios::binary).read(bytes.data(), bytes.size());
  auto input = edgewise::Tensor::make(info.type, info.sizes, info.dim_order, bytes.data(),
                                      bytes.size(), edgewise::Dynamism::kStatic);
  if (!input) return fail(input.status());
  if (auto status = (*method)->set_input(0, edgewise::Value(*input)); !status.ok())
    return fail(status);
  if (auto status = (*method)->execute(); !status.ok()) return fail(status);

  const auto* output = (*method)->output(0)->get<edgewise::Tensor>();
  const float* scores = output->data<float>();
  std::vector<int> best(output->numel());
  std::iota(best.begin(), best.end(), 0);
  std::ranges::sort(best, [scores](int a, int b) { return scores[a] > scores[b]; });
  best.resize(std::min<size_t>(best.size(), 5));
  for (int i : best) std::printf("%d %.6f\n", i, static_cast<double>(scores[i]));
  return 0;
}
