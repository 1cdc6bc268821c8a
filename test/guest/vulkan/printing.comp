// Text: each workgroup appends a line with a decimal number to a buffer.
#version 460
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
layout(local_size_x = 32) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Used { uint used; };
layout(binding = 2) writeonly buffer Text { uint8_t text[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, x = a[i];
  if (x % 3u != 0u) return;
  uint digits = 1u;
  for (uint rest = x / 10u; rest != 0u; rest /= 10u) digits++;
  uint at = atomicAdd(used, digits + 2u);
  text[at] = uint8_t(61);
  for (uint k = digits; k > 0u; k--, x /= 10u) text[at + k] = uint8_t(48u + x % 10u);
  text[at + digits + 1u] = uint8_t(10);
}
