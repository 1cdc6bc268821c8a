// A workgroup whose last subgroup is partly empty, in three dimensions.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_vote : require
layout(local_size_x = 7, local_size_y = 5, local_size_z = 3) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
shared uint mirrored[105];

void main() {
  uint lane = gl_LocalInvocationIndex, i = gl_WorkGroupID.x * 105u + lane, n = gl_NumWorkGroups.x * 105u, x = a[i];
  mirrored[104u - lane] = x;
  barrier();
  answer[i] = gl_LocalInvocationID.x + 16u * gl_LocalInvocationID.y + 256u * gl_LocalInvocationID.z;
  answer[n + i] = subgroupAdd(x);
  answer[2 * n + i] = subgroupBallotBitCount(subgroupBallot(true)) + 64u * uint(subgroupAll(lane < 96u));
  answer[3 * n + i] = mirrored[lane] ^ gl_SubgroupID ^ gl_NumSubgroups << 8;
}
