// Conversions between integers, floats and their widths.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, x = a[i];
  float f = b[i];
  answer[i] = floatBitsToUint(float(x));
  answer[n + i] = floatBitsToUint(float(int(x)));
  answer[2 * n + i] = uint(int(f));
  answer[3 * n + i] = uint(abs(f));
  answer[4 * n + i] = packFloat2x16(f16vec2(float16_t(int(x) >> 20), float16_t(x & 2047u)));
  answer[5 * n + i] = floatBitsToUint(float(unpackFloat2x16(x & 0x3FFF3FFFu).y));
  answer[6 * n + i] = uint(int(int8_t(x))) ^ uint(int16_t(x)) << 8;
  answer[7 * n + i] = floatBitsToUint(float(uint8_t(x >> 8)) + float(uint16_t(x >> 16)));
  answer[8 * n + i] = floatBitsToUint(float(double(x) * 0.125));
  answer[9 * n + i] = uint(int(double(f) * 1000.0));
  answer[10 * n + i] = uint(int64_t(f * 65536.0)) + uint(uint64_t(abs(double(f)) * 1099511627776.0) >> 32);
  answer[11 * n + i] = floatBitsToUint(float(int64_t(int(x)) * 3l));
}
