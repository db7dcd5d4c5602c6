// Runtime of the CPU emulator: fibers, scheduler, barriers, warp collectives, race detector.
#include "emulate.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <unordered_map>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMULATE_ASAN 1
#endif
#if !defined(__x86_64__) || defined(EMULATE_UCONTEXT)
#include <ucontext.h>
#define EMULATE_UC 1
#endif

namespace emulate {
thread_local Thread* cur;
thread_local Grid* grd;

#ifndef EMULATE_UC
extern "C" void emulate_switch(void** save, void* to);
asm(R"(
.text
.globl emulate_switch
.hidden emulate_switch
.type emulate_switch,@function
emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulate_switch,.-emulate_switch
)");
#endif

enum State : uint8_t { RUNNABLE, AT_BARRIER, IN_WARP, EXITED };
struct Fiber : Thread {
  State st;
  void* sp;
#ifdef EMULATE_UC
  ucontext_t uc;
#endif
  char* stack;
  void* fake;
  uint64_t res;
  Where w;
  unsigned wclk[32];  // race mode: what this lane knows of its warp's clocks
};
struct Slot { bool used; Op op; unsigned mask, arrived; Where w; uint64_t v[32]; int arg[32], width[32]; };
struct Warp { unsigned alive; Slot slot[32]; };

struct Job {
  dim3 grid, block;
  size_t smem;
  void (*body)(void*);
  void* arg;
  const char* name;
  uint64_t nblocks, seed, mul, add;
  std::atomic<uint64_t> next{0};
  std::atomic<int> err{0};
  std::mutex mu;
  char msg[600];
};

static int env_int(const char* n, int d) { const char* s = getenv(n); return s && *s ? atoi(s) : d; }
static const size_t STACK =
#ifdef EMULATE_ASAN
    256 << 10;
#else
    64 << 10;
#endif
static std::atomic<uint64_t> g_launch{0}, g_switches{0};
static thread_local uint64_t t_seed = ~0ull;  // schedules are chosen by the thread that launches
#ifdef EMULATE_RACE
static std::mutex g_single;
#endif
static thread_local int t_err;
static thread_local char t_msg[600];

struct Shared { const void* key; std::unique_ptr<char[]> p; size_t n; };

struct Worker {
  Fiber main_ctx{};
  std::vector<Fiber> f;
  std::vector<Warp> warp;
  std::vector<Fiber*> run;
  size_t head = 0;
  char* stacks = nullptr;
  size_t nstacks = 0;
  Grid g;
  Job* job;
  uint64_t rng;
  unsigned alive, arrived, epoch;
  int bar_kind, bar_acc;
  Where bar_w;
  bool shuffle;
  std::vector<Shared> sh;  // entry 0 is the dynamic shared memory
  size_t nshared = 0, shared_bytes = 0;
  int fill = 0;
  void* get_shared(const void* key, size_t n) {
    for (size_t i = 0; i < nshared; i++) if (sh[i].key == key) return sh[i].p.get();
    // exact sizes, and new memory for every block in ASan builds: overruns and stale pointers are seen
    if (nshared == sh.size()) sh.push_back({});
    Shared& s = sh[nshared];
#ifdef EMULATE_ASAN
    s.p.reset();
#endif
    if (!s.p || s.n != n) s.p.reset(new char[n ? n : 1]);
    s.key = key; s.n = n;
    for (size_t i = 0; i < n; i++) s.p[i] = (char)(fill >> (i & 3) * 8);
    if (nshared++) { shared_bytes += n; if (shared_bytes > 48 << 10) fail(INVALID_CONFIG, "more than 48 KiB of static shared memory"); }
    return s.p.get();
  }
  uint64_t nsw = 0, block_lin = 0;

  ~Worker() { if (stacks) munmap(stacks, nstacks * (STACK + 4096)); }
  uint64_t rand() { rng ^= rng >> 12; rng ^= rng << 25; rng ^= rng >> 27; return rng * 0x2545F4914F6CDD1Dull; }
  void ensure(size_t n) {
    if (n <= nstacks) return;
    if (stacks) munmap(stacks, nstacks * (STACK + 4096));
    size_t each = STACK + 4096;
    stacks = (char*)mmap(nullptr, n * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) { stacks = nullptr; nstacks = 0; throw std::bad_alloc(); }
    nstacks = n;
    for (size_t i = 0; i < n; i++) mprotect(stacks + i * each, 4096, PROT_NONE);
    f.resize(n);
    for (size_t i = 0; i < n; i++) f[i].stack = stacks + i * each + 4096;
    warp.resize((n + 31) / 32);
    run.resize(n * 2);
  }
  // --- run queue ---
  size_t nrun = 0;
  void push(Fiber* x) {
    x->st = RUNNABLE;
    if (shuffle) run[nrun++] = x;
    else { size_t t = head + nrun; if (t >= run.size()) t -= run.size(); run[t] = x; nrun++; }
  }
  Fiber* pop() {
    if (!nrun) return nullptr;
    if (shuffle) {
      size_t i = (size_t)(((rand() >> 32) * nrun) >> 32);
      Fiber* x = run[i]; run[i] = run[--nrun]; return x;
    }
    Fiber* x = run[head]; if (++head == run.size()) head = 0; nrun--; return x;
  }
  void go(Fiber* from, Fiber* to, bool dying = false) {
    nsw++;
    cur = to;
    if (from == to) return;
#ifdef EMULATE_ASAN
    __sanitizer_start_switch_fiber(dying ? nullptr : &from->fake, to->stack, to == &main_ctx ? main_size : STACK);
#endif
    (void)dying;
#ifdef EMULATE_UC
    swapcontext(&from->uc, &to->uc);
#else
    emulate_switch(&from->sp, to->sp);
#endif
#ifdef EMULATE_ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
  }
  size_t main_size = 0;
  void wait(Fiber* me) { Fiber* n = pop(); go(me, n ? n : &main_ctx); }
  void yield(Fiber* me) { push(me); go(me, pop()); }

  bool try_release_barrier() {
    if (!alive || arrived != alive) return false;
    for (unsigned i = 0; i < nthreads; i++)
      if (f[i].st == AT_BARRIER) { f[i].res = (uint64_t)bar_acc; push(&f[i]); }
    arrived = 0; epoch++;
    return true;
  }
  void complete(Warp& wp, unsigned wi, Slot& s) {
    unsigned live = s.arrived;
    uint64_t acc = 0; bool first = true; unsigned ball = 0;
    for (unsigned l = 0; l < 32; l++) if (live >> l & 1) {
      uint64_t v = s.v[l]; if (v) ball |= 1u << l;
      if (first) acc = v, first = false;
      else switch (s.op) {
        case RED_ADD: acc = (uint32_t)(acc + v); break; case RED_MIN: if (v < acc) acc = v; break;
        case RED_MAX: if (v > acc) acc = v; break; case RED_AND: acc &= v; break;
        case RED_OR: acc |= v; break; case RED_XOR: acc ^= v; break; default: break; }
    }
    unsigned join[32];
    memset(join, 0, sizeof join);
    Fiber* base = &f[wi * 32];
#ifdef EMULATE_RACE
    for (unsigned l = 0; l < 32; l++) if (live >> l & 1) for (unsigned x = 0; x < 32; x++) if (base[l].wclk[x] > join[x]) join[x] = base[l].wclk[x];
#endif
    for (unsigned l = 0; l < 32; l++) if (live >> l & 1) {
      uint64_t r = 0;
      switch (s.op) {
        case SHFL: case SHFL_UP: case SHFL_DOWN: case SHFL_XOR: {
          int width = s.width[l], seg = ~(width - 1) & 31, mx = (int)(l & seg) | (~seg & 31), j, b = s.arg[l]; bool p;
          if (s.op == SHFL) j = (int)(l & seg) | (b & ~seg & 31), p = true;
          else if (s.op == SHFL_UP) j = (int)l - (b & 31), p = j >= (int)(l & seg);
          else if (s.op == SHFL_DOWN) j = (int)l + (b & 31), p = j <= mx;
          else j = (int)l ^ (b & 31), p = j <= mx;
          if (!p) j = l;
          r = (live >> j & 1) ? s.v[j] : 0x7fffdeadfffdeadull;  // inactive source lane: poison (a NaN)
          break; }
        case BALLOT: r = ball; break;
        case ANY: r = ball != 0; break;
        case ALL: r = ball == live; break;
        case ACTIVE: r = live; break;
        case MATCH_ANY: for (unsigned x = 0; x < 32; x++) if ((live >> x & 1) && s.v[x] == s.v[l]) r |= 1u << x; break;
        default: r = acc;
      }
      base[l].res = r;
#ifdef EMULATE_RACE
      memcpy(base[l].wclk, join, sizeof join); base[l].wclk[l]++;
#endif
      push(&base[l]);
    }
    s.used = false;
    (void)wp;
  }
  void check_warp(unsigned wi) {
    Warp& wp = warp[wi];
    for (Slot& s : wp.slot) if (s.used && s.arrived && s.arrived == (s.mask & wp.alive)) complete(wp, wi, s);
  }
  unsigned nthreads = 0;
  void run_block(uint64_t b);
};
static thread_local Worker* W;

void fail(int code, const char* fmt, ...) {
  char tmp[400];
  va_list ap; va_start(ap, fmt); vsnprintf(tmp, sizeof tmp, fmt, ap); va_end(ap);
  Worker* w = W; Fiber* me = static_cast<Fiber*>(cur);
  { std::lock_guard<std::mutex> l(w->job->mu);
    if (!w->job->err) {
      snprintf(w->job->msg, sizeof w->job->msg, "%s: block (%u,%u,%u) thread (%u,%u,%u) seed %llu: %s", w->job->name, w->g.bid.x, w->g.bid.y, w->g.bid.z,
               me->tid.x, me->tid.y, me->tid.z, (unsigned long long)w->job->seed, tmp);
      w->job->err = code;
    } }
  w->go(me, &w->main_ctx, true);   // the block's fibers are abandoned
  __builtin_unreachable();
}

static void fiber_main() {
#ifdef EMULATE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  Worker* w = W;
  char what[200] = "";  // fail() switches away, so it is called only after the handler has ended
  try { w->job->body(w->job->arg); }
  catch (const std::exception& e) { snprintf(what, sizeof what, "C++ exception: %s", e.what()); }
  catch (...) { snprintf(what, sizeof what, "C++ exception of unknown type"); }
  if (*what) fail(EXCEPTION, "%s", what);
  Fiber* me = static_cast<Fiber*>(cur);
  me->st = EXITED;
  w->alive--;
  w->warp[me->warp].alive &= ~(1u << me->lane);
  w->check_warp(me->warp);
  w->try_release_barrier();
  Fiber* n = w->pop();
  w->go(me, n ? n : &w->main_ctx, true);
  __builtin_unreachable();
}

void Worker::run_block(uint64_t lin) {
  block_lin = lin;
  g.block = job->block; g.grid = job->grid;
  g.bid = {unsigned(lin % job->grid.x), unsigned(lin / job->grid.x % job->grid.y), unsigned(lin / job->grid.x / job->grid.y)};
  nthreads = job->block.x * job->block.y * job->block.z;
  rng = (job->seed * 0x9E3779B97F4A7C15ull) ^ (lin + 1) * 0xD1B54A32D192ED03ull; if (!rng) rng = 1;
  shuffle = job->seed != 0;
  fill = (rand() & 1) ? 0x7fc0dead : (int)0xf3a5f3a5;  // a NaN, or a large negative number
  nshared = 0; shared_bytes = 0;
  g.dyn = get_shared(&g, job->smem);
  nrun = head = 0; alive = nthreads; arrived = 0; epoch = 1; bar_kind = -1;
  for (unsigned i = 0; i < (nthreads + 31) / 32; i++) {
    unsigned n = nthreads - i * 32; warp[i].alive = n >= 32 ? ~0u : (1u << n) - 1;
    for (Slot& s : warp[i].slot) s.used = false;
  }
  for (unsigned i = 0; i < nthreads; i++) {
    Fiber& x = f[i];
    x.tid = {i % g.block.x, i / g.block.x % g.block.y, i / g.block.x / g.block.y};
    x.lin = i; x.lane = i & 31; x.warp = i >> 5; x.fake = nullptr;
#ifdef EMULATE_RACE
    memset(x.wclk, 0, sizeof x.wclk); x.wclk[x.lane] = 1;
#endif
#ifdef EMULATE_UC
    getcontext(&x.uc); x.uc.uc_stack.ss_sp = x.stack; x.uc.uc_stack.ss_size = STACK; x.uc.uc_link = nullptr;
    makecontext(&x.uc, fiber_main, 0);
#else
#ifdef EMULATE_ASAN
    // fiber_main never returns, so the red zones of its frame are still there from the last block
    __asan_unpoison_memory_region(x.stack + STACK - 2048, 2048);
#endif
    void** sp = (void**)(x.stack + STACK) - 1;  // leaves rsp % 16 == 8 at fiber_main, as after a call
    *sp = nullptr; *--sp = (void*)fiber_main; sp -= 6; memset(sp, 0, 48);
    x.sp = sp;
#endif
    push(&x);
  }
  grd = &g;
  go(&main_ctx, pop());
  cur = nullptr; grd = nullptr;
  if (!job->err && alive) {  // nobody can run and some have not finished
    unsigned nb = 0, nw = 0; Where wb{}, ww{}; Fiber* who = nullptr;
    for (unsigned i = 0; i < nthreads; i++) {
      if (f[i].st == AT_BARRIER) { if (!nb++) wb = f[i].w; who = &f[i]; }
      if (f[i].st == IN_WARP) { if (!nw++) ww = f[i].w; who = &f[i]; }
    }
    std::lock_guard<std::mutex> l(job->mu);
    snprintf(job->msg, sizeof job->msg, "%s: block (%u,%u,%u) seed %llu: deadlock, e.g. thread %u: %u at __syncthreads (%s:%d), %u in a warp collective (%s:%d), %u exited",
             job->name, g.bid.x, g.bid.y, g.bid.z, (unsigned long long)job->seed, who ? who->lin : 0, nb, nb ? wb.file : "-", wb.line, nw, nw ? ww.file : "-", ww.line, nthreads - alive);
    job->err = DEADLOCK;
  }
#ifdef EMULATE_ASAN
  if (job->err) for (unsigned i = 0; i < nthreads; i++) __asan_unpoison_memory_region(f[i].stack, STACK);
#endif
}

void* shared(const void* key, size_t n) { return W->get_shared(key, n); }

int barrier(Bar kind, int pred, Where w) {
  Worker* k = W; Fiber* me = static_cast<Fiber*>(cur);
  if (k->arrived == 0) { k->bar_kind = kind; k->bar_w = w; k->bar_acc = kind == B_AND; }
  else if (k->bar_kind != kind || k->bar_w.line != w.line || k->bar_w.file != w.file)
    fail(DIVERGENT, "divergent __syncthreads: %s:%d and %s:%d", k->bar_w.file, k->bar_w.line, w.file, w.line);
  if (kind == B_OR) k->bar_acc |= pred != 0; else if (kind == B_AND) k->bar_acc &= pred != 0; else if (kind == B_COUNT) k->bar_acc += pred != 0;
  me->st = AT_BARRIER; me->w = w; k->arrived++;
  k->try_release_barrier();
  k->wait(me);
  return (int)me->res;
}

uint64_t collective(Op op, unsigned mask, uint64_t v, int arg, int width, Where w) {
  Worker* k = W; Fiber* me = static_cast<Fiber*>(cur);
  Warp& wp = k->warp[me->warp];
  if (op == ACTIVE) mask = wp.alive;
  if (!(mask >> me->lane & 1)) fail(BAD_MASK, "%s:%d: lane %u is not in its own mask %08x", w.file, w.line, me->lane, mask);
  Slot* s = nullptr; Slot* fr = nullptr;
  for (Slot& x : wp.slot) { if (x.used && x.mask == mask) { s = &x; break; } if (!x.used && !fr) fr = &x; }
  if (!s) { s = fr; s->used = true; s->op = op; s->mask = mask; s->arrived = 0; s->w = w; }
  else if (s->op != op) fail(DIVERGENT, "lanes of one mask are in different collectives: %s:%d and %s:%d", s->w.file, s->w.line, w.file, w.line);
  s->arrived |= 1u << me->lane; s->v[me->lane] = v; s->arg[me->lane] = arg; s->width[me->lane] = width;
  me->st = IN_WARP; me->w = w;
  if (s->arrived == (mask & wp.alive)) k->complete(wp, me->warp, *s);
  k->wait(me);
  return me->res;
}

void maybe_yield() { Worker* k = W; if (k && k->shuffle && cur && (k->rand() >> 62) == 0) k->yield(static_cast<Fiber*>(cur)); }
void fence() { maybe_yield(); }

#ifdef EMULATE_RACE
static void race_access(const void* p, size_t n, bool write, bool atomic, void* pc);
#endif

uint64_t atomic_rmw(void* p, int size, uint64_t (*fn)(uint64_t, uint64_t, uint64_t), uint64_t a, uint64_t b) {
  if ((uintptr_t)p % size) fail(716, "misaligned atomic");
#ifdef EMULATE_RACE
  race_access(p, size, true, true, __builtin_return_address(0));
#endif
  maybe_yield();
  auto loop = [&](auto* q) -> uint64_t {
    auto o = __atomic_load_n(q, __ATOMIC_RELAXED);
    for (;;) { auto n = (decltype(o))fn(o, a, b); if (__atomic_compare_exchange_n(q, &o, n, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) return o; }
  };
  uint64_t r = size == 8 ? loop((uint64_t*)p) : size == 4 ? loop((uint32_t*)p) : loop((uint16_t*)p);
  maybe_yield();
  return r;
}

static std::mutex g_pool_mu;
static std::vector<std::unique_ptr<Worker>> g_pool;

static void work(Job* job, uint64_t nthreads) {
  std::unique_ptr<Worker> w;
  { std::lock_guard<std::mutex> l(g_pool_mu); if (!g_pool.empty()) { w = std::move(g_pool.back()); g_pool.pop_back(); } }
  if (!w) w.reset(new Worker);
  w->ensure(nthreads);
  w->job = job; W = w.get();
#ifdef EMULATE_ASAN
  pthread_attr_t at; void* lo; size_t sz; pthread_getattr_np(pthread_self(), &at); pthread_attr_getstack(&at, &lo, &sz); pthread_attr_destroy(&at);
  w->main_ctx.stack = (char*)lo; w->main_size = sz;
#endif
  for (;;) {
    uint64_t i = job->next.fetch_add(1);
    if (i >= job->nblocks || job->err) break;
    w->run_block(job->seed ? (uint64_t)(((unsigned __int128)i * job->mul + job->add) % job->nblocks) : i);
  }
  W = nullptr;
  g_switches += w->nsw; w->nsw = 0;
  std::lock_guard<std::mutex> l(g_pool_mu); g_pool.push_back(std::move(w));
}

static void set_err(int e, const char* m) { if (!t_err) { t_err = e; snprintf(t_msg, sizeof t_msg, "%s", m); } }

void run_grid(dim3 grid, dim3 block, size_t smem, void (*body)(void*), void* arg, const char* name) {
  uint64_t nt = (uint64_t)block.x * block.y * block.z, nb = (uint64_t)grid.x * grid.y * grid.z;
  if (!nt || nt > 1024 || block.z > 64 || !nb || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || smem > 232448) {
    char m[200]; snprintf(m, sizeof m, "%s: invalid launch configuration: grid (%u,%u,%u) block (%u,%u,%u) shared %zu", name, grid.x, grid.y, grid.z, block.x, block.y, block.z, smem);
    return set_err(INVALID_CONFIG, m);
  }
  Job job{}; job.grid = grid; job.block = block; job.smem = smem; job.body = body; job.arg = arg; job.name = name; job.nblocks = nb;
  if (t_seed == ~0ull) t_seed = (uint64_t)env_int("COHOP_EMULATE_SEED", 1);
  job.seed = t_seed;
  auto gcd = [](uint64_t a, uint64_t b) { while (b) { uint64_t t = a % b; a = b; b = t; } return a; };
  job.mul = (job.seed * 0x9E3779B97F4A7C15ull >> 20) % nb | 1; while (gcd(job.mul, nb) != 1) job.mul++;
  job.add = job.seed * 7919 % nb;
  try {
#ifdef EMULATE_RACE
    std::lock_guard<std::mutex> l(g_single);
    g_launch++;
    work(&job, nt);
#else
    g_launch++;
    static const int nw = env_int("COHOP_EMULATE_WORKERS", (int)std::thread::hardware_concurrency());
    uint64_t n = nb < (uint64_t)nw ? nb : (uint64_t)nw;
    if (nb * nt < 4096) n = 1;
    std::vector<std::thread> th;
    for (uint64_t i = 1; i < n; i++) th.emplace_back([&] { work(&job, nt); });
    work(&job, nt);
    for (auto& t : th) t.join();
#endif
  } catch (const std::exception& e) { return set_err(2, e.what()); }
  if (job.err) set_err(job.err, job.msg);
}
int take_error() { int e = t_err; t_err = 0; return e; }

#ifdef EMULATE_RACE
// Happens-before race detector.  Kernels are compiled with -fsanitize=thread, whose callbacks are
// implemented here (libtsan is not linked).  Two accesses to one byte by different CUDA threads, at
// least one a write and not both atomic, race unless ordered by __syncthreads (same block) or by a
// warp collective naming both lanes (same warp).  Threads of different blocks are never ordered.
struct Rec { uint64_t block; uint32_t thread, epoch, clk; bool atomic; void* pc; };
struct Cell { uint64_t launch; Rec w, r[2]; uint8_t nw, nr; };
static std::unordered_map<uintptr_t, std::unique_ptr<Cell[]>> g_shadow;
static bool g_preempt = env_int("COHOP_EMULATE_PREEMPT", 0);

static void* rel(void* pc) { Dl_info i; return dladdr(pc, &i) ? (void*)((char*)pc - (char*)i.dli_fbase - 1) : pc; }
static bool ordered(const Rec& r, Worker* k, Fiber* me) {
  if (r.block != k->block_lin) return false;
  if (r.thread == me->lin || r.epoch < k->epoch) return true;
  return (r.thread >> 5) == me->warp && r.clk <= me->wclk[r.thread & 31];
}
static void race_access(const void* p, size_t n, bool write, bool atomic, void* pc) {
  Worker* k = W; if (!k || !cur) return;
  Fiber* me = static_cast<Fiber*>(cur);
  uintptr_t a = (uintptr_t)p;
  if (a - (uintptr_t)k->stacks < k->nstacks * (STACK + 4096)) return;
  bool shared = false;
  for (size_t i = 0; i < k->nshared; i++) shared |= a - (uintptr_t)k->sh[i].p.get() < k->sh[i].n;
  if (g_preempt && !atomic && k->shuffle && (k->rand() >> 60) == 0) k->yield(me);
  for (; n; n--, a++) {
    auto& pg = g_shadow[a >> 12]; if (!pg) pg.reset(new Cell[4096]());
    Cell& c = pg[a & 4095];
    if (c.launch != g_launch || (shared && ((c.nw && c.w.block != k->block_lin) || (c.nr && c.r[0].block != k->block_lin)))) { c.launch = g_launch; c.nw = c.nr = 0; }
    const Rec* bad = nullptr; const char* what = "";
    if (c.nw && !(atomic && c.w.atomic) && !ordered(c.w, k, me)) bad = &c.w, what = "write";
    if (write && !bad) for (int i = 0; i < c.nr; i++) if (!ordered(c.r[i], k, me)) { bad = &c.r[i]; what = "read"; }
    if (bad) fail(RACE, "data race on %s memory %p: this %s%s (pc %p) is not ordered after the %s%s by thread %u of block %llu (pc %p)", shared ? "shared" : "global", (void*)a,
                  atomic ? "atomic " : "", write ? "write" : "read", rel(pc), bad->atomic ? "atomic " : "", what, bad->thread, (unsigned long long)bad->block, rel(bad->pc));
    Rec now{k->block_lin, me->lin, k->epoch, me->wclk[me->lane], atomic, pc};
    if (write) { c.w = now; c.nw = 1; c.nr = 0; }
    else if (c.nr == 0) { c.r[0] = now; c.nr = 1; }
    else if (c.r[0].thread == now.thread && c.r[0].block == now.block) c.r[0] = now;
    else { c.r[1] = now; c.nr = 2; }
  }
}
#define RW(N) \
  extern "C" void __tsan_read##N(void* p) { race_access(p, N, false, false, __builtin_return_address(0)); } \
  extern "C" void __tsan_write##N(void* p) { race_access(p, N, true, false, __builtin_return_address(0)); } \
  extern "C" void __tsan_unaligned_read##N(void* p) { race_access(p, N, false, false, __builtin_return_address(0)); } \
  extern "C" void __tsan_unaligned_write##N(void* p) { race_access(p, N, true, false, __builtin_return_address(0)); }
RW(1) RW(2) RW(4) RW(8) RW(16)
extern "C" void __tsan_read_range(void* p, size_t n) { race_access(p, n, false, false, __builtin_return_address(0)); }
extern "C" void __tsan_write_range(void* p, size_t n) { race_access(p, n, true, false, __builtin_return_address(0)); }
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void*, void*) {}
#endif
}  // namespace emulate

extern "C" {
void cohop_emulate_set_seed(uint64_t s) { emulate::t_seed = s; }
uint64_t cohop_emulate_switches() { return emulate::g_switches; }
const char* cohop_emulate_message() { return emulate::t_msg; }
}
