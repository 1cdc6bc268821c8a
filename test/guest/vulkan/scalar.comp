// Structures without padding: three-component vectors, bytes, halves and 64-bit words one behind the other.
#version 460
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 64) in;
struct Entry { u8vec3 colour; uint8_t kind; uvec3 place; uint16_t low, high; uint64_t wide; };
layout(binding = 0, scalar) readonly buffer A { Entry a[]; };
layout(binding = 1, scalar) writeonly buffer Answer { Entry answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 64u;
  Entry entry = a[n - 1u - i];
  entry.colour = entry.colour.zxy;
  entry.kind += uint8_t(1);
  entry.place = entry.place.yzx + i;
  entry.high ^= entry.low;
  entry.wide = entry.wide * 3ul + uint64_t(entry.kind);
  answer[i] = entry;
}
