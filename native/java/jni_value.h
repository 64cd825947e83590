// Tensors and descriptions between Java and the C interface.
#pragma once

#include <jni.h>

#include "edgewise.h"

namespace edgewise::java {

// A tensor in the memory of a direct buffer. False, with an exception pending, if it is none.
bool read_tensor(JNIEnv* env, jint type, jlongArray shape, jbyteArray dim_order, jobject data,
                 edgewise_value* value);

// The numbers of ValueInfo; null, with an exception pending, if there is no memory.
jlongArray to_numbers(JNIEnv* env, const edgewise_value& value);

// Copies a tensor's `nbytes` bytes with its rows last.
void copy_rows_last(const edgewise_value& tensor, void* into);

}  // namespace edgewise::java
