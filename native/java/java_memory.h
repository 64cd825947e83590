// Java's arrays, buffers and exceptions.
#pragma once

#include <jni.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

#include "edgewise.h"

namespace edgewise::java {

// An EdgewiseException with the text of this thread's last failure. Does nothing for EDGEWISE_OK.
// True if an exception is pending.
bool throw_if(JNIEnv* env, edgewise_code code);
// One with a text of its own.
void throw_error(JNIEnv* env, edgewise_code code, const char* text);

// Null, with an exception pending, if there is no memory.
jbyteArray to_java(JNIEnv* env, const char* text);
// Empty for null. Memory that is missing is std::bad_alloc.
std::string from_java(JNIEnv* env, jbyteArray utf8);

// Where a direct buffer has at least `bytes` bytes from `offset` on, at a multiple of `alignment`;
// null, with an exception pending, if it does not.
void* direct_memory(JNIEnv* env, jobject buffer, size_t offset, size_t bytes, size_t alignment);

// Runs `body`, which may throw std::bad_alloc; nothing of C++ reaches Java.
template <typename Body>
auto guarded(JNIEnv* env, Body&& body) -> decltype(body()) {
  using Result = decltype(body());
  try {
    return body();
  } catch (const std::bad_alloc&) {
    throw_error(env, EDGEWISE_OUT_OF_MEMORY, "[edgewise] there is no memory left");
    return Result();
  }
}

// Handles are numbers in Java.
template <typename T>
T* from_handle(jlong handle) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(handle));
}

inline jlong to_handle(const void* pointer) {
  return static_cast<jlong>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace edgewise::java
