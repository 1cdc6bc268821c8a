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
  // QUIRK: Vulkan wants the pointer of an atomic to be decorated as NonUniform if its buffer is not the same for all
  // (VUID-RuntimeSpirv-NonUniform-06274). glslang 15.2 does not do so, and Mesa 25.0.7 does not heed it (vtn_handle_atomics
  // of spirv_to_nir.c): RADV takes the first invocation's buffer for all. So this index is the same for all.
  for (uint part = 0; part < 5u; ++part)
    if (part == k) atomicAdd(parts[part].words[64], 1u);
}
