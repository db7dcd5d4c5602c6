"""Reads the machine code that cuobjdump prints (SASS): a kernel's loops, and the loads that they have in flight.

Used by tools/kernel-table. Nothing here runs anything: what a loop has in flight is read off the order of its
instructions. A load is in flight from where it stands to the first instruction that reads or overwrites a register that
it fills: there the warp waits for it, and for those before it.
"""
import collections
import re

# at: the instruction's address. word: its name with all suffixes. guard: whether a predicate can switch it off.
Instruction = collections.namedtuple("Instruction", "at guard word operands")

LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
ENDS = ("EXIT", "RET", "BRX", "BRXU", "JMX", "KILL")
# What writes no general register first: all registers named are read.
STORES = ("ST", "RED", "ATOMS.POPC", "BAR", "BRA", "CALL", "RET", "WARPSYNC", "NANOSLEEP", "SUST")


def functions(text):
    """The instructions of each function, by its mangled name."""
    found = {}
    code = None
    for line in text.splitlines():
        if name := re.match(r"\s*Function : (\S+)", line):
            code = found.setdefault(name[1], [])
        elif code is not None and (match := LINE.match(line)):
            at, guard, word, operands = match.groups()
            code.append(Instruction(int(at, 16), bool(guard), word, operands))
    return found


def is_load(instruction):
    """Whether it loads from global memory, or from what may be global memory."""
    return re.match(r"LDG?\.", instruction.word) is not None


def width(instruction):
    """Registers that a load fills or a store reads."""
    bits = re.search(r"\.(64|128|256)(?=\.|$)", instruction.word)
    return int(bits[1]) // 32 if bits else 1


def numbers(text):
    return [int(number) for number in re.findall(r"\bR(\d+)\b", text)]


def destination(instruction):
    """The register that it writes first, or None, and the text of the operands that it reads."""
    parts = instruction.operands.split(",")
    if instruction.word.startswith(STORES):
        return None, instruction.operands
    # A predicate comes first in shuffles and atomics.
    at = 1 if re.fullmatch(r"\s*U?P\w+\s*", parts[0]) and instruction.word.startswith(("SHFL", "ATOM", "LD")) else 0
    if at < len(parts) and (match := re.fullmatch(r"\s*R(\d+)\s*", parts[at])):
        return int(match[1]), ",".join(parts[at + 1:])
    return None, instruction.operands


def reads(instruction):
    """The registers that it reads."""
    text = destination(instruction)[1]
    found = set(numbers(text))
    # Addresses, and operands of operations in 64 bits, are pairs.
    for pair in re.findall(r"\bR(\d+)\.(?:64|U32|S32)", text):
        found.add(int(pair) + 1)
    if re.match(r"D[A-Z]", instruction.word) and not instruction.word.startswith("DEPBAR"):
        found |= {number + 1 for number in numbers(text)}
    if ".WIDE" in instruction.word:
        found |= {number + 1 for number in numbers(text.split(",")[-1])}
    if instruction.word.startswith("ST") and (value := re.search(r"\bR(\d+)\s*$", text)):
        found |= set(range(int(value[1]), int(value[1]) + width(instruction)))
    return found


def target(instruction):
    """Where a branch goes, or None if it is none."""
    if not re.match(r"(BRA|JMP)\b", instruction.word):
        return None
    found = re.findall(r"\b0x([0-9a-f]+)\b", instruction.operands)
    return int(found[-1], 16) if found else None


def is_conditional(instruction):
    """Whether a branch may also fall through."""
    return instruction.guard or ".DIV" in instruction.word or ".CONV" in instruction.word \
        or re.match(r"!?UP\d", instruction.operands) is not None


def successors(code):
    """For each instruction the places of those that may follow it. A call comes back to where it stands."""
    place = {instruction.at: i for i, instruction in enumerate(code)}
    follow = []
    for i, instruction in enumerate(code):
        after = [i + 1] if i + 1 < len(code) else []
        to = target(instruction)
        if to is not None:
            jump = [place[to]] if to in place else []
            follow.append(after + jump if is_conditional(instruction) else jump)
        elif instruction.word.startswith(ENDS) and not instruction.guard:
            follow.append([])
        else:
            follow.append(after)
    return follow


def blocks_of(code, follow):
    """Runs of instructions that are entered at their first: (first, end) of each, and the blocks that follow each."""
    begins = {0} if code else set()
    for i, after in enumerate(follow):
        if after != [i + 1]:
            begins.update(after)
            begins.add(i + 1)
    starts = sorted(begin for begin in begins if begin < len(code))
    blocks = list(zip(starts, starts[1:] + [len(code)]))
    number = {start: b for b, start in enumerate(starts)}
    return blocks, [[number[i] for i in follow[end - 1] if i in number] for _, end in blocks]


def dominators(after):
    """For each block that can be reached from block 0 the block that every way to it passes last."""
    order, seen, stack = [], {0}, [(0, iter(after[0]))]
    while stack:
        block, rest = stack[-1]
        for other in rest:
            if other not in seen:
                seen.add(other)
                stack.append((other, iter(after[other])))
                break
        else:
            order.append(block)
            stack.pop()
    order.reverse()
    rank = {block: i for i, block in enumerate(order)}
    before = collections.defaultdict(list)
    for block in order:
        for other in after[block]:
            before[other].append(block)
    above = {0: 0}

    def meet(a, b):
        while a != b:
            if rank[a] > rank[b]:
                a = above[a]
            else:
                b = above[b]
        return a

    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            known = [other for other in before[block] if other in above]
            best = known[0]
            for other in known[1:]:
                best = meet(best, other)
            if above.get(block) != best:
                above[block] = best
                changed = True
    return above, before


def loops(code):
    """The loops with loads from global memory in none of whose own loops there are any: of each the place of its first
    instruction, and all its instructions' places."""
    if not code:
        return []
    blocks, after = blocks_of(code, successors(code))
    above, before = dominators(after)

    def dominates(a, b):
        while b != a and b != 0:
            b = above[b]
        return a == b

    bodies = collections.defaultdict(set)
    for block in above:
        for head in after[block]:
            if not dominates(head, block):
                continue
            body, todo = bodies[head], [block]
            body.add(head)
            while todo:
                of = todo.pop()
                if of not in body:
                    body.add(of)
                    todo += before[of]
    places = {head: {i for b in body for i in range(*blocks[b])} for head, body in bodies.items()}
    with_loads = [head for head in bodies if any(is_load(code[i]) for i in places[head])]
    inner = [head for head in with_loads if not any(other in bodies[head] for other in with_loads if other != head)]
    return [(blocks[head][0], places[head]) for head in sorted(inner)]


def in_flight(code, head, body):
    """The most loads that the loop has in flight at once, on the way that takes no branch inside of it."""
    follow = successors(code)
    place = head
    flying = []  # the registers of each load, in the order in which they were issued
    most = rounds = 0
    seen = set()
    while rounds < 2:
        instruction = code[place]
        written, _ = destination(instruction)
        touched = reads(instruction) | ({written} if written is not None else set())
        waits = [i for i, registers in enumerate(flying) if registers & touched]
        if waits:
            del flying[:waits[-1] + 1]
        if is_load(instruction) and written is not None:
            flying.append(set(range(written, written + width(instruction))))
            most = max(most, len(flying))
        seen.add(place)
        inside = [i for i in follow[place] if i in body]
        fresh = [i for i in inside if i not in seen]
        if head in inside and not fresh or not inside:
            rounds += 1
            place, seen = head, set()
        else:
            # Without a branch first; at the end of an inner detour, onwards.
            place = (fresh or inside)[0]
            if place in seen:
                rounds += 1
                place, seen = head, set()
    return most


Loop = collections.namedtuple("Loop", "loads in_flight")


def loads_of_loops(code):
    """For each innermost loop that loads from global memory, how many loads it has, and has in flight at once."""
    return [Loop(sum(is_load(code[i]) for i in body), in_flight(code, head, body)) for head, body in loops(code)]


# A loop with two of three loads in flight; and one that waits for its first load before it issues the second, with a
# copy of a part of it out of line, which is no loop.
EXAMPLE = """
		Function : example
        /*0000*/                   LDG.E.64 R2, desc[UR6][R4.64] ;   /* 0x0 */
        /*0010*/                   LDG.E R8, desc[UR6][R4.64+0x8] ;
        /*0020*/                   IADD3 R9, P0, R3, R9, RZ ;
        /*0030*/                   LDG.E R8, desc[UR6][R6.64] ;
        /*0040*/               @P1 BRA 0x0 ;
        /*0050*/                   BRA.DIV UR4, 0xc0 ;
        /*0060*/              @!P2 LDG.E.128 R12, desc[UR6][R12.64] ;
        /*0070*/              @!P2 MOV R30, R15 ;
        /*0080*/                   LDG.E.128.CONSTANT R16, desc[UR6][R10.64] ;
        /*0090*/                   FADD R1, R1, R19 ;
        /*00a0*/               @P1 BRA 0x50 ;
        /*00b0*/                   EXIT ;
        /*00c0*/                   SHFL.IDX PT, R15, R44, R42, R0 ;
        /*00d0*/                   BRA 0x70 ;
"""


def main():
    """Checks the example."""
    code = functions(EXAMPLE)["example"]
    assert len(code) == 14, code
    assert loads_of_loops(code) == [Loop(3, 2), Loop(2, 1)], loads_of_loops(code)
    assert reads(code[2]) == {3, 9} and destination(code[12])[0] == 15
    assert loads_of_loops(code[11:]) == []


if __name__ == "__main__":
    main()
