// Methods of org.edgewise.Native.
#include "java/java_memory.h"
#include "java/jni_value.h"

using edgewise::java::direct_memory;
using edgewise::java::from_handle;
using edgewise::java::guarded;
using edgewise::java::throw_error;
using edgewise::java::throw_if;
using edgewise::java::to_java;

namespace {

void set_input(JNIEnv* env, jlong method, jint index, const edgewise_value& value) {
  throw_if(env, edgewise_method_set_input(from_handle<edgewise_method>(method),
                                          static_cast<size_t>(index), &value));
}

using Describe = edgewise_code (*)(const edgewise_method*, size_t, edgewise_value*);

jlongArray describe(JNIEnv* env, Describe function, jlong method, jint index) {
  edgewise_value value{};
  const edgewise_code code =
      function(from_handle<edgewise_method>(method), static_cast<size_t>(index), &value);
  return throw_if(env, code) ? nullptr : edgewise::java::to_numbers(env, value);
}

}  // namespace

extern "C" {

JNIEXPORT void JNICALL Java_org_edgewise_Native_freeMethod(JNIEnv*, jclass, jlong method) {
  edgewise_method_free(from_handle<edgewise_method>(method));
}

JNIEXPORT jint JNICALL Java_org_edgewise_Native_inputCount(JNIEnv*, jclass, jlong method) {
  return static_cast<jint>(edgewise_method_input_count(from_handle<edgewise_method>(method)));
}

JNIEXPORT jint JNICALL Java_org_edgewise_Native_outputCount(JNIEnv*, jclass, jlong method) {
  return static_cast<jint>(edgewise_method_output_count(from_handle<edgewise_method>(method)));
}

JNIEXPORT jlongArray JNICALL Java_org_edgewise_Native_inputInfo(JNIEnv* env, jclass, jlong method,
                                                                jint index) {
  return describe(env, edgewise_method_input_info, method, index);
}

JNIEXPORT jlongArray JNICALL Java_org_edgewise_Native_outputInfo(JNIEnv* env, jclass, jlong method,
                                                                 jint index) {
  return describe(env, edgewise_method_output_info, method, index);
}

JNIEXPORT jlongArray JNICALL Java_org_edgewise_Native_output(JNIEnv* env, jclass, jlong method,
                                                             jint index) {
  return describe(env, edgewise_method_output, method, index);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_setTensor(JNIEnv* env, jclass, jlong method,
                                                          jint index, jint type, jlongArray shape,
                                                          jbyteArray dim_order, jobject data) {
  edgewise_value value{};
  if (!edgewise::java::read_tensor(env, type, shape, dim_order, data, &value)) return;
  throw_if(env, edgewise_method_set_input_zero_copy(from_handle<edgewise_method>(method),
                                                    static_cast<size_t>(index), &value));
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_setInteger(JNIEnv* env, jclass, jlong method,
                                                           jint index, jlong number) {
  edgewise_value value{};
  value.kind = EDGEWISE_KIND_INTEGER;
  value.integer = number;
  set_input(env, method, index, value);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_setNumber(JNIEnv* env, jclass, jlong method,
                                                          jint index, jdouble number) {
  edgewise_value value{};
  value.kind = EDGEWISE_KIND_NUMBER;
  value.number = number;
  set_input(env, method, index, value);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_setBoolean(JNIEnv* env, jclass, jlong method,
                                                           jint index, jboolean truth) {
  edgewise_value value{};
  value.kind = EDGEWISE_KIND_BOOLEAN;
  value.integer = truth != JNI_FALSE;
  set_input(env, method, index, value);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_setString(JNIEnv* env, jclass, jlong method,
                                                          jint index, jbyteArray utf8) {
  guarded(env, [&] {
    const std::string text = edgewise::java::from_java(env, utf8);
    edgewise_value value{};
    value.kind = EDGEWISE_KIND_STRING;
    value.text = text.c_str();
    set_input(env, method, index, value);
  });
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_setNone(JNIEnv* env, jclass, jlong method,
                                                        jint index) {
  set_input(env, method, index, edgewise_value{});
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_execute(JNIEnv* env, jclass, jlong method) {
  throw_if(env, edgewise_method_execute(from_handle<edgewise_method>(method)));
}

JNIEXPORT jbyteArray JNICALL Java_org_edgewise_Native_outputString(JNIEnv* env, jclass,
                                                                   jlong method, jint index) {
  edgewise_value value{};
  const edgewise_code code = edgewise_method_output(from_handle<edgewise_method>(method),
                                                    static_cast<size_t>(index), &value);
  if (throw_if(env, code)) return nullptr;
  return to_java(env, value.text == nullptr ? "" : value.text);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_copyOutput(JNIEnv* env, jclass, jlong method,
                                                           jint index, jobject into) {
  edgewise_value value{};
  const edgewise_code code = edgewise_method_output(from_handle<edgewise_method>(method),
                                                    static_cast<size_t>(index), &value);
  if (throw_if(env, code)) return;
  void* data = direct_memory(env, into, 0, value.nbytes, /*alignment=*/1);
  if (data != nullptr) edgewise::java::copy_rows_last(value, data);
}

JNIEXPORT void JNICALL Java_org_edgewise_Native_reset(JNIEnv* env, jclass, jlong method) {
  throw_if(env, edgewise_method_reset(from_handle<edgewise_method>(method)));
}

}  // extern "C"
