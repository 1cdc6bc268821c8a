// 64-bit integers, for which the hardware has only additions and shifts; and the two halves of 32-bit products.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint64_t a[]; };
layout(binding = 1) readonly buffer B { uint64_t b[]; };
layout(binding = 2) writeonly buffer Answer { uint64_t answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uint64_t x = a[i], y = b[i];
  answer[i] = x + y;
  answer[n + i] = x - y;
  answer[2 * n + i] = x * y;
  answer[3 * n + i] = x / y;
  answer[4 * n + i] = x % y;
  answer[5 * n + i] = uint64_t(int64_t(x) / int64_t(y));
  answer[6 * n + i] = x << (i & 63u);
  answer[7 * n + i] = x >> (i & 63u);
  answer[8 * n + i] = uint64_t(int64_t(x) >> (i & 63u));
  answer[9 * n + i] = min(x, y) ^ max(x, y);
  answer[10 * n + i] = uint64_t(min(int64_t(x), int64_t(y)));
  answer[11 * n + i] = (x & y) | (~x & uint64_t(i));
  uint high, low;
  umulExtended(uint(x), uint(y), high, low);
  answer[12 * n + i] = packUint2x32(uvec2(low, high));
  int top, bottom;
  imulExtended(int(uint(x)), int(uint(y)), top, bottom);
  answer[13 * n + i] = packUint2x32(uvec2(bottom, top));
  answer[14 * n + i] = uint64_t(x < y) + uint64_t(int64_t(x) < int64_t(y)) * 2ul + uint64_t(x == y) * 4ul;
}
