/* A vector addition through the HSA runtime alone: user-mode AQL queue, code object from a file, completion signal. One PASS or FAIL a step.
 *
 *   clang-19 -x cl -cl-std=CL2.0 -target amdgcn-amd-amdhsa -mcpu=gfx1100 -nogpulib -O2 rocr_vector.cl -o rocr_vector.hsaco
 *   gcc -O1 -I ROOT/usr/include rocr_vector.c -o rocr_vector -L ROOT/usr/lib/x86_64-linux-gnu -l:libhsa-runtime64.so.1 -Wl,--allow-shlib-undefined
 *   ./rocr_vector rocr_vector.hsaco [N] [TIMES] [no-interrupts]
 *
 * ROOT is a Debian 13 root with libhsa-runtime-dev. Written against hsa.h and hsa_ext_amd.h of ROCR-Runtime 6.1. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

enum { GROUP = 256, PACKETS = 64 };

static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t kernarg_pool, fine_pool;
static uint64_t frequency_hz;

static void step(const char *what, hsa_status_t status) {
  const char *text = "";
  if (status != HSA_STATUS_SUCCESS) hsa_status_string(status, &text);
  printf("%s %s%s%s\n", status == HSA_STATUS_SUCCESS ? "PASS" : "FAIL", what, *text ? ": " : "", text);
  fflush(stdout);
  if (status != HSA_STATUS_SUCCESS) exit(1);
}

static void check(const char *what, int right) {
  printf("%s %s\n", right ? "PASS" : "FAIL", what);
  fflush(stdout);
  if (!right) exit(1);
}

static hsa_status_t take_agent(hsa_agent_t agent, void *unused) {
  hsa_device_type_t type;
  hsa_status_t status = hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
  (void)unused;
  if (status != HSA_STATUS_SUCCESS) return status;
  if (type == HSA_DEVICE_TYPE_GPU && !gpu.handle) gpu = agent;
  if (type == HSA_DEVICE_TYPE_CPU && !cpu.handle) cpu = agent;
  return HSA_STATUS_SUCCESS;
}

static hsa_status_t take_pool(hsa_amd_memory_pool_t pool, void *unused) {
  hsa_amd_segment_t segment;
  uint32_t flags;
  (void)unused;
  hsa_status_t status = hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
  if (status != HSA_STATUS_SUCCESS || segment != HSA_AMD_SEGMENT_GLOBAL) return status;
  status = hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags);
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT) kernarg_pool = pool;
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED) fine_pool = pool;
  return status;
}

static void queue_error(hsa_status_t status, hsa_queue_t *queue, void *unused) {
  const char *text = "?";
  (void)unused;
  hsa_status_string(status, &text);
  printf("FAIL queue %lu: %s\n", (unsigned long)queue->id, text);
  fflush(stdout);
  _exit(1);
}

static void *shared(hsa_amd_memory_pool_t pool, size_t size) {
  void *memory = NULL;
  step("memory of the computer for both", hsa_amd_memory_pool_allocate(pool, size, 0, &memory));
  step("the GPU may reach it", hsa_amd_agents_allow_access(1, &gpu, NULL, memory));
  return memory;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: rocr_vector FILE.hsaco [N] [TIMES] [no-interrupts]\n");
    return 2;
  }
  uint32_t n = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000;
  unsigned times = argc > 3 ? strtoul(argv[3], NULL, 0) : 3;
  if (argc > 4) setenv("HSA_ENABLE_INTERRUPT", "0", 1);

  step("hsa_init", hsa_init());
  step("agents", hsa_iterate_agents(take_agent, NULL));
  check("a GPU is there", gpu.handle && cpu.handle);
  char name[64] = "", product[64] = "";
  step("its name", hsa_agent_get_info(gpu, HSA_AGENT_INFO_NAME, name));
  step("its product", hsa_agent_get_info(gpu, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_PRODUCT_NAME, product));
  printf("# %s %s\n", name, product);
  step("clock", hsa_system_get_info(HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, &frequency_hz));
  step("pools", hsa_amd_agent_iterate_memory_pools(cpu, take_pool, NULL));
  check("a pool for kernel arguments and a fine-grained one", kernarg_pool.handle && fine_pool.handle);

  hsa_queue_t *queue = NULL;
  step("queue", hsa_queue_create(gpu, PACKETS, HSA_QUEUE_TYPE_SINGLE, queue_error, NULL, UINT32_MAX, UINT32_MAX, &queue));
  step("profiling", hsa_amd_profiling_set_profiler_enabled(queue, 1));

  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  hsa_executable_symbol_t symbol;
  uint64_t kernel;
  uint32_t kernarg_size, group_size, private_size;
  int file = open(argv[1], O_RDONLY);
  check("the code object's file", file >= 0);
  step("code object", hsa_code_object_reader_create_from_file(file, &reader));
  step("executable", hsa_executable_create_alt(HSA_PROFILE_BASE, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &executable));
  step("load", hsa_executable_load_agent_code_object(executable, gpu, reader, NULL, NULL));
  step("freeze", hsa_executable_freeze(executable, NULL));
  step("kernel add", hsa_executable_get_symbol_by_name(executable, "add.kd", &gpu, &symbol));
  step("kernel object", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &kernel));
  step("kernarg size", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &kernarg_size));
  step("group size", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &group_size));
  step("private size", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &private_size));

  float *a = shared(fine_pool, n * sizeof(float)), *b = shared(fine_pool, n * sizeof(float)), *out = shared(fine_pool, n * sizeof(float));
  struct { void *out, *a, *b; uint32_t n; } *arguments = shared(kernarg_pool, kernarg_size > 64 ? kernarg_size : 64);
  memset(arguments, 0, kernarg_size);
  arguments->out = out, arguments->a = a, arguments->b = b, arguments->n = n;
  hsa_signal_t done;
  step("signal", hsa_signal_create(1, 0, NULL, &done));

  for (unsigned turn = 0; turn < times; turn++) {
    for (uint32_t i = 0; i < n; i++) a[i] = i + turn, b[i] = 0.5f * i, out[i] = -1;
    hsa_signal_store_relaxed(done, 1);
    uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
    hsa_kernel_dispatch_packet_t *packet = (hsa_kernel_dispatch_packet_t *)queue->base_address + index % queue->size;
    packet->workgroup_size_x = GROUP, packet->workgroup_size_y = packet->workgroup_size_z = 1;
    packet->reserved0 = 0;
    packet->grid_size_x = n, packet->grid_size_y = packet->grid_size_z = 1;
    packet->private_segment_size = private_size, packet->group_segment_size = group_size;
    packet->kernel_object = kernel, packet->kernarg_address = arguments;
    packet->reserved2 = 0, packet->completion_signal = done;
    uint32_t header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER |
                      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
    uint32_t setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
    __atomic_store_n((uint32_t *)packet, header | setup << 16, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, index);
    hsa_signal_value_t left =
        hsa_signal_wait_scacquire(done, HSA_SIGNAL_CONDITION_LT, 1, 60 * frequency_hz, HSA_WAIT_STATE_BLOCKED);
    check("the kernel completes within a minute", left == 0);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < n; i++) wrong += out[i] != (float)(i + turn) + 0.5f * i;
    printf("%s turn %u: %u of %u sums are wrong\n", wrong ? "FAIL" : "PASS", turn, wrong, n);
    if (wrong) return 1;
    hsa_amd_profiling_dispatch_time_t time;
    step("dispatch time", hsa_amd_profiling_get_dispatch_time(gpu, done, &time));
    check("it ends after it starts", time.end >= time.start);
    printf("# %.1f us\n", (time.end - time.start) * 1e6 / frequency_hz);
  }
  step("queue destroyed", hsa_queue_destroy(queue));
  step("executable destroyed", hsa_executable_destroy(executable));
  step("hsa_shut_down", hsa_shut_down());
  puts("PASS all");
  return 0;
}
