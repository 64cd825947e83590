/* The C interface of edgewise's runtime: loads `.pte` files and runs their methods.
 *
 * For C11 and for languages that call C. It is a shared library, libedgewise.so (CMake:
 * edgewise::c), with the kernels and the XNNPACK backend inside.
 *
 *   edgewise_program* program;
 *   edgewise_method* method;
 *   edgewise_value input, output;
 *   if (edgewise_program_load_file("model.pte", NULL, &program) ||
 *       edgewise_method_load(program, "forward", NULL, &method) ||
 *       edgewise_make_tensor(&input, EDGEWISE_FLOAT32, sizes, 4, pixels) ||
 *       edgewise_method_set_input(method, 0, &input) ||
 *       edgewise_method_execute(method) ||
 *       edgewise_method_output(method, 0, &output)) {
 *     fprintf(stderr, "%s\n", edgewise_last_error());
 *   }
 *
 * Errors. Functions that can fail return a code, 0 for success, and leave their results
 * untouched when they fail; edgewise_last_error() then has the text. No C++ exception leaves
 * the library. A null handle or result pointer is EDGEWISE_INVALID_ARGUMENT.
 *
 * Ownership. What a function hands out through `T** result` belongs to the caller, who frees it
 * with the matching edgewise_T_free; these take null. Handles may be freed in any order: a
 * method keeps its session and program alive. Strings and tensors that are handed out as
 * pointers belong to the library, for as long as each function says.
 *
 * Threads. A program may be used by several threads at once; a session, and the methods loaded
 * into it, by one at a time. Errors are the calling thread's own.
 */
#ifndef EDGEWISE_H_
#define EDGEWISE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) && defined(EDGEWISE_C_BUILD)
#define EDGEWISE_API __declspec(dllexport)
#elif defined(_WIN32)
#define EDGEWISE_API __declspec(dllimport)
#else
#define EDGEWISE_API __attribute__((visibility("default")))
#endif
#if defined(_MSC_VER)
#define EDGEWISE_DEPRECATED __declspec(deprecated)
#else
#define EDGEWISE_DEPRECATED __attribute__((deprecated))
#endif

/* The version of this interface, and of the library's file name (libedgewise.so.1). It is
 * raised when something here changes its meaning or goes; functions, codes and types are added
 * without. */
#define EDGEWISE_C_API_VERSION 1

/* Those of the library that was loaded: EDGEWISE_C_API_VERSION, and the release ("0.1.0"). */
EDGEWISE_API uint32_t edgewise_c_api_version(void);
EDGEWISE_API const char* edgewise_version(void);

/* ---- errors ---------------------------------------------------------------------------- */

typedef enum edgewise_code {
  EDGEWISE_OK = 0,
  EDGEWISE_INVALID_PROGRAM = 1,  /* the file breaks a rule of the format */
  EDGEWISE_INVALID_ARGUMENT = 2, /* the caller passed something that the program cannot take */
  EDGEWISE_NOT_FOUND = 3,        /* a method, operator, backend or file that does not exist */
  EDGEWISE_UNSUPPORTED = 4,      /* well formed, but not something this runtime does */
  EDGEWISE_OUT_OF_MEMORY = 5,
  EDGEWISE_IO = 6,
  EDGEWISE_BACKEND = 7, /* a delegate failed */
  EDGEWISE_INTERNAL = 8,
  EDGEWISE_CANCELLED = 9 /* a check of the caller's asked for it: in C++ only */
} edgewise_code;

/* "[where] rule; got X; try Y" of the last call that failed in this thread; empty if none did.
 * Valid until the next failure in this thread. */
EDGEWISE_API const char* edgewise_last_error(void);

/* "invalid program", "not found", ...; static. */
EDGEWISE_API const char* edgewise_code_name(edgewise_code code);

/* ---- values ---------------------------------------------------------------------------- */

#define EDGEWISE_MAX_RANK 16

/* Element types; the numbers are those of PyTorch. */
typedef enum edgewise_type {
  EDGEWISE_UINT8 = 0,
  EDGEWISE_INT8 = 1,
  EDGEWISE_INT16 = 2,
  EDGEWISE_INT32 = 3,
  EDGEWISE_INT64 = 4,
  EDGEWISE_FLOAT16 = 5,
  EDGEWISE_FLOAT32 = 6,
  EDGEWISE_FLOAT64 = 7,
  EDGEWISE_BOOL = 11,
  EDGEWISE_QINT8 = 12,
  EDGEWISE_QUINT8 = 13,
  EDGEWISE_QINT32 = 14,
  EDGEWISE_BFLOAT16 = 15,
  EDGEWISE_UINT16 = 27,
  EDGEWISE_UINT32 = 28,
  EDGEWISE_UINT64 = 29
} edgewise_type;

/* PyTorch's name, "float32", or "unknown"; static. */
EDGEWISE_API const char* edgewise_type_name(edgewise_type type);
/* Bytes of one element; 0 for a type that is not known. */
EDGEWISE_API size_t edgewise_type_size(edgewise_type type);

typedef enum edgewise_kind {
  EDGEWISE_KIND_NONE = 0,
  EDGEWISE_KIND_TENSOR = 1,
  EDGEWISE_KIND_INTEGER = 2,
  EDGEWISE_KIND_NUMBER = 3,
  EDGEWISE_KIND_BOOLEAN = 4,
  EDGEWISE_KIND_STRING = 5,
  EDGEWISE_KIND_LIST = 6 /* outputs only, and without its items */
} edgewise_kind;

typedef enum edgewise_dynamism {
  EDGEWISE_STATIC = 0,          /* the shape never changes */
  EDGEWISE_DYNAMIC_BOUND = 1,   /* any shape up to the given one */
  EDGEWISE_DYNAMIC_UNBOUND = 2, /* any shape of the rank */
} edgewise_dynamism;

/* A value that goes in or comes out, or what a method says of one. Members that the kind does
 * not name are 0. */
typedef struct edgewise_value {
  edgewise_kind kind;
  /* TENSOR: its elements lie densely at `data`, in the order of `dim_order`, which lists
   * dimensions from outermost to innermost: 0, 1, 2, 3 for rows of NCHW; 0, 2, 3, 1 for the same
   * sizes as NHWC. */
  edgewise_type type;
  edgewise_dynamism dynamism; /* of inputs and outputs as a method describes them */
  uint32_t rank;
  int64_t sizes[EDGEWISE_MAX_RANK];
  uint8_t dim_order[EDGEWISE_MAX_RANK];
  size_t nbytes;
  void* data;
  int64_t integer;  /* INTEGER; BOOLEAN: 0 or 1 */
  double number;    /* NUMBER */
  const char* text; /* STRING */
} edgewise_value;

/* Makes `value` a dense tensor with `data` as its memory, rows last: what the caller may also do
 * by hand. `sizes` may be null for rank 0. */
EDGEWISE_API edgewise_code edgewise_make_tensor(edgewise_value* value, edgewise_type type,
                                                const int64_t* sizes, size_t rank, void* data);

/* ---- programs -------------------------------------------------------------------------- */

typedef struct edgewise_program edgewise_program; /* a loaded file */
typedef struct edgewise_session edgewise_session; /* state that methods of a program share */
typedef struct edgewise_method edgewise_method;   /* an instance of a method, with its memory */

/* All zeros but for struct_size is what null in its place means: EDGEWISE_LOAD_OPTIONS_INIT.
 * Later versions may add members at the end; struct_size says which are there. */
typedef struct edgewise_load_options {
  size_t struct_size;            /* sizeof(edgewise_load_options) */
  int32_t threads;               /* of the program; 0: one per physical core */
  int32_t minimal_verification;  /* not 0: skip the checks of a file that is trusted */
  int32_t no_own_kernels;        /* not 0: backends use only their library's kernels */
  const char* const* data_files; /* `.ptd` files with weights outside of the program */
  size_t data_file_count;
  /* The most bytes that a method may plan for, with the state that methods share, that a tensor
   * whose size only the run tells may grow to, and that an XNNPACK delegate may plan for its
   * intermediate results; checked before anything is allocated. 0: no bound. Not counted: weights
   * that libraries pack, and what they take besides. */
  size_t max_memory;
  /* A folder in which packed weights are kept, so that later loads, and other processes, map them;
   * null: nothing is kept. What is wrong with it is told on standard error, and is no failure.
   * cache_bytes: the most that may lie there; 0: 8 GiB, 1 GiB where addresses have 32 bits. */
  const char* cache_dir;
  size_t cache_bytes;
} edgewise_load_options;

#define EDGEWISE_LOAD_OPTIONS_INIT \
  { sizeof(edgewise_load_options), 0, 0, 0, NULL, 0, 0, NULL, 0 }

/* Maps the file; it must not change while the program is in use (where it is cut short, calls that
 * read what is gone fail). `options` may be null. */
EDGEWISE_API edgewise_code edgewise_program_load_file(const char* path,
                                                      const edgewise_load_options* options,
                                                      edgewise_program** result);
/* Copies the bytes of a file. */
EDGEWISE_API edgewise_code edgewise_program_load_bytes(const void* bytes, size_t size,
                                                       const edgewise_load_options* options,
                                                       edgewise_program** result);
EDGEWISE_API void edgewise_program_free(edgewise_program* program);

EDGEWISE_API size_t edgewise_program_method_count(const edgewise_program* program);
/* Lives as long as the handle; null if out of range. */
EDGEWISE_API const char* edgewise_program_method_name(const edgewise_program* program,
                                                      size_t index);

/* A shared library of kernels of the user's own (edgewise/kernel_library.h), for the life of
 * the process. */
EDGEWISE_API edgewise_code edgewise_load_kernels(const char* path);
/* The same for one of backends (edgewise/backend_library.h), which run delegates. */
EDGEWISE_API edgewise_code edgewise_load_backends(const char* path);

/* ---- methods --------------------------------------------------------------------------- */

/* Methods that are loaded into one session see the same shared buffers, such as a cache. */
EDGEWISE_API edgewise_code edgewise_session_new(edgewise_program* program,
                                                edgewise_session** result);
EDGEWISE_API void edgewise_session_free(edgewise_session* session);

/* Resolves operators, plans memory, makes delegates. `session` may be null: one of its own. */
EDGEWISE_API edgewise_code edgewise_method_load(edgewise_program* program, const char* name,
                                                edgewise_session* session,
                                                edgewise_method** result);
EDGEWISE_API void edgewise_method_free(edgewise_method* method);

EDGEWISE_API size_t edgewise_method_input_count(const edgewise_method* method);
EDGEWISE_API size_t edgewise_method_output_count(const edgewise_method* method);
/* What the method takes and gives: kind, and of tensors type, sizes (largest ones where they are
 * dynamic), dim_order, dynamism and nbytes. `data` is null. */
EDGEWISE_API edgewise_code edgewise_method_input_info(const edgewise_method* method, size_t index,
                                                      edgewise_value* result);
EDGEWISE_API edgewise_code edgewise_method_output_info(const edgewise_method* method, size_t index,
                                                       edgewise_value* result);

/* Copies the value in, tensors from their order of dimensions to the method's. Inputs keep
 * what they were set to unless the program reuses their memory: set all of them before every
 * run. */
EDGEWISE_API edgewise_code edgewise_method_set_input(edgewise_method* method, size_t index,
                                                     const edgewise_value* value);
/* The same for one run: a tensor's `data` must stay as it is until execute returns, which reads it
 * in place where the program's plan allows (an image that goes straight into a delegate). */
EDGEWISE_API edgewise_code edgewise_method_set_input_zero_copy(edgewise_method* method,
                                                               size_t index,
                                                               const edgewise_value* value);
/* The earlier name of edgewise_method_set_input_zero_copy, which goes in the next version. */
EDGEWISE_API EDGEWISE_DEPRECATED edgewise_code
edgewise_method_lend_input(edgewise_method* method, size_t index, const edgewise_value* value);
EDGEWISE_API edgewise_code edgewise_method_execute(edgewise_method* method);
/* After execute: the output, whose `data` and `text` belong to the method and are valid until
 * its next execute, reset or free. */
EDGEWISE_API edgewise_code edgewise_method_output(const edgewise_method* method, size_t index,
                                                  edgewise_value* result);

/* After execute: what the run has left in an input that the program writes (x.add_(1)); set_input
 * copied it, so that the caller's own is as it was. Valid until the input is set again.
 * EDGEWISE_INVALID_ARGUMENT for inputs that are only read. */
EDGEWISE_API edgewise_code edgewise_method_written_input(const edgewise_method* method,
                                                         size_t index, edgewise_value* result);

/* Lets the program write output `index` straight to `data` from the next execute on, if its plan
 * allows: *bound is then 1, else 0. `data` must come from edgewise_buffer_new, with room for the
 * largest size of the output, and outlive the method or the binding. Null undoes it. */
EDGEWISE_API edgewise_code edgewise_method_bind_output(edgewise_method* method, size_t index,
                                                       void* data, size_t capacity, int* bound);
/* Memory as the runtime needs it, aligned and padded; null if there is none. */
EDGEWISE_API void* edgewise_buffer_new(size_t bytes);
EDGEWISE_API void edgewise_buffer_free(void* data);

/* Puts buffers that the model writes, the session's too, back to their initial values. */
EDGEWISE_API edgewise_code edgewise_method_reset(edgewise_method* method);

#ifdef __cplusplus
}
#endif

#endif /* EDGEWISE_H_ */
