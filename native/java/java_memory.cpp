#include "java/java_memory.h"

#include <cstdint>
#include <cstring>

namespace edgewise::java {

void throw_error(JNIEnv* env, edgewise_code code, const char* text) {
  if (env->ExceptionCheck() != JNI_FALSE) return;
  // The class loader of the class whose function runs finds it.
  const jclass kind = env->FindClass("org/edgewise/EdgewiseException");
  if (kind == nullptr) return;
  const jmethodID make = env->GetMethodID(kind, "<init>", "(I[B)V");
  if (make == nullptr) return;
  const jbyteArray message = to_java(env, text);
  if (message == nullptr) return;
  const jobject failure = env->NewObject(kind, make, static_cast<jint>(code), message);
  if (failure != nullptr) env->Throw(static_cast<jthrowable>(failure));
}

bool throw_if(JNIEnv* env, edgewise_code code) {
  if (code == EDGEWISE_OK) return false;
  throw_error(env, code, edgewise_last_error());
  return true;
}

jbyteArray to_java(JNIEnv* env, const char* text) {
  const auto size = static_cast<jsize>(std::strlen(text));
  const jbyteArray utf8 = env->NewByteArray(size);
  if (utf8 != nullptr) {
    env->SetByteArrayRegion(utf8, 0, size, reinterpret_cast<const jbyte*>(text));
  }
  return utf8;
}

std::string from_java(JNIEnv* env, jbyteArray utf8) {
  if (utf8 == nullptr) return {};
  std::string text(static_cast<size_t>(env->GetArrayLength(utf8)), '\0');
  env->GetByteArrayRegion(utf8, 0, static_cast<jsize>(text.size()),
                          reinterpret_cast<jbyte*>(text.data()));
  return text;
}

void* direct_memory(JNIEnv* env, jobject buffer, size_t offset, size_t bytes, size_t alignment) {
  // Of empty buffers some machines have no address; nothing is read there.
  alignas(64) static char nothing[64];
  if (bytes == 0) return nothing;
  auto* data = static_cast<char*>(env->GetDirectBufferAddress(buffer));
  const jlong capacity = env->GetDirectBufferCapacity(buffer);
  if (data == nullptr || capacity < 0 || offset > static_cast<size_t>(capacity) ||
      bytes > static_cast<size_t>(capacity) - offset) {
    throw_error(env, EDGEWISE_INVALID_ARGUMENT,
                "[edgewise] a direct buffer must have room for all of a tensor or file; got one "
                "that has not; try ByteBuffer.allocateDirect");
    return nullptr;
  }
  data += offset;
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    throw_error(env, EDGEWISE_INVALID_ARGUMENT,
                "[Tensor.wrap] the data must lie at a multiple of the size of an element; got "
                "memory between two; try a buffer of their own");
    return nullptr;
  }
  return data;
}

}  // namespace edgewise::java
