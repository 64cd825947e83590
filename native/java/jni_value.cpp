#include "java/jni_value.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "java/java_memory.h"

namespace edgewise::java {

namespace {

bool is_rows_last(const edgewise_value& tensor) {
  return std::is_sorted(tensor.dim_order, tensor.dim_order + tensor.rank);
}

}  // namespace

bool read_tensor(JNIEnv* env, jint type, jlongArray shape, jbyteArray dim_order, jobject data,
                 edgewise_value* value) {
  const auto rank = static_cast<size_t>(env->GetArrayLength(shape));
  std::array<jlong, EDGEWISE_MAX_RANK> read{};
  if (rank > read.size() ||
      (dim_order != nullptr && static_cast<size_t>(env->GetArrayLength(dim_order)) != rank)) {
    throw_error(env, EDGEWISE_INVALID_ARGUMENT,
                "[Tensor] a tensor has at most 16 dimensions, and an order of all of them; got "
                "others");
    return false;
  }
  env->GetLongArrayRegion(shape, 0, static_cast<jsize>(rank), read.data());
  std::array<int64_t, EDGEWISE_MAX_RANK> sizes{};
  std::ranges::copy(read, sizes.begin());
  const auto c_type = static_cast<edgewise_type>(type);
  if (throw_if(env, edgewise_make_tensor(value, c_type, sizes.data(), rank, nullptr))) return false;
  if (dim_order != nullptr) {
    env->GetByteArrayRegion(dim_order, 0, static_cast<jsize>(rank),
                            reinterpret_cast<jbyte*>(value->dim_order));
  }
  value->data = direct_memory(env, data, 0, value->nbytes, edgewise_type_size(c_type));
  return value->data != nullptr;
}

jlongArray to_numbers(JNIEnv* env, const edgewise_value& value) {
  std::array<jlong, 6 + EDGEWISE_MAX_RANK> numbers{
      value.kind,     value.type,
      value.dynamism, static_cast<jlong>(value.nbytes),
      value.integer,  std::bit_cast<jlong>(value.number),
  };
  std::copy_n(value.sizes, value.rank, numbers.begin() + 6);
  const auto count = static_cast<jsize>(6 + value.rank);
  const jlongArray result = env->NewLongArray(count);
  if (result != nullptr) env->SetLongArrayRegion(result, 0, count, numbers.data());
  return result;
}

void copy_rows_last(const edgewise_value& tensor, void* into) {
  if (tensor.nbytes == 0) return;
  if (is_rows_last(tensor)) {
    std::memcpy(into, tensor.data, tensor.nbytes);
    return;
  }
  const size_t size = edgewise_type_size(tensor.type);
  std::array<size_t, EDGEWISE_MAX_RANK> strides{};  // in bytes, by dimension
  size_t stride = size;
  for (uint32_t i = tensor.rank; i-- > 0;) {
    strides[tensor.dim_order[i]] = stride;
    stride *= static_cast<size_t>(tensor.sizes[tensor.dim_order[i]]);
  }
  const auto* from = static_cast<const char*>(tensor.data);
  auto* to = static_cast<char*>(into);
  std::array<int64_t, EDGEWISE_MAX_RANK> at{};
  for (size_t done = 0; done < tensor.nbytes; done += size) {
    std::memcpy(to + done, from, size);
    // The next element in the order of rows.
    for (uint32_t i = tensor.rank; i-- > 0;) {
      from += strides[i];
      if (++at[i] < tensor.sizes[i]) break;
      from -= strides[i] * static_cast<size_t>(tensor.sizes[i]);
      at[i] = 0;
    }
  }
}

}  // namespace edgewise::java
