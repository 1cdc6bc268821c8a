// The core's clock: it goes on between two readings.
#version 460
#extension GL_ARB_shader_clock : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) buffer Words { uint words[]; };
layout(binding = 1) writeonly buffer Took { uint64_t took[]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  uint64_t start = clockARB();
  uint x = words[i];
  for (uint k = 0u; k < 20u; k++) x = x * 1664525u + 1013904223u;
  words[i] = x;
  took[i] = clockARB() - start;
}
