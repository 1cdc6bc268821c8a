// A search tree of device addresses: the first dispatch links it, the second one searches it.
#version 460
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Node { uint64_t left, right; uint key, value; };
layout(push_constant) uniform Push { Node nodes; uint step; };
layout(binding = 1) readonly buffer Keys { uint keys[]; };
layout(binding = 2) buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x, n = gl_NumWorkGroups.x * 64u;
  if (step == 0u) {  // node i has the key 2i + 1; its subtree is that of its lowest zero bit
    uint span = i + 1u & ~i;
    nodes[i].key = 2u * i + 1u;
    nodes[i].value = i * i;
    bool leaf = span == 1u;
    nodes[i].left = leaf ? 0ul : uint64_t(nodes + (i - span / 2u));
    nodes[i].right = leaf || i + span / 2u >= n ? 0ul : uint64_t(nodes + (i + span / 2u));
  } else {
    uint key = keys[i], hops = 0u;
    uint64_t at = uint64_t(nodes + (n / 2u - 1u));
    while (at != 0ul && Node(at).key != key) {
      at = key < Node(at).key ? Node(at).left : Node(at).right;
      hops++;
    }
    answer[i] = at == 0ul ? 0xFFFFFF00u | hops : Node(at).value * 16u + hops;
  }
}
