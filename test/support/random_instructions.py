"""Random instructions of every form, with operands that their slots accept and modifiers within their ranges."""

from ringup.compiler.isa.amd import NULL, OFF, Literal, a, abs_, lit, neg, s, special, ttmp, v
from ringup.compiler.isa.amd.encoding import memory_forms as memory
from ringup.compiler.isa.amd.encoding.constants import CODE_VALUES
from ringup.compiler.isa.amd.encoding.modifiers import DPP_CONTROLS, SELECTS, UNUSED

FLOATS = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0]
BRANCHES = [0, 1, 0x1234, 0xFFFF]


class Maker:
    """Makes instructions for one processor from a seeded generator."""

    def __init__(self, machine, random):
        self.machine, self.random = machine, random
        self.limits = machine.limits

    def modifiers(self, form):
        """Return random modifiers of a form, including those that the instruction requires."""
        found = {}
        needed = {name for name, _ in form.needs}
        for name, modifier in form.modifiers.items():
            always = name in needed or name in ("dim", "dmask", "dpp8", "dpp_ctrl")
            if not always and self.random.random() < 0.6:
                continue
            value = self.value(form, name, modifier)
            if value is not None:
                found |= value
        return found

    def value(self, form, name, modifier):
        pick = self.random
        kind = modifier.kind
        if kind == "flag":
            return {name: 1}
        if kind == "vector":
            return {name: tuple(pick.randrange(2) if bit >= 0 else 0 for bit in modifier.bits)}
        if kind == "omod":
            return dict([pick.choice([("mul", 2), ("mul", 4), ("div", 2)])])
        if kind == "dim":
            many = "msaa_load" in form.name or (pick.random() < 0.2 and form.format.name != "VSAMPLE")
            return {name: pick.choice([6, 7]) if many else pick.randrange(6)}
        if name == "dmask":
            one = "gather4" in form.name or "msaa_load" in form.name
            return {name: pick.choice([1, 2, 4, 8] if one else [1, 3] if "atomic" in form.name else [1, 3, 7, 15])}
        if kind == "th":
            most = 3 if "atomic" in form.name else 7 if "store" in form.name else 6
            return {name: pick.randrange(1, min(1 << modifier.width, most + 1))}
        if kind == "dpp8":
            return {name: tuple(pick.randrange(8) for _ in range(8))}
        if kind == "dpp8_fi":
            return {name: 1}
        if kind == "dpp_ctrl":
            return self.control()
        if kind == "bitop3":
            return {name: pick.randrange(256)}
        if kind == "split_format":
            return None
        if kind.startswith("sdwa_"):
            return {name: pick.choice(UNUSED if kind == "sdwa_dst_u" else SELECTS)}
        low, high = (
            (-(1 << modifier.width - 1), 1 << modifier.width - 1) if modifier.signed else (0, 1 << modifier.width)
        )
        number = pick.randrange(low, high)
        if form.format.name in ("FLAT",) and number >= 4096:
            number &= 4095
        return {name: number}

    def control(self):
        pick = self.random
        names = [n for n, row in DPP_CONTROLS.items() if self.limits.generation in row[3]]
        name = pick.choice(["quad_perm", *names])
        if name == "quad_perm":
            return {name: tuple(pick.randrange(4) for _ in range(4))}
        _, start, count, _ = DPP_CONTROLS[name]
        return {name: pick.randrange(start, start + count) if count else 1}

    def register(self, kind, count):
        pick = self.random
        if kind in "va":
            bank, top = (v, 256) if kind == "v" else (a, 256)
            first = pick.randrange(0, top - count + 1)
            if self.limits.even_vgprs and count > 1:
                first &= ~1
            return bank.span(first, count)
        align = 1 if count == 1 else 2 if count == 2 else 4
        if kind == "s":
            return s.span(pick.randrange(0, self.limits.sgprs - count + 1) // align * align, count)
        if kind == "t" and count <= 16:
            return ttmp.span(pick.randrange(0, 16 - count + 1) // align * align, count)
        if kind == "c" and count <= 2:
            return special("vcc") if count == 2 else special(pick.choice(["vcc_lo", "vcc_hi"]))
        if kind == "x" and count <= 2:
            return special("exec") if count == 2 else special(pick.choice(["exec_lo", "exec_hi"]))
        if kind == "m" and count == 1:
            return special("m0")
        if kind == "n" and self.limits.null is not None:
            return NULL
        if kind == "k" and count <= 2:
            return special("src_scc")
        return None

    def operand(self, form, slot, count):
        """Return a random operand that a slot accepts."""
        pick = self.random
        if slot.codec == "implied":
            plain = slot.text.removesuffix("_lo")
            return (
                special(plain + "_lo" * (self.machine.wave_size == 32))
                if plain in ("vcc", "exec")
                else special(slot.text)
            )
        if slot.codec == "literal":
            top = 1 << 16 if slot.type in ("f16", "bf16") else 1 << 32
            return lit(pick.randrange(top))
        if slot.codec == "imm":
            return self.immediate(form, slot)
        if slot.codec == "attr":
            return pick.randrange(33 * 4)
        while True:
            kind = pick.choice("v" if slot.codec == "vgpr" and "v" in slot.kinds else slot.kinds)
            if kind in "if":
                value = pick.choice(FLOATS) if kind == "f" else pick.randrange(-16, 65)
                if kind == "f" and slot.type in ("i16", "u16", "b16") and slot.size == 16:
                    continue
                return self.marked(slot, value)
            if kind == "l":
                top = 1 << 16 if slot.size == 16 or slot.type in ("f16", "bf16", "i16", "u16", "b16") else 1 << 31
                value = pick.randrange(100, top)
                return self.marked(slot, value) if slot.type.startswith("b") else value
            register = self.register(kind, count)
            if register is None:
                continue
            if slot.half_bit >= 0 and kind == "v":
                register = v[register.index & 0x7F if slot.short_half else register.index]
                register = register.high if pick.random() < 0.5 else register.low
            return self.marked(slot, register)

    def marked(self, slot, operand):
        """Add a sign or an absolute value to an operand where its slot has the bits."""
        if isinstance(operand, int) and not isinstance(operand, bool):
            return operand
        if slot.abs_bit >= 0 and self.random.random() < 0.3:
            operand = abs_(operand)
        if slot.neg_bit >= 0 and self.random.random() < 0.3:
            operand = neg(operand)
        return operand

    def immediate(self, form, slot):
        pick = self.random
        if "L" in slot.kinds:
            return pick.choice(BRANCHES)
        if "D" in slot.kinds:
            return pick.randrange(12) | pick.randrange(6) << 4 | pick.randrange(12) << 7
        if "G" in slot.kinds:
            return pick.choice([1, 2, 3, 9, 128, 131, 200])
        if "U" in slot.kinds:
            return 0x2006 if form.name == "s_version" else pick.randrange(16)
        if "W" in slot.kinds and form.name == "s_waitcnt":
            return pick.randrange(1 << 16) & ~8
        if "W" in slot.kinds:
            return pick.randrange(1 << 16) & 0xFF9F
        if slot.field == "ioffset":
            return pick.randrange(-1 << 23, 1 << 23)
        if slot.field == "sdata":
            return pick.randrange(32) if "prefetch" in form.name else pick.randrange(8)
        return pick.randrange(1 << 16)

    def instruction(self, form):
        """Return (operands, modifiers) for a form."""
        modifiers = self.modifiers(form)
        name = form.format.name
        wave = self.machine.wave_size
        if name in memory.IMAGE:
            return self.image(form, modifiers)
        if name in memory.EXPORT:
            registers = [v[self.random.randrange(256)] if self.random.random() < 0.7 else OFF for _ in range(4)]
            return [self.random.choice([0, 7, 8, 12, 16, 20, 21]), *registers], modifiers
        if name in memory.BUFFER:
            placed = memory.buffer_slots(form, modifiers)
            return [self.operand(form, slot, count) if count else OFF for slot, count in placed], modifiers
        if name in memory.FLAT:
            scalar = self.random.random() < 0.5 and any(slot.field == "saddr" for slot in form.slots)
            operands = []
            for slot, count in memory.flat_slots(form, modifiers, wave, scalar=scalar):
                if slot.field == "saddr":
                    operands.append(self.register("s", slot.count) if scalar else OFF)
                elif name in memory.SCRATCH and slot.field in ("addr", "vaddr") and self.random.random() < 0.4:
                    operands.append(OFF)
                else:
                    operands.append(self.operand(form, slot, count))
            return operands, modifiers
        placed = memory.matrix_slots(form, modifiers, wave)
        operands = [self.operand(form, slot, count) for slot, count in placed]
        loads = name == "SMEM" and "offset" in form.modifiers and len(operands) == 3
        if loads and (isinstance(operands[2], int | float) or operands[2] is NULL or self.random.random() < 0.5):
            operands[2] = modifiers.pop("offset", self.random.randrange(1, 1 << 19)) or 4
        if form.name == "s_endpgm" and operands == [0]:
            operands = []
        return operands, modifiers

    def image(self, form, modifiers):
        sizes = memory.image_address(form, modifiers)
        fields = form.format.fields
        places = sum(field in fields for field in ("vaddr", "vaddr0", "vaddr1", "vaddr2", "vaddr3", "vaddr4"))
        scattered = form.format.name != "MIMG" or (self.random.random() < 0.5 and sum(sizes) > 1)
        places = 5 if form.format.name == "MIMG" else places
        if scattered:
            if len(sizes) > places:
                sizes = (*sizes[: places - 1], sum(sizes[places - 1 :]))
        else:
            sizes = (sum(sizes),)
        registers = tuple(self.register("v", size) for size in sizes)
        operands, done = [], False
        for slot in form.slots:
            if slot.field.startswith("vaddr"):
                if not done:
                    operands.append(registers if len(registers) > 1 else registers[0])
                done = True
            elif slot.field == "vdata":
                operands.append(self.register("v", memory.image_data(form, modifiers, self.limits.generation)))
            else:
                operands.append(self.register("s", slot.count))
        return operands, modifiers


__all__ = ["CODE_VALUES", "Literal", "Maker"]
