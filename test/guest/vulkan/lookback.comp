// Prefix sums of a whole buffer in one dispatch: workgroups take tickets, and each waits for the sum of the one before.
#version 460
#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
layout(local_size_x = 128) in;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer Answer { uint answer[]; };
layout(binding = 2) buffer State { uint tickets; uint done; uint sums[]; };
shared uint part[128];
shared uint ticket, before;

void main() {
  uint i = gl_LocalInvocationID.x;
  if (i == 0u) ticket = atomicAdd(tickets, 1u);
  barrier();
  uint at = ticket * 128u + i;
  part[i] = a[at];
  barrier();
  for (uint reach = 1u; reach < 128u; reach <<= 1) {
    uint more = i >= reach ? part[i - reach] : 0u;
    barrier();
    part[i] += more;
    barrier();
  }
  if (i == 0u) {
    while (atomicLoad(done, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire) != ticket) {}
    before = ticket == 0u ? 0u : sums[ticket - 1u];
    sums[ticket] = before + part[127];
    atomicStore(done, ticket + 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
  }
  barrier();
  answer[at] = before + part[i];
}
