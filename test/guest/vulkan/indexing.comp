// An array of descriptors: each invocation chooses its own buffer.
#version 460
#extension GL_EXT_nonuniform_qualifier : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer Choice { uint choice[]; };
layout(binding = 1) buffer Part { uint words[]; } parts[5];
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, k = choice[i];
  answer[i] = parts[nonuniformEXT(k)].words[i & 63u] + parts[gl_WorkGroupID.x % 5u].words.length();
  atomicAdd(parts[nonuniformEXT(k)].words[64], 1u);
}
