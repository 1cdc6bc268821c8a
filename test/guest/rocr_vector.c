/* Vector additions through the HSA runtime alone: user-mode AQL queue, code object from a file, completion signals,
 * scratch memory. At the end comes a packet that no GPU accepts; its error must come back. Prints PASS or FAIL for each
 * step.
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

static volatile int error_wanted, error_seen;

static void queue_error(hsa_status_t status, hsa_queue_t *queue, void *unused) {
  const char *text = "?";
  (void)unused;
  hsa_status_string(status, &text);
  if (!error_wanted) {
    printf("FAIL queue %lu: %s\n", (unsigned long)queue->id, text);
    fflush(stdout);
    _exit(1);
  }
  printf("# queue %lu: %s\n", (unsigned long)queue->id, text);
  error_seen = status;
}

static void *shared(hsa_amd_memory_pool_t pool, size_t size) {
  void *memory = NULL;
  step("memory of the computer for both", hsa_amd_memory_pool_allocate(pool, size, 0, &memory));
  step("the GPU may reach it", hsa_amd_agents_allow_access(1, &gpu, NULL, memory));
  return memory;
}

struct kernel {
  uint64_t object;
  uint32_t kernarg_size, group_size, private_size;
};

static struct kernel find(hsa_executable_t executable, const char *name) {
  struct kernel found;
  hsa_executable_symbol_t symbol;
  step(name, hsa_executable_get_symbol_by_name(executable, name, &gpu, &symbol));
  step("its descriptor", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &found.object));
  step("its arguments' size", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &found.kernarg_size));
  step("its group memory", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &found.group_size));
  step("its private memory", hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &found.private_size));
  printf("# %u bytes of arguments, %u of group, %u of private memory\n", found.kernarg_size, found.group_size, found.private_size);
  return found;
}

/* Write a packet's first 32 bits last, and ring the doorbell. */
static void submit(hsa_queue_t *queue, const hsa_kernel_dispatch_packet_t *wanted) {
  uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
  while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) ;
  hsa_kernel_dispatch_packet_t *packet = (hsa_kernel_dispatch_packet_t *)queue->base_address + index % queue->size;
  memcpy((char *)packet + 4, (const char *)wanted + 4, sizeof *packet - 4);
  __atomic_store_n((uint32_t *)packet, wanted->header | (uint32_t)wanted->setup << 16, __ATOMIC_RELEASE);
  hsa_signal_store_screlease(queue->doorbell_signal, index);
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
  int file = open(argv[1], O_RDONLY);
  check("the code object's file", file >= 0);
  step("code object", hsa_code_object_reader_create_from_file(file, &reader));
  step("executable", hsa_executable_create_alt(HSA_PROFILE_BASE, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &executable));
  step("load", hsa_executable_load_agent_code_object(executable, gpu, reader, NULL, NULL));
  step("freeze", hsa_executable_freeze(executable, NULL));
  struct kernel kernels[] = {find(executable, "add.kd"), find(executable, "add_in_scratch.kd")};

  float *a = shared(fine_pool, n * sizeof(float)), *b = shared(fine_pool, n * sizeof(float)), *out = shared(fine_pool, n * sizeof(float));
  struct { void *out, *a, *b; uint32_t n; } *arguments = shared(kernarg_pool, 4096);
  memset(arguments, 0, 4096);
  arguments->out = out, arguments->a = a, arguments->b = b, arguments->n = n;
  hsa_signal_t done;
  step("signal", hsa_signal_create(1, 0, NULL, &done));
  hsa_kernel_dispatch_packet_t packet = {
      .header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | 1 << HSA_PACKET_HEADER_BARRIER |
                HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE,
      .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
      .workgroup_size_x = GROUP, .workgroup_size_y = 1, .workgroup_size_z = 1,
      .grid_size_x = n, .grid_size_y = 1, .grid_size_z = 1,
      .kernarg_address = arguments, .completion_signal = done,
  };
  for (unsigned turn = 0; turn < times; turn++) {
    struct kernel *kernel = &kernels[turn % 2];
    for (uint32_t i = 0; i < n; i++) a[i] = i + turn, b[i] = 0.5f * i, out[i] = -1;
    hsa_signal_store_relaxed(done, 1);
    packet.kernel_object = kernel->object;
    packet.private_segment_size = kernel->private_size, packet.group_segment_size = kernel->group_size;
    submit(queue, &packet);
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

  error_wanted = 1;
  packet.header = HSA_PACKET_TYPE_AGENT_DISPATCH;
  submit(queue, &packet);
  for (int tenths = 0; tenths < 600 && !error_seen; tenths++) usleep(100000);
  check("the error of a packet that is not for a GPU comes back", error_seen == HSA_STATUS_ERROR_INVALID_PACKET_FORMAT);
  step("queue destroyed", hsa_queue_destroy(queue));
  step("signal destroyed", hsa_signal_destroy(done));
  for (void **memory = (void *[]){a, b, out, arguments, NULL}; *memory; memory++) step("memory freed", hsa_amd_memory_pool_free(*memory));
  step("executable destroyed", hsa_executable_destroy(executable));
  step("code object destroyed", hsa_code_object_reader_destroy(reader));
  step("hsa_shut_down", hsa_shut_down());
  puts("PASS all");
  return 0;
}
