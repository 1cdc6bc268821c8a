// Subgroup operations in branches within branches: each concerns the lanes that came there.
#version 460
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_vote : require
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, x = a[i], y = 0u;
  if ((x & 1u) != 0u) {
    if (x % 3u == 0u) y = subgroupAdd(x) + subgroupBallotBitCount(subgroupBallot(true));
    else y = subgroupMin(x) ^ subgroupBallot(x > 1000u).x;
    y += uint(subgroupAll((x & 1u) != 0u));
  } else {
    switch (x >> 1 & 3u) {
      case 0u: y = subgroupMax(x); break;
      case 1u: y = subgroupOr(x); break;
      default: y = subgroupExclusiveAdd(x & 0xFFFFu);
    }
    y += uint(subgroupAny(x == 0u)) << 31;
  }
  answer[i] = y;
}
