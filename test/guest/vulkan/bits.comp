// Bit operations: count, find, reverse, extract, insert, carry and pack.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uint x = a[i], y = b[i];
  int offset = int(y & 15u), width = int(y >> 4 & 15u) + 1;
  answer[i] = bitCount(x);
  answer[n + i] = findMSB(x);
  answer[2 * n + i] = findMSB(int(x));
  answer[3 * n + i] = findLSB(x);
  answer[4 * n + i] = bitfieldReverse(x);
  answer[5 * n + i] = bitfieldExtract(x, offset, width);
  answer[6 * n + i] = uint(bitfieldExtract(int(x), offset, width));
  answer[7 * n + i] = bitfieldInsert(x, y, offset, width);
  uint carry, borrow;
  answer[8 * n + i] = uaddCarry(x, y, carry) ^ usubBorrow(x, y, borrow);
  answer[9 * n + i] = carry + 2u * borrow;
  answer[10 * n + i] = x << (y & 31u) | x >> (32u - (y & 31u) & 31u);
  answer[11 * n + i] = uint(int(x) >> (y & 31u));
  answer[12 * n + i] = packHalf2x16(vec2(float(x >> 21), -float(y >> 21)));
  answer[13 * n + i] = packUnorm4x8(vec4(x & 255u, x >> 8 & 255u, x >> 16 & 255u, x >> 24) / 255.0);
  answer[14 * n + i] = (x & y) + (x ^ y) - (x | ~y);
}
