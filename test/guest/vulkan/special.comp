// Comparisons and roundings of all kinds of floats: infinities, zeros of either sign, what is no number.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  float x = a[i], y = b[i];
  answer[i] = uint(x < y) | uint(x <= y) << 1 | uint(x > y) << 2 | uint(x >= y) << 3 | uint(x == y) << 4 | uint(x != y) << 5;
  answer[n + i] = uint(isnan(x)) | uint(isinf(x)) << 1 | uint(isnan(y)) << 2 | uint(isinf(y)) << 3;
  answer[2 * n + i] = floatBitsToUint(floor(x));
  answer[3 * n + i] = floatBitsToUint(ceil(x));
  answer[4 * n + i] = floatBitsToUint(trunc(x));
  answer[5 * n + i] = floatBitsToUint(roundEven(x));
  answer[6 * n + i] = floatBitsToUint(-abs(x));
  answer[7 * n + i] = floatBitsToUint(x < y ? x : 2.0) ^ uint(!(x < y));
}
