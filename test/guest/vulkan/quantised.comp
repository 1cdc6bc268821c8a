// A matrix of 4-bit numbers with a scale for every 32 of them, times a vector: a subgroup makes a row.
#version 460
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_KHR_shader_subgroup_arithmetic : require
layout(local_size_x = 32) in;
struct Block { float16_t scale; uint8_t quants[16]; };
layout(binding = 0, scalar) readonly buffer A { Block a[]; };
layout(binding = 1) readonly buffer B { float b[]; };
layout(binding = 2) writeonly buffer Answer { float answer[]; };
const uint BLOCKS = 8u;

void main() {
  uint row = gl_WorkGroupID.x, lane = gl_SubgroupInvocationID;
  float sum = 0.0;
  for (uint k = lane; k < BLOCKS * 16u; k += 32u) {
    uint block = row * BLOCKS + k / 16u, quants = uint(a[block].quants[k & 15u]);
    vec2 pair = vec2(quants & 15u, quants >> 4) - 8.0;
    sum += float(a[block].scale) * (pair.x * b[k / 16u * 32u + (k & 15u)] + pair.y * b[k / 16u * 32u + 16u + (k & 15u)]);
  }
  sum = subgroupAdd(sum);
  if (subgroupElect()) answer[row] = sum;
}
