// Stream compaction: the subgroup counts its odd numbers, one lane takes room for them.
#version 460
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) buffer Kept { uint count, kept[]; };

void main() {
  uint x = a[gl_GlobalInvocationID.x];
  uvec4 odd = subgroupBallot((x & 1u) != 0u);
  uint first = 0u;
  if (subgroupElect()) first = atomicAdd(count, subgroupBallotBitCount(odd));
  first = subgroupBroadcastFirst(first);
  if ((x & 1u) != 0u) kept[first + subgroupBallotExclusiveBitCount(odd)] = x;
}
