// Subgroup operations: the lanes of a wave exchange values. The wave's size appears wherever it matters.
#version 460
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_shuffle_relative : require
#extension GL_KHR_shader_subgroup_clustered : require
#extension GL_KHR_shader_subgroup_quad : require
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * gl_WorkGroupSize.x, lane = gl_SubgroupInvocationID;
  uint x = a[i];
  uvec4 odd = subgroupBallot((x & 1u) != 0u);
  answer[i] = gl_SubgroupSize * 256u + lane;
  answer[n + i] = odd.x;
  answer[2 * n + i] = odd.y;
  answer[3 * n + i] = subgroupBallotExclusiveBitCount(odd) + 256u * subgroupBallotFindMSB(odd);
  answer[4 * n + i] = subgroupAdd(x);
  answer[5 * n + i] = subgroupInclusiveAdd(x);
  answer[6 * n + i] = subgroupExclusiveAdd(x);
  answer[7 * n + i] = subgroupMin(x) ^ subgroupMax(x);
  answer[8 * n + i] = subgroupAnd(x | 0xFFF0u) ^ subgroupXor(x);
  answer[9 * n + i] = uint(subgroupInclusiveMax(int(x)));
  answer[10 * n + i] = subgroupShuffle(x, gl_SubgroupSize - 1u - lane);
  answer[11 * n + i] = subgroupShuffleXor(x, 5u);
  uint below = subgroupShuffleUp(x, 3u);  // of all lanes: those that are off may not be asked
  answer[12 * n + i] = lane >= 3u ? below : 0u;
  answer[13 * n + i] = subgroupBroadcast(x, 9u) + subgroupBroadcastFirst(x);
  answer[14 * n + i] = subgroupQuadSwapHorizontal(x) + 3u * subgroupQuadSwapDiagonal(x) + 5u * subgroupQuadBroadcast(x, 2u);
  answer[15 * n + i] = subgroupClusteredAdd(x, 8u);
  answer[16 * n + i] = uint(subgroupAny(x % 61u == 0u)) + 2u * uint(subgroupAll(x % 2u < 2u)) + 4u * uint(subgroupAllEqual(x));
  uint some = 0u;
  if (x % 3u == 0u) some = subgroupAdd(x) + uint(subgroupElect());  // of the lanes that came here
  answer[17 * n + i] = some;
  answer[18 * n + i] = uint(subgroupMul(int(x | 1u)));
  answer[19 * n + i] = floatBitsToUint(subgroupAdd(float(x & 1023u)));
}
