// Programs and sessions of org.edgewise.Native.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "java/java_memory.h"

namespace {

using edgewise::java::direct_memory;
using edgewise::java::from_handle;
using edgewise::java::from_java;
using edgewise::java::guarded;
using edgewise::java::throw_error;
using edgewise::java::throw_if;
using edgewise::java::to_handle;
using edgewise::java::to_java;

// edgewise_load_options and the text that it points to.
struct Options {
  std::vector<std::string> data_files;
  std::vector<const char*> data_file_names;
  std::string cache_dir;
  edgewise_load_options c = EDGEWISE_LOAD_OPTIONS_INIT;
};

// The numbers of LoadOptions.numbers(). False if an exception is pending.
bool read_options(JNIEnv* env, jlongArray numbers, jobjectArray data_files, jbyteArray cache_dir,
                  Options* options) {
  std::array<jlong, 5> read{};
  env->GetLongArrayRegion(numbers, 0, static_cast<jsize>(read.size()), read.data());
  if (env->ExceptionCheck() != JNI_FALSE) return false;
  options->c.threads = static_cast<int32_t>(read[0]);
  options->c.minimal_verification = read[1] != 0;
  options->c.no_own_kernels = read[2] != 0;
  for (size_t i = 3; i < read.size(); ++i) {
    if (static_cast<uint64_t>(read[i]) > SIZE_MAX) read[i] = static_cast<jlong>(SIZE_MAX);
  }
  options->c.max_memory = static_cast<size_t>(read[3]);
  options->c.cache_bytes = static_cast<size_t>(read[4]);
  const jsize count = env->GetArrayLength(data_files);
  for (jsize i = 0; i < count; ++i) {
    const auto path = static_cast<jbyteArray>(env->GetObjectArrayElement(data_files, i));
    options->data_files.push_back(from_java(env, path));
    env->DeleteLocalRef(path);
  }
  for (const std::string& path : options->data_files) {
    options->data_file_names.push_back(path.c_str());
  }
  options->c.data_files = options->data_file_names.data();
  options->c.data_file_count = options->data_file_names.size();
  if (cache_dir != nullptr) {
    options->cache_dir = from_java(env, cache_dir);
    options->c.cache_dir = options->cache_dir.c_str();
  }
  return true;
}

}  // namespace

extern "C" {

JNIEXPORT jbyteArray JNICALL Java_org_edgewise_Native_version(JNIEnv* env, jclass) {
  return to_java(env, edgewise_version());
}

JNIEXPORT jlong JNICALL Java_org_edgewise_Native_loadFile(JNIEnv* env, jclass, jbyteArray path,
                                                          jlongArray numbers,
                                                          jobjectArray data_files,
                                                          jbyteArray cache_dir) {
  return guarded(env, [&]() -> jlong {
    Options options;
    if (!read_options(env, numbers, data_files, cache_dir, &options)) return 0;
    edgewise_program* program = nullptr;
    throw_if(env, edgewise_program_load_file(from_java(env, path).c_str(), &options.c, &program));
    return to_handle(program);
  });
}

JNIEXPORT jlong JNICALL Java_org_edgewise_Native_loadBytes(JNIEnv* env, jclass, jobject bytes,
                                                           jint offset, jint size,
                                                           jlongArray numbers,
                                                           jobjectArray data_files,
                                                           jbyteArray cache_dir) {
  return guarded(env, [&]() -> jlong {
    Options options;
    if (!read_options(env, numbers, data_files, cache_dir, &options)) return 0;
    const void* data = direct_memory(env, bytes, static_cast<size_t>(offset),
                                     static_cast<size_t>(size), /*alignment=*/1);
    if (data == nullptr) return 0;
    edgewise_program* program = nullptr;
    throw_if(env,
             edgewise_program_load_bytes(data, static_cast<size_t>(size), &options.c, &program));
    return to_handle(program);
  });
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_freeProgram(JNIEnv*, jclass, jlong program) {
  edgewise_program_free(from_handle<edgewise_program>(program));
}

JNIEXPORT jint JNICALL Java_org_edgewise_Native_methodCount(JNIEnv*, jclass, jlong program) {
  return static_cast<jint>(edgewise_program_method_count(from_handle<edgewise_program>(program)));
}

JNIEXPORT jbyteArray JNICALL Java_org_edgewise_Native_methodName(JNIEnv* env, jclass, jlong program,
                                                                 jint index) {
  return to_java(env, edgewise_program_method_name(from_handle<edgewise_program>(program),
                                                   static_cast<size_t>(index)));
}

JNIEXPORT jlong JNICALL Java_org_edgewise_Native_newSession(JNIEnv* env, jclass, jlong program) {
  edgewise_session* session = nullptr;
  throw_if(env, edgewise_session_new(from_handle<edgewise_program>(program), &session));
  return to_handle(session);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_freeSession(JNIEnv*, jclass, jlong session) {
  edgewise_session_free(from_handle<edgewise_session>(session));
}

JNIEXPORT jlong JNICALL Java_org_edgewise_Native_loadMethod(JNIEnv* env, jclass, jlong program,
                                                            jbyteArray name, jlong session) {
  return guarded(env, [&]() -> jlong {
    edgewise_method* method = nullptr;
    throw_if(env, edgewise_method_load(from_handle<edgewise_program>(program),
                                       from_java(env, name).c_str(),
                                       from_handle<edgewise_session>(session), &method));
    return to_handle(method);
  });
}

}  // extern "C"
