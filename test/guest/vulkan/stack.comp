// A linked stack that all invocations push to by compare and swap.
#version 460
layout(local_size_x = 64) in;
layout(binding = 0) buffer Head { uint head; };
layout(binding = 1) buffer Next { uint next[]; };

void main() {
  uint me = gl_GlobalInvocationID.x + 1u, seen = head, before;
  do {
    before = seen;
    next[me - 1u] = before;
    memoryBarrierBuffer();
    seen = atomicCompSwap(head, before, me);
  } while (seen != before);
}
