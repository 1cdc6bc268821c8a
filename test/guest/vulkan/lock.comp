// A lock: one invocation of each workgroup changes two words that must agree.
#version 460
layout(local_size_x = 32) in;
layout(binding = 0) coherent buffer Lock { uint lock, count, square; };

void main() {
  if (gl_LocalInvocationIndex != 0u) return;
  while (atomicCompSwap(lock, 0u, 1u) != 0u);
  memoryBarrierBuffer();
  square += 2u * count + 1u;
  count++;
  memoryBarrierBuffer();
  atomicExchange(lock, 0u);
}
