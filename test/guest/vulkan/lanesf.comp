// Subgroup operations on f32 and f16: whole numbers, so that no order of the sums rounds.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_clustered : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_subgroup_extended_types_float16 : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { float a[]; };
layout(binding = 1) writeonly buffer Answer { float answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  float x = a[i];
  answer[i] = subgroupInclusiveAdd(x) + subgroupMax(x);
  answer[n + i] = subgroupClusteredMin(x, 4u) + subgroupClusteredMax(x, 16u);
  answer[2 * n + i] = float(subgroupAdd(float16_t(x)));
  answer[3 * n + i] = float(subgroupShuffle(float16_t(x), (i * 5u) & 31u));
}
