// All 128 bytes of push constants, indexed by a value known only at run time.
#version 460
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { uint words[32]; };
layout(binding = 0) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  answer[i] = words[i & 31u] * (i + 1u) + words[gl_WorkGroupID.x & 31u];
}
