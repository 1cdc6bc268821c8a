// Work that takes as long as the host says: `rounds` times `turns` sequential steps of a generator.
#version 460
layout(local_size_x = 32) in;
layout(binding = 0) buffer Words { uint words[]; };
layout(push_constant) uniform Push { uint turns; uint rounds; };

void main() {
    uint state = words[gl_LocalInvocationIndex] + gl_LocalInvocationIndex;
    for (uint round = 0; round < rounds; round++)
        for (uint turn = 0; turn < turns; turn++)
            state = state * 1664525u + 1013904223u;
    words[gl_LocalInvocationIndex] = state;
}
