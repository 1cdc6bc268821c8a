// Subgroup operations on 64-bit integers and on f64.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_subgroup_extended_types_int64 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint64_t a[]; };
layout(binding = 1) writeonly buffer Answer { uint64_t answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uint64_t x = a[i];
  answer[i] = subgroupAdd(x);
  answer[n + i] = subgroupInclusiveMax(x);
  answer[2 * n + i] = subgroupShuffleXor(x, 17u) ^ subgroupBroadcast(x, 30u);
  answer[3 * n + i] = doubleBitsToUint64(subgroupMin(double(x & 0xFFFFFul)));
}
