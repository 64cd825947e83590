// run_model MODEL.pte [INPUT]: as examples/cpp, in C11.
#include <stdio.h>
#include <stdlib.h>

#include "edgewise.h"

static int fail(void) {
  fprintf(stderr, "%s\n", edgewise_last_error());
  return 1;
}

static int run(edgewise_method* method, const char* input_path) {
  edgewise_value input, output;
  if (edgewise_method_input_info(method, 0, &input)) return fail();
  input.data = calloc(1, input.nbytes);
  if (input.data == NULL) return 1;
  FILE* file = input_path ? fopen(input_path, "rb") : NULL;
  if (file) {
    const size_t bytes = fread(input.data, 1, input.nbytes, file);
    fclose(file);
    if (bytes != input.nbytes) fprintf(stderr, "%s has %zu bytes\n", input_path, bytes);
  }
  int failed = edgewise_method_set_input(method, 0, &input) || edgewise_method_execute(method) ||
               edgewise_method_output(method, 0, &output);
  free(input.data);
  if (failed) return fail();
  if (output.kind != EDGEWISE_KIND_TENSOR || output.type != EDGEWISE_FLOAT32) {
    fprintf(stderr, "the output is not a float32 tensor\n");
    return 1;
  }
  const float* scores = output.data;
  const size_t count = output.nbytes / sizeof(float);
  for (size_t rank = 0, last = count; rank < 5 && rank < count; ++rank) {
    size_t best = count;  // the largest that comes after the last one
    for (size_t i = 0; i < count; ++i) {
      const int after =
          last == count || scores[i] < scores[last] || (scores[i] == scores[last] && i > last);
      if (after && (best == count || scores[i] > scores[best])) best = i;
    }
    if (best == count) break;  // NaN
    printf("%zu %.6f\n", best, (double)scores[best]);
    last = best;
  }
  return 0;
}

int main(int argc, char** argv) {
  edgewise_program* program = NULL;
  edgewise_method* method = NULL;
  if (edgewise_program_load_file(argc > 1 ? argv[1] : "model.pte", NULL, &program)) return fail();
  int code = 1;
  if (edgewise_method_load(program, "forward", NULL, &method)) {
    fail();
  } else {
    code = run(method, argc > 2 ? argv[2] : NULL);
  }
  edgewise_method_free(method);
  edgewise_program_free(program);
  return code;
}
