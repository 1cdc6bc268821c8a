// A private array of each invocation, indexed by values known only at run time: a heap sort in scratch memory.
#version 460
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint COUNT = 48;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
uint heap[COUNT];

void sink(uint at, uint end) {
  for (uint child = 2u * at + 1u; child < end; child = 2u * at + 1u) {
    if (child + 1u < end && heap[child + 1u] > heap[child]) child++;
    if (heap[child] <= heap[at]) return;
    uint t = heap[at];
    heap[at] = heap[child];
    heap[child] = t;
    at = child;
  }
}

void main() {
  uint base = gl_GlobalInvocationID.x * COUNT;
  for (uint k = 0u; k < COUNT; k++) heap[k] = a[base + k];
  for (uint k = COUNT / 2u; k-- > 0u;) sink(k, COUNT);
  for (uint end = COUNT - 1u; end > 0u; end--) {
    uint t = heap[0];
    heap[0] = heap[end];
    heap[end] = t;
    sink(0u, end);
  }
  for (uint k = 0u; k < COUNT; k++) answer[base + k] = heap[k];
}
