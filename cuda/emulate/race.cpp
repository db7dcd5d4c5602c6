// Built with EMULATE_RACE, kernels are compiled with -fsanitize=thread, which calls __tsan_read4 and the like at every
// access. libtsan is not linked: these functions are at the end of this file.
#include "race.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <unordered_map>

#include "multiprocessor.h"

namespace emulate::race {
namespace {

/// Kept small: there are several for every word that a kernel touches.
struct Access {
  uint32_t block;     // blocks beyond 2^32 would take hours to emulate
  uint32_t barriers;  // number that the block had passed
  uint32_t clock;     // of the lane
  uint32_t code;      // offset of the accessing code from the start of the program
  uint16_t thread;
  bool exists;
  bool is_atomic;

  unsigned warp() const { return thread / WARP; }
  unsigned lane() const { return thread % WARP; }
};

/// Whether the earlier access is ordered before `now`, made by a thread that knows `clocks`.
bool is_ordered(const Access& earlier, const Access& now, const Clocks& clocks) {
  if (earlier.block != now.block) return false;
  if (earlier.barriers < now.barriers || earlier.thread == now.thread) return true;
  return earlier.warp() == now.warp() && earlier.clock <= clocks.clock[earlier.lane()];
}

/// More than one thread of a block between two barriers.
struct Several {
  Access other_warp{};       // from another warp than Group::first
  uint32_t clock[WARP] = {};  // of the last access by each lane of the warp of Group::first; 0: none
};

/// Accesses that do not conflict with each other: reads of a cell since its last write, or atomics. Few of them are
/// needed to decide whether a later access conflicts: after one of an earlier block, which nothing orders, no other is
/// needed; an access after a barrier stands for all before it; and since two warps between barriers are not ordered,
/// one access of each of two warps conflicts with any later access.
class Group {
 public:
  void add(const Access& access, std::deque<Several>& pool) {
    if (!first_.exists || (first_.block == access.block && first_.barriers < access.barriers)) {
      first_ = access;
      several_ = nullptr;
    } else if (first_.block != access.block) {
      return;
    } else if (!several_ && first_.thread == access.thread) {
      first_.clock = access.clock;
    } else {
      if (!several_) {
        several_ = &pool.emplace_back();
        several_->clock[first_.lane()] = first_.clock;
      }
      if (access.warp() == first_.warp()) {
        several_->clock[access.lane()] = access.clock;
      } else if (!several_->other_warp.exists) {
        several_->other_warp = access;
      }
    }
  }

  /// To be called after a copy: makes `several_` this group's own.
  void own(std::deque<Several>& pool) {
    if (several_) several_ = &pool.emplace_back(*several_);
  }

  /// An access that is not ordered before `now`; if there is none, one whose `exists` is false.
  Access find_unordered(const Access& now, const Clocks& clocks) const {
    if (!first_.exists) return {};
    const bool is_earlier = first_.block == now.block && first_.barriers < now.barriers;
    if (is_earlier) return {};
    if (!several_ || first_.block != now.block || first_.warp() != now.warp()) {
      return is_ordered(first_, now, clocks) ? Access{} : first_;
    }
    if (several_->other_warp.exists) return several_->other_warp;
    for (unsigned lane = 0; lane < WARP; lane++) {
      if (lane == now.lane() || several_->clock[lane] <= clocks.clock[lane]) continue;
      Access access = first_;
      access.thread = static_cast<uint16_t>(first_.warp() * WARP + lane);
      return access;
    }
    return {};
  }

 private:
  Access first_{};
  Several* several_ = nullptr;
};

/// What is known of a word of 4 bytes, or of a byte.
struct Cell {
  uint32_t launch = 0;
  bool is_shared = false;
  bool is_written = true;
  Access write{};
  Group reads;
  Group* atomics = nullptr;
  struct Bytes* bytes = nullptr;  // if any access was not of the whole word
};

constexpr size_t WORD = 4, PAGE = 4096;

struct Bytes {
  Cell cell[WORD];
};

/// Pages are kept from launch to launch, if they are not more than these (300 MB).
constexpr size_t MAX_IDLE_PAGES = 4096;

struct Page {
  Cell word[PAGE / WORD];
};

/// Everything is used by one launch at a time; see run_grid.
struct Shadow {
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  Page* last_page = nullptr;
  uintptr_t last_number = 0;
  std::deque<Several> several;
  std::deque<Group> groups;
  std::deque<Bytes> bytes;
  uint32_t launch = 0;
  uintptr_t program = 0;  // the address at which it was loaded

  Cell& word(uintptr_t address) {
    const uintptr_t number = address / PAGE;
    if (!last_page || number != last_number) {
      std::unique_ptr<Page>& page = pages[number];
      if (!page) page = std::make_unique<Page>();
      last_page = page.get();
      last_number = number;
    }
    Cell& cell = last_page->word[address % PAGE / WORD];
    if (cell.launch != launch) {
      cell = {};
      cell.launch = launch;
    }
    return cell;
  }

  /// The cell for the byte at `address` in the word.
  Cell& byte(Cell& word, uintptr_t address) {
    if (!word.bytes) {
      Bytes& split = bytes.emplace_back();
      for (Cell& cell : split.cell) {
        cell = word;
        if (word.atomics) cell.atomics = &groups.emplace_back(*word.atomics);
        cell.reads.own(several);
        if (cell.atomics) cell.atomics->own(several);
      }
      word.bytes = &split;
    }
    return word.bytes->cell[address % WORD];
  }
};

Shadow shadow;

/// The `file:line` of code, if addr2line finds it; otherwise its offset.
struct Place {
  char text[300];

  explicit Place(uint32_t code) {
    snprintf(text, sizeof text, "code at %#x", code);
    char program[1024], command[1200];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return;
    program[length] = 0;
    snprintf(command, sizeof command, "addr2line -s -e '%s' %#x 2>/dev/null", program, code);
    FILE* pipe = popen(command, "r");
    if (!pipe) return;
    char line[256] = "";
    const bool has_line = fgets(line, sizeof line, pipe) && line[0] != '?' && line[0] != '\n';
    pclose(pipe);
    if (!has_line) return;
    line[strcspn(line, " \n")] = 0;
    snprintf(text, sizeof text, "%s", line);
  }
};

const char* name(bool is_atomic, bool writes) { return is_atomic ? "atomic" : writes ? "write" : "read"; }

[[noreturn]] void report(const Cell& cell, const void* address, const Access& now, bool writes, const Access& earlier,
                         bool earlier_writes) {
  fail(DATA_RACE, "race on %s memory at %p: the %s at %s is not ordered after the %s by thread %u of block %u at %s",
       cell.is_shared ? "shared" : "global", address, name(now.is_atomic, writes), Place(now.code).text,
       name(earlier.is_atomic, earlier_writes), earlier.thread, earlier.block, Place(earlier.code).text);
}

void check(Cell& cell, uintptr_t at, Kind kind, const Access& now, const Clocks& clocks) {
  const void* address = reinterpret_cast<const void*>(at);
  const bool writes = kind != Kind::READ;
  if (!cell.is_written && kind != Kind::WRITE) {
    fail(UNINITIALISED, "the %s at %s is of shared memory that nothing has written", name(now.is_atomic, writes),
         Place(now.code).text);
  }
  if (cell.write.exists && !is_ordered(cell.write, now, clocks)) report(cell, address, now, writes, cell.write, true);
  if (writes) {
    const Access read = cell.reads.find_unordered(now, clocks);
    if (read.exists) report(cell, address, now, writes, read, false);
  }
  if (kind != Kind::ATOMIC && cell.atomics) {
    const Access atomic = cell.atomics->find_unordered(now, clocks);
    if (atomic.exists) report(cell, address, now, writes, atomic, true);
  }
  switch (kind) {
    case Kind::READ:
      cell.reads.add(now, shadow.several);
      break;
    case Kind::ATOMIC:
      if (!cell.atomics) cell.atomics = &shadow.groups.emplace_back();
      cell.atomics->add(now, shadow.several);
      break;
    case Kind::WRITE:
      // All earlier accesses are ordered before this write, so it stands for them.
      cell.is_written = true;
      cell.write = now;
      cell.reads = {};
      cell.atomics = nullptr;
      break;
  }
}

}  // namespace

void Clocks::start(unsigned lane) {
  memset(clock, 0, sizeof clock);
  clock[lane] = 1;
}

void Clocks::learn(const Clocks& other) {
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (clock[lane] < other.clock[lane]) clock[lane] = other.clock[lane];
  }
}

void begin_launch() {
  shadow.launch++;
  shadow.several.clear();
  shadow.groups.clear();
  shadow.bytes.clear();
  if (shadow.pages.size() > MAX_IDLE_PAGES) {
    shadow.pages.clear();
    shadow.last_page = nullptr;
  }
  Dl_info program;
  if (!shadow.program && dladdr(reinterpret_cast<void*>(&begin_launch), &program)) {
    shadow.program = reinterpret_cast<uintptr_t>(program.dli_fbase);
  }
}

void begin_shared(const void* address, size_t bytes) {
  const uintptr_t start = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t at = start; at < start + bytes; at += WORD) {
    Cell& cell = shadow.word(at);
    cell = {};
    cell.launch = shadow.launch;
    cell.is_shared = true;
    cell.is_written = false;
  }
}

void access(const void* address, size_t bytes, Kind kind, void* pc) {
  const Multiprocessor* multiprocessor = Multiprocessor::current();
  // The launcher's own accesses, and those of threads to their stacks, cannot race.
  if (!multiprocessor || !current_thread || multiprocessor->is_stack(address)) return;
  const auto& thread = static_cast<const DeviceThread&>(*current_thread);
  Access now{};
  now.block = static_cast<uint32_t>(multiprocessor->block_number());
  now.barriers = multiprocessor->barriers_passed();
  now.clock = thread.clocks.clock[thread.lane];
  // One less than where the call returns to: inside it.
  now.code = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pc) - shadow.program - 1);
  now.thread = static_cast<uint16_t>(thread.linear);
  now.exists = true;
  now.is_atomic = kind == Kind::ATOMIC;
  const uintptr_t start = reinterpret_cast<uintptr_t>(address), end = start + bytes;
  for (uintptr_t at = start; at < end;) {
    Cell& word = shadow.word(at);
    if (!word.bytes && at % WORD == 0 && end - at >= WORD) {
      check(word, at, kind, now, thread.clocks);
      at += WORD;
    } else {
      check(shadow.byte(word, at), at, kind, now, thread.clocks);
      at++;
    }
  }
}

}  // namespace emulate::race

#if defined(EMULATE_RACE)
extern "C" {

#define EMULATE_CALLBACK(name, kind, bytes)                                                                  \
  void name(void* address) {                                                                                 \
    emulate::race::access(address, bytes, emulate::race::Kind::kind, __builtin_return_address(0));           \
  }
#define EMULATE_CALLBACKS(bytes)                              \
  EMULATE_CALLBACK(__tsan_read##bytes, READ, bytes)            \
  EMULATE_CALLBACK(__tsan_write##bytes, WRITE, bytes)          \
  EMULATE_CALLBACK(__tsan_unaligned_read##bytes, READ, bytes)  \
  EMULATE_CALLBACK(__tsan_unaligned_write##bytes, WRITE, bytes)
EMULATE_CALLBACKS(1)
EMULATE_CALLBACKS(2)
EMULATE_CALLBACKS(4)
EMULATE_CALLBACKS(8)
EMULATE_CALLBACKS(16)

void __tsan_read_range(void* address, size_t bytes) {
  emulate::race::access(address, bytes, emulate::race::Kind::READ, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
  emulate::race::access(address, bytes, emulate::race::Kind::WRITE, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}

}  // extern "C"
#endif
