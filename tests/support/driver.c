/* A CUDA driver that has no GPU: it answers as one with an H200, and takes down what is launched. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOES_NOTHING(name) \
  int name(void) { return 0; }

/* --- What is taken down: words of 8 bytes, each launch with the number of its words first ------------- */

enum { MOST_WORDS = 1 << 22, MOST_KERNELS = 4096, MOST_PARAMETERS = 64 };

uint64_t taken_down[MOST_WORDS];
size_t words_taken_down;
int fail_at = -1; /* which of the next launches fails, and how */
int fail_with = 0;
int allocation_status;
uint64_t allocations[3]; /* how many, how many were freed, bytes of the last */
void* current_context = (void*)16;
int context_is_needed;
int most_threads = 1024, static_shared; /* of each kernel */

static char kernel_names[MOST_KERNELS][256];
static int kernel_count;
static int parameter_sizes[MOST_KERNELS][MOST_PARAMETERS];
static int parameter_counts[MOST_KERNELS];

int kernel_number(const char* name) {
  for (int k = 0; k < kernel_count; ++k)
    if (!strcmp(kernel_names[k], name)) return k;
  strncpy(kernel_names[kernel_count], name, 255);
  return kernel_count++;
}
const char* kernel_name(int number) { return kernel_names[number]; }
void set_parameters(const char* name, int count, const int* sizes) {
  int k = kernel_number(name);
  parameter_counts[k] = count;
  memcpy(parameter_sizes[k], sizes, sizeof(int) * count);
}
static void put(uint64_t word) {
  if (words_taken_down < MOST_WORDS) taken_down[words_taken_down++] = word;
}

struct config {
  unsigned grid[3], block[3], shared;
  void* stream;
  void* attributes;
  unsigned count;
};

static void put_launch(void* function, const unsigned* numbers, void* stream, uint64_t attribute) {
  put((uintptr_t)function - 4096);
  for (int i = 0; i < 7; ++i) put(numbers[i]); /* grid, block, shared memory */
  put((uintptr_t)stream);
  put(attribute);
}
static void put_parameters(void* function, void** parameters) {
  int k = (int)((uintptr_t)function - 4096);
  put(parameter_counts[k]);
  for (int i = 0; i < parameter_counts[k]; ++i) {
    int size = parameter_sizes[k][i];
    put(size);
    for (int at = 0; at < size; at += 8) {
      uint64_t word = 0;
      memcpy(&word, (char*)parameters[i] + at, size - at < 8 ? size - at : 8);
      put(word);
    }
  }
}

int cuLaunchKernelEx(const struct config* config, void* function, void** parameters, void** extra) {
  if (context_is_needed && !current_context) return 201;
  if (fail_at >= 0 && fail_at-- == 0) return fail_with;
  const int* attribute = config->attributes;
  put_launch(function, config->grid, config->stream, config->count ? attribute[0] * 16 + attribute[2] : 0);
  put_parameters(function, parameters);
  return 0;
}

/* --- Graphs: chains of kernels, whose parameters are copied when they are set ------------------------- */

struct node_params {
  void* function;
  unsigned numbers[7];
  void** parameters;
};
struct node {
  struct node_params params;
  uint64_t words[4 * MOST_PARAMETERS];
  size_t count;
  struct node* next;
};

int cuGraphCreate(struct node** graph, unsigned flags) {
  *graph = calloc(1, sizeof(struct node));
  return 0;
}
int cuGraphExecKernelNodeSetParams_v2(void* graph, struct node* node, const struct node_params* params) {
  size_t before = words_taken_down;
  node->params = *params;
  put_parameters(params->function, params->parameters);
  node->count = words_taken_down - before;
  if (node->count > 4 * MOST_PARAMETERS) return 1;
  memcpy(node->words, taken_down + before, node->count * sizeof(uint64_t));
  words_taken_down = before;
  return 0;
}
int cuGraphAddKernelNode_v2(struct node** n, struct node* g, void* b, size_t c, const struct node_params* p) {
  *n = calloc(1, sizeof(struct node));
  while (g->next) g = g->next;
  g->next = *n;
  return cuGraphExecKernelNodeSetParams_v2(0, *n, p);
}
int cuGraphInstantiateWithFlags(struct node** executable, struct node* graph, uint64_t flags) {
  *executable = graph;
  return 0;
}
int cuGraphLaunch(struct node* graph, void* stream) {
  if (fail_at >= 0 && fail_at-- == 0) return fail_with;
  for (struct node* each = graph->next; each; each = each->next) {
    put_launch(each->params.function, each->params.numbers, stream, 0);
    for (size_t i = 0; i < each->count; ++i) put(each->words[i]);
  }
  return 0;
}
DOES_NOTHING(cuGraphAddDependencies_v2)
DOES_NOTHING(cuGraphExecDestroy)
DOES_NOTHING(cuGraphDestroy)

/* --- Code, memory, devices ------------------------------------------------------------------------------ */

int cuLibraryLoadData(void** h, const void* c, void* a, void* b, unsigned n, void* d, void* e, unsigned m) {
  *h = (void*)32;
  return 0;
}
int cuLibraryGetKernel(void** h, void* l, const char* name) {
  *h = (void*)(uintptr_t)(4096 + kernel_number(name));
  return 0;
}
int cuKernelGetFunction(void** h, void* kernel) {
  *h = kernel;
  return 0;
}
int cuFuncGetAttribute(int* v, int a, void* f) {
  *v = a == 0 ? most_threads : a == 1 ? static_shared : a == 4 ? 32 : 0; /* of a block; registers */
  return 0;
}
int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void* f, void* map, size_t shared, int most) {
  *grid = 132;
  *block = 768;
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* v, void* f, int threads, size_t shared) {
  int fit = 2048 / threads;
  if (shared && 233472 / (shared + 1024) < (size_t)fit) fit = (int)(233472 / (shared + 1024));
  *v = fit;
  return 0;
}
DOES_NOTHING(cuFuncSetAttribute)
DOES_NOTHING(cuFuncLoad)
DOES_NOTHING(cuLibraryUnload)

int cuMemAllocFromPoolAsync(uint64_t* p, size_t n, void* pool, void* stream) {
  if (context_is_needed && !current_context) return 201;
  if (allocation_status) return allocation_status;
  allocations[0]++;
  allocations[2] = n;
  *p = 0x700000000000ull;
  return 0;
}
int cuMemFreeAsync(uint64_t p, void* stream) {
  allocations[1]++;
  return 0;
}
int cuMemAlloc_v2(uint64_t* p, size_t n) {
  *p = 0x710000000000ull;
  return 0;
}
int cuMemPoolCreate(void** p, void* q) {
  *p = (void*)96;
  return 0;
}
DOES_NOTHING(cuMemcpyDtoDAsync_v2)
DOES_NOTHING(cuMemcpyHtoDAsync_v2)
DOES_NOTHING(cuMemPoolSetAttribute)
DOES_NOTHING(cuMemPoolTrimTo)

int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int* v) {
  *v = 13000;
  return 0;
}
int cuDeviceGetCount(int* c) {
  *c = 1;
  return 0;
}
int cuDeviceGetName(char* name, int nbytes, int d) {
  snprintf(name, nbytes, "NVIDIA H200");
  return 0;
}
int cuDeviceGetAttribute(int* v, int a, int d) {
  *v = a == 75 ? 9 : a == 76 ? 0 : a == 16 ? 132 : a == 97 ? 232448 : 1;
  return 0;
}
int cuCtxGetId(void* c, uint64_t* id) {
  *id = 1;
  return 0;
}
int cuCtxGetDevice(int* d) {
  *d = 0;
  return 0;
}
int cuCtxGetCurrent(void** c) {
  *c = current_context;
  return 0;
}
int cuCtxSetCurrent(void* c) {
  current_context = c;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** c, int d) {
  *c = (void*)16;
  return 0;
}
int cuDevicePrimaryCtxGetState(int d, unsigned* f, int* active) {
  *f = 0;
  *active = 1;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
DOES_NOTHING(cuCtxPushCurrent_v2)
DOES_NOTHING(cuCtxPopCurrent_v2)
DOES_NOTHING(cuCtxSynchronize)
int cuThreadExchangeStreamCaptureMode(int* m) {
  *m = 0;
  return 0;
}
int cuStreamGetId(void* s, uint64_t* id) {
  *id = (uint64_t)(uintptr_t)s;
  return 0;
}
int cuStreamIsCapturing(void* s, int* status) {
  *status = 0;
  return 0;
}
int cuEventCreate(void** event, unsigned flags) {
  *event = (void*)1;
  return 0;
}
int cuEventRecord(void* event, void* stream) { return 0; }
int cuEventQuery(void* event) { return 0; }
int cuStreamGetPriority(void* s, int* priority) {
  *priority = 0;
  return 0;
}
int cuGetErrorName(int status, const char** text) {
  *text = status == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_TEST";
  return 0;
}
