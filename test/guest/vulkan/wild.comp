// A store to an address that the host gives.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 1) in;
layout(buffer_reference, buffer_reference_align = 4) writeonly buffer Word { uint word; };
layout(push_constant) uniform Push { Word to; };

void main() { to.word = 0xBADu; }
