// Elements of 8 and 16 bits in memory: extended, computed with, saturated, and written side by side by different lanes.
#version 460
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint8_t a[]; };
layout(binding = 1) readonly buffer B { int16_t b[]; };
layout(binding = 2) writeonly buffer Bytes { uint8_t bytes[]; };
layout(binding = 3) writeonly buffer Halves { int16_t halves[]; };
layout(binding = 4) writeonly buffer Words { int words[]; };
layout(binding = 5) buffer Packed { u8vec4 quads[]; };
shared uint8_t line[64];

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, lane = gl_LocalInvocationID.x;
  uint8_t x = a[i];
  int16_t y = b[i];
  line[lane] = x;
  barrier();
  bytes[i] = uint8_t(min(uint(x) + uint(line[63u - lane]), 255u));
  bytes[n + i] = x * uint8_t(7) - uint8_t(i);
  halves[i] = y * int16_t(3) + int16_t(int8_t(x));
  halves[n + i] = int16_t(clamp(int(y) * 2, -32768, 32767));
  halves[2 * n + i] = y >> int16_t(i & 15u);
  halves[3 * n + i] = max(y, int16_t(x)) ^ int16_t(uint16_t(y) / uint16_t(uint(x) + 1u));
  words[i] = int(int8_t(x)) * int(y);
  quads[i] = quads[i].wzyx + u8vec4(1, 2, 3, x);
}
