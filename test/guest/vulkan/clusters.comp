// Subgroup operations within clusters of 2 to 16 lanes and within quads.
#version 460
#extension GL_KHR_shader_subgroup_clustered : require
#extension GL_KHR_shader_subgroup_quad : require
#extension GL_KHR_shader_subgroup_shuffle_relative : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, x = a[i];
  answer[i] = subgroupClusteredXor(x, 2u) + subgroupClusteredOr(x, 16u);
  answer[n + i] = subgroupClusteredMax(x, 8u) - subgroupClusteredAnd(x, 4u);
  answer[2 * n + i] = subgroupQuadSwapVertical(x) * 3u + subgroupQuadBroadcast(x, 1u);
  uint above = subgroupShuffleDown(x, 5u);
  answer[3 * n + i] = (i & 31u) < 27u ? above : 0u;
}
