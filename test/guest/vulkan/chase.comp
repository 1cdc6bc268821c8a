// A linked list by device addresses: step 0 links the nodes in a given order, step 1 follows the links from each.
#version 460
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
layout(local_size_x = 64) in;
layout(buffer_reference) buffer Node;
layout(buffer_reference, buffer_reference_align = 16) buffer Node { Node next; uint value, pad; };
layout(push_constant) uniform Push { Node nodes; uint step_, hops; };
layout(binding = 0) buffer Nodes { uvec4 storage[]; };
layout(binding = 1) readonly buffer Order { uint order[]; };
layout(binding = 2) writeonly buffer Answer { uint answer[]; };

void main() {
  uint i = gl_GlobalInvocationID.x;
  if (step_ == 0u) {
    Node node = nodes[i];
    node.next = nodes[order[i]];
    node.value = order[i] * 2654435761u;
  } else {
    Node node = nodes[i];
    uint sum = 0u;
    for (uint hop = 0u; hop < hops + (i & 7u); hop++) {
      sum = sum * 31u + node.value;
      node = node.next;
    }
    answer[i] = sum;
  }
}
