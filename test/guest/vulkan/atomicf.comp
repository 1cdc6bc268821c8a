// Additions and exchanges of floats in memory by atomics: whole numbers, so that no order rounds.
#version 460
#extension GL_EXT_shader_atomic_float : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) buffer Sums { float sums[8], last, total; };
layout(binding = 2) writeonly buffer Old { float old[]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  atomicAdd(sums[i & 7u], a[i]);
  old[i] = atomicAdd(total, 1.0);
  atomicExchange(last, a[i]);
}
