"""The dispatcher and its wave slots as host code: it starts groups, schedules waves and handles barriers.

It calls Python only in special cases. It is LLVM IR over the words of `context`. A group is started when every resident
one has had its turn and none has ended. So waves that wait for each other across groups all make progress, and a grid
of short groups reuses the memory of one slot.
"""

from __future__ import annotations

import re

from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.context import (
    CODE_WORD,
    ENTRY_WORD,
    GROUP_WORDS,
    STATUS_WORD,
    Exit,
    GroupWord,
    Status,
    Word,
)

# Zeroes after a group's LDS, so that wide accesses need no second check.
LDS_SPARE_BYTES = 64

_SCHEDULER = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @begin(ptr %context, i64 %slot, ptr %group) noinline {
  $load %next NEXT
  %next.after = add i64 %next, 1
  $store %next.after NEXT
  $load %own SHARE_OWN
  $load %dies SHARE_DIES
  $load %chunk SHARE_CHUNK
  %round = udiv i64 %next, %chunk
  %in.chunk = urem i64 %next, %chunk
  %chunks.before = mul i64 %round, %dies
  %chunk.number = add i64 %chunks.before, %own
  %chunk.first = mul i64 %chunk.number, %chunk
  %number = add i64 %chunk.first, %in.chunk
  $load %count.x COUNT_X
  $load %count.y COUNT_Y
  $load %count.z COUNT_Z
  %at.x = urem i64 %number, %count.x
  %rest = udiv i64 %number, %count.x
  %at.y = urem i64 %rest, %count.y
  %at.z = udiv i64 %rest, %count.y
  %left.x = sub i64 %count.x, %at.x
  %left.y = sub i64 %count.y, %at.y
  %left.z = sub i64 %count.z, %at.z
  %last.x = icmp eq i64 %left.x, 1
  %last.y = icmp eq i64 %left.y, 1
  %last.z = icmp eq i64 %left.z, 1
  %bit.x = select i1 %last.x, i64 1, i64 0
  %bit.y = select i1 %last.y, i64 2, i64 0
  %bit.z = select i1 %last.z, i64 4, i64 0
  %bit.xy = or i64 %bit.x, %bit.y
  %bit.xyz = or i64 %bit.xy, %bit.z
  $load %partial PARTIAL
  %shape = and i64 %bit.xyz, %partial
  $pointer %templates TEMPLATES
  %template.place = getelementptr ptr, ptr %templates, i64 %shape
  %template = load ptr, ptr %template.place
  %waves = load i64, ptr %template
  $put %waves LEFT
  $put 0 ARRIVED
  $put 0 SIGNALS
  $put 0 TRAP_SIGNALS
  $put %waves WAVES
  $put %number NUMBER
  $load %live LIVE
  %live.after = add i64 %live, 1
  $store %live.after LIVE
  $load %started STARTED
  %started.after = add i64 %started, %waves
  $store %started.after STARTED
  $load %lds.all LDS
  $load %lds.stride LDS_STRIDE
  %lds.offset = mul i64 %lds.stride, %slot
  %lds = add i64 %lds.all, %lds.offset
  %lds.place = inttoptr i64 %lds to ptr
  call void @llvm.memset.p0.i64(ptr align 64 %lds.place, i8 0, i64 %lds.stride, i1 false)
  $load %start.x START_X
  $load %start.y START_Y
  $load %start.z START_Z
  %x = add i64 %start.x, %at.x
  %y = add i64 %start.y, %at.y
  %z = add i64 %start.z, %at.z
  %x32 = trunc i64 %x to i32
  %y32 = trunc i64 %y to i32
  %z32 = trunc i64 %z to i32
  %z.above = shl i32 %z32, 16
  %yz = or i32 %z.above, %y32
  $load %place.x PLACE_X
  $load %place.y PLACE_Y
  $load %place.z PLACE_Z
  $load %place.yz PLACE_YZ
  $load %group.waves GROUP_WAVES
  $load %wave.bytes WAVE_BYTES
  $load %head HEAD_BYTES
  $load %scratch.all SCRATCH_BASE
  $load %scratch.bytes SCRATCH_BYTES
  $pointer %states STATES
  $pointer %ids HARDWARE_IDS
  %first = mul i64 %slot, %group.waves
  br label %more.waves
more.waves:
  %wave = phi i64 [ 0, %0 ], [ %wave.after, %make ]
  %more = icmp ult i64 %wave, %waves
  br i1 %more, label %make, label %made
make:
  %wave.slot = add i64 %first, %wave
  %state.offset = mul i64 %wave.slot, %wave.bytes
  %state = getelementptr i8, ptr %states, i64 %state.offset
  %source.offset = mul i64 %wave, %head
  %source.at = add i64 %source.offset, 64
  %source = getelementptr i8, ptr %template, i64 %source.at
  call void @llvm.memcpy.p0.p0.i64(ptr align 64 %state, ptr align 64 %source, i64 %head, i1 false)
  %at.place.x = getelementptr i8, ptr %state, i64 %place.x
  %at.place.y = getelementptr i8, ptr %state, i64 %place.y
  %at.place.z = getelementptr i8, ptr %state, i64 %place.z
  store i32 %x32, ptr %at.place.x
  store i32 %y32, ptr %at.place.y
  store i32 %z32, ptr %at.place.z
  %at.place.yz = getelementptr i8, ptr %state, i64 %place.yz
  store i32 %yz, ptr %at.place.yz
  $state %x32 i32 GROUP_X
  $state %y32 i32 GROUP_Y
  $state %z32 i32 GROUP_Z
  %ids.at = getelementptr i64, ptr %ids, i64 %wave.slot
  %ids.here = load i64, ptr %ids.at
  $state %ids.here i64 HW_ID1
  %scratch.offset = mul i64 %scratch.bytes, %wave.slot
  %scratch = add i64 %scratch.all, %scratch.offset
  $load %place.scratch PLACE_SCRATCH
  %at.place.scratch = getelementptr i8, ptr %state, i64 %place.scratch
  store i64 %scratch, ptr %at.place.scratch, align 4
  $state %lds i64 LDS_BASE_LO
  %wave.after = add i64 %wave, 1
  br label %more.waves
made:
  ret void
}

define internal void @release(ptr %context, ptr %group, ptr %first.state) noinline {
  $put 0 ARRIVED
  call void @complete(ptr %context, ptr %group, ptr %first.state, i32 0)
  ret void
}

define internal void @complete(ptr %context, ptr %group, ptr %first.state, i32 %bit) noinline {
  $get %waves WAVES
  $load %wave.bytes WAVE_BYTES
  br label %next
next:
  %wave = phi i64 [ 0, %0 ], [ %wave.after, %done ]
  %more = icmp ult i64 %wave, %waves
  br i1 %more, label %look, label %all
look:
  %offset = mul i64 %wave, %wave.bytes
  %state = getelementptr i8, ptr %first.state, i64 %offset
  %bits.place = getelementptr i32, ptr %state, i64 $COMPLETE
  %bits = load i32, ptr %bits.place
  %bits.after = or i32 %bits, %bit
  store i32 %bits.after, ptr %bits.place
  $status %status
  %waits = icmp eq i32 %status, $WAITS
  br i1 %waits, label %wake, label %done
wake:
  $setstatus $READY
  br label %done
done:
  %wave.after = add i64 %wave, 1
  br label %next
all:
  ret void
}

define internal i64 @settle(ptr %context, ptr %group, ptr %first.state, i64 %signals, i32 %bit) {
  $get %left LEFT
  %some = icmp ne i64 %signals, 0
  %every = icmp uge i64 %signals, %left
  %full = and i1 %some, %every
  br i1 %full, label %finish, label %wait
finish:
  call void @complete(ptr %context, ptr %group, ptr %first.state, i32 %bit)
  ret i64 0
wait:
  ret i64 %signals
}

define i64 @schedule(ptr %context) {
  %idle = alloca i64
  %ran = alloca i1
  %yielded = alloca i1
  store i64 0, ptr %idle
  $load %slot.start SLOT
  $load %wave.start WAVE
  $load %group.waves GROUP_WAVES
  $load %wave.bytes WAVE_BYTES
  $pointer %states STATES
  $pointer %groups GROUPS
  br label %turn
turn:
  %slot = phi i64 [ %slot.start, %0 ], [ %slot, %group.ended ], [ %slot, %again ], [ %slot.next, %move.on ]
  %wave.first = phi i64 [ %wave.start, %0 ], [ 0, %group.ended ], [ 0, %again ], [ 0, %move.on ]
  store i1 false, ptr %ran
  store i1 false, ptr %yielded
  %group.index = mul i64 %slot, $GROUP_WORDS
  %group = getelementptr i64, ptr %groups, i64 %group.index
  $get %left LEFT
  %is.free = icmp eq i64 %left, 0
  br i1 %is.free, label %free, label %occupied
free:
  $load %next NEXT
  $load %last LAST
  %none = icmp uge i64 %next, %last
  br i1 %none, label %no.more, label %start
no.more:
  $load %live LIVE
  %finished = icmp eq i64 %live, 0
  br i1 %finished, label %finish, label %advance
finish:
  ret i64 $DONE
start:
  $load %high HIGH
  %slot.above = add i64 %slot, 1
  %higher = icmp ugt i64 %slot.above, %high
  %high.after = select i1 %higher, i64 %slot.above, i64 %high
  $store %high.after HIGH
  call void @begin(ptr %context, i64 %slot, ptr %group)
  br label %occupied
occupied:
  %first.slot = mul i64 %slot, %group.waves
  %first.offset = mul i64 %first.slot, %wave.bytes
  %first.state = getelementptr i8, ptr %states, i64 %first.offset
  br label %wave.next
wave.next:
  %wave = phi i64 [ %wave.first, %occupied ], [ %wave.after, %wave.done ]
  $get %waves WAVES
  %more = icmp ult i64 %wave, %waves
  br i1 %more, label %wave.look, label %round.ended
wave.look:
  %offset = mul i64 %wave, %wave.bytes
  %state = getelementptr i8, ptr %first.state, i64 %offset
  $status %status
  %ready = icmp eq i32 %status, $READY
  br i1 %ready, label %wave.run, label %wave.done
wave.run:
  store i1 true, ptr %ran
  $load %budget BUDGET
  $load %quantum QUANTUM
  %fuel = call i64 @llvm.smin.i64(i64 %budget, i64 %quantum)
  $store %fuel FUEL
  %entry.place = getelementptr i32, ptr %state, i64 $ENTRY
  %entry32 = load i32, ptr %entry.place
  %entry = zext i32 %entry32 to i64
  %code.place = getelementptr i32, ptr %state, i64 $CODE
  %code = load ptr, ptr %code.place
  %result = call i64 %code(ptr %state, ptr %context, i64 %entry)
  $load %fuel.left FUEL
  %used = sub i64 %fuel, %fuel.left
  %budget.left = sub i64 %budget, %used
  $store %budget.left BUDGET
  %entry.new = lshr i64 %result, 8
  %entry.new32 = trunc i64 %entry.new to i32
  store i32 %entry.new32, ptr %entry.place
  %reason = and i64 %result, 255
  switch i64 %reason, label %ask [
    i64 $END, label %ended i64 $YIELD, label %yields i64 $BARRIER, label %arrives
    i64 $WAIT, label %stands i64 $SIGNAL, label %signals i64 $FIRST, label %signals
  ]
ended:
  $setstatus $ENDED
  $get %left.before LEFT
  %left.after = sub i64 %left.before, 1
  $put %left.after LEFT
  $get %signals.now SIGNALS
  %signals.left = call i64 @settle(ptr %context, ptr %group, ptr %first.state, i64 %signals.now, i32 1)
  $put %signals.left SIGNALS
  $get %trap.now TRAP_SIGNALS
  %trap.left = call i64 @settle(ptr %context, ptr %group, ptr %first.state, i64 %trap.now, i32 2)
  $put %trap.left TRAP_SIGNALS
  $get %arrived.now ARRIVED
  %some = icmp ne i64 %left.after, 0
  %all.there = icmp eq i64 %arrived.now, %left.after
  %opens = and i1 %some, %all.there
  br i1 %opens, label %open, label %after
yields:
  store i1 true, ptr %yielded
  br label %after
stands:
  $setstatus $WAITS
  br label %after
signals:
  $get %members WAVES
  %together = icmp ugt i64 %members, 1
  $get %signals.before SIGNALS
  %is.first = icmp eq i64 %signals.before, 0
  %says.first = and i1 %is.first, %together
  %asks.first = icmp eq i64 %reason, $FIRST
  br i1 %asks.first, label %tell, label %signal
tell:
  %first32 = zext i1 %says.first to i32
  %scc.place = getelementptr i32, ptr %state, i64 $SCC
  store i32 %first32, ptr %scc.place
  br label %signal
signal:
  br i1 %together, label %count, label %goes.on
count:
  %signals.more = add i64 %signals.before, 1
  %signals.after = call i64 @settle(ptr %context, ptr %group, ptr %first.state, i64 %signals.more, i32 1)
  $put %signals.after SIGNALS
  br label %goes.on
goes.on:
  %spent.now = icmp sle i64 %budget.left, 0
  br i1 %spent.now, label %pause, label %wave.run
arrives:
  $setstatus $WAITS
  $get %arrived ARRIVED
  %arrived.after = add i64 %arrived, 1
  $put %arrived.after ARRIVED
  $get %expected LEFT
  %all.here = icmp eq i64 %arrived.after, %expected
  br i1 %all.here, label %open, label %after
open:
  call void @release(ptr %context, ptr %group, ptr %first.state)
  br label %after
after:
  %spent = icmp sle i64 %budget.left, 0
  br i1 %spent, label %pause, label %wave.done
pause:
  $get %left.paused LEFT
  %ended.now = icmp eq i64 %left.paused, 0
  %freed = zext i1 %ended.now to i64
  $load %live.paused LIVE
  %live.resume = sub i64 %live.paused, %freed
  $store %live.resume LIVE
  %wave.above = add i64 %wave, 1
  %wave.resume = select i1 %ended.now, i64 0, i64 %wave.above
  $store %slot SLOT
  $store %wave.resume WAVE
  ret i64 $BUDGET
ask:
  $store %slot SLOT
  $store %wave WAVE
  ret i64 %result
wave.done:
  %wave.after = add i64 %wave, 1
  br label %wave.next
round.ended:
  %has.run = load i1, ptr %ran
  %idle.before = load i64, ptr %idle
  %idle.more = add i64 %idle.before, 1
  %idle.after = select i1 %has.run, i64 0, i64 %idle.more
  store i64 %idle.after, ptr %idle
  $get %remaining LEFT
  %over = icmp eq i64 %remaining, 0
  br i1 %over, label %group.ended, label %unfinished
group.ended:
  $load %live.before LIVE
  %live.after = sub i64 %live.before, 1
  $store %live.after LIVE
  br label %turn
unfinished:
  %has.yielded = load i1, ptr %yielded
  %not.yielded = xor i1 %has.yielded, true
  %same = and i1 %has.run, %not.yielded
  br i1 %same, label %again, label %advance
again:
  br label %turn
advance:
  $load %high.now HIGH
  $load %slots SLOTS
  $load %next.now NEXT
  $load %last.now LAST
  %idle.now = load i64, ptr %idle
  %slot.up = add i64 %slot, 1
  %below = icmp ult i64 %slot.up, %high.now
  %waiting = icmp ult i64 %next.now, %last.now
  %room = icmp ult i64 %high.now, %slots
  %grows = and i1 %waiting, %room
  %stays = or i1 %below, %grows
  %slot.next = select i1 %stays, i64 %slot.up, i64 0
  %not.growing = xor i1 %grows, true
  %long = icmp ugt i64 %idle.now, %high.now
  %stuck = and i1 %long, %not.growing
  br i1 %stuck, label %hung, label %move.on
move.on:
  br label %turn
hung:
  $store %slot.next SLOT
  $store 0 WAVE
  ret i64 $BUDGET
}
declare i64 @llvm.smin.i64(i64, i64)
"""

TRANSLATE = f"""
define internal i1 @translate(ptr %context, ptr %site, i64 %address, i1 %write) noinline cold {{
  %regions.place = getelementptr i64, ptr %context, i64 {int(Word.REGIONS)}
  %regions = load ptr, ptr %regions.place
  %writes = zext i1 %write to i64
  %page = lshr i64 %address, 12
  %hash = and i64 %page, 511
  %double = shl i64 %hash, 1
  %index = or i64 %double, %writes
  %word = shl i64 %index, 2
  %row = getelementptr i64, ptr %regions, i64 %word
  %first = load i64, ptr %row
  %size.place = getelementptr i64, ptr %row, i64 1
  %size = load i64, ptr %size.place
  %offset = sub i64 %address, %first
  %inside = icmp ult i64 %offset, %size
  br i1 %inside, label %found, label %miss
found:
  %all = load <4 x i64>, ptr %row, align 8
  store <4 x i64> %all, ptr %site, align 8
  ret i1 true
miss:
  %callback.place = getelementptr i64, ptr %context, i64 {int(Word.MISS)}
  %callback = load ptr, ptr %callback.place
  %answer = call i64 %callback(ptr %context, ptr %site, ptr %row, i64 %address, i64 %writes)
  %good = icmp ne i64 %answer, 0
  ret i1 %good
}}
"""
REGION_WORDS = 512 * 2 * 4

_MACROS = {
    "load": "{0}.place = getelementptr i64, ptr %context, i64 {word}\n{0} = load i64, ptr {0}.place",
    "pointer": "{0}.place = getelementptr i64, ptr %context, i64 {word}\n{0} = load ptr, ptr {0}.place",
    "store": "%place{n} = getelementptr i64, ptr %context, i64 {word}\nstore i64 {0}, ptr %place{n}",
    "get": "{0}.place = getelementptr i64, ptr %group, i64 {group}\n{0} = load i64, ptr {0}.place",
    "put": "%place{n} = getelementptr i64, ptr %group, i64 {group}\nstore i64 {0}, ptr %place{n}",
    "state": "%place{n} = getelementptr i32, ptr %state, i64 {state}\nstore {1} {0}, ptr %place{n}, align 4",
    "status": "{0}.place = getelementptr i32, ptr %state, i64 {status}\n{0} = load i32, ptr {0}.place",
    "setstatus": "%place{n} = getelementptr i32, ptr %state, i64 {status}\nstore i32 {0}, ptr %place{n}",
}
_NUMBERS = {
    "GROUP_WORDS": GROUP_WORDS, "ENTRY": ENTRY_WORD, "CODE": CODE_WORD, "WAITS": Status.WAITS, "READY": Status.READY,
    "ENDED": Status.ENDED, "DONE": Exit.DONE, "BUDGET": Exit.BUDGET, "END": Exit.END, "YIELD": Exit.YIELD, "BARRIER": Exit.BARRIER,
    "WAIT": Exit.WAIT, "SIGNAL": Exit.SIGNAL, "FIRST": Exit.SIGNAL_FIRST, "SCC": state.SCC, "COMPLETE": state.BARRIERS_COMPLETE,
}  # fmt: skip


def scheduler() -> str:
    """Return the module of `i64 schedule(ptr context)`.

    It runs waves until all have ended, the budget is used up, or Python must act. Lines that begin with `$` are macros
    for an access to a word of the context, of a group slot or of a wave's state.
    """
    lines = []
    for number, line in enumerate(_SCHEDULER.splitlines()):
        line = re.sub(r"\$([A-Z_]+)", lambda match: str(int(_NUMBERS[match[1]])), line)
        short = line.strip()
        if not short.startswith("$"):
            lines.append(line)
            continue
        name, *args = short[1:].split()
        last = args[-1]
        lines.append(
            _MACROS[name].format(
                *args,
                n=number,
                word=int(Word.__members__.get(last, 0)),
                group=int(GroupWord.__members__.get(last, 0)),
                state=getattr(state, last, 0),
                status=STATUS_WORD,
            )
        )
    return "\n".join(lines)
