// A radix sort in one workgroup: ballots give each bit's places.
#version 460
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
shared uint line[256], zeros[8];

void main() {
  uint lane = gl_LocalInvocationID.x, x = a[gl_GlobalInvocationID.x];
  for (uint bit = 0u; bit < 32u; bit++) {
    bool one = (x >> bit & 1u) != 0u;
    uvec4 clear = subgroupBallot(!one);
    uint below = subgroupBallotExclusiveBitCount(clear);
    if (subgroupElect()) zeros[gl_SubgroupID] = subgroupBallotBitCount(clear);
    barrier();
    uint all = 0u;
    for (uint k = 0u; k < gl_NumSubgroups; k++) {
      if (k < gl_SubgroupID) below += zeros[k];
      all += zeros[k];
    }
    line[one ? all + lane - below : below] = x;
    barrier();
    x = line[lane];
  }
  answer[gl_GlobalInvocationID.x] = x;
}
